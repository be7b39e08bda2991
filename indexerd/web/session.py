"""One session's page, its document, and what can be done from there.

What can be read without a daemon is; what changes something is the daemon's to do, and its answer
is passed on. Another name of a session leads to its page, and to nothing else: whoever changes
something names the session by its whole id, so that a late change is never another session's
(S4.26). A session that cannot be read has a page all the same, whose data says what is wrong.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from indexerd.daemon.library import Library
from indexerd.daemon.process import make_private
from indexerd.daemon.trees import read_alone, sweep
from indexerd.errors import IndexerdError, NotFoundError, UsageError
from indexerd.models.telemetry import rows_of
from indexerd.privacy.patterns import compile_patterns
from indexerd.web.daemon import Daemon
from indexerd.web.document import (
    Document,
    Stored,
    Wish,
    read_document,
    relatives_in,
    without_entries,
)
from indexerd.web.export import FORMATS, embedded, export
from indexerd.web.pages import JsonResponse, changed, live_page

AT_ONCE = 2  # sessions that are read
REF_MAX = 400  # characters of what may name a session
BODY_MAX = 64 * 1024  # bytes
_MEDIA_TYPES = {"html": "text/html", "md": "text/markdown", "json": "application/json"}
# What a page may change: the daemon's method, and the fields that it sends.
_ACTS = {
    "rename": ("update", {"title"}),
    "label": ("label", {"entryId", "text"}),
    "index": ("index", set[str]()),
    "state": ("set_relevant_context", {"slug", "items"}),
}

_T = TypeVar("_T")


class SessionPages:
    """The answers about single sessions."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._folder = daemon.where.state_dir / "view"
        make_private(self._folder)
        sweep(self._folder)  # what killed processes left

    def routes(self) -> list[Route]:
        """The routes."""
        reads = (self.document, self.sent, self.family, self.export)
        return [
            Route("/s/{id}", self.page, methods=["GET"]),
            *(Route(f"/s/{{id}}/{one.__name__}", one, methods=["GET"]) for one in reads),
            *(Route(f"/s/{{id}}/{name}", self.act, methods=["POST"], name=name) for name in _ACTS),
        ]

    async def page(self, request: Request) -> Response:
        """The page of a session, or the way to it from another of its names."""
        ref = request.path_params["id"]
        if len(ref) > REF_MAX:
            raise NotFoundError("no session has such a name")
        stored = await self._daemon.read("get", {"ref": ref})
        session_id = stored["session"]["sessionId"]
        if session_id != ref:
            query = f"?{request.url.query}" if request.url.query else ""
            return RedirectResponse(f"/s/{quote(session_id, safe='')}{query}", 303)
        return live_page(await self._document(stored))

    async def document(self, request: Request) -> Response:
        """The document, or what is new in it."""
        document = await self._document(await self._stored(request))
        change = changed(document, request.query_params.get("after", ""))
        return Response(embedded(change), media_type="application/json")

    async def _document(self, stored: Stored) -> Document:
        gone = False
        try:
            found = await self._read(stored, lambda lib: read_document(lib, stored, Wish(), {}))
        except NotFoundError:
            found, gone = without_entries(stored), True
        except IndexerdError as bad:
            problem = {"code": bad.kind, "message": str(bad), "hint": bad.hint}
            found = without_entries(stored) | {"problem": problem}
        live = {
            "daemon": self._daemon.up,
            "behind": stored["session"].get("newUserMessages") or 0,
            "indexing": stored.get("indexing"),
            "gone": gone,
        }
        return found | {"live": live}

    async def _read(self, stored: Stored, work: Callable[[Library], _T]) -> _T:
        """Read a session in a thread, a few at a time."""

        def read() -> _T:
            settings, env = self._daemon.settings(), self._daemon.env
            row = stored["session"]
            with read_alone(row, settings, env, self._daemon.home, self._folder) as library:
                return work(library)

        async with self._slots:
            return await asyncio.to_thread(read)

    async def sent(self, request: Request) -> Response:
        """What a model would be sent now, and what was asked of models before."""
        session_id = (await self._stored(request))["session"]["sessionId"]
        found: dict[str, Any] = {"asSent": None}
        try:
            found["asSent"] = await self._daemon.read("as_sent", {"ref": session_id})
        except IndexerdError as bad:
            found |= {"problem": str(bad), "hint": bad.hint}
        path = self._daemon.where.telemetry
        found["runs"] = await asyncio.to_thread(rows_of, path, session_id)
        return JsonResponse(found)

    async def family(self, request: Request) -> Response:
        """Where it came from, and what came of it."""
        return JsonResponse(await self._daemon.read("family", {"ref": request.path_params["id"]}))

    async def export(self, request: Request) -> Response:
        """The session as a file."""
        form = request.query_params.get("format") or "html"
        if form not in FORMATS:
            raise UsageError(f"format is one of {', '.join(FORMATS)}")
        stored = await self._stored(request)
        session_id = stored["session"]["sessionId"]
        kin = relatives_in(await self._daemon.read("family", {"ref": session_id}), session_id)
        extra = compile_patterns(self._daemon.settings().redact.extra_patterns)
        wish = Wish(for_people=form != "json", extra=extra)
        name, text = await self._read(stored, lambda lib: export(lib, stored, form, wish, kin))
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        data = text.encode("utf-8", "replace")
        return Response(data, media_type=_MEDIA_TYPES[form], headers=headers)

    async def act(self, request: Request) -> Response:
        """Change something: a title, a label, the index, the set `applet` (S4.25)."""
        method, known = _ACTS[request.url.path.rpartition("/")[2]]
        fields = await _fields(request, known)
        # A name like its id may be another session's.
        stored = await self._stored(request, reading=False)
        ref = {"ref": stored["session"]["sessionId"]}
        if method == "index":
            fields["force"] = True
        if method == "set_relevant_context":
            items = fields.get("items", [])
            if not isinstance(items, list) or not all(_is_item(one) for one in items):
                raise UsageError("an item is key=value")
            ref = {"session": ref["ref"], "setName": "applet"}
            fields = {"items": [fields.get("slug"), *items]}
        return JsonResponse(await self._daemon.call(method, ref | fields))

    async def _stored(self, request: Request, *, reading: bool = True) -> dict[str, Any]:
        """What is stored of the session of that very id."""
        session_id = request.path_params["id"]
        ask = self._daemon.read if reading else self._daemon.call
        stored: dict[str, Any] = await ask("get", {"ref": session_id})
        if stored["session"]["sessionId"] != session_id:
            raise NotFoundError(f"no session {session_id}")
        return stored


def _is_item(value: object) -> bool:
    return isinstance(value, str) and bool(value.partition("=")[1]) and not value.startswith("=")


async def _fields(request: Request, known: set[str]) -> dict[str, Any]:
    """The object that a request holds, a blank text as null; UsageError for anything else."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_MAX:
            raise UsageError(f"a change has at most {BODY_MAX} bytes")
    try:
        fields = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or fields.keys() - known:
        raise UsageError(f"a change is a JSON object of {', '.join(sorted(known)) or 'nothing'}")
    blank = {key for key, one in fields.items() if isinstance(one, str) and not one.strip()}
    return fields | dict.fromkeys(blank)
