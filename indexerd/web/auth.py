"""Who may ask the web view: one-time tokens, the cookie, and what every request and answer needs.

A link has a token that works once, within five minutes, and with the one server that it was made
for: its hash is the name of an empty file in the state directory, which nobody else can write, and
using it removes the file. `web-open.html` (0600) leads a browser to a link, which so is in no
process's arguments, where every user of the machine could read it; it goes with its token. The
token is exchanged for a cookie, which ends with the server. Requests by another host's name are
refused, and so is what another site's page sends, but for a link that is followed; what changes
anything must come from a page of ours, as JSON.

Cookies know no ports, so the cookie's name does. A strict cookie is not sent where a page of
another site led here (a link in an exported page, a file in a browser): the refusal then has the
browser load the address once more, as from our own page (`Refresh`). Another user's program may
have had this port before us: whoever is let in has what a browser kept of it cleared.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from html import escape
from pathlib import Path
from urllib.parse import unquote_plus, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from indexerd.disk import write_atomically
from indexerd.errors import AccessError, UsageError
from indexerd.web.pages import problem, render

TOKEN_SECONDS = 300
COOKIE_SECONDS = 30 * 86_400  # at most, should one server live so long
OPEN_PAGE = "web-open.html"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
_AGAIN = "run `indexerd web` again, and follow the address that it gives"


def login_link(state_dir: Path, url: str, path: str = "/") -> str:
    """An address of the server at `url` that lets a browser in, once and soon.

    `path` may have a query. Tokens that nobody used in time are forgotten.
    """
    for old in state_dir.glob("web-token-*"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > TOKEN_SECONDS:
                old.unlink()
    token = secrets.token_urlsafe(32)
    _token_file(state_dir, url, token).touch(mode=0o600, exist_ok=False)
    return f"{url}{path}{'&' if '?' in path else '?'}token={token}"


def redeem_token(state_dir: Path, url: str, token: str) -> bool:
    """Whether a token is good, which it is once."""
    path = _token_file(state_dir, url, token)
    try:
        issued = path.stat().st_mtime
        path.unlink()
    except OSError:
        return False
    drop_page(state_dir, token)
    return time.time() - issued <= TOKEN_SECONDS


def _token_file(state_dir: Path, url: str, token: str) -> Path:
    digest = sha256(f"{url} {token}".encode("utf-8", "replace")).hexdigest()
    return state_dir / f"web-token-{digest}"


def open_page(state_dir: Path, address: str) -> Path:
    """Write the page that leads a browser to an address."""
    path = state_dir / OPEN_PAGE
    write_atomically(path, bytes(render("open.html", address=address).body))
    return path


def drop_page(state_dir: Path, words: str) -> None:
    """Remove that page, if these words are in its address: another server's stays."""
    path = state_dir / OPEN_PAGE
    with suppress(OSError, ValueError):
        if escape(words) in path.read_text():
            path.unlink()


class Auth:
    """The middleware of one server, and its cookie.

    `keep`: the cookie outlives the browser; not where each start has another port, and so another
    cookie, of which a browser would send more and more to everything on this machine.
    `on_error` gets what no page foresaw.
    """

    def __init__(
        self,
        url: str,
        state_dir: Path,
        *,
        keep: bool = False,
        on_error: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        parts = urlsplit(url)
        self._url, self._state_dir = url, state_dir
        self._hosts = {parts.netloc}
        if parts.hostname in {"127.0.0.1", "::1"}:  # what `localhost` may lead to
            self._hosts.add(f"localhost:{parts.port}")
        self._hosts |= {one.removesuffix(":80") for one in self._hosts}  # browsers leave it away
        self._name, self._cookie = f"indexerd-{parts.port}", secrets.token_urlsafe(32)
        self._max_age = f" Max-Age={COOKIE_SECONDS};" if keep else ""
        self._on_error = on_error

    def protect(self, app: ASGIApp) -> ASGIApp:
        """The app behind these checks: for Starlette's `Middleware`."""

        async def protected(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            begun = False

            async def with_headers(message: Message) -> None:
                nonlocal begun
                if message["type"] == "http.response.start":
                    begun = True
                    headers = MutableHeaders(scope=message)
                    headers.update(_HEADERS)
                    if not (scope["path"].startswith("/static/") and "Cache-Control" in headers):
                        headers["Cache-Control"] = "no-store"
                await send(message)

            request = Request(scope)
            try:
                answer = self._refusal(request) or self._identify(request)
                await (answer or app)(scope, receive, with_headers)
            except ClientDisconnect:  # nobody is left to answer
                return
            except Exception as error:
                self._on_error(error)
                if begun:  # half an answer: the connection's end says so
                    raise
                await problem(request, error)(scope, receive, with_headers)

        return protected

    def _refusal(self, request: Request) -> Response | None:
        """Refuse what no page of ours, and nobody who follows a link to one, would ask."""
        headers, reads = request.headers, request.method in ("GET", "HEAD")
        hosts = [one.lower() for one in headers.getlist("host")]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return _refused(request, "this address is not one of indexerd's")
        mode, dest = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
        followed = reads and mode == "navigate" and dest == "document"
        if _from_elsewhere(request) and not followed:
            return _refused(request, "another page asked for this", hint="")
        if reads:
            return None
        if headers.getlist("origin") != [f"http://{hosts[0]}"]:
            return _refused(request, "this did not come from a page of indexerd", hint="")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return problem(request, UsageError("what is sent here is JSON", hint=""), 415)
        return None

    def _identify(self, request: Request) -> Response | None:
        """Turn a token into a cookie, and refuse whoever has neither."""
        sent = request.cookies.get(self._name, "").encode("utf-8", "replace")
        known = hmac.compare_digest(sent, self._cookie.encode())
        parts = request.scope["query_string"].decode("latin-1").split("&")
        tokens = [one for one in parts if unquote_plus(one.partition("=")[0]) == "token"]
        # The whole address: a path alone could begin with two slashes, a host.
        path, query = request.scope.get("raw_path") or b"/", [p for p in parts if p not in tokens]
        address = f"http://{request.headers['host']}{path.decode('latin-1')}"
        address += f"?{'&'.join(query)}" if any(query) else ""
        if tokens and request.method == "GET":
            token = unquote_plus(tokens[0].partition("=")[2])
            fresh = redeem_token(self._state_dir, self._url, token)
            if not fresh and not known:
                return _refused(request, "this address has been used, or is old")
            answer = RedirectResponse(address, 303)
            if fresh:
                attributes = f"Path=/;{self._max_age} HttpOnly; SameSite=Strict"
                answer.headers["Set-Cookie"] = f"{self._name}={self._cookie}; {attributes}"
                # Not "cookies": those of every port of the host would go.
                answer.headers["Clear-Site-Data"] = '"cache", "storage"'
            return answer
        # The assets ship with the program, and dress the refusal itself.
        if known or request.scope["path"].startswith("/static/"):
            return None
        refused = _refused(request, "this browser is not known here")
        if _from_elsewhere(request):
            refused.headers["Refresh"] = f"0; url={address}"
        return refused


def _from_elsewhere(request: Request) -> bool:
    """Whether a page that is not ours caused this, as far as the browser says; programs do not."""
    return request.headers.get("sec-fetch-site", "") not in ("", "none", "same-origin")


def _refused(request: Request, message: str, hint: str = _AGAIN) -> Response:
    return problem(request, AccessError(message, hint=hint))
