"""`openai/*`: any server that speaks OpenAI's chat completions.

`response_format` is `json_schema`, without `strict`: Ollama (0.5 and later), llama.cpp, vLLM,
LM Studio and OpenRouter all take it, while LM Studio answers 400 to `json_object`; `strict`
would make OpenAI refuse schemas with lengths.

Surprises: the error of a body may be an object or a bare string, and may come with status 200
(OpenRouter, LM Studio). OpenAI's own newer models refuse `max_tokens` and `temperature`.
`remote` is True on loopback too: a gateway there may send the text on.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import httpx2

from indexerd.errors import ModelError, ProviderError, RefusedError
from indexerd.events import Prompt
from indexerd.models import http
from indexerd.models.base import Finish, Reply, Tokens
from indexerd.privacy.sanitize import replace_surrogates
from indexerd.settings import ModelLimits

_WHO = "openai"
_OWN_HOST = "api.openai.com"
_FINISH = {"stop": Finish.STOP, "length": Finish.LENGTH}


class OpenAICompat:
    """One model of one server. Use it in one event loop."""

    remote = True

    def __init__(self, model: str, api_key: str, base_url: str, limits: ModelLimits) -> None:
        self.key = f"openai/{model}"
        self._model = model
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._limits = limits
        self._http: httpx2.AsyncClient | None = None

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """Make one request within `timeout` seconds in total."""
        body = await http.within(_WHO, timeout, self._send(prompt))
        return _read(body, self._model)

    async def _send(self, prompt: Prompt) -> bytes:
        self._http = self._http or http.client(_WHO, self._limits)
        answer = await self._http.post(self._url, headers=self._headers, json=self._body(prompt))
        if answer.status_code == httpx2.codes.OK:
            return answer.content
        try:
            said = http.json_object(_WHO, answer.content)
        except ProviderError:  # HTML of a proxy, say: the status alone speaks
            said = None
        raise http.failure(_WHO, answer.status_code, answer.headers, said)

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [
                {"role": "system", "content": prompt.system},
                {"role": "user", "content": prompt.user},
            ],
            "stream": False,
        }
        if urlsplit(self._url).hostname == _OWN_HOST:
            body["max_completion_tokens"] = prompt.max_output_tokens
        else:
            body |= {"max_tokens": prompt.max_output_tokens, "temperature": 0.2}
        if prompt.schema is not None:
            wanted = {"name": "answer", "schema": prompt.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": wanted}
        return body


def _read(body: bytes, configured: str) -> Reply:
    """Read the body of an answer of status 200."""
    held = http.json_object(_WHO, body)
    choice = http.dig(held, "choices", 0)
    for place in (held, choice):
        if http.dig(place, "error"):
            raise _inner_failure(place)
    if not isinstance(choice, dict):
        raise ProviderError(f"{_WHO}: the answer holds no choice")
    content = http.dig(choice, "message", "content")
    text = replace_surrogates(content) if isinstance(content, str) else ""
    reason = http.name(choice.get("finish_reason"), "unnamed")
    if reason == "content_filter" or http.dig(choice, "message", "refusal"):
        raise RefusedError(f"{_WHO}: the model declined this content")
    finish = Finish.OTHER if reason == "error" else _FINISH.get(reason, Finish.OTHER)
    http.check_text(_WHO, text, reason, finish)
    tokens = (http.count(held, "usage", f"{kind}_tokens") for kind in ("prompt", "completion"))
    return Reply(text, http.name(held.get("model"), configured), finish, Tokens(*tokens))


def _inner_failure(place: Any) -> ModelError:
    """Map an error that came with status 200; its own code counts where it has one."""
    code = http.dig(place, "error", "code")
    known = type(code) is int and 400 <= code < 600  # noqa: PLR2004 - HTTP
    return http.failure(_WHO, code if known else 500, {}, place)
