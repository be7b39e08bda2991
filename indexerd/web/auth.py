"""Access to the web view: one-time links, the cookie, and checks on every request.

A link's token works once, within five minutes, on the server it was made for: its hash is the name
of an empty file in the state directory, which its use removes. `web-open.html` (0600) redirects a
browser to the link, because every user of the machine can read the arguments of a process. The
cookie's name contains the port, because cookies ignore ports.
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
        "require-trusted-types-for 'script'; trusted-types indexerd"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_AGAIN = "run `indexerd web` for a new link"


def login_link(state_dir: Path, url: str, path: str = "/") -> str:
    """Make a one-time link to the server at `url`; delete expired tokens."""
    for old in state_dir.glob("web-token-*"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > TOKEN_SECONDS:
                old.unlink()
    token = secrets.token_urlsafe(32)
    _token_file(state_dir, url, token).touch(mode=0o600, exist_ok=False)
    return f"{url}{path}{'&' if '?' in path else '?'}token={token}"


def redeem_token(state_dir: Path, url: str, token: str) -> bool:
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
    """Write the page that redirects a browser to an address."""
    path = state_dir / OPEN_PAGE
    write_atomically(path, bytes(render("open.html", address=address).body))
    return path


class Auth:
    """Checks every request before the app gets it, and sets the cookie.

    With `keep` the cookie outlives the browser. That is wrong for a random port: browsers would
    collect such cookies, and send all of them to every server on this machine.
    """

    def __init__(self, app: ASGIApp, url: str, state_dir: Path, *, keep: bool = False) -> None:
        parts = urlsplit(url)
        self._app, self._url, self._state_dir = app, url, state_dir
        self._hosts = {parts.netloc, f"localhost:{parts.port}"}
        self._name, self._cookie = f"indexerd-{parts.port}", secrets.token_urlsafe(32)
        self._max_age = COOKIE_SECONDS if keep else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        answer = self._app
        if scope["type"] == "http":
            request = Request(scope)
            answer = self._refusal(request) or self._identify(request) or answer
        await answer(scope, receive, with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """Refuse requests that come neither from our own pages nor from following a link."""
        headers, reads = request.headers, request.method in ("GET", "HEAD")
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            return _refused(request, "this is not an address of indexerd")
        way = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
        followed = reads and way == ("navigate", "document")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not followed:
            return _refused(request, "another site's page made this request", hint="")
        if not reads and headers.get("origin") != f"http://{host}":
            return _refused(request, "this request did not come from indexerd's page", hint="")
        return None

    def _identify(self, request: Request) -> Response | None:
        """Exchange a token for the cookie; refuse a request that has neither."""
        sent = request.cookies.get(self._name, "").encode("utf-8", "replace")
        known = hmac.compare_digest(sent, self._cookie.encode())
        token = request.query_params.get("token")
        if token is None or request.method != "GET":
            # Static files are public; the page of a refusal uses them.
            allowed = known or request.scope["path"].startswith("/static/")
            why = "session expired" if sent else "this browser has no access"
            return None if allowed else _refused(request, why)
        fresh = redeem_token(self._state_dir, self._url, token)
        if not fresh and not known:
            return _refused(request, "this link has been used or has expired")
        query = "&".join(p for p in request.url.query.split("&") if not p.startswith("token="))
        path = request.scope["raw_path"].decode("latin-1")  # still quoted
        answer = RedirectResponse(str(request.url.replace(path=path, query=query)), 303)
        if fresh:
            named = (self._name, self._cookie, self._max_age)
            answer.set_cookie(*named, httponly=True, samesite="lax")
        return answer


def _refused(request: Request, message: str, hint: str = _AGAIN) -> Response:
    return problem(request, AccessError(message, hint=hint), way=False)
