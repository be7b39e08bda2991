"""Call models over HTTP, without redirects and proxies, and interpret failed answers.

Failures become errors of `indexerd.errors` whose texts have no URL, header, body, prompt or key.

Pitfalls: a redirect forwards the key, and 307 the transcript too. gzip turns a capped megabyte into
a gigabyte, so encoded bodies are refused. A body longer than its Content-Length would be read as
the next call's answer, so no connection is reused; httpcore2 logs the excess at DEBUG.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Mapping
from contextlib import aclosing, suppress
from typing import Any

import httpx2

from indexerd.entries import Prompt
from indexerd.errors import (
    ContextTooLargeError,
    DeadlineError,
    ModelError,
    ProviderDeniedError,
    ProviderError,
    RefusedError,
)
from indexerd.models.base import Reply, TokenCounts
from indexerd.privacy.sanitize import replace_surrogates
from indexerd.settings import ModelLimits

RETRY_AFTER_MAX = 3600.0  # seconds
CONNECT_SECONDS = 10.0
# CONTINUATION: cut at the limit of one request; we never continue it.
_CUT = ("length", "MAX_TOKENS", "CONTINUATION")


class _Transport(httpx2.AsyncHTTPTransport):
    """Refuses encoded bodies, and reads others up to a cap in bytes."""

    def __init__(self, who: str, cap: int) -> None:
        super().__init__(limits=httpx2.Limits(max_keepalive_connections=0), trust_env=False)
        self._who, self._cap = who, cap

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response, body = await super().handle_async_request(request), bytearray()
        async with aclosing(response):
            if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
                raise ProviderError(
                    f"{self._who}: the answer is compressed, although we asked for plain text"
                )
            async for part in response.aiter_raw():
                body += part
                if len(body) > self._cap:
                    limit = f"{self._cap} bytes (model.max_response_bytes)"
                    raise ProviderError(f"{self._who}: the answer is larger than {limit}")
        return httpx2.Response(response.status_code, headers=response.headers, content=bytes(body))


class RemoteModel:
    """A model at a URL, for one event loop. Subclasses make requests and read answers."""

    remote = True
    provider: str

    def __init__(self, model: str, url: str, headers: dict[str, str], limits: ModelLimits) -> None:
        self.key = f"{self.provider}/{model}"
        self.model, self._url, self._limits = model, url, limits
        for library in ("httpcore2", "httpx2"):
            logging.getLogger(library).setLevel(logging.WARNING)
        self._client = httpx2.AsyncClient(
            transport=_Transport(self.provider, limits.max_response_bytes),
            headers={**headers, "Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(limits.timeout_seconds, connect=CONNECT_SECONDS),
            follow_redirects=False,
            trust_env=False,
        )

    def body(self, prompt: Prompt) -> dict[str, Any]:
        """Return the JSON of a request."""
        raise NotImplementedError

    def read(self, answer: dict[str, Any]) -> Reply:
        """Read an answer of status 200."""
        raise NotImplementedError

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """Make one request within `timeout` seconds in total.

        Our error is raised outside the handler of another, whose text might show the body.
        """
        fault: ModelError
        try:
            async with asyncio.timeout(timeout):
                status, headers, body = await self._send(prompt)
        except ModelError:
            raise
        except (TimeoutError, httpx2.ReadTimeout):
            fault = DeadlineError(f"{self.provider}: no full answer within {timeout:g} s")
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            fault = ProviderError(f"{self.provider}: its server cannot be reached")
        except Exception as bad:  # noqa: BLE001 - its text may quote the body
            fault = ProviderError(f"{self.provider}: the call failed ({type(bad).__name__})")
        else:
            answer = None
            with suppress(ValueError, RecursionError):
                answer = json.loads(body)
            if status != httpx2.codes.OK:
                raise failure(self.provider, status, headers, answer)
            if not isinstance(answer, dict):
                raise ProviderError(f"{self.provider}: the answer is not a JSON object")
            return self.read(answer)
        raise fault

    async def _send(self, prompt: Prompt) -> tuple[int, Mapping[str, str], bytes | str]:
        """Send one request; return the status, the headers and the body of the answer."""
        response = await self._client.post(self._url, json=self.body(prompt))
        return response.status_code, response.headers, response.content

    def reply(self, text: str, reason: str, model: Any, tokens: TokenCounts) -> Reply:
        """Make a reply; ProviderError if it has no text and did not end normally."""
        ended = reason in ("STOP", "stop", *_CUT)
        if not ended and (not text.strip() or reason == "error"):
            raise ProviderError(f"{self.provider}: no text, finished by {reason}")
        answered = name(model, self.model).removeprefix("models/")
        return Reply(replace_surrogates(text), answered, reason in _CUT, tokens)


def dig(value: Any, *path: str | int) -> Any:
    """Follow keys and positions through untrusted JSON; None if there is nothing."""
    for step in path:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and len(value) > step else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def count(value: Any, *path: str) -> int | None:
    """Read a plausible count of tokens, or None."""
    number = dig(value, *path)
    return number if type(number) is int and 0 <= number <= 10**9 else None


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:@+-]{0,127}")


def name(value: Any, default: str) -> str:
    """Return a model's name or a reason code if it looks like one."""
    return value if isinstance(value, str) and _NAME.fullmatch(value) else default


_TOO_LONG = re.compile(
    r"context[ _-](length|size|window)|context the overflows|token count\b.{0,40}\bexceed"
    r"|maximum number of tokens|prompt (is|was) too (long|large)|input is too (long|large)"
    r"|payload size exceeds|string_above_max_length",
    re.IGNORECASE,
)
_OF_US = re.compile("API_KEY_INVALID|FAILED_PRECONDITION")  # Google's 400 for a key or a region
_PASSING = frozenset({408, 409, 421, 425, 429})  # temporary 4xx
_THIS_REQUEST = frozenset({400, 422})  # other requests may succeed
_THROTTLED, _NO_MODEL, _TOO_LARGE = 429, 404, 413


def failure(who: str, status: int, headers: Mapping[str, str], body: Any) -> ModelError:
    """Turn an error response into one of our errors; `body` is parsed JSON or None."""
    if isinstance(body, list):  # Google sometimes wraps an error in a list
        body = dig(body, 0)
    message = f"{who}: the server answered {status}"
    flagged = dig(body, "error", "metadata", "flagged_input") is not None  # this quotes the prompt
    reason = "" if flagged else json.dumps(body)[:20_000]
    if 300 <= status < 400:  # noqa: PLR2004 - the class of redirects
        hint = "check the provider's base_url, then reload the daemon"
        return ProviderDeniedError(f"{message}, a redirect, which is never followed", hint=hint)
    if status == _TOO_LARGE or (status != _THROTTLED and _TOO_LONG.search(reason)):
        return ContextTooLargeError(f"{who}: the request is too long for the model")
    if 400 <= status < 500 and status not in _PASSING:  # noqa: PLR2004 - HTTP
        if flagged or (status in _THIS_REQUEST and not _OF_US.search(reason)):
            return RefusedError(f"{message}: it declines this request")
        return ProviderDeniedError(message, model_only=status == _NO_MODEL)
    wish = _retry_after(headers, body)
    return ProviderError(message, retry_after=wish, throttled=status == _THROTTLED)


_SECONDS = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?s?")


def _retry_after(headers: Mapping[str, str], body: Any) -> float | None:
    """Read `Retry-After` or Google's RetryInfo, as 0 to 3600 seconds; None if neither exists."""
    details = dig(body, "error", "details")
    infos = details[:20] if isinstance(details, list) else []
    for wish in [headers.get("retry-after"), *(dig(info, "retryDelay") for info in infos)]:
        if isinstance(wish, str) and _SECONDS.fullmatch(wish):
            return min(float(wish.removesuffix("s")), RETRY_AFTER_MAX)
    return None
