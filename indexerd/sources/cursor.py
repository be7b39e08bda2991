"""How far a file was read, and whether what is on disk now still continues it.

Size alone lies (a migration rewrites in place and grows), an inode alone lies (ext4 hands out a
freed one at once), mtime alone lies (it can be set). So a cursor holds all of these and two
fingerprints: of the file's first bytes, and of the bytes just before the offset.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import NamedTuple

import msgspec

HEAD_BYTES = 4096
TAIL_BYTES = 1024


class Verdict(StrEnum):
    """What a file is, compared with the cursor."""

    SAME = "same"  # nothing to read
    CONTINUE = "continue"  # read on from the offset
    TRUNCATED = "truncated"  # the rest: read from 0
    REPLACED = "replaced"
    REWRITTEN = "rewritten"

    @property
    def restart(self) -> bool:
        """Whether everything known of the file must be forgotten."""
        return self in (Verdict.TRUNCATED, Verdict.REPLACED, Verdict.REWRITTEN)


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """A position in a file. `offset` is always just after a newline, or 0."""

    dev: int
    ino: int
    size: int
    mtime_ns: int
    offset: int
    head_len: int
    head_hash: bytes
    tail_hash: bytes


class Look(NamedTuple):
    """A file's stat, as far as cursors care."""

    dev: int
    ino: int
    size: int
    mtime_ns: int


def fingerprint(data: bytes) -> bytes:
    """Eight bytes that stand for `data`."""
    return hashlib.blake2b(data, digest_size=8).digest()


def is_same(cursor: Cursor, look: Look) -> bool:
    """Whether the stat is unchanged, so that the file need not be opened."""
    seen = (look.dev, look.ino, look.size, look.mtime_ns)
    return seen == (cursor.dev, cursor.ino, cursor.size, cursor.mtime_ns)


def judge(cursor: Cursor, look: Look, head: bytes, tail: bytes) -> Verdict:
    """Compare with the bytes: `head` is the file's first `head_len`, `tail` those before `offset`.

    A file with another inode whose bytes agree is the same file, moved or restored: it goes on.
    """
    if look.size < cursor.offset:
        return Verdict.TRUNCATED
    if fingerprint(head) != cursor.head_hash or fingerprint(tail) != cursor.tail_hash:
        moved = (look.dev, look.ino) != (cursor.dev, cursor.ino)
        return Verdict.REPLACED if moved else Verdict.REWRITTEN
    return Verdict.CONTINUE
