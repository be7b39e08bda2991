"""What answers are made of, where that is more than JSON; docs/PROTOCOL.md has every field."""

from __future__ import annotations

from typing import Any, NamedTuple


class StoredRow(NamedTuple):
    """A session's row, and the texts besides it that the session is found by."""

    row: dict[str, Any]
    summary: str
    aliases: tuple[str, ...]
