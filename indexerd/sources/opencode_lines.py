"""opencode's records as lines of JSON: what its adapter reads, whatever they were kept in.

In: a session's row, and each message's JSON with that of its parts, of any release. Out: one
object a line, in one shape. The *brief* form of a message is for a skim: who spoke, how it
ended, the parts with at most `BRIEF_TEXT` characters of text. The *full* form has every text and
every tool's input, and outputs within the bounds of sources/opencode_parts.py.

    {"type": "session", "schema": 1|2, "id", "parentID", "forkID", "title", "directory",
     "version", "time": {"created", "updated", "archived"}, "revert": {"messageID", "partID"}}
    {"type": "message", "id", "role", "at", "time", "finish", "error", "parentID", "summary",
     "parts": [{"type", "text", "synthetic", "ignored", "tool", "state": {…}, …}]}

A line is asked for by its message's place alone: a form that changes leaves places valid.
The roles of version 2 (`synthetic`, `shell`, `compaction`, `idle`, …) stay as they are; its
texts, files and contents become parts. Never: raise for what a record holds. A value of another
type than it should have is handed on, or left out, but for what we compute with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import msgspec

from indexerd.privacy.sanitize import scrub
from indexerd.sources.opencode_parts import ERROR, Room, is_number, object_of, part_of

BRIEF_TEXT = 2_000  # characters of a part's text that a skim sees

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Session(NamedTuple):
    """What a session's own record says. Times in ms since the epoch, 0 where there is none."""

    id: str
    schema: int = 1
    parent_id: str = ""
    fork_id: str = ""
    title: str = ""
    directory: str = ""
    version: str = ""
    created: int = 0
    updated: int = 0
    archived: int = 0
    revert_message: str = ""
    revert_part: str = ""


class Message(NamedTuple):
    """One message's record: `data` as it was stored, `role` where that is a field of its own."""

    id: str
    at: int
    data: bytes
    role: str = ""


class Part(NamedTuple):
    """One part's record."""

    id: str
    data: bytes


def decoded(data: bytes) -> dict[str, Any] | None:
    """A record's JSON object; None for anything else. Bad UTF-8 becomes U+FFFD."""
    try:
        held = _decode(data)
    except (ValueError, RecursionError):  # of JSON, or of UTF-8
        try:
            held = json.loads(data.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
    return held if isinstance(held, dict) else None


def line(held: dict[str, Any]) -> bytes:
    """An object as one line, its newline included."""
    try:
        return _encode(held) + b"\n"
    except (ValueError, RecursionError):  # half a surrogate pair, in most cases
        pass
    try:
        text = json.dumps(held, ensure_ascii=False)
    except RecursionError:  # read it could be, but not written: what is nested goes
        text = json.dumps({key: one for key, one in held.items() if isinstance(one, str)})
    return scrub(text).encode("utf-8", "replace") + b"\n"


def session_line(one: Session) -> bytes:
    """The first line of a session."""
    revert = {"messageID": one.revert_message, "partID": one.revert_part or None}
    return line(
        {
            "type": "session",
            "schema": one.schema,
            "id": one.id,
            "parentID": one.parent_id or None,
            "forkID": one.fork_id or None,
            "title": one.title,
            "directory": one.directory,
            "version": one.version,
            "time": {
                "created": one.created,
                "updated": one.updated,
                "archived": one.archived or None,
            },
            "revert": revert if one.revert_message else None,
        }
    )


# -- brief ---------------------------------------------------------------------------------------


class Head(msgspec.Struct):
    """The fields of a message that a skim needs; all others are passed over unread."""

    role: Any = None
    time: Any = None
    finish: Any = None
    status: Any = None
    outcome: Any = None
    parent: Any = msgspec.field(default=None, name="parentID")
    text: Any = None
    error: msgspec.Raw = msgspec.Raw(b"null")
    summary: msgspec.Raw = msgspec.Raw(b"null")
    files: msgspec.Raw = msgspec.Raw(b"null")
    content: msgspec.Raw = msgspec.Raw(b"null")


class _State(msgspec.Struct):
    status: Any = None


class _Piece(msgspec.Struct):
    type: Any = None
    text: Any = None
    synthetic: Any = None
    ignored: Any = None
    overflow: Any = None
    tool: Any = None
    name: Any = None
    state: msgspec.Raw = msgspec.Raw(b"null")
    tail: Any = msgspec.field(default=None, name="tail_start_id")


_NOTHING = (b"null", b"false", b"[]", b"{}", b'""', b"")
_T = TypeVar("_T")


def _taken(kind: type[_T], data: bytes) -> _T | None:
    """A record as a Struct, by the generous way where the quick one fails; None if it is none."""
    found: _T
    try:
        found = _decoders[kind](data)
    except (ValueError, RecursionError):  # of JSON, or of UTF-8
        try:
            found = _decoders[kind](line(decoded(data) or {}))
        except (ValueError, RecursionError):  # of JSON, or of UTF-8
            return None
    return found


_decoders: dict[type, Callable[[bytes], Any]] = {
    one: msgspec.json.Decoder(one).decode for one in (Head, _Piece, _State)
}
_pieces = msgspec.json.Decoder(list[msgspec.Raw]).decode


def head_of(message: Message) -> Head:
    """A message's head; an empty one where its JSON is none."""
    held = _taken(Head, message.data) or Head()
    if message.role:
        held.role = message.role
    return held


def brief(message: Message, head: Head, parts: Iterable[bytes]) -> bytes:
    """A message as a skim sees it. `parts`: those of version 1, as far as they matter."""
    summary = _is(head.summary, b"true")
    found = [*_inline(head), *(one for one in map(_brief_part, parts) if one)]
    return line(
        {
            "type": "message",
            "id": message.id,
            "role": head.role,
            "at": message.at,
            "time": _times(head.time),
            "finish": head.finish if isinstance(head.finish, str) else None,
            "error": None if bytes(head.error).strip() in _NOTHING else True,
            "parentID": head.parent if isinstance(head.parent, str) else None,
            **({"summary": True} if summary else {}),
            **({"status": head.status} if isinstance(head.status, str) else {}),
            **({"outcome": head.outcome} if isinstance(head.outcome, str) else {}),
            "parts": found,
        }
    )


def _is(raw: msgspec.Raw, value: bytes) -> bool:
    return bytes(raw).strip() == value


def _times(value: Any) -> dict[str, Any]:
    held = value if isinstance(value, dict) else {}
    return {key: held[key] for key in ("created", "completed") if is_number(held.get(key))}


def _inline(head: Head) -> Iterable[dict[str, Any]]:
    """The parts that version 2 keeps within a message, briefly."""
    if isinstance(head.text, str):
        yield _text(head.text[:BRIEF_TEXT], head.role)
    if bytes(head.files).strip() not in _NOTHING:
        yield {"type": "file"}
    if head.role == "assistant" and bytes(head.content).strip() not in _NOTHING:
        try:
            pieces = _pieces(head.content)
        except (ValueError, RecursionError):  # of JSON, or of UTF-8
            return
        yield from (one for one in (_brief_part(bytes(piece)) for piece in pieces) if one)


def _text(text: str, role: Any) -> dict[str, Any]:
    found = {"type": "text", "text": text}
    return found | {"synthetic": True} if role == "synthetic" else found


def _brief_part(data: bytes) -> dict[str, Any] | None:
    held = _taken(_Piece, data)
    if held is None:
        return None
    found: dict[str, Any] = {"type": held.type}
    if isinstance(held.text, str):
        found["text"] = held.text[:BRIEF_TEXT]
    for key in ("synthetic", "ignored", "overflow"):
        if getattr(held, key) is True:
            found[key] = True
    if held.type == "tool":
        state = _taken(_State, bytes(held.state)) or _State()
        name = held.tool if held.tool is not None else held.name
        found |= {"tool": name, "state": {"status": state.status}}
    if isinstance(held.tail, str):
        found["tail_start_id"] = held.tail
    return found


# -- full ----------------------------------------------------------------------------------------

_OF_MESSAGE = (
    "role",
    "time",
    "finish",
    "parentID",
    "modelID",
    "providerID",
    "agent",
    "mode",
    "cost",
    "tokens",
    "status",
    "outcome",
    "command",
)


def full(
    message: Message, parts: Iterable[bytes], *, child: bool, parent: Iterable[bytes] = ()
) -> bytes:
    """A message with all it says.

    `child`: it is a sub-agent's. `parent`: the parts of the message that it answers, for an
    answer whose meaning hangs on that.
    """
    held = decoded(message.data) or {}
    if message.role:
        held["role"] = message.role
    found: dict[str, Any] = {"type": "message", "id": message.id, "at": message.at}
    found |= {key: held[key] for key in _OF_MESSAGE if held.get(key) is not None}
    room = Room()
    if isinstance(held.get("output"), str):
        found["output"] = room.cut(held["output"])
    if isinstance(held.get("recent"), str):
        found["recent"] = held["recent"]
    if held.get("summary") is True:
        found["summary"] = True
    found |= _model(held) | _error(held)
    # One by one: of each part its record is held only until what is kept of it is cut out.
    rest = (part_of(one, room) for one in map(decoded, parts) if one is not None)
    found["parts"] = [*_contents(held, room), *rest]
    before = [one for one in map(_brief_part, parent) if one]
    if child:
        found["child"] = True
    if before:
        found["parent"] = before
    return line(found)


def _model(held: dict[str, Any]) -> dict[str, Any]:
    """The model of a message, which some releases keep in an object of its own."""
    model = held.get("model")
    if not isinstance(model, dict):
        return {}
    name = model.get("modelID") or model.get("id")
    found = {"modelID": name, "providerID": model.get("providerID")}
    return {key: value for key, value in found.items() if value and not held.get(key)}


def _error(held: dict[str, Any]) -> dict[str, Any]:
    error = held.get("error")
    if not error:
        return {}
    name = object_of(error).get("name")
    message = object_of(object_of(error).get("data")).get("message")
    cut = message[:ERROR] if isinstance(message, str) else None
    return {"error": {"name": name or "error", "message": cut}}


def _contents(held: dict[str, Any], room: Room) -> Iterable[dict[str, Any]]:
    """The parts that version 2 keeps within a message."""
    if isinstance(held.get("text"), str):
        yield _text(held["text"], held.get("role"))
    if held.get("role") == "compaction" and isinstance(held.get("summary"), str):
        yield {"type": "text", "text": held["summary"]}
    for key, kind in (("files", "file"), ("agents", "agent"), ("content", "")):
        several = held.get(key)
        for one in several if isinstance(several, list) else ():
            if isinstance(one, dict):
                yield part_of(one | {"type": kind} if kind else one, room)
