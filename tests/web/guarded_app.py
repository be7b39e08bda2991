"""A guarded app of the web view, what happened in it, and what browsers send."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from indexerd.errors import AmbiguousError, DaemonDownError, IndexerdError, UsageError
from indexerd.paths import places
from indexerd.web.app import make_app
from indexerd.web.desk import Desk
from indexerd.web.guard import Guard
from indexerd.web.hub import Hub
from indexerd.web.pages import Pages
from indexerd.web.serve import make_guard
from indexerd.web.token import make_cookie, make_token
from indexerd.web.web_place import Running

PORT = 7117
HOST = f"127.0.0.1:{PORT}"
ORIGIN = f"http://{HOST}"
BOOT, OTHER = bytes(range(32)), bytes(range(1, 33))
NOW = 1_800_000_000.0
JSON = {"Origin": ORIGIN, "Content-Type": "application/json"}
BROWSER = {"Accept": "text/html,*/*;q=0.8"}
ERRORS: dict[str, tuple[int, Exception]] = {
    "ambiguous": (404, AmbiguousError("two fit", [{"sessionId": "a"}, {"sessionId": "b"}])),
    "usage": (400, UsageError("not so")),
    "down": (503, DaemonDownError("nobody answers")),
    "internal": (500, IndexerdError("something of ours")),
    "defect": (500, RuntimeError("/home/user/secret")),
}


class World:
    """A guarded app, and what happened in it."""

    def __init__(self, where: Path) -> None:
        self.now = NOW
        self.reached: list[str] = []
        self.failed: list[BaseException] = []
        self.guard: Guard = make_guard(Running(ORIGIN, 1, BOOT), self.failed.append)
        self.guard.now = lambda: self.now
        env = {"HOME": str(where), "INDEXERD_STATE_DIR": str(where)}
        found = places(env, home=where)
        desk = Desk(found, env, home=where, stored=lambda method, _: method)
        routes = [
            Route("/", self.page),
            Route("/change", self.change, methods=["POST"]),
            Route("/error/{name}", self.error),
            Route("/deep//path", self.page),
        ]
        self.app = make_app(desk, Hub(()), Pages(), self.guard, more=routes)
        self.client = TestClient(self.app, ORIGIN, follow_redirects=False)
        self.jar = {"Cookie": f"{self.guard.cookie_name}={make_cookie(BOOT, PORT, NOW)}"}
        self.nonces = iter(range(10_000))

    def token(self) -> str:
        """A token that was never seen."""
        return make_token(BOOT, next(self.nonces).to_bytes(16), ORIGIN, self.now)

    async def page(self, request: Request) -> Response:
        """A page that says what it was asked."""
        self.reached.append(request.method)
        return JSONResponse({"query": request.url.query})

    async def change(self, request: Request) -> Response:
        """Something that changes something."""
        self.reached.append(request.method)
        return JSONResponse({"bytes": len(await request.body())})

    async def error(self, request: Request) -> Response:
        """A page that fails."""
        raise ERRORS[request.path_params["name"]][1]


def _scope(path: str, query: str, *more: tuple[str, str]) -> dict[str, Any]:
    headers = [("host", HOST), *more]
    return {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers],
        "scheme": "http",
        "http_version": "1.1",
        "server": ("127.0.0.1", PORT),
    }


async def _nothing() -> dict[str, Any]:
    await asyncio.Event().wait()
    return {}
