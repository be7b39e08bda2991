"""The kinds of storage: a plain file, a compressed file, a database, a tree of files.

Every session has a path; in a database it is the database's path, then the session's id. All kinds
yield JSON lines at offsets, which stay valid until a `Read` says otherwise; an offset need not be a
position in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from indexerd.agents.base import Oversize
from indexerd.errors import SessionUnreadableError
from indexerd.sources import tail
from indexerd.sources.compressed import in_compressed, lines_in_compressed
from indexerd.sources.history import has_history, in_history, lines_in_history, look_in_history
from indexerd.sources.opencode import (
    TreeRecords,
    in_database,
    load_from_database,
    look_at_tree,
    look_in_database,
)
from indexerd.sources.opencode_copy import in_copy, lines_in_copy
from indexerd.sources.tail import Block, Cursor, Lines, Look, Read, Tail, Verdict

LookAt = Callable[[str], Look | None]
Pieces = list[Block] | Iterator[Block | Oversize]
# Reads a session whole: its `look`, and all lines, or none if the cursor matches that.
# FileNotFoundError if it is gone, or SessionUnreadableError.
Load = Callable[[str, Cursor | None], tuple[Look, Pieces]]


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of storage."""

    look: LookAt  # changes when the session does; None if there is none
    opened: Callable[[str], AbstractContextManager[Lines]]  # the errors are those of `Load`
    load: Load | None = None

    @contextmanager
    def lines(self, path: str) -> Iterator[Lines]:
        """Open a session to read single lines; SessionUnreadableError if that fails."""
        try:
            with self.opened(path) as lines:
                yield lines
        except FileNotFoundError:
            raise SessionUnreadableError("the session is gone") from None

    def tail(self) -> Tail:
        return _Whole(self.load) if self.load else Tail()

    def compare(self, path: str, cursor: Cursor) -> Verdict:
        """Compare a session with a cursor; the errors are those of `Tail.read`."""
        if self.load is None:
            return tail.compare(path, cursor)
        now = self.look(path)
        return Verdict.SAME if now and cursor.matches(now) else Verdict.CONTINUE


class _Whole(Tail):
    """Reads a session whole whenever it has changed."""

    def __init__(self, load: Load) -> None:
        super().__init__()
        self._load = load

    def read(self, path: str) -> Read:
        now, lines = self._load(path, self.cursor)
        if self.cursor and self.cursor.matches(now):
            return Read(Verdict.SAME)
        self.cursor = Cursor(*now)
        size = sum(len(line.data) for line in lines) if isinstance(lines, list) else now.size
        return Read(Verdict.CONTINUE, lines, bytes=size, whole=True)


def _loading(look: LookAt, lines_in: Callable[[str], Pieces]) -> Load:
    def load(path: str, cursor: Cursor | None) -> tuple[Look, Pieces]:
        now = look(path)
        if now is None:
            raise FileNotFoundError(path)
        return now, [] if cursor and cursor.matches(now) else lines_in(path)

    return load


PLAIN = Source(tail.look, tail.lines)
ZST = Source(tail.look, in_compressed, _loading(tail.look, lines_in_compressed))
DATABASE = Source(look_in_database, in_database, load_from_database)
COPY = Source(tail.look, in_copy, _loading(tail.look, lines_in_copy))
TREE = Source(
    look_at_tree,
    lambda path: nullcontext(TreeRecords(path)),
    _loading(look_at_tree, lambda path: TreeRecords(path).brief_lines()),
)
HISTORY = Source(look_in_history, in_history, _loading(look_in_history, lines_in_history))


def source_of(agent: str, path: str) -> Source:
    if agent == "claude" and has_history(path):
        return HISTORY
    if agent == "opencode":
        if path.endswith(".zst"):
            return COPY
        return TREE if path.endswith(".json") else DATABASE
    return ZST if path.endswith(".zst") else PLAIN
