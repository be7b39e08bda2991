"""Who may ask the web view: one-time links, the cookie, and the checks of every request.

The token of a link works once, within five minutes, at the server it was made for: its hash names
an empty file in the state directory, and using it removes the file. `web-open.html` (0600) leads a
browser to a link, so that no process's arguments hold the token: every user can read those.

Cookies ignore ports, so the cookie's name holds the port.
"""

from __future__ import annotations

import hmac
import secrets
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from indexerd.disk import write_atomically
from indexerd.errors import AccessError
from indexerd.web.responses import problem, render

TOKEN_SECONDS = 300
COOKIE_SECONDS = 30 * 86_400
OPEN_PAGE = "web-open.html"
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_AGAIN = "run `indexerd web` again, and follow the address that it gives"


def login_link(state_dir: Path, url: str, path: str = "/") -> str:
    """Make a one-time address of the server at `url`; tokens that nobody used in time go."""
    for old in state_dir.glob("web-token-*"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > TOKEN_SECONDS:
                old.unlink()
    token = secrets.token_urlsafe(32)
    _token_file(state_dir, url, token).touch(mode=0o600, exist_ok=False)
    return f"{url}{path}{'&' if '?' in path else '?'}token={token}"


def redeem_token(state_dir: Path, url: str, token: str) -> bool:
    """Use a token; whether it was good."""
    path = _token_file(state_dir, url, token)
    try:
        issued = path.stat().st_mtime
        path.unlink()
        (state_dir / OPEN_PAGE).unlink(missing_ok=True)
    except OSError:
        return False
    return time.time() - issued <= TOKEN_SECONDS


def _token_file(state_dir: Path, url: str, token: str) -> Path:
    digest = sha256(f"{url} {token}".encode("utf-8", "replace")).hexdigest()
    return state_dir / f"web-token-{digest}"


def open_page(state_dir: Path, address: str) -> Path:
    """Write the page that leads a browser to an address."""
    path = state_dir / OPEN_PAGE
    write_atomically(path, bytes(render("open.html", address=address).body))
    return path


class Auth:
    """The checks of one server, and its cookie.

    `keep`: the cookie outlives the browser. Not where each start has another port, and so another
    cookie: browsers would collect them, and send all of them to every server of this machine.
    """

    def __init__(self, url: str, state_dir: Path, *, keep: bool = False) -> None:
        parts = urlsplit(url)
        self._url, self._state_dir, self._keep = url, state_dir, keep
        self._hosts = {parts.netloc, f"localhost:{parts.port}"}
        self._hosts |= {one.removesuffix(":80") for one in self._hosts}  # as browsers write it
        self._name, self._cookie = f"indexerd-{parts.port}", secrets.token_urlsafe(32)

    def protect(self, app: ASGIApp) -> ASGIApp:
        """The app behind these checks."""

        async def protected(scope: Scope, receive: Receive, send: Send) -> None:
            async def with_headers(message: Message) -> None:
                if message["type"] == "http.response.start":
                    headers = MutableHeaders(scope=message)
                    headers.update(_HEADERS)
                    headers.setdefault("Cache-Control", "no-store")
                await send(message)

            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            request = Request(scope)
            answer = self._refusal(request) or self._identify(request) or app
            await answer(scope, receive, with_headers)

        return protected

    def _refusal(self, request: Request) -> Response | None:
        """Refuse what neither a page of ours, nor somebody who follows a link to one, asks."""
        headers, reads = request.headers, request.method in ("GET", "HEAD")
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            return _refused(request, "this address is not one of indexerd's")
        way = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
        followed = reads and way == ("navigate", "document")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not followed:
            return _refused(request, "another page asked for this", hint="")
        if not reads and headers.get("origin") != f"http://{host}":
            return _refused(request, "this did not come from a page of indexerd", hint="")
        return None

    def _identify(self, request: Request) -> Response | None:
        """Turn a token into a cookie, and refuse whoever has neither."""
        sent = request.cookies.get(self._name, "").encode("utf-8", "replace")
        known = hmac.compare_digest(sent, self._cookie.encode())
        token = request.query_params.get("token")
        if token is None or request.method != "GET":
            # The assets ship with the program, and dress the refusal itself.
            allowed = known or request.scope["path"].startswith("/static/")
            return None if allowed else _refused(request, "this browser is not known here")
        fresh = redeem_token(self._state_dir, self._url, token)
        if not fresh and not known:
            return _refused(request, "this address has been used, or is old")
        parts = request.scope["query_string"].decode("latin-1").split("&")
        query = "&".join(one for one in parts if not one.startswith("token="))
        # The whole address: a path alone could begin with two slashes, a host.
        path = request.scope["raw_path"].decode("latin-1")
        address = f"http://{request.headers['host']}{path}{'?' if query else ''}{query}"
        answer = RedirectResponse(address, 303)
        if fresh:
            age = COOKIE_SECONDS if self._keep else None
            answer.set_cookie(self._name, self._cookie, max_age=age, httponly=True, samesite="lax")
        return answer


def _refused(request: Request, message: str, hint: str = _AGAIN) -> Response:
    return problem(request, AccessError(message, hint=hint))
