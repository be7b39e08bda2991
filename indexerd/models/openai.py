"""`openai/*`: any server that speaks OpenAI's chat completions.

Pitfalls: LM Studio answers 400 to the format `json_object`, and OpenAI refuses `strict` schemas
with lengths, so we use `json_schema` without `strict`. An error may be an object or a bare string,
and may have status 200 (OpenRouter, LM Studio). OpenAI's own newer models refuse `max_tokens` and
`temperature`. A gateway on loopback may forward the text, so `remote` is always True.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from indexerd.entries import Prompt
from indexerd.errors import ProviderError, RefusedError
from indexerd.models.base import Reply, TokenCounts
from indexerd.models.http import RemoteModel, count, dig, failure, name
from indexerd.settings import ModelLimits


class OpenAICompat(RemoteModel):
    """A model of an OpenAI-compatible server."""

    provider = "openai"

    def __init__(self, model: str, api_key: str, base_url: str, limits: ModelLimits) -> None:
        self._own = urlsplit(base_url).hostname == "api.openai.com"
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        super().__init__(model, base_url.rstrip("/") + "/chat/completions", headers, limits)

    def body(self, prompt: Prompt) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [
                {"role": "system", "content": prompt.system},
                {"role": "user", "content": prompt.user},
            ],
            "stream": False,
        }
        if self._own:
            body["max_completion_tokens"] = prompt.max_output_tokens
        else:
            body |= {"max_tokens": prompt.max_output_tokens, "temperature": 0.2}
        if prompt.schema is not None:
            wanted = {"name": "answer", "schema": prompt.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": wanted}
        return body

    def read(self, answer: dict[str, Any]) -> Reply:
        choice = dig(answer, "choices", 0)
        for place in (answer, choice):
            if dig(place, "error"):
                code = dig(place, "error", "code")
                known = type(code) is int and 400 <= code < 600  # noqa: PLR2004 - HTTP
                raise failure("openai", code if known else 500, {}, place)
        if not isinstance(choice, dict):
            raise ProviderError("openai: the answer has no choice")
        content = dig(choice, "message", "content")
        reason = name(choice.get("finish_reason"), "unnamed")
        if reason == "content_filter" or dig(choice, "message", "refusal"):
            raise RefusedError("openai: the model declined this content")
        tokens = (count(answer, "usage", f"{kind}_tokens") for kind in ("prompt", "completion"))
        text = content if isinstance(content, str) else ""
        return self.reply(text, reason, answer.get("model"), TokenCounts(*tokens))
