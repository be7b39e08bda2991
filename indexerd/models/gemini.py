"""`google/*`: Gemini through google-genai, with all of the SDK's automatic behaviour switched off.

Key, base URL, API version and service are always given, so that no environment variable changes
them. The SDK is imported on the first call (0.9 s, 49 MB), in a thread. Its `.parsed` is silently
None for anything unusual, its parser raises five families of exceptions, and its errors quote the
body: so we parse the raw answer ourselves.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from indexerd.entries import Prompt
from indexerd.errors import ProviderDeniedError, ProviderError, RefusedError
from indexerd.models.base import Reply, TokenCounts
from indexerd.models.http import RemoteModel, count, dig, name
from indexerd.settings import ModelLimits

BASE_URL = "https://generativelanguage.googleapis.com/"
_REFUSED = {"BLOCKLIST", "ESCALATION", "LANGUAGE", "MODEL_ARMOR", "PROHIBITED_CONTENT"}
_REFUSED |= {"RECITATION", "SAFETY", "SPII"}


class Gemini(RemoteModel):
    """One Gemini model."""

    provider = "google"

    def __init__(self, model: str, api_key: str, base_url: str, limits: ModelLimits) -> None:
        super().__init__(model, base_url or BASE_URL, {}, limits)
        self._api_key = api_key
        self._sdk: Any = None

    def _build(self) -> Any:
        from google import genai  # noqa: PLC0415 - heavy: only when a job needs it
        from google.genai import types  # noqa: PLC0415 - as above

        options = types.HttpOptions(
            base_url=self._url,
            api_version="v1beta",
            timeout=int(self._limits.timeout_seconds * 1000),
            retry_options=types.HttpRetryOptions(attempts=1),
            httpx_async_client=self._client,
        )
        return genai.Client(vertexai=False, api_key=self._api_key, http_options=options)

    def body(self, prompt: Prompt) -> dict[str, Any]:
        """Return the SDK's configuration of a request."""
        config: dict[str, Any] = {
            "system_instruction": prompt.system,
            "max_output_tokens": prompt.max_output_tokens,
            "automatic_continuation": False,
            "automatic_function_calling": {"disable": True},
            "should_return_http_response": True,
        }
        if prompt.schema is not None:
            config["response_mime_type"] = "application/json"
            config["response_json_schema"] = prompt.schema
        return config

    async def _send(self, prompt: Prompt) -> tuple[int, Mapping[str, str], bytes | str]:
        self._sdk = self._sdk or await asyncio.to_thread(self._build)
        from google.genai import errors  # noqa: PLC0415 - heavy: only when a job needs it

        try:
            answer = await self._sdk.aio.models.generate_content(
                model=self.model, contents=prompt.user, config=self.body(prompt)
            )
        except errors.APIError as bad:  # only its status and details are used, not its text
            headers = {} if bad.response is None else bad.response.headers
            return int(bad.code or 0), headers, json.dumps(bad.details)
        return 200, {}, answer.sdk_http_response.body or ""

    def read(self, answer: dict[str, Any]) -> Reply:
        blocked = dig(answer, "promptFeedback", "blockReason")
        if blocked is not None:
            raise RefusedError(f"google: the prompt was blocked ({name(blocked, 'unnamed')})")
        candidate = dig(answer, "candidates", 0)
        if not isinstance(candidate, dict):
            raise ProviderError("google: the answer has no candidate")
        parts = dig(candidate, "content", "parts")
        texts = [
            text
            for part in (parts if isinstance(parts, list) else [])
            if isinstance(text := dig(part, "text"), str) and not part.get("thought")
        ]
        reason = name(candidate.get("finishReason"), "unnamed")
        if reason in _REFUSED:
            raise RefusedError(f"google: the model declined this content ({reason})")
        if reason == "PUP_LIMITED_DISABLED":
            raise ProviderDeniedError("google: the account is limited or disabled")
        kinds = ("prompt", "candidates", "thoughts")
        prompt, reply, thought = (count(answer, "usageMetadata", f"{k}TokenCount") for k in kinds)
        output = None if reply is None and thought is None else (reply or 0) + (thought or 0)
        # Google may route a request to a successor, at its price.
        successor = answer.get("modelVersion")
        return self.reply("".join(texts), reason, successor, TokenCounts(prompt, output))
