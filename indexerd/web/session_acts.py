"""What a session's page changes: its name, a label, its index, and what is shown beside it.

In: small JSON objects, of exactly the fields that are known. Out: what the daemon answers. Nothing
is changed without a daemon. Each change names its session by its whole id, so that none that comes
late is another's (S4.26); of two that set the same thing, the later one stays.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from indexerd.errors import NotFoundError, UsageError
from indexerd.web.desk import Desk
from indexerd.web.problems import JsonResponse

BODY_MAX = 64 * 1024  # bytes
_SHOWN_MAX = 40  # characters of a field's name

Fields = dict[str, Any]
Act = Callable[[Request, str], Awaitable[Response]]


class Acts:
    """The changes, by their names."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def all(self) -> dict[str, Act]:
        """Every handler: of a request, and the id of the session that it names."""
        return {
            "rename": self._rename,
            "label": self._label,
            "index": self._index,
            "state": self._state,
        }

    async def _rename(self, request: Request, session_id: str) -> Response:
        """Give it a title of the user's, or take that back."""
        fields = await _fields(request, {"title"})
        params = {"ref": session_id, "title": _text_or_none(fields, "title")}
        return await self._ask(session_id, "update", params)

    async def _label(self, request: Request, session_id: str) -> Response:
        """Label an entry, or take the label back."""
        fields = await _fields(request, {"entryId", "text"})
        entry_id, text = _text(fields, "entryId"), _text_or_none(fields, "text")
        params = {"ref": session_id, "entryId": entry_id}
        return await self._ask(
            session_id, "label", params | ({} if text is None else {"text": text})
        )

    async def _index(self, request: Request, session_id: str) -> Response:
        """Have it indexed now, whether it is due or not."""
        await _fields(request, set())
        return await self._ask(session_id, "index", {"ref": session_id, "force": True})

    async def _state(self, request: Request, session_id: str) -> Response:
        """What is shown of it becomes its set `applet`: a slug, and parameters (S4.25)."""
        fields = await _fields(request, {"slug", "items"})
        items = fields.get("items", [])
        if not isinstance(items, list) or not all(isinstance(one, str) for one in items):
            raise UsageError("items is a list of strings")
        if not all(one.partition("=")[0].strip() and "=" in one for one in items):
            raise UsageError("an item is key=value")
        slug = _text(fields, "slug")
        params = {"session": session_id, "setName": "applet", "items": [slug, *items]}
        return await self._ask(session_id, "set_relevant_context", params)

    async def _ask(self, session_id: str, method: str, params: Mapping[str, Any]) -> Response:
        """Ask the daemon, about this very session: what is like its id is another."""
        found = await self._desk.ask("get", {"ref": session_id})
        if found["session"]["sessionId"] != session_id:
            raise NotFoundError(f"no session {session_id}")
        return JsonResponse(await self._desk.ask(method, params))


async def _fields(request: Request, known: set[str]) -> Fields:
    """The object that a request holds; UsageError for anything else, and for unknown fields."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise UsageError("a change is application/json")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_MAX:
            raise UsageError(f"a change has at most {BODY_MAX} bytes")
    try:
        held = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise UsageError("a change is a JSON object") from None
    if not isinstance(held, dict):
        raise UsageError("a change is a JSON object")
    odd = sorted(held.keys() - known)
    if odd:
        raise UsageError(f"unknown field {odd[0][:_SHOWN_MAX]!r}")
    return held


def _text(fields: Fields, key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{key} is required, and is a string")
    return _whole(key, value)


def _text_or_none(fields: Fields, key: str) -> str | None:
    """A text, or null; one that is blank is null, too."""
    if key not in fields:
        raise UsageError(f"{key} is required: a string, or null")
    value = fields[key]
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{key} is a string, or null")
    return _whole(key, value) if value and value.strip() else None


def _whole(key: str, text: str) -> str:
    """A text that can be sent on: half a surrogate pair is none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{key} has half a character in it") from None
    return text
