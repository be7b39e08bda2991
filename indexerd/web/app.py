"""The web view's routes, with authentication around them and the daemon's events beside them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from indexerd.errors import IndexerdError, NotFoundError, UsageError
from indexerd.web.auth import Auth
from indexerd.web.daemon import Daemon
from indexerd.web.home import Home
from indexerd.web.pages import asset, problem
from indexerd.web.session import SessionPages

PING_SECONDS = 15
SEND_SECONDS = 60.0  # for a page to take an event; it is cut off then, and comes back by itself


def make_app(daemon: Daemon, auth: Auth) -> Starlette:
    """The app. It follows the daemon from its start to its end."""

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        following = asyncio.create_task(daemon.follow())
        yield
        daemon.close()
        following.cancel()

    async def events(_request: Request) -> Response:
        stream = ({"data": json.dumps(event)} async for event in daemon.listen())
        return EventSourceResponse(stream, ping=PING_SECONDS, send_timeout=SEND_SECONDS)

    return Starlette(
        routes=[
            Route("/", Home(daemon).page, methods=["GET"]),
            Route("/events", events),
            Route("/static/{name}", _static),
            *SessionPages(daemon).routes(),
        ],
        middleware=[Middleware(auth.protect)],
        exception_handlers={IndexerdError: _own_error, HTTPException: _http_error},
        lifespan=lifespan,
    )


async def _static(request: Request) -> Response:
    try:
        found = asset(request.path_params["name"])
    except KeyError:
        raise NotFoundError("there is no such file", hint="") from None
    fresh = request.query_params.get("v") == found.version
    headers = {"Cache-Control": "public, max-age=31536000, immutable" if fresh else "no-cache"}
    return Response(found.body, media_type=found.media_type, headers=headers)


async def _own_error(request: Request, error: Exception) -> Response:
    return problem(request, error)


async def _http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException) or error.status_code == 404:  # noqa: PLR2004 - HTTP's
        return problem(request, NotFoundError("there is no such page"))
    answer = problem(request, UsageError("this cannot be asked here", hint=""), error.status_code)
    answer.headers.update(error.headers or {})  # above all what is allowed instead
    return answer
