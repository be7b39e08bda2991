"""Where a codex session comes from: its session_meta, or its file's name.

The first session_meta of a file is its identity; later ones were copied from a parent, or bring
news of this one. In newer sub-agents `session_id` is the parent's: `id` is always one's own.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Raw

from indexerd.agents.codex.shape import Line, parse, string, value
from indexerd.events import Base, Header
from indexerd.privacy.sanitize import scrub

ID_MAX = 128
PATH_MAX = 8192
WORD_MAX = 64  # characters of a time that are kept
BARE, LEGACY, PAGINATED = 1, 2, 3  # dialects
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NONE = Raw()


class Meta(msgspec.Struct):
    """The payload of a session_meta."""

    id: Any = None
    session_id: Any = None
    timestamp: Any = None
    cwd: Any = None
    source: Raw = _NONE
    thread_source: Any = None
    parent_thread_id: Any = None
    forked_from_id: Any = None
    history_mode: Any = None
    history_base: Raw = _NONE
    git: Raw = _NONE
    instructions: Raw = _NONE


class _Line(Meta):
    """A whole line; the oldest files have no payload."""

    type: Any = None
    role: Any = None
    payload: Meta | None = None


class _Place(msgspec.Struct):
    ordinal: Any = None


_FIELDS = frozenset(Meta.__struct_fields__)
_decode = msgspec.json.Decoder(_Line).decode
_decode_place = msgspec.json.Decoder(_Place).decode


def meta_of(line: bytes) -> Meta | None:
    """The session_meta that a line holds, in either form; None for any other line."""
    held = _parsed(line)
    if held is None:
        return None
    if held.type == "session_meta":
        return held.payload
    named = isinstance(held.id, str) and isinstance(held.timestamp, str)
    bare = named and held.type is None and held.role is None and held.payload is None
    return held if bare else None


def _parsed(line: bytes) -> _Line | None:
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        held = parse(line)
    except ValueError:
        return None
    if not isinstance(held, dict):
        return None
    payload = held.get("payload")
    return _Line(
        **{key: held[key] for key in (_FIELDS | {"type", "role"}) & held.keys()},
        payload=Meta(**{key: payload[key] for key in _FIELDS & payload.keys()})
        if isinstance(payload, dict)
        else None,
    )


def base(line: bytes) -> Base | None:
    """The history in another file that a file's first line says comes before its own."""
    meta = meta_of(line)
    held = value(meta.history_base) if meta else None
    if not isinstance(held, dict):
        return None
    thread, end = held.get("thread_id"), held.get("end_byte_offset")
    if not isinstance(thread, str) or type(end) is not int or end <= 0:
        return None
    ordinal = held.get("end_ordinal_exclusive")
    known = type(ordinal) is int and ordinal > 0
    return Base(scrub(thread[:ID_MAX]), end, int(ordinal or 0) if known else 0)


def copies(meta: Meta) -> bool:
    """Whether a fork's history was copied into its file, by what its header says."""
    return bool(string(meta.forked_from_id)) and not isinstance(value(meta.history_base), dict)


def ordinal_of(line: bytes) -> int | None:
    """The number of a line; None where it has none, or is no JSON."""
    try:
        held = _decode_place(line).ordinal
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return held if type(held) is int else None


def header_of(meta: Meta, line: Line, file: str) -> Header | None:
    """The header of the session whose first meta this is; None where it has no id."""
    own = string(meta.id) or string(meta.session_id) or id_in(file)
    if not own:
        return None
    source = value(meta.source)
    kind = source if isinstance(source, str) else "user"
    agent = isinstance(source, dict) and bool({"subagent", "internal"} & source.keys())
    return Header(
        session_id=scrub(own[:PATH_MAX]),
        cwd=scrub(string(meta.cwd)[:PATH_MAX]),
        created_at=scrub(string(meta.timestamp) or string(line.timestamp))[:WORD_MAX],
        version=BARE if line.payload is None else LEGACY if line.ordinal is None else PAGINATED,
        parent_id=scrub((string(meta.forked_from_id) or _spawner(meta, source))[:PATH_MAX]) or None,
        subagent=agent or string(meta.thread_source) not in ("", "user", kind),
    )


def _spawner(meta: Meta, source: Any) -> str:
    """The thread that started a sub-agent."""
    if string(meta.parent_thread_id):
        return string(meta.parent_thread_id)
    spawn = source
    for key in ("subagent", "thread_spawn"):
        spawn = spawn.get(key) if isinstance(spawn, dict) else None
    return string(spawn.get("parent_thread_id")) if isinstance(spawn, dict) else ""


def branch_of(meta: Meta) -> str | None:
    """The git branch, or None where the meta says nothing of git."""
    git = value(meta.git)
    return scrub(string(git.get("branch"))[:PATH_MAX]) if isinstance(git, dict) else None


def id_in(file: str) -> str:
    """The thread's id in a file's name: of `…-<thread>` and of `…-<thread>_<segment>`."""
    found = _UUID.findall(file.rpartition("/")[2])
    return found[0] if found else ""
