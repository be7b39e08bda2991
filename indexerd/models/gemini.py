"""`google/*`: Gemini through google-genai, with all of the SDK's automatic behaviour switched off.

Key, base URL, API version and service are always given, so no environment variable changes them.
The SDK is imported on the first call (0.9 s, 49 MB), in a thread. Its `.parsed` is silently None
for anything odd, its parser raises five families of exceptions, and its errors quote the body: so
we read the raw answer ourselves.
"""

from __future__ import annotations

import asyncio
from typing import Any

from indexerd.errors import ProviderDeniedError, ProviderError, RefusedError
from indexerd.events import Prompt
from indexerd.models import http
from indexerd.models.base import Finish, Reply, Tokens
from indexerd.privacy.sanitize import replace_surrogates
from indexerd.settings import ModelLimits

BASE_URL = "https://generativelanguage.googleapis.com/"
API_VERSION = "v1beta"
_WHO = "google"

# CONTINUATION: cut by the limit of one request; it is never followed.
_FINISH = {"STOP": Finish.STOP, "MAX_TOKENS": Finish.LENGTH, "CONTINUATION": Finish.LENGTH}
_REFUSED = {"BLOCKLIST", "ESCALATION", "LANGUAGE", "MODEL_ARMOR", "PROHIBITED_CONTENT"}
_REFUSED |= {"RECITATION", "SAFETY", "SPII"}


class Gemini:
    """One Gemini model behind one client, for one event loop."""

    remote = True

    def __init__(self, model: str, api_key: str, base_url: str, limits: ModelLimits) -> None:
        self.key = f"google/{model}"
        self._model = model
        self._api_key = api_key
        self._base_url = base_url or BASE_URL
        self._limits = limits
        self._sdk: Any = None

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """Make one request within `timeout` seconds in total, the SDK's import included."""
        body = await http.within(_WHO, timeout, self._send(prompt))
        return _read(body, self._model)

    async def _send(self, prompt: Prompt) -> str:
        """Send one request; return the body of an answer of status 200."""
        self._sdk = self._sdk or await asyncio.to_thread(self._build)
        from google.genai import errors  # noqa: PLC0415 - heavy: only when a job needs it

        try:
            answer = await self._sdk.aio.models.generate_content(
                model=self._model, contents=prompt.user, config=_config(prompt)
            )
        except errors.APIError as bad:  # read by its status and details; its text is not
            headers = {} if bad.response is None else bad.response.headers
            fault = http.failure(_WHO, int(bad.code or 0), headers, bad.details)
        else:
            return answer.sdk_http_response.body or ""
        raise fault  # outside the handler: the SDK's error holds the body

    def _build(self) -> Any:
        from google import genai  # noqa: PLC0415 - heavy: only when a job needs it
        from google.genai import types  # noqa: PLC0415 - as above

        options = types.HttpOptions(
            base_url=self._base_url,
            api_version=API_VERSION,
            timeout=int(self._limits.timeout_seconds * 1000),
            retry_options=types.HttpRetryOptions(attempts=1),
            httpx_async_client=http.client(_WHO, self._limits),
        )
        return genai.Client(vertexai=False, api_key=self._api_key, http_options=options)


def _config(prompt: Prompt) -> dict[str, Any]:
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


def _read(body: str, configured: str) -> Reply:
    """Read an answer of status 200."""
    held = http.json_object(_WHO, body)
    blocked = http.dig(held, "promptFeedback", "blockReason")
    if blocked is not None:
        raise RefusedError(f"{_WHO}: the prompt was blocked ({http.name(blocked, 'unnamed')})")
    candidate = http.dig(held, "candidates", 0)
    if not isinstance(candidate, dict):
        raise ProviderError(f"{_WHO}: the answer holds no candidate")
    parts = http.dig(candidate, "content", "parts")
    texts = [
        part["text"]
        for part in (parts if isinstance(parts, list) else [])
        if isinstance(part, dict) and isinstance(part.get("text"), str) and not part.get("thought")
    ]
    text = replace_surrogates("".join(texts))
    reason = http.name(candidate.get("finishReason"), "unnamed")
    if reason in _REFUSED:
        raise RefusedError(f"{_WHO}: the model declined this content ({reason})")
    if reason == "PUP_LIMITED_DISABLED":
        raise ProviderDeniedError(f"{_WHO}: the account is limited or disabled")
    finish = _FINISH.get(reason, Finish.OTHER)
    http.check_text(_WHO, text, reason, finish)
    given = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
    asked, spoken, thought = (http.count(held, "usageMetadata", one) for one in given)
    silent = spoken is None and thought is None
    tokens = Tokens(asked, None if silent else (spoken or 0) + (thought or 0))
    # Google may route a request to a successor, at its price.
    answered = http.name(held.get("modelVersion"), configured).removeprefix("models/")
    return Reply(text, answered, finish, tokens)
