"""One session's page, its document, and what can be done from there.

What can be read without a daemon is; what changes something is the daemon's to do, and its answer
is passed on. Another name of a session leads to its page, and to nothing else: whoever changes
something names the session by its whole id, so that a late change is never another session's
(S4.26). A session that cannot be read has a page all the same, whose data says what is wrong.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from indexerd.daemon.library import Library
from indexerd.daemon.process import make_private
from indexerd.daemon.trees import read_alone, sweep
from indexerd.errors import IndexerdError, NotFoundError, UsageError
from indexerd.models.telemetry import rows_of
from indexerd.paths import is_session_id
from indexerd.privacy.patterns import compile_patterns
from indexerd.privacy.sanitize import scrub
from indexerd.web.assets import Assets
from indexerd.web.daemon import Daemon
from indexerd.web.document import (
    Document,
    Stored,
    Wish,
    read_document,
    relatives_in,
    without_entries,
)
from indexerd.web.export import FORMATS, export
from indexerd.web.page import LIVE, embedded, live_page, since
from indexerd.web.problems import JsonResponse

AT_ONCE = 2  # sessions that are read
REF_MAX = 400  # characters of what may name a session
BODY_MAX = 64 * 1024  # bytes
_MEDIA_TYPES = {"html": "text/html", "md": "text/markdown", "json": "application/json"}

_T = TypeVar("_T")
Handler = Callable[[Request, str], Awaitable[Response]]


class SessionPages:
    """The answers about single sessions."""

    def __init__(self, daemon: Daemon, assets: Assets) -> None:
        self._daemon = daemon
        self._assets = assets
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._folder = daemon.where.state_dir / "view"
        make_private(self._folder)
        sweep(self._folder)  # what killed processes left

    def routes(self) -> list[Route]:
        """The routes."""
        reads = (self.document, self.sent, self.family, self.export)
        acts = (self.rename, self.label, self.index, self.state)
        return [
            Route("/s/{id}", self.page, methods=["GET"]),
            *(Route(f"/s/{{id}}/{one.__name__}", _by_id(one), methods=["GET"]) for one in reads),
            *(Route(f"/s/{{id}}/{one.__name__}", _by_id(one), methods=["POST"]) for one in acts),
        ]

    # -- what is read --------------------------------------------------------------------

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
        document = await self._document(stored)
        names = ("view.css", "favicon.svg", LIVE)
        html = live_page(
            document,
            {name: self._assets.url(name) for name in names},
            {name: self._assets.asset(name).integrity for name in names},
        )
        return HTMLResponse(html.encode("utf-8", "replace"))

    async def document(self, request: Request, session_id: str) -> Response:
        """The document, or what is new in it."""
        stored = await self._stored(session_id)
        document = await self._document(stored)
        change = since(document, request.query_params.get("since", ""))
        return Response(embedded(change), media_type="application/json")

    async def _document(self, stored: dict[str, Any]) -> Document:
        try:
            found = await self._read(stored, lambda lib: read_document(lib, stored, Wish(), {}))
        except NotFoundError:
            found = without_entries(stored) | {"gone": True}
        except IndexerdError as bad:
            problem = {"code": bad.kind, "message": str(bad), "hint": bad.hint}
            found = without_entries(stored) | {"problem": problem}
        live = {
            "daemon": self._daemon.up,
            "behind": stored["session"].get("newUserMessages") or 0,
            "indexing": stored.get("indexing"),
            "gone": found.pop("gone", False),
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

    async def sent(self, _request: Request, session_id: str) -> Response:
        """What a model would be sent now, and what was asked of models before."""
        await self._stored(session_id)
        found: dict[str, Any] = {"asSent": None}
        try:
            found["asSent"] = await self._daemon.read("as_sent", {"ref": session_id})
        except IndexerdError as bad:
            found |= {"problem": str(bad), "hint": bad.hint}
        path = self._daemon.where.telemetry
        found["runs"] = await asyncio.to_thread(rows_of, path, session_id)
        return JsonResponse(found)

    async def family(self, _request: Request, session_id: str) -> Response:
        """Where it came from, and what came of it."""
        return JsonResponse(await self._daemon.read("family", {"ref": session_id}))

    async def export(self, request: Request, session_id: str) -> Response:
        """The session as a file."""
        form = request.query_params.get("format") or "html"
        if form not in FORMATS:
            raise UsageError(f"format is one of {', '.join(FORMATS)}")
        stored = await self._stored(session_id)
        family = await self._daemon.read("family", {"ref": session_id})

        extra = compile_patterns(self._daemon.settings().redact.extra_patterns)
        wish = Wish(for_people=form != "json", extra=extra)
        kin = relatives_in(family, session_id)
        name, text = await self._read(stored, lambda lib: export(lib, stored, form, wish, kin))
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        data = text.encode("utf-8", "replace")
        return Response(data, media_type=_MEDIA_TYPES[form], headers=headers)

    async def _stored(self, session_id: str) -> dict[str, Any]:
        return _of(session_id, await self._daemon.read("get", {"ref": session_id}))

    # -- what is changed -----------------------------------------------------------------

    async def rename(self, request: Request, session_id: str) -> Response:
        """Give it a title of the user's, or take that back."""
        fields = await _fields(request, {"title"})
        params = {"ref": session_id, "title": _text_or_none(fields, "title")}
        return await self._act(session_id, "update", params)

    async def label(self, request: Request, session_id: str) -> Response:
        """Label an entry, or take the label back."""
        fields = await _fields(request, {"entryId", "text"})
        params = {"ref": session_id, "entryId": _text(fields, "entryId")}
        text = _text_or_none(fields, "text")
        return await self._act(
            session_id, "label", params | ({} if text is None else {"text": text})
        )

    async def index(self, request: Request, session_id: str) -> Response:
        """Have it indexed now, whether it is due or not."""
        await _fields(request, set())
        return await self._act(session_id, "index", {"ref": session_id, "force": True})

    async def state(self, request: Request, session_id: str) -> Response:
        """What is shown of it becomes its set `applet`: a slug, and parameters (S4.25)."""
        fields = await _fields(request, {"slug", "items"})
        items = fields.get("items", [])
        if not isinstance(items, list) or not all(isinstance(one, str) for one in items):
            raise UsageError("items is a list of strings")
        if not all("=" in one and one.partition("=")[0].strip() for one in items):
            raise UsageError("an item is key=value")
        named = [_text(fields, "slug"), *items]
        params = {"session": session_id, "setName": "applet", "items": named}
        return await self._act(session_id, "set_relevant_context", params)

    async def _act(self, session_id: str, method: str, params: Mapping[str, Any]) -> Response:
        """Ask the daemon, about this very session: a name like its id may be another's."""
        _of(session_id, await self._daemon.call("get", {"ref": session_id}))
        return JsonResponse(await self._daemon.call(method, params))


def _by_id(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        session_id = request.path_params["id"]
        if not is_session_id(session_id):
            raise NotFoundError("no session has such an id")
        return await handler(request, session_id)

    return handle


def _of(session_id: str, found: dict[str, Any]) -> dict[str, Any]:
    if found["session"]["sessionId"] != session_id:
        raise NotFoundError(f"no session {session_id}")
    return found


async def _fields(request: Request, known: set[str]) -> dict[str, Any]:
    """The object that a request holds; UsageError for anything else, and for unknown fields."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_MAX:
            raise UsageError(f"a change has at most {BODY_MAX} bytes")
    try:
        fields = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise UsageError("a change is a JSON object")
    if odd := sorted(fields.keys() - known):
        raise UsageError(f"unknown field {odd[0][:40]!r}")
    return fields


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = _text_or_none(fields, key)
    if value is None:
        raise UsageError(f"{key} is a text")
    return value


def _text_or_none(fields: Mapping[str, Any], key: str) -> str | None:
    """A text, or null; a blank one is null, too. Half a surrogate pair cannot be sent on."""
    value = fields.get(key, 0)
    if value is not None and (not isinstance(value, str) or value != scrub(value)):
        raise UsageError(f"{key} is a text, or null")
    return value if value and value.strip() else None
