"""How far a file was read, and whether the file on disk still continues it.

Size alone lies (a migration rewrites in place and grows), an inode alone lies (ext4 hands out a
freed one at once), mtime alone lies (it can be set). So a cursor holds all of these and two
fingerprints: of the file's first bytes, and of the last ones that were read.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import msgspec


class Verdict(Enum):
    """What a file is, compared with its cursor."""

    SAME = "same"  # nothing to read
    CONTINUE = "continue"  # read on
    RESTART = "restart"  # shortened, replaced or rewritten: read from the start


class Look(NamedTuple):
    """The part of a file's stat that cursors use; of a session in a database, its signature."""

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
    """Whether a file was read to its end, and its stat has not changed since."""
    return look == (cursor.dev, cursor.ino, cursor.size, cursor.mtime_ns)
