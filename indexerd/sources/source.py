"""The kinds of storage: a plain file, a compressed one, a database, a tree of files.

Every session has a path; in a database it is the database's path with the session's id below it.
All kinds give lines of JSON at offsets, which stay valid until a `Read` says otherwise; an offset
need not be a position in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from indexerd.agents.base import Oversize
from indexerd.sources import opencode_db, opencode_tree, zst
from indexerd.sources import tail as plain
from indexerd.sources.cursor import Cursor, Look, Verdict, is_same
from indexerd.sources.line_buffer import Block
from indexerd.sources.tail import Read, Tail

# A session's line by offset and length; SessionUnreadableError, or other bytes, if it is gone.
Lines = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of storage."""

    look: Callable[[str], Look | None]  # differs when the session does; None where there is none
    tail: Callable[[], Tail]
    lines: Callable[[str], AbstractContextManager[Lines]]  # SessionUnreadableError if that fails

    def compare(self, path: str, held: Cursor) -> Verdict:
        """Compare a session with a cursor; errors as of `Tail.read`."""
        if self is PLAIN:
            return plain.compare(path, held)
        now = self.look(path)
        return Verdict.SAME if now and is_same(held, now) else Verdict.CONTINUE


class _Whole(Tail):
    """The position in a session that is read whole whenever its signature changes."""

    def __init__(
        self,
        load: Callable[
            [str, Cursor | None], tuple[Look, list[Block] | Iterator[Block | Oversize] | None]
        ],
    ) -> None:
        super().__init__()
        self._load = load

    def read(self, path: str) -> Read:
        now, lines = self._load(path, self.cursor)
        if lines is None:
            return Read(Verdict.SAME)
        self.cursor = Cursor(*now)
        size = sum(len(one.data) for one in lines) if isinstance(lines, list) else now.size
        return Read(Verdict.CONTINUE, lines, bytes=size, whole=True)


PLAIN = Source(plain.look, Tail, plain.lines)
ZST = Source(plain.look, partial(_Whole, zst.load), zst.lines)
DATABASE = Source(opencode_db.look, partial(_Whole, opencode_db.load), opencode_db.lines)
TREE = Source(opencode_tree.look, partial(_Whole, opencode_tree.load), opencode_tree.lines)


def source_of(agent: str, path: str) -> Source:
    if agent == "opencode":
        return TREE if path.endswith(".json") else DATABASE
    return ZST if path.endswith(".zst") else PLAIN
