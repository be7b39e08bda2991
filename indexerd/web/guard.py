"""The door of the web view: who may ask, from where, and what every answer carries.

In: any request. Out: the app's answer with the headers of security, or a refusal with the same.

- The `Host` is one of ours, whoever asks: a name that was made to lead to this machine is none.
- A browser has the cookie that a one-time token gave it. Without: `/hello`, which says nothing
  that is not public, and the assets, which come with the program and dress the refusal itself.
- What changes anything comes from our own pages, as JSON, and is small.
- Requests that another page set off are refused, but for following a link to us.
- Who listened on this port before us may have left things in the browser: whoever is let in has
  caches, storage and service workers of this address cleared.

What surprised us: cookies know no ports, so its name and its MAC do. And a strict cookie is not
sent where a page of another site led here (a link in an exported page, a terminal in a browser);
the refusal then has the browser load the address once more, as from our own page: `Refresh`.
A pure ASGI layer: what stands between a stream and its reader must not hold it up. It is the
innermost place that sees each error, so that the answer to an unforeseen one carries the headers
too. Nothing here is logged; `on_error` is given what was not foreseen, never an address.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_plus

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from indexerd.errors import AccessError, IndexerdError, NotFoundError, UsageError
from indexerd.web import token as web_token
from indexerd.web.problems import problem

BODY_MAX: Final = 256 * 1024  # bytes
BODY_SECONDS = 10.0  # for a whole body to arrive
TARGET_MAX = 8 * 1024  # bytes of path and query
HEADERS_MAX = 32 * 1024
USED_MAX = 1000  # tokens used within their lifetime; more are refused
CLEARED = '"cache", "storage"'  # not "cookies": those of every port of the host would go

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_NOT_ALLOWED = ("camera", "display-capture", "geolocation", "microphone", "payment", "usb")
_HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": ", ".join(
        ("clipboard-write=(self)", "clipboard-read=()", *(f"{one}=()" for one in _NOT_ALLOWED))
    ),
}
_LOOKS = frozenset({"GET", "HEAD"})
_METHODS = _LOOKS | {"POST"}
_OURS = frozenset({"", "none", "same-origin"})  # Sec-Fetch-Site; programs send none
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ERRORS: Final[dict[int, type[IndexerdError]]] = {403: AccessError, 404: NotFoundError}
_AGAIN = "run `indexerd web` again, and follow the address that it gives"


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a request goes no further."""

    status: int
    message: str
    hint: str = ""


@dataclass(slots=True)
class Guard:
    """One server's key and address, and the tokens it has seen.

    `origin` is its own address, `hosts` every `Host` by which it may be called, `boot` the key of
    this start. `kept`: cookies outlive the browser; not where each start has another port, and so
    another cookie, of which a browser would send more and more to everything on this machine.
    `on_admitted` is told a token that was used.
    """

    origin: str
    hosts: frozenset[str]
    port: int
    boot: bytes = field(repr=False)
    kept: bool = False
    now: Callable[[], float] = time.time
    on_error: Callable[[BaseException], None] = lambda _: None
    on_admitted: Callable[[str], None] = lambda _: None
    _used: dict[str, int] = field(default_factory=dict, repr=False)

    @property
    def cookie_name(self) -> str:
        """The cookie's name; another one for each port."""
        return f"indexerd-{self.port}"

    def around(self, app: ASGIApp) -> ASGIApp:
        """The app behind this door: for Starlette's `Middleware`."""
        return _Door(self, app)

    def proof(self, challenge: str) -> str | None:
        """The answer to a challenge; None for what is none."""
        return web_token.make_proof(self.boot, challenge, self.origin)

    def knows(self, headers: Headers) -> bool:
        """Whether a request has a good cookie."""
        now = self.now()
        pairs = (
            one.partition("=") for text in headers.getlist("cookie") for one in text.split(";")
        )
        return any(
            name.strip() == self.cookie_name
            and web_token.good_cookie(value.strip(), self.boot, self.port, now)
            for name, _, value in pairs
        )

    def admits(self, token: str) -> bool:
        """Whether a token is good, which it is once."""
        now = self.now()
        found = web_token.nonce_of(token, self.boot, self.origin, now)
        if found is None:
            return False
        for nonce in [one for one, until in self._used.items() if until <= now]:
            del self._used[nonce]
        nonce, until = found
        if nonce in self._used or len(self._used) >= USED_MAX:
            return False
        self._used[nonce] = until
        self.on_admitted(token)
        return True

    def cookie(self) -> str:
        """A `Set-Cookie` of a new cookie."""
        value = web_token.make_cookie(self.boot, self.port, self.now())
        age = f" Max-Age={web_token.COOKIE_SECONDS};" if self.kept else ""
        return f"{self.cookie_name}={value}; Path=/;{age} HttpOnly; SameSite=Strict"


class _Door:
    """The ASGI layer."""

    def __init__(self, guard: Guard, app: ASGIApp) -> None:
        self._guard = guard
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no WebSockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        begun = False

        async def dressed(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                _dress(scope, message)
            await send(message)

        try:
            await self._answer(scope, receive, dressed)
        except ClientDisconnect:  # nobody is left to answer
            return
        except Exception as error:
            self._guard.on_error(error)
            if begun:  # half an answer: the connection's end says so
                raise
            await problem(Request(scope), error)(scope, receive, dressed)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        answer = self._stopped(request) or self._identified(request)
        if answer is None and request.method not in _LOOKS:
            body = await _body(request, receive)
            if isinstance(body, _Refusal):
                answer = _refused(request, body)
            else:
                receive = _replayed(body, receive)
        await (answer or self._app)(scope, receive, send)

    def _stopped(self, request: Request) -> Response | None:
        """Refuse what nobody of ours would ask."""
        found = _too_large(request.scope) or self._foreign(request)
        if found is None and request.method not in _LOOKS:
            found = _meddling(request)
        return _refused(request, found) if found else None

    def _foreign(self, request: Request) -> _Refusal | None:
        headers = request.headers
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._guard.hosts:
            return _Refusal(403, "this address is not one of indexerd's", _AGAIN)
        if not request.scope["path"].startswith("/"):
            return _Refusal(400, "this is not an address of indexerd")
        if _CONTROL.search(request.scope["path"]):  # routes would overlook a line's end
            return _Refusal(404, "there is no such page")
        if request.method not in _METHODS:
            return _Refusal(405, "this is not something that can be done here")
        followed = (
            request.method in _LOOKS
            and headers.get("sec-fetch-mode") == "navigate"
            and headers.get("sec-fetch-dest") == "document"
        )
        if _elsewhere(request) and not followed:
            return _Refusal(403, "another page asked for this")
        return None

    def _identified(self, request: Request) -> Response | None:
        """Turn a token into a cookie, and whoever has neither away."""
        known = self._guard.knows(request.headers)
        query, tokens = _parted(request.scope["query_string"])
        if tokens and request.method == "GET":
            return self._admitted(request, query, tokens, known=known)
        path: str = request.scope["path"]
        public = path == "/hello" or path.startswith("/static/")
        if known or (public and request.method in _LOOKS):
            return None
        answer = _refused(request, _Refusal(403, "this browser is not known here", _AGAIN))
        if _elsewhere(request):
            answer.headers["Refresh"] = f"0; url={_address(request, query)}"
        return answer

    def _admitted(
        self, request: Request, query: str, tokens: list[str], *, known: bool
    ) -> Response:
        """On to the address without its token; a stale one is no harm to who is known."""
        fresh = len(tokens) == 1 and self._guard.admits(tokens[0])
        if not fresh and not known:
            return _refused(request, _Refusal(403, "this address has been used, or is old", _AGAIN))
        answer = RedirectResponse(_address(request, query), 303)
        if fresh:
            answer.headers["Set-Cookie"] = self._guard.cookie()
            answer.headers["Clear-Site-Data"] = CLEARED
        return answer


def _elsewhere(request: Request) -> bool:
    """Whether a page that is not ours set this off, as far as the browser says."""
    return request.headers.get("sec-fetch-site", "") not in _OURS


def _meddling(request: Request) -> _Refusal | None:
    """Why something that changes things is not from one of our pages."""
    headers = request.headers
    if headers.getlist("origin") != [f"http://{headers['host'].lower()}"]:
        return _Refusal(403, "this did not come from a page of indexerd")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return _Refusal(415, "what is sent here is JSON")
    return None


def _too_large(scope: Scope) -> _Refusal | None:
    raw: bytes = scope.get("raw_path") or b""
    if len(raw) + len(scope["query_string"]) > TARGET_MAX:
        return _Refusal(414, "the address is too long")
    if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADERS_MAX:
        return _Refusal(431, "the headers are too large")
    return None


def _refused(request: Request, why: _Refusal) -> Response:
    kind = _ERRORS.get(why.status, UsageError)
    return problem(request, kind(why.message, hint=why.hint), status=why.status)


def _parted(query: bytes) -> tuple[str, list[str]]:
    """A query without its tokens, otherwise as it was, and the tokens."""
    parts = query.decode("latin-1").split("&")
    tokens = [one for one in parts if unquote_plus(one.partition("=")[0]) == "token"]
    kept = "&".join(one for one in parts if one not in tokens)
    return kept, [unquote_plus(one.partition("=")[2]) for one in tokens]


def _address(request: Request, query: str) -> str:
    """The whole address with this query: a path alone could begin with two slashes, a host."""
    raw: bytes = request.scope.get("raw_path") or b"/"
    address = f"http://{request.headers['host']}{raw.decode('latin-1')}"
    return f"{address}?{query}" if query else address


async def _body(request: Request, receive: Receive) -> bytes | _Refusal:
    """The whole body, which is small."""
    too_large = _Refusal(413, f"at most {BODY_MAX} bytes can be sent")
    told = request.headers.get("content-length", "")
    if told.isdecimal() and int(told[:20]) > BODY_MAX:
        return too_large
    held = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return _Refusal(400, "the connection ended")
                held += message.get("body", b"")
                if len(held) > BODY_MAX:
                    return too_large
                if not message.get("more_body", False):
                    return bytes(held)
    except TimeoutError:
        return _Refusal(408, "it took too long to arrive")


def _replayed(body: bytes, receive: Receive) -> Receive:
    told = False

    async def replay() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _dress(scope: Scope, message: Message) -> None:
    """Give an answer the headers that every answer has."""
    headers = MutableHeaders(scope=message)
    for name, value in _HEADERS.items():
        headers[name] = value
    if not (scope["path"].startswith("/static/") and "Cache-Control" in headers):
        headers["Cache-Control"] = "no-store"
