"""How one kind of storage is looked at and read: a plain file, a compressed one, a database.

Every session has a path, whatever it is kept in; a session in a database has the path of the
database with its id below it. All of them give lines of JSON at offsets, which stay valid until
a `Read` says otherwise; an offset need not be a position in a file.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from indexerd.sources import opencode_db, opencode_tree, zst
from indexerd.sources import tail as plain
from indexerd.sources.cursor import Cursor, Look
from indexerd.sources.tail import Read


class Lines(Protocol):
    """Single lines of one session, by where they stand."""

    def at(self, offset: int, length: int) -> bytes:
        """The line there; SessionUnreadableError, or other bytes, when it is there no more."""
        ...


class Tailing(Protocol):
    """One session's reading position."""

    cursor: Cursor | None

    def read(self, path: str) -> Read:
        """Read what is new. FileNotFoundError when it is gone, else SessionUnreadableError."""
        ...


class Source(Protocol):
    """One kind of storage."""

    def look(self, path: str) -> Look | None:
        """What tells a changed session from an unchanged one; None where there is none."""
        ...

    def tail(self, cursor: Cursor | None = None) -> Tailing:
        """A reading position."""
        ...

    def lines(self, path: str) -> AbstractContextManager[Lines]:
        """Open a session to read single lines; SessionUnreadableError when that fails."""
        ...


class _Plain:
    """A file to which lines are appended."""

    look = staticmethod(plain.look)
    tail = staticmethod(plain.Tail)
    lines = staticmethod(plain.lines_of)


PLAIN: Source = _Plain()
ZST: Source = zst
DATABASE: Source = opencode_db
TREE: Source = opencode_tree


def source_of(agent: str, path: str) -> Source:
    """What reads this session."""
    if agent == "opencode":
        return TREE if path.endswith(".json") else DATABASE
    return ZST if path.endswith(".zst") else PLAIN
