"""The shape in which the store keeps a session's state: `SessionState.encode` and `decode`."""

from __future__ import annotations

from typing import Any

import msgspec

from indexerd.events import Header

FACTS = (
    "strict",
    "name",
    "activity_ms",
    "messages",
    "users",
    "assistants",
    "bad_lines",
    "oversized",
    "seen",
    "archived",
    "git_branch",
    "born_ms",
    "unsettled",
    "compactions",
    "copied",
)


class Stored(msgspec.Struct, array_like=True):
    """A state's fields, in this order; its arrays as bytes."""

    header: Header | None
    foreign: bool
    ids: list[bytes]
    parents: bytes
    offsets: bytes
    lengths: bytes
    codes: bytes
    ordinals: bytes
    marks: dict[bytes, int]
    parts: list[tuple[int, bytes]]
    notes: dict[str, Any]
    leaf: int
    facts: tuple[bool, str | None, int, int, int, int, int, int, int, bool, str, int, int, int, int]
    labels: dict[str, str]
    openings: dict[int, str]
    late: dict[int, bytes]
    repeats: bool
