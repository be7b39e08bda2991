"""opencode's records as lines of JSON: what its adapter reads, whatever they were kept in.

In: a session's row, and each message's JSON with that of its parts, of any release. Out: one
object a line, in one shape. The *brief* form of a message is for a skim: who spoke, how it
ended, the parts with at most `BRIEF_TEXT` characters of text. The *full* form has every text and
every tool's input. A tool's output is whole as far as opencode itself keeps it, but all outputs
of one message together are at most `OUTPUTS` characters: what comes after them is empty. What
nobody needs is left out: diffs, and of files all but their kind.

    {"type": "session", "schema": 1|2, "id", "parentID", "forkID", "title", "directory",
     "version", "time": {"created", "updated", "archived"}, "revert": {"messageID", "partID"}}
    {"type": "message", "id", "role", "at", "time", "finish", "error", "parentID", "summary",
     "parts": [{"type", "text", "synthetic", "ignored", "tool", "state": {…}, …}]}
    state: {"status", "input", "title", "output" | "content": [{"type", "text", "mime"}], "error",
     "metadata": {"sessionId", "exit", "interrupted", "output"}, "time": {"compacted"},
     "attachments": [{"mime"}]}; of version 2 "time": {"pruned"} stands beside the state

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

from indexerd.core.clean import scrub

BRIEF_TEXT = 2_000  # characters of a part's text that a skim sees
OUTPUT = 60_000  # characters of a tool's output; opencode itself keeps 51,200 bytes, and a note
OUTPUTS = 4_000_000  # characters of all outputs of one message
ERROR = 4_000  # characters of an error
ATTACHED = 100  # files of a result that are told of
MIME = 100  # characters of a file's kind

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
    return {key: held[key] for key in ("created", "completed") if _is_number(held.get(key))}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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

_KEPT = {  # what is kept of a part, by its type; of one that we do not know, its type
    "text": ("text", "synthetic", "ignored"),
    "reasoning": ("text",),
    "file": ("mime", "filename", "name"),
    "agent": ("name",),
    "subtask": ("prompt", "description", "agent", "command"),
    "compaction": ("auto", "overflow", "tail_start_id"),
    "patch": ("files",),
}
_OF_STATE = ("status", "input", "title")
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
    room = _Room()
    if isinstance(held.get("output"), str):
        found["output"] = room.cut(held["output"])
    if isinstance(held.get("recent"), str):
        found["recent"] = held["recent"]
    if held.get("summary") is True:
        found["summary"] = True
    found |= _model(held) | _error(held)
    # One by one: of each part its record is held only until what is kept of it is cut out.
    rest = (_part(one, room) for one in map(decoded, parts) if one is not None)
    found["parts"] = [*_contents(held, room), *rest]
    before = [one for one in map(_brief_part, parent) if one]
    if child:
        found["child"] = True
    if before:
        found["parent"] = before
    return line(found)


class _Room:
    """How much of what tools gave a message may still hold."""

    def __init__(self) -> None:
        self._left = OUTPUTS

    def cut(self, text: str, limit: int = OUTPUT) -> str:
        """As much of a text as there is room for; it takes that room."""
        kept = text[: min(limit, self._left)]
        self._left -= len(kept)
        return kept


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
    name = _object(error).get("name")
    message = _object(_object(error).get("data")).get("message")
    cut = message[:ERROR] if isinstance(message, str) else None
    return {"error": {"name": name or "error", "message": cut}}


def _contents(held: dict[str, Any], room: _Room) -> Iterable[dict[str, Any]]:
    """The parts that version 2 keeps within a message."""
    if isinstance(held.get("text"), str):
        yield _text(held["text"], held.get("role"))
    if held.get("role") == "compaction" and isinstance(held.get("summary"), str):
        yield {"type": "text", "text": held["summary"]}
    for key, kind in (("files", "file"), ("agents", "agent"), ("content", "")):
        several = held.get(key)
        for one in several if isinstance(several, list) else ():
            if isinstance(one, dict):
                yield _part(one | {"type": kind} if kind else one, room)


def _part(part: dict[str, Any], room: _Room) -> dict[str, Any]:
    """A part as far as anybody needs it."""
    kind = part.get("type")
    if kind == "tool":
        return _tool(part, room)
    keys = _KEPT.get(kind, ()) if isinstance(kind, str) else ()
    return {"type": kind} | {key: part[key] for key in keys if part.get(key) is not None}


def _tool(part: dict[str, Any], room: _Room) -> dict[str, Any]:
    """A call, and what it gave. What was never given is left out, not empty."""
    state = _object(part.get("state"))
    found = {key: state[key] for key in _OF_STATE if key in state}
    found |= _gave(state, room)
    found["metadata"] = _told(state, room)
    when = _object(state.get("time")).get("compacted")
    if _is_number(when):
        found["time"] = {"compacted": when}
    name, call = part.get("tool", part.get("name")), part.get("callID", part.get("id"))
    pruned = _object(part.get("time")).get("pruned")
    beside = {"time": {"pruned": pruned}} if _is_number(pruned) else {}
    return {"type": "tool", "tool": name, "callID": call, "state": found, **beside}


def _gave(state: dict[str, Any], room: _Room) -> dict[str, Any]:
    """A result: text, error, and that there were files."""
    found: dict[str, Any] = {}
    if isinstance(state.get("output"), str):
        found["output"] = room.cut(state["output"])
    error = state.get("error")
    error = error.get("message") if isinstance(error, dict) else error  # version 2: an object
    if isinstance(error, str):
        found["error"] = error[:ERROR]
    if isinstance(state.get("content"), list):
        found["content"] = list(_pieces_of(state["content"], room))
    if isinstance(state.get("attachments"), list):
        found["attachments"] = [_mime(one) for one in state["attachments"][:ATTACHED]]
    return found


def _pieces_of(content: list[Any], room: _Room) -> Iterable[dict[str, Any]]:
    """What a tool of version 2 gave: its texts, together as long as an output, and its files."""
    left, files = OUTPUT, 0
    for one in map(_object, content):
        if isinstance(one.get("text"), str):
            text = room.cut(one["text"], left)
            left -= len(text)
            if text:
                yield {"type": "text", "text": text}
        elif files < ATTACHED:
            files += 1
            yield {"type": "file"} | _mime(one)


def _mime(file: Any) -> dict[str, Any]:
    mime = _object(file).get("mime")
    return {"mime": mime[:MIME]} if isinstance(mime, str) else {}


def _told(state: dict[str, Any], room: _Room) -> dict[str, Any]:
    """What a tool noted beside its result; of one that was aborted, its output by then."""
    told = _object(state.get("metadata"))
    found = {key: told[key] for key in ("sessionId", "exit") if key in told}
    aborted = state.get("status") == "error" and told.get("interrupted") is True
    if aborted and isinstance(told.get("output"), str):
        found |= {"interrupted": True, "output": room.cut(told["output"])}
    return found


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
