"""One session's page, its document and patches, and what can be done from there.

In: requests for one session, named by its whole id. Out: the page, streamed, so that its head is
there before the session was read; JSON for its scripts; an export as a download. What can be read
without a daemon is; what changes something is the daemon's to do, and its answer is handed on.

Another name of a session leads to its page, and to nothing else: whoever changes something names
the session by its id (S4.26). A session that cannot be read has a page all the same, whose data
says what is wrong.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from indexerd.daemon.one_session import open_session
from indexerd.errors import IndexerdError, NotFoundError, UsageError
from indexerd.models.telemetry_rows import rows_of
from indexerd.models.threads import Check
from indexerd.paths import is_session_id
from indexerd.privacy.redact_extra import compile_extra
from indexerd.times import iso
from indexerd.web import export as exports
from indexerd.web.desk import Desk
from indexerd.web.export_html import ICON, LIVE, STYLE, island, live_page
from indexerd.web.live import IDLE_SECONDS, LiveSessions, without_entries
from indexerd.web.pages import Pages
from indexerd.web.problems import JsonResponse, json_problem, page_problem
from indexerd.web.session_acts import Acts
from indexerd.web.session_work import Work

REF_MAX = 400  # characters of what may name a session
AS_SENT_SECONDS = 60.0
_FRESH = {"Cache-Control": "no-store"}
_MEDIA_TYPES = {"html": "text/html", "md": "text/markdown", "json": "application/json"}
_HUNG_UP = 499  # nobody reads it

Answer = Callable[[Request, str], Any]


def routes(
    desk: Desk, pages: Pages, live: LiveSessions, *, up: Callable[[], bool] = lambda: True
) -> list[Route]:
    """Routes of single sessions. `up` says whether a daemon runs. The caller closes `live`."""
    view = SessionView(desk, pages, live, up)
    acts = Acts(desk)
    looks: dict[str, Answer] = {
        "document": view.document,
        "sent": view.sent,
        "family": view.family,
        "export": view.export,
    }
    return [
        Route("/s/{id}", view.page, methods=["GET"], name="session"),
        *(Route(f"/s/{{id}}/{name}", _exact(one)) for name, one in looks.items()),
        *(
            Route(f"/s/{{id}}/{name}", _exact(one), methods=["POST"])
            for name, one in acts.all().items()
        ),
    ]


def _exact(answer: Answer) -> Callable[[Request], Any]:
    """A handler for one session, named by its id; errors become JSON."""

    async def handle(request: Request) -> Response:
        session_id = request.path_params["id"]
        try:
            if not is_session_id(session_id):
                raise NotFoundError("no session has such an id")
            found: Response = await answer(request, session_id)
        except IndexerdError as bad:
            return json_problem(bad)
        except ClientDisconnect:
            return Response(status_code=_HUNG_UP)
        return found

    return handle


class SessionView:
    """What the answers about single sessions are made with."""

    def __init__(
        self, desk: Desk, pages: Pages, live: LiveSessions, up: Callable[[], bool]
    ) -> None:
        self._desk = desk
        self._pages = pages
        self._live = live
        self._up = up
        self._work = Work()
        self._tending: asyncio.TimerHandle | None = None

    # -- the page ------------------------------------------------------------------------

    async def page(self, request: Request) -> Response:
        """The page of a session, or the way to it from another of its names."""
        ref = request.path_params["id"]
        try:
            if len(ref) > REF_MAX:
                raise NotFoundError("no session has such a name")
            stored = await self._desk.read("get", {"ref": ref})
            session_id = stored["session"]["sessionId"]
            if session_id != ref:
                query = f"?{request.url.query}" if request.url.query else ""
                return RedirectResponse(f"/s/{quote(session_id, safe='')}{query}", 303)
            parts = self._parts(stored)
        except IndexerdError as bad:
            return page_problem(request, bad)
        chunks = self._chunks(stored, parts)
        return StreamingResponse(chunks, media_type="text/html; charset=utf-8", headers=_FRESH)

    def _parts(self, stored: Mapping[str, Any]) -> tuple[str, str, str]:
        row, meta = stored["session"], stored.get("meta") or {}
        return live_page(
            exports.assets(),
            title=row.get("name") or row["sessionId"],
            description=meta.get("description") or row.get("description") or "",
            urls={name: self._pages.url(name) for name in (STYLE, ICON, LIVE)},
            integrity={name: self._pages.integrity(name) for name in (STYLE, LIVE)},
        )

    async def _chunks(
        self, stored: dict[str, Any], parts: tuple[str, str, str]
    ) -> AsyncIterator[bytes]:
        """The page, as soon as each part of it is known."""
        before, between, after = parts
        stored = self._with_live(stored)
        self._tend()
        yield before.encode()
        try:
            data = await self._work.streamed(partial(self._island, stored))
        except IndexerdError as bad:
            data = _trouble(stored, bad)
        except Exception as bug:  # noqa: BLE001 - the page is begun: it must say so, and end
            told = f"the session could not be shown: {type(bug).__name__}"
            data = _trouble(stored, IndexerdError(told))
        yield data
        yield between.encode() + after.encode()

    def _tend(self) -> None:
        """Have what nobody asks for any more closed, although nobody asks for anything."""
        loop = asyncio.get_running_loop()
        if self._tending is not None:
            self._tending.cancel()
        self._tending = loop.call_later(
            IDLE_SECONDS + 1, loop.run_in_executor, None, self._live.tend
        )

    def _island(self, stored: dict[str, Any], check: Check, since: str | None = None) -> bytes:
        """The document's text; in a thread."""
        return island(self._live.document(stored, since, check)).encode()

    def _with_live(self, stored: dict[str, Any]) -> dict[str, Any]:
        live = {"daemon": self._up(), "behind": stored["session"].get("newUserMessages") or 0}
        if stored.get("indexing"):
            live["indexing"] = stored["indexing"]
        return stored | {"live": live}

    # -- what its scripts ask for --------------------------------------------------------

    async def document(self, request: Request, session_id: str) -> Response:
        """The document, or what is new in it."""
        stored = self._with_live(await self._stored(session_id))
        self._tend()
        since = request.query_params.get("since")
        work = partial(self._island, stored, since=since)
        data = await self._work.asked(request, work)
        return Response(data, media_type="application/json", headers=_FRESH)

    async def sent(self, _request: Request, session_id: str) -> Response:
        """What a model would be sent now, and what was asked of models before."""
        await self._stored(session_id)
        found: dict[str, Any] = {"asSent": None}
        try:
            found["asSent"] = await self._desk.read("as_sent", {"ref": session_id})
        except IndexerdError as bad:
            found |= {"problem": str(bad), "hint": bad.hint}
        path = self._desk.where.telemetry
        found["runs"] = await asyncio.to_thread(rows_of, path, session_id)
        return JsonResponse(found, headers=_FRESH)

    async def family(self, _request: Request, session_id: str) -> Response:
        """Where it came from, and what came of it."""
        return JsonResponse(await self._family(session_id), headers=_FRESH)

    async def export(self, request: Request, session_id: str) -> Response:
        """The session as a file."""
        form = request.query_params.get("format") or "html"
        if form not in exports.FORMATS:
            raise UsageError(f"format is one of {', '.join(exports.FORMATS)}")
        stored = await self._stored(session_id)
        try:
            kin = exports.kin_in(await self._family(session_id), session_id)
        except IndexerdError:  # the session is what was asked for
            kin = {}
        work = partial(self._file, exports.Asked(stored, kin, iso(time.time())), form)
        name, data = await self._work.asked(request, work)
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(data, media_type=_MEDIA_TYPES[form], headers=headers | _FRESH)

    def _file(self, asked: exports.Asked, form: str, check: Check) -> tuple[str, bytes]:
        settings, row = self._desk.settings(), asked.stored["session"]
        wish = exports.Wish(form, extra=compile_extra(settings.redact.extra_patterns))
        with open_session(row, settings, self._desk.env, self._desk.home) as library:
            name, text = exports.file_of(library, asked, wish, check)
        return name, text.encode("utf-8", "replace")

    async def _family(self, session_id: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._desk.read("family", {"ref": session_id})
        return found

    async def _stored(self, session_id: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = await self._desk.read("get", {"ref": session_id})
        except NotFoundError:
            self._live.forget(session_id)
            raise
        if found["session"]["sessionId"] != session_id:
            raise NotFoundError(f"no session {session_id}")
        return found


def _trouble(stored: Mapping[str, Any], error: IndexerdError) -> bytes:
    """The data of a page whose session could not be read: what is stored of it, and why."""
    problem = {
        "code": error.kind,
        "message": str(error),
        "hint": error.hint,
        "retryable": error.retryable,
    }
    return island(without_entries(stored) | {"problem": problem}).encode()
