"""`google/*`: Gemini's REST API, `generateContent`."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from indexerd.errors import ProviderDeniedError, ProviderError, RefusedError
from indexerd.events import Prompt
from indexerd.models.base import Reply, Tokens
from indexerd.models.http import RemoteModel, count, dig, name
from indexerd.settings import ModelLimits

BASE_URL = "https://generativelanguage.googleapis.com"
_REFUSED = {"BLOCKLIST", "ESCALATION", "LANGUAGE", "MODEL_ARMOR", "PROHIBITED_CONTENT"}
_REFUSED |= {"RECITATION", "SAFETY", "SPII"}


class Gemini(RemoteModel):
    """One Gemini model."""

    provider = "google"

    def __init__(self, model: str, api_key: str, base_url: str, limits: ModelLimits) -> None:
        base = (base_url or BASE_URL).rstrip("/")
        url = f"{base}/v1beta/models/{quote(model)}:generateContent"
        super().__init__(model, url, {"x-goog-api-key": api_key}, limits)

    def body(self, prompt: Prompt) -> dict[str, Any]:
        config: dict[str, Any] = {"maxOutputTokens": prompt.max_output_tokens}
        if prompt.schema is not None:
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = prompt.schema
        return {
            "systemInstruction": {"parts": [{"text": prompt.system}]},
            "contents": [{"role": "user", "parts": [{"text": prompt.user}]}],
            "generationConfig": config,
        }

    def read(self, answer: dict[str, Any]) -> Reply:
        blocked = dig(answer, "promptFeedback", "blockReason")
        if blocked is not None:
            raise RefusedError(f"google: the prompt was blocked ({name(blocked, 'unnamed')})")
        candidate = dig(answer, "candidates", 0)
        if not isinstance(candidate, dict):
            raise ProviderError("google: the answer holds no candidate")
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
        given, said, thought = (count(answer, "usageMetadata", f"{k}TokenCount") for k in kinds)
        output = None if said is None and thought is None else (said or 0) + (thought or 0)
        # Google may route a request to a successor, at its price.
        successor = answer.get("modelVersion")
        return self.reply("".join(texts), reason, successor, Tokens(given, output))
