"""`openai/*`: any server that speaks OpenAI's chat completions.

Surprises: LM Studio answers 400 to the format `json_object`, and OpenAI refuses `strict` schemas
with lengths, so it is `json_schema` without `strict`. An error may be an object or a bare string,
and may come with status 200 (OpenRouter, LM Studio). OpenAI's own newer models refuse `max_tokens`
and `temperature`. A gateway on loopback may send the text on, so `remote` is always True.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import httpx2

from indexerd.errors import ProviderError, RefusedError
from indexerd.events import Prompt
from indexerd.models import http
from indexerd.models.base import Finish, Reply, Tokens
from indexerd.privacy.sanitize import replace_surrogates
from indexerd.settings import ModelLimits

_WHO = "openai"
_OWN_HOST = "api.openai.com"
_FINISH = {"stop": Finish.STOP, "length": Finish.LENGTH}


class OpenAICompat:
    """One model of one server, for one event loop."""

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
        except ProviderError:  # a proxy's HTML, say: the status alone counts
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
    """Read an answer of status 200."""
    held = http.json_object(_WHO, body)
    choice = http.dig(held, "choices", 0)
    for place in (held, choice):
        if http.dig(place, "error"):
            code = http.dig(place, "error", "code")
            known = type(code) is int and 400 <= code < 600  # noqa: PLR2004 - HTTP
            raise http.failure(_WHO, code if known else 500, {}, place)
    if not isinstance(choice, dict):
        raise ProviderError(f"{_WHO}: the answer holds no choice")
    content = http.dig(choice, "message", "content")
    text = replace_surrogates(content) if isinstance(content, str) else ""
    reason = http.name(choice.get("finish_reason"), "unnamed")
    if reason == "content_filter" or http.dig(choice, "message", "refusal"):
        raise RefusedError(f"{_WHO}: the model declined this content")
    finish = _FINISH.get(reason, Finish.OTHER)
    http.check_text(_WHO, text, reason, finish)
    tokens = (http.count(held, "usage", f"{kind}_tokens") for kind in ("prompt", "completion"))
    return Reply(text, http.name(held.get("model"), configured), finish, Tokens(*tokens))
