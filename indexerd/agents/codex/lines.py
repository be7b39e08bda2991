"""One line of a Codex file, with only the fields that matter, and what a session_meta says.

A line is `{timestamp, type, payload}`, newer with `ordinal`; the oldest files have the item
itself on the line. The first session_meta of a file is its identity; later ones were copied from a
parent, or bring news of this one. In newer sub-agents `session_id` is the parent's: `id` is always
one's own.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Raw, Struct

from indexerd.agents.base import PATH_MAX, WORD_MAX
from indexerd.agents.lines import NOTHING, Block, as_dict, decoder, mapping, string, value
from indexerd.events import Base, Header

NAME_MAX = 128  # characters of an id
_BARE, _LEGACY, _PAGINATED = 1, 2, 3  # dialects
_TEXTS = frozenset({"input_text", "output_text", "text"})  # and Text, and others yet to come
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Counts(Struct):
    """Tokens, as Codex counts them."""

    input_tokens: Any = 0
    cached_input_tokens: Any = 0
    output_tokens: Any = 0
    total_tokens: Any = 0


class Info(Struct):
    """What a `token_count` says."""

    total_token_usage: Counts | None = None
    last_token_usage: Counts | None = None
    model_context_window: Any = None


class Item(Struct):
    """What stands in a payload: a response item, an event, or an item within an event."""

    type: str | None = None
    role: str | None = None
    id: str | None = None
    turn_id: str | None = None
    call_id: str | None = None
    name: str | None = None
    phase: str | None = None
    content: Raw = NOTHING
    arguments: Raw = NOTHING
    input: Raw = NOTHING
    action: Raw = NOTHING
    output: Raw = NOTHING
    summary: Raw = NOTHING  # of thoughts
    # of events
    message: Raw = NOTHING
    images: Raw = NOTHING
    local_images: Raw = NOTHING
    info: Info | None = None
    item: Raw = NOTHING
    error: Raw = NOTHING
    changes: Raw = NOTHING
    parsed_cmd: Raw = NOTHING
    success: bool | None = None
    status: str | None = None
    exit_code: int | None = None
    num_turns: int | None = None
    thread_id: str | None = None
    thread_name: str | None = None
    model_context_window: Any = None
    # of turn_context and compacted
    cwd: str | None = None
    model: str | None = None
    effort: str | None = None
    replacement_history: Raw = NOTHING
    # of session_meta
    model_provider: str | None = None  # newer ones say it of a turn, too
    session_id: str | None = None
    timestamp: str | None = None
    source: Raw = NOTHING
    thread_source: str | None = None
    parent_thread_id: str | None = None
    forked_from_id: str | None = None
    history_base: Raw = NOTHING
    git: Raw = NOTHING


class Line(Struct):
    """A whole line; `item` is what it holds, wherever that stands."""

    type: str | None = None
    timestamp: str | None = None
    ordinal: int | None = None
    payload: Item | None = None
    metadata: Raw = NOTHING


class _Place(Struct):
    ordinal: Any = None


decode = decoder(Line)
decode_item = decoder(Item)
_decode_place = msgspec.json.Decoder(_Place).decode


def item_of(field: Raw) -> Item:
    """The item that a field holds; an empty one where it holds none."""
    try:
        return decode_item(field)
    except ValueError:
        return Item()


def texts_of(content: list[Block]) -> list[str]:
    """The texts of a content."""
    return [one.text for one in content if one.type in _TEXTS or one.type.lower().endswith("text")]


def images_in(content: list[Block]) -> int:
    """How many blocks of a content are pictures: input_image, local_image, localImage."""
    return sum([one.type.endswith(("image", "Image")) for one in content])


def name_of(held: str | None) -> str:
    """An id as it may be kept; nothing where there is none."""
    return held[:NAME_MAX] if held else ""


# -- where a session comes from ------------------------------------------------------------------


def meta_of(line: Line, data: bytes) -> Item | None:
    """The session_meta that a line holds, in either form; None for any other line."""
    if line.type == "session_meta":
        return line.payload
    if line.type is not None or line.payload is not None:
        return None
    item = item_of(Raw(data))
    return item if item.id is not None and item.timestamp is not None and not item.role else None


def base(data: bytes) -> Base | None:
    """The history in another file that a file's first line says comes before its own."""
    try:
        meta = meta_of(decode(data), data)
    except ValueError:
        return None
    held = mapping(meta.history_base) if meta else {}
    thread, end = held.get("thread_id"), held.get("end_byte_offset")
    if not isinstance(thread, str) or type(end) is not int or end <= 0:
        return None
    ordinal = held.get("end_ordinal_exclusive")
    return Base(thread[:NAME_MAX], end, max(0, ordinal) if type(ordinal) is int else 0)


def ordinal_of(data: bytes) -> int | None:
    """The number of a line; None where it has none, or is no JSON."""
    try:
        held = _decode_place(data).ordinal
    except (ValueError, RecursionError):
        return None
    return held if type(held) is int else None


def header_of(meta: Item, line: Line, file: str) -> Header | None:
    """The header of the session whose first meta this is; None where it has no id."""
    own = meta.id or meta.session_id or id_in(file)
    if not own:
        return None
    source = value(meta.source)
    kind = source if isinstance(source, str) else "user"
    agent = bool({"subagent", "internal"} & as_dict(source).keys())
    spawn = as_dict(as_dict(as_dict(source).get("subagent")).get("thread_spawn"))
    parent = meta.forked_from_id or meta.parent_thread_id or string(spawn.get("parent_thread_id"))
    return Header(
        session_id=own[:PATH_MAX],
        cwd=(meta.cwd or "")[:PATH_MAX],
        created_at=(meta.timestamp or line.timestamp or "")[:WORD_MAX],
        version=_BARE if line.payload is None else _LEGACY if line.ordinal is None else _PAGINATED,
        parent_id=parent[:PATH_MAX] or None,
        subagent=agent or (meta.thread_source or "") not in ("", "user", kind),
    )


def branch_of(meta: Item) -> str:
    """The git branch; nothing where the meta says nothing of git."""
    return string(mapping(meta.git).get("branch"))[:PATH_MAX]


def id_in(file: str) -> str:
    """The thread's id in a file's name: of `…-<thread>` and of `…-<thread>_<segment>`."""
    found = _UUID.findall(file.rpartition("/")[2])
    return found[0] if found else ""
