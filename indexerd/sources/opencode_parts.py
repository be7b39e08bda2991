"""What is kept of a part of an opencode message, for whoever reads the message in full.

In: a part's object, of any release, and the room that is left for outputs in its message. Out:
what anybody needs of it. Of a tool that is what it was given, and what it gave: its output whole
as far as opencode itself keeps it, but all outputs of a message within `OUTPUTS` characters.

    {"type": "tool", "tool", "callID", "time": {"pruned"}, "state": {"status", "input", "title",
     "output", "error", "content": [{"type", "text" | "mime"}], "attachments": [{"mime"}],
     "metadata": {"sessionId", "exit", "interrupted", "output"}, "time": {"compacted"}}}

`content`, `pruned` and errors that are objects come from version 2. Never: a file's data, or an
error for what a part holds. What surprised us: the output of an aborted call stands in its
metadata alone; and an output that was pruned stays where it was, with a time beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

OUTPUT = 60_000  # characters of a tool's output; opencode itself keeps 51,200 bytes, and a note
OUTPUTS = 4_000_000  # characters of all outputs of one message
ERROR = 4_000  # characters of an error
ATTACHED = 100  # files of a result that are told of
MIME = 100  # characters of a file's kind

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


class Room:
    """How much of what tools gave a message may still hold."""

    def __init__(self, size: int = OUTPUTS) -> None:
        """`size`: characters."""
        self._left = size

    def cut(self, text: str, limit: int = OUTPUT) -> str:
        """As much of a text as there is room for; it takes that room."""
        kept = text[: min(limit, self._left)]
        self._left -= len(kept)
        return kept


def part_of(part: dict[str, Any], room: Room) -> dict[str, Any]:
    """A part as far as anybody needs it."""
    kind = part.get("type")
    if kind == "tool":
        return _tool(part, room)
    keys = _KEPT.get(kind, ()) if isinstance(kind, str) else ()
    return {"type": kind} | {key: part[key] for key in keys if part.get(key) is not None}


def _tool(part: dict[str, Any], room: Room) -> dict[str, Any]:
    """A call, and what it gave. What was never given is left out, not empty."""
    state = object_of(part.get("state"))
    found = {key: state[key] for key in _OF_STATE if key in state}
    found |= _gave(state, room)
    found["metadata"] = _told(state, room)
    when = object_of(state.get("time")).get("compacted")
    if is_number(when):
        found["time"] = {"compacted": when}
    name, call = part.get("tool", part.get("name")), part.get("callID", part.get("id"))
    pruned = object_of(part.get("time")).get("pruned")
    beside = {"time": {"pruned": pruned}} if is_number(pruned) else {}
    return {"type": "tool", "tool": name, "callID": call, "state": found, **beside}


def _gave(state: dict[str, Any], room: Room) -> dict[str, Any]:
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


def _pieces_of(content: list[Any], room: Room) -> Iterable[dict[str, Any]]:
    """What a tool of version 2 gave: its texts, together as long as an output, and its files."""
    left, files = OUTPUT, 0
    for one in map(object_of, content):
        if isinstance(one.get("text"), str):
            text = room.cut(one["text"], left)
            left -= len(text)
            if text:
                yield {"type": "text", "text": text}
        elif files < ATTACHED:
            files += 1
            yield {"type": "file"} | _mime(one)


def _mime(file: Any) -> dict[str, Any]:
    mime = object_of(file).get("mime")
    return {"mime": mime[:MIME]} if isinstance(mime, str) else {}


def _told(state: dict[str, Any], room: Room) -> dict[str, Any]:
    """What a tool noted beside its result; of one that was aborted, its output by then."""
    told = object_of(state.get("metadata"))
    found: dict[str, Any] = {key: told[key] for key in ("sessionId", "exit") if key in told}
    aborted = state.get("status") == "error" and told.get("interrupted") is True
    if aborted and isinstance(told.get("output"), str):
        found |= {"interrupted": True, "output": room.cut(told["output"])}
    return found


def object_of(value: Any) -> dict[str, Any]:
    """A value if it is an object, or else an empty one."""
    return value if isinstance(value, dict) else {}


def is_number(value: Any) -> bool:
    """Whether a value is a number; booleans are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)
