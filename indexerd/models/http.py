"""The only HTTP client: no redirects, no proxies, bounded answers; and what its failures mean.

The client follows no redirect, reads no environment (proxies, netrc, certificates), retries
nothing, asks for plain bodies and stops reading at `max_response_bytes`. Statuses, headers and
error bodies become errors of `indexerd.errors`, and never put a URL, header, body, prompt or key
into one: texts are composed here, and no foreign exception stays attached to ours.

Surprises: a redirect takes the key along, and 307 the transcript too; gzip turns a capped
megabyte into a gigabyte, so encoded bodies are refused; an answer of status 200 may be an error
(OpenRouter, LM Studio) or prose about a spending limit; `Retry-After` may be anything at all.
A body longer than its Content-Length would be read as the next call's answer, so no connection
is used twice; and httpcore2 writes such rests into its log at DEBUG, so that is shut.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx2

from indexerd.errors import (
    ContextTooLargeError,
    DeadlineError,
    ModelError,
    ProviderDeniedError,
    ProviderError,
    RefusedError,
)
from indexerd.events import Prompt
from indexerd.models.base import Finish
from indexerd.settings import ModelLimits

RETRY_AFTER_MAX = 3600.0  # seconds; a longer wish is treated as this one
CONNECT_SECONDS = 10.0
CONNECTIONS_MAX = 16
_NAME_MAX = 128
_PROSE_MAX = 400  # characters; a longer reply is an answer, however odd
_TOKENS_MAX = 1_000_000_000

T = TypeVar("T")


def client(who: str, limits: ModelLimits) -> httpx2.AsyncClient:
    """Open the client of one provider; the caller closes it."""
    for library in ("httpcore2", "httpx2"):
        logging.getLogger(library).setLevel(logging.WARNING)
    return httpx2.AsyncClient(
        transport=_Capped(who, limits.max_response_bytes),
        headers={"Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(limits.timeout_seconds, connect=CONNECT_SECONDS),
        follow_redirects=False,
        trust_env=False,
    )


class _Capped(httpx2.AsyncHTTPTransport):
    """A transport that refuses redirects and encoded bodies, and reads up to a cap."""

    def __init__(self, who: str, cap: int) -> None:
        self._who = who
        self._cap = cap
        limits = httpx2.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=0)
        super().__init__(trust_env=False, retries=0, limits=limits)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request, and judge the answer by its head before reading on."""
        response = await super().handle_async_request(request)
        fault: ModelError | None = None
        if 300 <= response.status_code < 400:  # noqa: PLR2004 - the class of redirects
            fault = ProviderDeniedError(
                f"{self._who}: the server answered with a redirect, which is never followed",
                hint="check the provider's base_url, then reload the daemon",
            )
        if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
            fault = ProviderError(f"{self._who}: the answer is encoded, against our request")
        declared = response.headers.get("content-length", "")
        if declared.isdecimal() and len(declared) < 20 and int(declared) > self._cap:  # noqa: PLR2004 - 64 bits
            fault = _too_large(self._who, self._cap)
        if fault is not None:
            await response.aclose()
            raise fault
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101 - an async answer
        response.stream = _CappedStream(response.stream, self._who, self._cap)
        return response


class _CappedStream(httpx2.AsyncByteStream):
    """A body that ends in an error once it is longer than its cap."""

    def __init__(self, inner: httpx2.AsyncByteStream, who: str, cap: int) -> None:
        self._inner = inner
        self._who = who
        self._cap = cap

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = 0
        async for part in self._inner:
            seen += len(part)
            if seen > self._cap:
                raise _too_large(self._who, self._cap)
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()


def _too_large(who: str, cap: int) -> ProviderError:
    return ProviderError(f"{who}: the answer is larger than {cap} bytes (model.max_response_bytes)")


async def within(who: str, seconds: float, call: Awaitable[T]) -> T:
    """Await a call under a total deadline; whatever it raises becomes one of our errors.

    The new error is raised after the handler has ended, so that the foreign exception, which
    may hold the request or the body, does not travel along as its context.
    """
    try:
        async with asyncio.timeout(seconds):
            return await call
    except ModelError:
        raise
    except (TimeoutError, httpx2.ReadTimeout):
        fault: ModelError = DeadlineError(f"{who}: no full answer within {seconds:g} s")
    except httpx2.TransportError as bad:
        fault = ProviderError(f"{who}: the connection failed ({type(bad).__name__})")
    except Exception as bad:  # noqa: BLE001 - its text may quote the body, so it ends here
        fault = ProviderError(f"{who}: the call failed ({type(bad).__name__})")
    raise fault


def json_object(who: str, body: str | bytes) -> dict[str, Any]:
    """Parse the body of an answer; anything but a JSON object is the provider's failure."""
    try:
        held = json.loads(body)
    except (ValueError, RecursionError):
        held = None
    if not isinstance(held, dict):
        raise ProviderError(f"{who}: the answer is not a JSON object")
    return held


def dig(held: Any, *path: str | int) -> Any:
    """Follow keys and positions through untrusted JSON; None where the way ends."""
    for step in path:
        if isinstance(step, int):
            held = held[step] if isinstance(held, list) and len(held) > step else None
        else:
            held = held.get(step) if isinstance(held, dict) else None
    return held


def count(held: Any, *path: str) -> int | None:
    """Read a count of tokens: a whole number that makes sense, or None."""
    found = dig(held, *path)
    sane = isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= _TOKENS_MAX
    return found if sane else None


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:@+-]*")


def name(found: Any, default: str) -> str:
    """Take a model's name or a reason code from an answer if it looks like one."""
    good = isinstance(found, str) and len(found) <= _NAME_MAX and _NAME.fullmatch(found)
    return found if good else default


_PROSE = re.compile(
    r"\b(spend(ing)?|usage|rate|quota|credits?|billing|requests?|weekly|daily|monthly|hourly)"
    r" (limits?|cap)\b|\b(exceeded|reached|hit) (your|the) [a-z ]{0,40}\b(limits?|quota|cap)\b"
    r"|\bquota (has been |was )?exceeded\b|\bout of credits\b|\btoo many requests\b"
    r"|\binsufficient (credits?|balance|quota|funds)\b|\bpayment required\b",
    re.IGNORECASE,
)


def check_text(who: str, text: str, reason: str, finish: Finish, prompt: Prompt) -> None:
    """Raise ProviderError for an answer that says nothing, or speaks of limits.

    Of limits: short, no bracket in it, and a phrase about limits or credit, where JSON was wanted.
    """
    if finish is Finish.OTHER and (not text.strip() or reason == "error"):
        raise ProviderError(f"{who}: no text, finished by {reason}")
    short = text.strip() and len(text) <= _PROSE_MAX and "{" not in text and "[" not in text
    if prompt.schema is not None and short and _PROSE.search(text):
        raise ProviderError(f"{who}: the reply speaks of a limit instead of the session")


_TOO_LONG = re.compile(
    r"context[ _-](length|size|window)|context the overflows|token count\b.{0,40}\bexceed"
    r"|maximum number of tokens|prompt (is|was) too (long|large)|input is too (long|large)"
    r"|payload size exceeds|string_above_max_length",
    re.IGNORECASE,
)
_FILTERED = frozenset({"content_filter", "content_policy_violation", "moderation_blocked"})
_BAD_KEY = "API_KEY_INVALID"
_REGION = "FAILED_PRECONDITION"  # of Google: not served where we are, whatever is asked
_PASSING = frozenset({408, 409, 421, 425, 429})  # these 4xx may go by themselves
_THIS_REQUEST = frozenset({400, 422})  # they say nothing of other requests
_THROTTLED, _NO_MODEL, _TOO_LARGE = 429, 404, 413
_WHY = {
    400: "the request's form is not accepted",
    401: "the key is not accepted",
    402: "the account has no credit",
    403: "the key has no right to this, or the region is not served",
    404: "there is no such model or address",
}


def failure(who: str, status: int, headers: Mapping[str, str], body: Any) -> ModelError:
    """Turn an answer that is an error into ours; `body` is parsed JSON, or None."""
    if isinstance(body, list):  # Google wraps an error in a list now and then
        body = dig(body, 0)
    reason, final = _reason(body), status < 500 and status not in _PASSING  # noqa: PLR2004 - HTTP
    if final and _is_filtered(body):
        return RefusedError(f"{who}: the content was refused ({status})")
    if status == _TOO_LARGE or (status != _THROTTLED and _TOO_LONG.search(reason)):
        return ContextTooLargeError(f"{who}: the request is larger than the model takes")
    if final and status >= 400:  # noqa: PLR2004 - HTTP
        bad_key = _BAD_KEY in reason
        why = "the key is not valid" if bad_key else _WHY.get(status, "denied")
        if status in _THIS_REQUEST and not bad_key and _REGION not in reason:
            return RefusedError(f"{who}: {why} ({status})")
        return ProviderDeniedError(f"{who}: {why} ({status})", model_only=status == _NO_MODEL)
    wish = retry_after(headers, body)
    throttled = status == _THROTTLED
    return ProviderError(
        f"{who}: the server answered {status}", retry_after=wish, throttled=throttled
    )


def _reason(body: Any) -> str:
    """Gather what an error body says of itself, to be searched and never shown."""
    error = dig(body, "error")
    words = [error if isinstance(error, str) else None, dig(body, "message")]
    words += [dig(error, key) for key in ("message", "code", "type", "status")]
    words += [dig(one, "reason") for one in _details(body)]
    return " ".join(word[:2000] for word in words if isinstance(word, str))


def _details(body: Any) -> list[Any]:
    found = dig(body, "error", "details")
    return found[:20] if isinstance(found, list) else []


def _is_filtered(body: Any) -> bool:
    error = dig(body, "error")
    words = [dig(error, key) for key in ("code", "type")]
    if any(isinstance(word, str) and word in _FILTERED for word in words):
        return True
    return dig(error, "metadata", "flagged_input") is not None


def retry_after(headers: Mapping[str, str], body: Any) -> float | None:
    """Read the provider's wish in seconds, 0 to 3600: `Retry-After`, else RetryInfo, else None."""
    wish = headers.get("retry-after", "").strip()
    found = _seconds(wish)
    if found is None and (at := _date(wish)) is not None:
        found = at - (_date(headers.get("date", "")) or time.time())
    for one in _details(body):
        delay = dig(one, "retryDelay")
        if found is None and isinstance(delay, str):
            found = _seconds(delay.removesuffix("s"))
    return None if found is None else min(max(found, 0.0), RETRY_AFTER_MAX)


def _seconds(text: str) -> float | None:
    good = re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,15})?", text)
    return float(text) if good else None


def _date(text: str) -> float | None:
    """Read an HTTP date as seconds since the epoch, or None."""
    try:
        return parsedate_to_datetime(text[:64]).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
