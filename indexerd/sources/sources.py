"""Which source reads a session, by its agent and its path."""

from __future__ import annotations

from contextlib import AbstractContextManager

from indexerd.sources import opencode_db, opencode_tree, zst
from indexerd.sources.cursor import Cursor, Look
from indexerd.sources.source import Lines, Source, Tailing
from indexerd.sources.tail import Tail, lines_of, look


class _Plain:
    """A file to which lines are appended."""

    def look(self, path: str) -> Look | None:
        """The file's stat."""
        return look(path)

    def tail(self, cursor: Cursor | None = None) -> Tailing:
        """A position in the file."""
        return Tail(cursor)

    def lines(self, path: str) -> AbstractContextManager[Lines]:
        """The file, open."""
        return lines_of(path)


PLAIN: Source = _Plain()
ZST: Source = zst
DATABASE: Source = opencode_db
TREE: Source = opencode_tree


def source_of(agent: str, path: str) -> Source:
    """What reads this session."""
    if agent == "opencode":
        return TREE if path.endswith(".json") else DATABASE
    return ZST if path.endswith(".zst") else PLAIN
