"""The web view's routes: pages, their data, the daemon's events, and changes made from a page.

Reading works without a daemon; changes need one. Addresses name a session by its whole id, so that
a late change never reaches another one. If a session cannot be read, its page shows the error.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from indexerd.daemon.library import Library
from indexerd.daemon.open_session import open_session, read_alone
from indexerd.daemon.process import Footprint
from indexerd.errors import IndexerdError, NotFoundError, UsageError
from indexerd.privacy.redact import for_people
from indexerd.sessions.pictures import Picture, pictures_in
from indexerd.web.daemon_client import Daemon
from indexerd.web.document import Document, Stored, Wish, changed, read_document, without_entries
from indexerd.web.home import home_page
from indexerd.web.markdown import to_html, typed_to_html
from indexerd.web.responses import FILES, answer, problem, read_static
from indexerd.web.session_page import FIRST, FORMATS, export, page_data, page_frame, wish_for
from indexerd.web.usage import usage_page

AT_ONCE = 2  # sessions read at the same time
SHOWN = 5000  # entries of a session: three times as many would take 50 MB
TEXT_MAX = 400_000  # characters rendered by one request
TEND_SECONDS = 10.0  # after an answer, until its memory is given back
_MEDIA_TYPES = {"html": "text/html", "md": "text/markdown", "json": "application/json"}
_MEDIA_TYPES |= {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_RENDERERS = {"texts": to_html, "prompts": typed_to_html}
# Changes that a page may make, and the daemon's methods for them.
_CHANGES = {"rename": "update", "label": "label", "index": "index"}


def make_app(daemon: Daemon, on_error: Callable[[Exception], None]) -> Starlette:
    """Make the app, which follows the daemon's events; `on_error` gets unexpected exceptions."""

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        daemon.follow()
        yield

    async def events(_request: Request) -> Response:
        stream = ({"data": json.dumps(event)} async for event in daemon.listen())
        return EventSourceResponse(stream, ping=15, send_timeout=60)

    async def no_page(request: Request, _error: Exception) -> Response:
        return problem(request, NotFoundError("there is no such page", hint=""))

    async def failed(request: Request, error: Exception) -> Response:
        if not isinstance(error, IndexerdError | ClientDisconnect):
            on_error(error)
        return problem(request, error)

    sessions = Sessions(daemon)
    reads = (sessions.document, sessions.sent, sessions.family, sessions.export)
    return Starlette(
        routes=[
            Route("/", partial(home_page, daemon), methods=["GET"]),
            Route("/usage", partial(usage_page, daemon), methods=["GET"]),
            Route("/events", events),
            Route("/static/{name}", _static),
            Route("/rendered", _rendered, methods=["POST"]),
            Route("/s/{id}/image/{row:int}/{number:int}", sessions.image, methods=["GET"]),
            Route("/s/{id}", sessions.page, methods=["GET"]),
            *(Route(f"/s/{{id}}/{read.__name__}", read, methods=["GET"]) for read in reads),
            *(Route(f"/s/{{id}}/{name}", sessions.change, methods=["POST"]) for name in _CHANGES),
        ],
        exception_handlers={HTTPException: no_page, IndexerdError: failed, Exception: failed},
        lifespan=lifespan,
    )


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in FILES:
        raise NotFoundError("no such file", hint="")
    return Response(read_static(name), media_type=_MEDIA_TYPES[name.rpartition(".")[2]])


async def _rendered(request: Request) -> Response:
    """Render a text of a message or a prompt, which the page has, as HTML."""
    body = await _body(request)
    text, render = body.get("text"), _RENDERERS.get(str(body.get("kind")))
    if render is None or not isinstance(text, str) or len(text) > TEXT_MAX:
        raise UsageError("this cannot be rendered")
    return answer({"html": await asyncio.to_thread(render, text)})


async def _body(request: Request) -> dict[str, Any]:
    try:
        return dict(json.loads(await request.body() or b"{}"))
    except (ValueError, TypeError, RecursionError):
        raise UsageError("a request must be a JSON object") from None


class Sessions:
    """Answers about single sessions."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._footprint = Footprint()
        self._footprint.tend()

    async def page(self, request: Request) -> Response:
        """Send the page's frame, and its data once the session is read."""
        stored = await self._stored(request)
        start, end = page_frame(for_people(stored["session"]), live=True)

        async def parts() -> AsyncIterator[bytes]:
            yield start.encode("utf-8", "replace")
            document = changed(await self._document(stored), "")
            data = await asyncio.to_thread(page_data, document, FIRST)
            yield (data + end).encode("utf-8", "replace")

        return StreamingResponse(parts(), media_type="text/html")

    async def document(self, request: Request) -> Response:
        """Answer with the document, or its changes."""
        document = await self._document(await self._stored(request))
        return answer(changed(document, request.query_params.get("after", "")))

    async def _document(self, stored: Stored) -> Document:
        try:
            read = partial(read_document, stored=stored, wish=Wish(newest=SHOWN))
            document: Document = await self._read(stored, read)
        except IndexerdError as bad:
            document = without_entries(stored, Wish())
            document["problem"] = {"code": bad.kind, "message": str(bad), "hint": bad.hint}
        document["live"] = {
            "daemon": self._daemon.up,
            "indexing": stored.get("indexing"),
        }
        return document

    async def _read(self, stored: Stored, work: Callable[[Library], Any]) -> Any:

        def read() -> Any:
            settings, env = self._daemon.settings(), self._daemon.env
            row = stored["session"]
            with read_alone(row, settings, env, self._daemon.home) as library:
                return work(library)

        async with self._slots:
            try:
                return await asyncio.to_thread(read)
            finally:
                asyncio.get_running_loop().call_later(TEND_SECONDS, self._footprint.tend)

    async def sent(self, request: Request) -> Response:
        """Answer with the text that a model would be sent now, and the session's meta file."""
        stored = await self._stored(request)
        shown: dict[str, Any] = {"asSent": None, "meta": stored["meta"]}
        try:
            ref = {"ref": stored["session"]["sessionId"]}
            shown["asSent"] = await self._daemon.read("as_sent", ref)
        except IndexerdError as bad:
            shown |= {"problem": str(bad), "hint": bad.hint}
        return answer(shown)

    async def family(self, request: Request) -> Response:
        return answer(await self._daemon.read("family", {"ref": request.path_params["id"]}))

    async def export(self, request: Request) -> Response:
        form = request.query_params.get("format") or "html"
        if form not in FORMATS:
            raise UsageError(f"format must be one of {', '.join(FORMATS)}")
        stored = await self._stored(request)
        wish = wish_for(form, newest=SHOWN)
        name, text = await self._read(stored, lambda library: export(library, stored, form, wish))
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        data = text.encode("utf-8", "replace")
        return Response(data, media_type=_MEDIA_TYPES[form], headers=headers)

    async def image(self, request: Request) -> Response:
        """Answer with a picture of an entry."""
        row, number = request.path_params["row"], request.path_params["number"]
        stored = await self._stored(request)

        def find(library: Library) -> Picture | None:
            session = open_session(library, stored["session"]["sessionId"])
            if session is None or row >= len(session.state):
                return None
            with session.lines as lines:
                return next(iter(pictures_in(lines.row(row))[number:]), None)

        picture: Picture | None = await self._read(stored, find)
        data = picture.decode() if picture else b""
        if picture is None or not data:
            raise NotFoundError("no such picture")
        return Response(data, media_type=picture.media_type)

    async def change(self, request: Request) -> Response:
        """Change a title or a label, or index the session."""
        method = _CHANGES[request.url.path.rpartition("/")[2]]
        fields = await _body(request)
        session_id = (await self._stored(request))["session"]["sessionId"]
        force = {"force": True} if method == "index" else {}
        return answer(await self._daemon.call(method, {**fields, "ref": session_id, **force}))

    async def _stored(self, request: Request) -> dict[str, Any]:
        """Get the session with exactly this id, which may also be another session's name."""
        session_id = request.path_params["id"]
        ask = self._daemon.call if request.method == "POST" else self._daemon.read
        stored: dict[str, Any] = await ask("get", {"ref": session_id})
        if stored["session"]["sessionId"] != session_id:
            raise NotFoundError(f"no session {session_id}")
        return stored
