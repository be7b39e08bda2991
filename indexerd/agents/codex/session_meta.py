"""Read a session_meta line: whose file it is, and which history comes before it.

The first session_meta of a file is its identity; later ones were copied from a parent, or update
this one. In newer sub-agents `session_id` is the parent's: `id` is always the session's own. The
oldest files have the meta itself on the line.
"""

from __future__ import annotations

import re
from typing import Any

from indexerd.agents.base import PATH_MAX, WORD_MAX
from indexerd.agents.json_lines import Fields, as_dict, parse_object, string
from indexerd.events import Base, Header

NAME_MAX = 128  # characters of an id
_BARE, _LEGACY, _PAGINATED = 1, 2, 3  # dialects
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def name_of(held: Any) -> str:
    return string(held)[:NAME_MAX]


def meta_of(line: Fields) -> Fields:
    """Return the session_meta that a line holds, in either form; empty for any other line."""
    if "type" in line:
        return as_dict(line.get("payload")) if line["type"] == "session_meta" else {}
    named = string(line.get("id")) and isinstance(line.get("timestamp"), str)
    return line if named and "payload" not in line and not string(line.get("role")) else {}


def base(data: bytes) -> Base | None:
    """Find the history in another file that a file's first line says comes before its own."""
    try:
        held = as_dict(meta_of(parse_object(data)).get("history_base"))
    except ValueError:
        return None
    thread, end = held.get("thread_id"), held.get("end_byte_offset")
    if not isinstance(thread, str) or type(end) is not int or end <= 0:
        return None
    ordinal = held.get("end_ordinal_exclusive")
    return Base(thread[:NAME_MAX], end, max(0, ordinal) if type(ordinal) is int else 0)


def ordinal_of(data: bytes) -> int | None:
    try:
        ordinal = parse_object(data).get("ordinal")
    except ValueError:
        return None
    return ordinal if type(ordinal) is int else None


def header_of(meta: Fields, line: Fields, file: str) -> Header | None:
    """Make the header of the session whose first meta this is; None where it has no id."""
    own = string(meta.get("id")) or string(meta.get("session_id")) or id_in(file)
    if not own:
        return None
    source, dialect = meta.get("source"), _LEGACY if "payload" in line else _BARE
    kind = source if isinstance(source, str) else "user"
    agent = bool({"subagent", "internal"} & as_dict(source).keys())
    spawn = as_dict(as_dict(as_dict(source).get("subagent")).get("thread_spawn"))
    parents = (meta.get("forked_from_id"), meta.get("parent_thread_id"))
    parent = next(filter(None, map(string, (*parents, spawn.get("parent_thread_id")))), "")
    return Header(
        session_id=own[:PATH_MAX],
        cwd=string(meta.get("cwd"))[:PATH_MAX],
        created_at=(string(meta.get("timestamp")) or string(line.get("timestamp")))[:WORD_MAX],
        version=_PAGINATED if type(line.get("ordinal")) is int else dialect,
        parent_id=parent[:PATH_MAX] or None,
        subagent=agent or string(meta.get("thread_source")) not in ("", "user", kind),
    )


def id_in(file: str) -> str:
    """Return the thread's id in a file's name: `…-<thread>` or `…-<thread>_<segment>`."""
    found = _UUID.search(file.rpartition("/")[2])
    return found[0] if found else ""
