"""How one kind of storage is looked at and read: a plain file, a compressed one, a database.

Every session has a path, whatever it is kept in; a session in a database has the path of the
database with its id below it. All of them give lines of JSON at offsets, which stay valid until
a `Read` says otherwise; an offset need not be a position in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from indexerd.agents.base import Oversize
from indexerd.sources import opencode_db, opencode_tree, zst
from indexerd.sources import tail as plain
from indexerd.sources.cursor import Cursor, Look, Verdict, is_same
from indexerd.sources.line_buffer import Block
from indexerd.sources.tail import Read

# A session's line by offset and length; SessionUnreadableError, or other bytes, when it is there
# no more.
Lines = Callable[[int, int], bytes]
_Load = Callable[[str, Cursor | None], tuple[Look, list[Block] | Iterator[Block | Oversize] | None]]


class Tailing(Protocol):
    """One session's reading position."""

    cursor: Cursor | None

    def read(self, path: str) -> Read:
        """Read what is new. FileNotFoundError when it is gone, else SessionUnreadableError."""
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of storage."""

    look: Callable[[str], Look | None]  # what tells a changed session; None where there is none
    compare: Callable[[str, Cursor], Verdict]
    tail: Callable[[], Tailing]
    lines: Callable[[str], AbstractContextManager[Lines]]  # SessionUnreadableError if that fails


class _Whole:
    """The reading position in a session that is read whole whenever its signature is another."""

    def __init__(self, load: _Load) -> None:
        self._load = load
        self.cursor: Cursor | None = None

    def read(self, path: str) -> Read:
        now, lines = self._load(path, self.cursor)
        if lines is None:
            return Read(Verdict.SAME)
        self.cursor = Cursor(*now)
        size = sum(len(one.data) for one in lines) if isinstance(lines, list) else now.size
        return Read(Verdict.CONTINUE, lines, bytes=size, whole=True)


def _whole(
    look: Callable[[str], Look | None],
    load: _Load,
    lines: Callable[[str], AbstractContextManager[Lines]],
) -> Source:
    def compare(path: str, held: Cursor) -> Verdict:
        now = look(path)
        return Verdict.SAME if now and is_same(held, now) else Verdict.CONTINUE

    return Source(look, compare, partial(_Whole, load), lines)


PLAIN = Source(plain.look, plain.compare, plain.Tail, plain.lines)
ZST = _whole(plain.look, zst.load, zst.lines)
DATABASE = _whole(opencode_db.look, opencode_db.load, opencode_db.lines)
TREE = _whole(opencode_tree.look, opencode_tree.load, opencode_tree.lines)


def source_of(agent: str, path: str) -> Source:
    """What reads this session."""
    if agent == "opencode":
        return TREE if path.endswith(".json") else DATABASE
    return ZST if path.endswith(".zst") else PLAIN
