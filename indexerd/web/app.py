"""The web view's app: its routes, its guard around them, its hub below them.

In: the parts, and the routes of the pages. Out: a Starlette app whose start subscribes to the
daemon, and whose end calls `at_end`. Of its own it has what belongs to no page: events, assets,
and the answer by which `indexerd web` knows a server of ours.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from indexerd import __version__
from indexerd.errors import IndexerdError, NotFoundError, UsageError
from indexerd.web.desk import Desk
from indexerd.web.guard import Guard
from indexerd.web.hub import Hub
from indexerd.web.pages import Pages
from indexerd.web.problems import JsonResponse, problem

PING_SECONDS = 15
SEND_SECONDS = 60.0  # for a page to take an event; it is cut off then, and comes back by itself
_FOR_EVER = "public, max-age=31536000, immutable"
_NOT_FOUND = 404


def make_app(
    desk: Desk,
    hub: Hub,
    pages: Pages,
    guard: Guard,
    *,
    more: Sequence[BaseRoute],
    at_end: Sequence[Callable[[], None]] = (),
) -> Starlette:
    """The app. `more` are the pages' routes; `at_end` is called when it ends, and may block."""

    def lost(hearing: asyncio.Task[None]) -> None:
        if not hearing.cancelled() and (error := hearing.exception()) is not None:
            guard.on_error(error)  # pages are shown all the same, but hear of nothing

    @asynccontextmanager
    async def living(_app: Starlette) -> AsyncIterator[None]:
        hearing = asyncio.create_task(hub.run())
        hearing.add_done_callback(lost)
        try:
            yield
        finally:
            hub.close()
            hearing.cancel()
            await asyncio.wait([hearing])
            for end in at_end:
                end()

    app = Starlette(
        routes=[*_own(hub, pages, guard), *more],
        middleware=[Middleware(guard.around)],
        exception_handlers={IndexerdError: _own_problem, HTTPException: _http_problem},
        lifespan=living,
    )
    app.state.desk, app.state.pages = desk, pages
    return app


def _own(hub: Hub, pages: Pages, guard: Guard) -> list[Route]:
    async def events(_request: Request) -> Response:
        async def told() -> AsyncIterator[dict[str, str]]:
            async with hub.listen() as heard:
                async for event in heard:
                    yield {"data": json.dumps(event)}

        return EventSourceResponse(told(), ping=PING_SECONDS, send_timeout=SEND_SECONDS)

    async def hello(request: Request) -> Response:
        proof = guard.proof(request.query_params.get("challenge", ""))
        if proof is None:
            raise UsageError("a challenge is 16 to 128 letters and digits", hint="")
        return JsonResponse({"program": "indexerd", "version": __version__, "proof": proof})

    async def static(request: Request) -> Response:
        held = pages.static(request.path_params["name"])
        if held is None:
            raise NotFoundError("there is no such file", hint="")
        fresh = request.query_params.get("v") == held.digest
        kept = {"Cache-Control": _FOR_EVER if fresh else "no-cache"}
        return Response(held.body, media_type=held.media_type, headers=kept)

    return [
        Route("/events", events),
        Route("/hello", hello),
        Route("/static/{name}", static),
    ]


async def _own_problem(request: Request, error: Exception) -> Response:
    """An error of the tree, as an answer."""
    return problem(request, error)


async def _http_problem(request: Request, error: Exception) -> Response:
    """What the router, or a request that is none, raises."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == _NOT_FOUND:
        return problem(request, NotFoundError("there is no such page"))
    told = UsageError("this is not something that can be asked here", hint="")
    answer = problem(request, told, status=status)
    if isinstance(error, HTTPException):
        answer.headers.update(error.headers or {})  # above all what is allowed instead
    return answer
