"""How far a file was read, and whether what is on disk now still continues it.

Size alone lies (a migration rewrites in place and grows), an inode alone lies (ext4 hands out a
freed one at once), mtime alone lies (it can be set). So a cursor holds all of these and two
fingerprints: of the file's first bytes, and of the last ones that were read.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec


class Verdict(StrEnum):
    """What a file is, compared with the cursor."""

    SAME = "same"  # nothing to read
    CONTINUE = "continue"  # read on
    TRUNCATED = "truncated"  # the rest: read from the start
    REPLACED = "replaced"
    REWRITTEN = "rewritten"

    @property
    def restart(self) -> bool:
        """Whether everything known of the file must be forgotten."""
        return self in (Verdict.TRUNCATED, Verdict.REPLACED, Verdict.REWRITTEN)


class Look(NamedTuple):
    """A file's stat, as far as cursors care; of a session in a database, its signature."""

    dev: int
    ino: int
    size: int
    mtime_ns: int


class Cursor(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A position in a file. `size` is what was read of it; of a file read whole, as in a `Look`."""

    dev: int
    ino: int
    size: int
    mtime_ns: int
    head_len: int = 0
    head_hash: bytes = b""
    last_hash: bytes = b""


def is_same(cursor: Cursor, look: Look) -> bool:
    """Whether a file was read to its end, and its stat is unchanged since."""
    return look == (cursor.dev, cursor.ino, cursor.size, cursor.mtime_ns)
