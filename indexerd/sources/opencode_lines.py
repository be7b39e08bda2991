"""opencode's records as lines of JSON for its adapter, whichever storage they come from.

    {"type": "session", "schema": 1|2, "id", "parentID", "forkID", "title", "directory",
     "version", "time": {"created", "updated", "archived"}, "revert": {"messageID", "partID"}}
    {"type": "message", "id", "role", "at", "time", "finish", "error", "parentID", "summary", …,
     "parts": [{"type", "text", "synthetic", "ignored", "tool", "state": {…}, …}]}

The brief form of a message is for a scan: texts are cut, and of a tool's call only its status is
kept. The full form has every text and every tool's input and output, within bounds. The roles of
version 2 (`synthetic`, `shell`, `compaction`, `idle`, …) stay as they are; its texts, files and
contents become parts. A value of another type than it should have is handed on or left out.

What surprised us: the output of an aborted call stands in its metadata alone, and an output that
was pruned stays where it was, with a time beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from indexerd.agents.json_lines import as_dict, as_list, parse_object, string, time_ms
from indexerd.errors import SessionUnreadableError
from indexerd.sources.line_buffer import Block

BRIEF_TEXT = 2_000  # characters of a part's text that a scan sees
OUTPUT = 60_000  # characters of a tool's output; opencode itself keeps 51,200 bytes, and a note
OUTPUTS = 4_000_000  # characters of all outputs of one message
ERROR = 4_000  # characters of an error
MIME = 100  # characters of a file's kind

_OF_SESSION = ("parentID", "forkID", "title", "directory", "version")
_OF_MESSAGE = ("role", "time", "finish", "parentID", "modelID", "providerID", "cost", "tokens")
_OF_MESSAGE_2 = ("status", "outcome", "command")
_OF_PART = {  # what is kept of a part, by its type; of one that we do not know, its type
    "text": ("synthetic", "ignored"),
    "compaction": ("overflow", "tail_start_id"),
}

Record = dict[str, Any]
# The parts of a message by its id: their ids, and what they hold.
Parts = Callable[[str], Iterable[tuple[str, Record]]]

_encode = msgspec.json.Encoder().encode


class Message(NamedTuple):
    """One message's record, and where it stands."""

    place: int
    id: str
    at: int
    held: Record


class Room:
    """How much the outputs of a message may still hold."""

    def __init__(self, size: int = OUTPUTS) -> None:
        self._left = size

    def cut(self, text: str, limit: int = OUTPUT) -> str:
        """As much of a text as there is room for; it takes that room."""
        kept = text[: min(limit, self._left)]
        self._left -= len(kept)
        return kept


class Lines:
    """The messages of one session, in full, by their places."""

    def __init__(
        self, session: Record, find: Callable[[int], Iterator[Message]], parts: Parts
    ) -> None:
        self._session, self._find, self._parts = session, find, parts

    def at(self, offset: int, length: int) -> bytes:  # noqa: ARG002 - a message is whole
        """A message as it is now; SessionUnreadableError when it is there no more."""
        if not offset:
            return _line(self._session)
        message = next(self._find(offset), None)
        if message is None:
            raise SessionUnreadableError("the message is gone")
        return full_line(self._session, message, self._parts)


def digest(text: str) -> int:
    """63 bits that stand for a text."""
    found = blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(found, "big") >> 1


def decoded(data: bytes) -> Record | None:
    """A record's JSON object; None for anything else."""
    try:
        return parse_object(data)
    except ValueError:
        return None


def session_of(session_id: str, held: Record, schema: int = 1) -> Record:
    """The first line of a session, of what its own record holds. Times in ms; 0: none."""
    time, revert = as_dict(held.get("time")), as_dict(held.get("revert"))
    return {
        "type": "session",
        "schema": schema,
        "id": session_id,
        **{key: string(held.get(key)) for key in _OF_SESSION},
        "time": {key: time_ms(time.get(key)) for key in ("created", "updated", "archived")},
        "revert": {key: string(revert.get(key)) for key in ("messageID", "partID")},
    }


def brief_lines(session: Record, messages: Iterable[Message], parts: Parts) -> Iterator[Block]:
    """A session's lines for a scan.

    Of an answer the parts matter only while its turn may still be open: those of older ones,
    most of what is stored, are not even read.
    """
    yield Block(_line(session), 0)
    rows = [(one.place, _fields(one, None)) for one in messages]
    if session["schema"] == 1:  # ids wrap around: time first
        rows.sort(key=lambda row: (row[1]["at"], row[1]["id"]))
    asked = [n for n, (_, line) in enumerate(rows) if line.get("role") == "user"]
    newest = asked[-1] if asked else 0
    for n, (place, line) in enumerate(rows):
        if n >= newest or line.get("role") == "user":
            line["parts"] += _visible(session, line["id"], parts, None)
        else:
            line["parts"] = []
        yield Block(_line(line), place)


def full_line(session: Record, message: Message, parts: Parts) -> bytes:
    """A message with all it says.

    An answer whose meaning hangs on the message that it answers, as a summary's, has the parts of
    that as `parent`.
    """
    room = Room()
    line = _fields(message, room)
    line["parts"] += _visible(session, message.id, parts, room)
    if session["parentID"]:
        line["child"] = True
    parent = string(line.get("parentID"))
    if parent and (line.get("summary") or not (line.get("finish") or line.get("error"))):
        before = list(_visible(session, parent, parts, None))
        line |= {"parent": before} if before else {}
    return _line(line)


def _line(held: Record) -> bytes:
    try:
        return _encode(held) + b"\n"
    except (ValueError, OverflowError):  # a number beyond 64 bits
        return json.dumps(held).encode() + b"\n"


def _fields(message: Message, room: Room | None) -> Record:
    """A message without the parts that have records of their own; brief where no room is given."""
    held = message.held
    line: Record = {"type": "message", "id": message.id, "at": message.at}
    kept = (*_OF_MESSAGE, *_OF_MESSAGE_2)
    line |= {key: held[key] for key in kept if held.get(key) is not None}
    if held.get("summary") is True:
        line["summary"] = True
    if room is not None and isinstance(held.get("output"), str):
        line["output"] = room.cut(held["output"])
    if room is not None and isinstance(held.get("recent"), str):
        line["recent"] = held["recent"]
    model = as_dict(held.get("model"))  # some releases keep it in an object of its own
    named = {
        "modelID": model.get("modelID") or model.get("id"),
        "providerID": model.get("providerID"),
    }
    line |= {key: value for key, value in named.items() if value and not held.get(key)}
    if held.get("error"):
        error = as_dict(held["error"])
        why = string(as_dict(error.get("data")).get("message"))[:ERROR]
        line["error"] = {"name": error.get("name") or "error", "message": why or None}
    line["parts"] = list(_inline(held, room))
    return line


def _inline(held: Record, room: Room | None) -> Iterator[Record]:
    """The parts that version 2 keeps within a message."""
    role = held.get("role")
    if isinstance(held.get("text"), str):
        text = {"type": "text", "text": held["text"]}
        yield _part(text | {"synthetic": True} if role == "synthetic" else text, room)
    if role == "compaction" and isinstance(held.get("summary"), str):
        yield _part({"type": "text", "text": held["summary"]}, room)
    for key, kind in (("files", "file"), ("agents", "agent")):
        for one in as_list(held.get(key)):
            yield _part(as_dict(one) | {"type": kind}, room)
    for one in as_list(held.get("content")):
        yield _part(as_dict(one), room)


def _visible(session: Record, message_id: str, parts: Parts, room: Room | None) -> Iterator[Record]:
    """A message's parts, without those that were reverted."""
    for part_id, held in parts(message_id):
        if {"messageID": message_id, "partID": part_id} == session["revert"]:
            return
        yield _part(held, room)


def _part(part: Record, room: Room | None) -> Record:
    """A part as far as anybody needs it; never a file's data."""
    kind = part.get("type")
    if kind == "tool":
        return _tool(part, room)
    found: Record = {"type": kind}
    if kind == "text" or (kind == "reasoning" and room is not None):
        found["text"] = string(part.get("text"))[: None if room else BRIEF_TEXT]
    if kind == "file":
        found |= _mime(part)
    keys = _OF_PART.get(kind, ()) if isinstance(kind, str) else ()
    return found | {key: part[key] for key in keys if part.get(key) is not None}


def _tool(part: Record, room: Room | None) -> Record:
    """A call, and what it gave. What was never given is left out, not empty."""
    state = as_dict(part.get("state"))
    call: Record = {"type": "tool", "tool": part.get("tool", part.get("name"))}
    kept = call["state"] = {"status": state.get("status")}
    if room is None:
        return call
    call["callID"] = part.get("callID", part.get("id"))
    call["time"] = {"pruned": as_dict(part.get("time")).get("pruned")}
    error, told = state.get("error"), as_dict(state.get("metadata"))
    error = error.get("message") if isinstance(error, dict) else error  # version 2: an object
    kept["input"] = state.get("input")
    kept["time"] = {"compacted": as_dict(state.get("time")).get("compacted")}
    if isinstance(state.get("output"), str):
        kept["output"] = room.cut(state["output"])
    if isinstance(error, str):
        kept["error"] = error[:ERROR]
    if told.get("interrupted") is True and isinstance(told.get("output"), str):
        kept["metadata"] = {"interrupted": True, "output": room.cut(told["output"])}
    if isinstance(state.get("content"), list):
        kept["content"] = list(_contents(state["content"], room))
    if isinstance(state.get("attachments"), list):
        kept["attachments"] = [_mime(as_dict(one)) for one in state["attachments"]]
    return call


def _contents(content: list[Any], room: Room) -> Iterator[Record]:
    """What a tool of version 2 gave: its texts, together as long as an output, and its files."""
    left = OUTPUT
    for one in map(as_dict, content):
        if isinstance(one.get("text"), str):
            text = room.cut(one["text"], left)
            left -= len(text)
            if text:
                yield {"type": "text", "text": text}
        else:
            yield {"type": "file"} | _mime(one)


def _mime(file: Record) -> Record:
    return {"mime": file["mime"][:MIME]} if isinstance(file.get("mime"), str) else {}
