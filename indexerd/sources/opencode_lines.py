"""opencode's records as lines of JSON for its adapter, whichever storage they come from.

    {"type": "session", "schema": 1|2, "id", "parentID", "forkID", "title", "directory",
     "version", "time": {"created", "updated", "archived"}, "revert": {"messageID", "partID"}}
    {"type": "message", "id", "role", "at", "time", "finish", "error", "parentID", "summary", …,
     "parts": [{"type", "text", "synthetic", "ignored", "tool", "state": {…}, …}]}

The brief form of a message is for a scan: texts are cut, and of a tool's call only its status is
kept. What surprised us: the output of an aborted call stands in its metadata alone, and an output
that was pruned stays where it was, with a time beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

import msgspec

from indexerd.agents.json_lines import as_dict, as_list, parse_object, string, time_ms
from indexerd.errors import SessionUnreadableError
from indexerd.sources.line_buffer import Block

BRIEF_TEXT = 2_000  # characters of a part's text that a scan sees
OUTPUT = 60_000  # characters of a tool's output; opencode itself keeps 51,200 bytes, and a note
ERROR = 4_000  # characters of an error

_OF_SESSION = ("parentID", "forkID", "title", "directory", "version")
_OF_MESSAGE = (
    *("role", "time", "finish", "parentID", "modelID", "providerID", "cost", "tokens"),
    *("status", "outcome", "command"),  # of version 2
)
_OF_PART = {  # what is kept of a part, by its type; of one that we do not know, its type
    "text": ("synthetic", "ignored"),
    "compaction": ("overflow", "tail_start_id"),
}

Record = dict[str, Any]

_encode = msgspec.json.Encoder().encode


class Message(NamedTuple):
    """One message's record, and its offset."""

    place: int
    id: str
    at: int
    held: Record


class Records(Protocol):
    """The records of one session in any storage."""

    session: Record  # as `session_of` makes it

    def messages(self, place: int = 0) -> Iterator[Message]:
        """All messages, or the one at a place."""

    def parts(self, message_id: str) -> Iterator[tuple[str, Record]]:
        """The parts of a message: ids and contents."""


def digest(text: str) -> int:
    """A hash of a text in 63 bits."""
    found = blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(found, "big") >> 1


def decoded(data: bytes) -> Record | None:
    """A record's JSON object; None for anything else."""
    try:
        return parse_object(data)
    except ValueError:
        return None


def session_of(session_id: str, held: Record, schema: int = 1) -> Record:
    """The first line of a session, from its own record. Times in ms; 0: none."""
    time, revert = as_dict(held.get("time")), as_dict(held.get("revert"))
    return {
        "type": "session",
        "schema": schema,
        "id": session_id,
        **{key: string(held.get(key)) for key in _OF_SESSION},
        "time": {key: time_ms(time.get(key)) for key in ("created", "updated", "archived")},
        "revert": {key: string(revert.get(key)) for key in ("messageID", "partID")},
    }


def brief_lines(records: Records) -> list[Block]:
    """A session's lines for a scan.

    The parts of an answer matter only while its turn may still be open: those of older ones, most
    of what is stored, are not read.
    """
    rows = [(one.place, _fields(one, full=False)) for one in records.messages()]
    if records.session["schema"] == 1:  # ids wrap around: time first
        rows.sort(key=lambda row: (row[1]["at"], row[1]["id"]))
    newest = max((n for n, (_, line) in enumerate(rows) if line.get("role") == "user"), default=0)
    found = [Block(_line(records.session), 0)]
    for n, (place, line) in enumerate(rows):
        if n >= newest or line.get("role") == "user":
            line["parts"] += _visible(records, line["id"], full=False)
        else:
            line["parts"] = []
        found.append(Block(_line(line), place))
    return found


def full_line(records: Records, offset: int, _length: int) -> bytes:
    """A message with all its text.

    An answer whose meaning depends on the message that it answers, as a summary's does, has the
    parts of that message as `parent`.
    """
    if not offset:
        return _line(records.session)
    message = next(records.messages(offset), None)
    if message is None:
        raise SessionUnreadableError("the message is gone")
    line = _fields(message, full=True)
    line["parts"] += _visible(records, message.id, full=True)
    if records.session["parentID"]:
        line["child"] = True
    parent = string(line.get("parentID"))
    if parent and (line.get("summary") or not (line.get("finish") or line.get("error"))):
        before = list(_visible(records, parent, full=False))
        line |= {"parent": before} if before else {}
    return _line(line)


def _line(held: Record) -> bytes:
    try:
        return _encode(held) + b"\n"
    except (ValueError, OverflowError):  # a number beyond 64 bits
        return json.dumps(held).encode() + b"\n"


def _fields(message: Message, *, full: bool) -> Record:
    """A message without the parts that have records of their own."""
    held = message.held
    model = as_dict(held.get("model"))  # some releases keep it in an object of its own
    named = {
        "modelID": model.get("modelID") or model.get("id"),
        "providerID": model.get("providerID"),
    }
    held = {key: one for key, one in named.items() if one and not held.get(key)} | held
    line = {key: held[key] for key in _OF_MESSAGE if held.get(key) is not None}
    line |= {"type": "message", "id": message.id, "at": message.at}
    if held.get("summary") is True:
        line["summary"] = True
    if full:
        for key, most in (("output", OUTPUT), ("recent", None)):
            if isinstance(held.get(key), str):
                line[key] = held[key][:most]
    if held.get("error"):
        error = as_dict(held["error"])
        why = string(as_dict(error.get("data")).get("message"))[:ERROR]
        line["error"] = {"name": error.get("name") or "error", "message": why or None}
    line["parts"] = [_part(one, full=full) for one in _inline(held)]
    return line


def _inline(held: Record) -> Iterator[Record]:
    """The parts that version 2 keeps within a message."""
    role = held.get("role")
    if isinstance(held.get("text"), str):
        text = {"type": "text", "text": held["text"]}
        yield text | {"synthetic": True} if role == "synthetic" else text
    if role == "compaction" and isinstance(held.get("summary"), str):
        yield {"type": "text", "text": held["summary"]}
    for key, kind in (("files", "file"), ("agents", "agent")):
        yield from (as_dict(one) | {"type": kind} for one in as_list(held.get(key)))
    yield from map(as_dict, as_list(held.get("content")))


def _visible(records: Records, message_id: str, *, full: bool) -> Iterator[Record]:
    """A message's parts, without those that were reverted."""
    for part_id, held in records.parts(message_id):
        if {"messageID": message_id, "partID": part_id} == records.session["revert"]:
            return
        yield _part(held, full=full)


def _part(part: Record, *, full: bool) -> Record:
    """The fields of a part that adapters use; never a file's data."""
    kind = part.get("type")
    if kind == "tool":
        return _tool(part, full=full)
    found: Record = {"type": kind}
    if kind == "text" or (kind == "reasoning" and full):
        found["text"] = string(part.get("text"))[: None if full else BRIEF_TEXT]
    if kind == "file":
        found = _file(part)
    keys = _OF_PART.get(kind, ()) if isinstance(kind, str) else ()
    return found | {key: part[key] for key in keys if part.get(key) is not None}


def _tool(part: Record, *, full: bool) -> Record:
    """A call and its result; fields that it does not have are left out."""
    state = as_dict(part.get("state"))
    kept = {"status": state.get("status")}
    call: Record = {"type": "tool", "tool": part.get("tool", part.get("name")), "state": kept}
    if not full:
        return call
    call["callID"] = part.get("callID", part.get("id"))
    call["time"] = {"pruned": as_dict(part.get("time")).get("pruned")}
    kept["input"] = state.get("input")
    kept["time"] = {"compacted": as_dict(state.get("time")).get("compacted")}
    error, more = state.get("error"), as_dict(state.get("metadata"))
    error = error.get("message") if isinstance(error, dict) else error  # version 2: an object
    if isinstance(state.get("output"), str):
        kept["output"] = state["output"][:OUTPUT]
    if isinstance(error, str):
        kept["error"] = error[:ERROR]
    if more.get("interrupted") is True and isinstance(more.get("output"), str):
        kept["metadata"] = {"interrupted": True, "output": more["output"][:OUTPUT]}
    if isinstance(state.get("content"), list):
        kept["content"] = list(_contents(state["content"]))
    if isinstance(state.get("attachments"), list):
        kept["attachments"] = [_file(as_dict(one)) for one in state["attachments"]]
    return call


def _contents(content: list[Any]) -> Iterator[Record]:
    """A tool's result in version 2: its texts, together no longer than an output, and its files."""
    left = OUTPUT
    for one in map(as_dict, content):
        if not isinstance(one.get("text"), str):
            yield _file(one)
        elif text := one["text"][:left]:
            left -= len(text)
            yield {"type": "text", "text": text}


def _file(file: Record) -> Record:
    mime = file.get("mime")
    return {"type": "file"} | ({"mime": mime[:100]} if isinstance(mime, str) else {})
