"""One line of a Codex file, with only the fields that a scan needs, and what a session_meta says.

A line is `{timestamp, type, payload}`, newer with `ordinal`; the oldest files have the item
itself on the line. The first session_meta of a file is its identity; later ones were copied from a
parent, or bring news of this one. In newer sub-agents `session_id` is the parent's: `id` is always
one's own.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Raw, Struct

from indexerd.agents.base import PATH_MAX, WORD_MAX
from indexerd.agents.json_lines import NOTHING, as_dict, decoder, parse_object, string
from indexerd.events import Base, Header

NAME_MAX = 128  # characters of an id
_BARE, _LEGACY, _PAGINATED = 1, 2, 3  # dialects
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

Fields = dict[str, Any]  # of a payload


class Named(Struct):
    """An item within an event, as far as it tells whether the rest matters."""

    type: str = ""
    id: str = ""


class Item(Struct):
    """What stands in a payload: a response item, an event, or a turn's context."""

    type: str | None = None
    role: str | None = None
    id: str | None = None
    turn_id: str | None = None
    phase: str | None = None
    output: Raw = NOTHING
    summary: Raw = NOTHING  # of thoughts
    info: Any = None
    item: Named | None = None
    error: Any = None
    num_turns: int | None = None
    thread_id: str | None = None
    thread_name: str | None = None
    model_context_window: Any = None
    cwd: str | None = None


class Line(Struct):
    """A whole line."""

    type: str | None = None
    timestamp: str | None = None
    ordinal: int | None = None
    payload: Item | None = None
    metadata: Raw = NOTHING


decode = decoder(Line)
decode_item = decoder(Item)


def payload_of(data: bytes) -> Fields:
    """What a line holds, in full: in its payload, or on the line itself."""
    held = parse_object(data)
    payload = held.get("payload")
    return payload if isinstance(payload, dict) else held


def texts_of(content: list[Fields]) -> list[str]:
    """The texts of a content: of input_text, output_text, Text, and others yet to come."""
    texts = (one for one in content if string(one.get("type")).lower().endswith("text"))
    return [string(one.get("text")) for one in texts]


def images_in(content: list[Fields]) -> int:
    """How many blocks of a content are pictures: input_image, local_image, localImage."""
    return sum([string(one.get("type")).endswith(("image", "Image")) for one in content])


def name_of(held: Any) -> str:
    """An id as it may be kept; nothing where there is none."""
    return string(held)[:NAME_MAX]


# -- where a session comes from ------------------------------------------------------------------


def meta_of(line: Line, data: bytes) -> Fields | None:
    """The session_meta that a line holds, in either form; None for any other line."""
    if line.type == "session_meta":
        return payload_of(data) if line.payload else None
    if line.type is not None or line.payload is not None:
        return None
    held = payload_of(data)
    named = isinstance(held.get("id"), str) and isinstance(held.get("timestamp"), str)
    return held if named and not string(held.get("role")) else None


def base(data: bytes) -> Base | None:
    """The history in another file that a file's first line says comes before its own."""
    try:
        meta = meta_of(decode(data), data)
    except ValueError:
        return None
    held = as_dict(meta.get("history_base")) if meta else {}
    thread, end = held.get("thread_id"), held.get("end_byte_offset")
    if not isinstance(thread, str) or type(end) is not int or end <= 0:
        return None
    ordinal = held.get("end_ordinal_exclusive")
    return Base(thread[:NAME_MAX], end, max(0, ordinal) if type(ordinal) is int else 0)


def ordinal_of(data: bytes) -> int | None:
    """The number of a line; None where it has none, or is no JSON."""
    try:
        return decode(data).ordinal
    except ValueError:
        return None


def header_of(meta: Fields, line: Line, file: str) -> Header | None:
    """The header of the session whose first meta this is; None where it has no id."""
    own = string(meta.get("id")) or string(meta.get("session_id")) or id_in(file)
    if not own:
        return None
    source = meta.get("source")
    kind = source if isinstance(source, str) else "user"
    agent = bool({"subagent", "internal"} & as_dict(source).keys())
    spawn = as_dict(as_dict(as_dict(source).get("subagent")).get("thread_spawn"))
    parents = (meta.get("forked_from_id"), meta.get("parent_thread_id"))
    parent = next(filter(None, map(string, (*parents, spawn.get("parent_thread_id")))), "")
    return Header(
        session_id=own[:PATH_MAX],
        cwd=string(meta.get("cwd"))[:PATH_MAX],
        created_at=(string(meta.get("timestamp")) or line.timestamp or "")[:WORD_MAX],
        version=_BARE if line.payload is None else _LEGACY if line.ordinal is None else _PAGINATED,
        parent_id=parent[:PATH_MAX] or None,
        subagent=agent or string(meta.get("thread_source")) not in ("", "user", kind),
    )


def id_in(file: str) -> str:
    """The thread's id in a file's name: of `…-<thread>` and of `…-<thread>_<segment>`."""
    found = _UUID.findall(file.rpartition("/")[2])
    return found[0] if found else ""
