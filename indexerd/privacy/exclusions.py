"""What the user does not want read: globs over a session's directory and file, and single ids.

The globs are those of `privacy.exclude`. The ids are of sessions that were purged: they are
treated as excluded, although the agents' files are still there. An id is known only once a file's
header was read, but for agents whose file names end in it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from fnmatch import fnmatch
from typing import Protocol


class Located(Protocol):
    """A session as far as exclusions are concerned."""

    @property
    def session_id(self) -> str:
        """Its id."""
        ...

    @property
    def path(self) -> str:
        """Its file."""
        ...

    @property
    def cwd(self) -> str:
        """The directory it ran in."""
        ...


class Exclusions:
    """The globs that are in force, and the sessions that are forgotten."""

    def __init__(self, wanted: Callable[[], list[str]]) -> None:
        """`wanted()` gives the globs that the settings hold now."""
        self.forgotten: Collection[str] = frozenset()
        self._wanted = wanted
        self._globs: list[str] = []
        self._touched = False

    def changed(self) -> None:
        """A session was forgotten, or is not any more: to be looked at by the next `renew`."""
        self._touched = True

    def renew(self) -> bool:
        """Take over what the settings hold; says whether anything is another than before."""
        touched, self._touched = self._touched, False
        old, self._globs = self._globs, self._wanted()
        return touched or old != self._globs

    def packed(self) -> bytes:
        """The globs in force, for the store."""
        return "\0".join(self._globs).encode("utf-8", "surrogateescape")

    def match(self, path: str, cwd: str, session_id: str = "") -> bool:
        """Whether the user excluded this file, the directory its session ran in, or its session."""
        if not self._globs and not self.forgotten:  # as with most users, for every file there is
            return False
        names = (session_id, path.rpartition("/")[2])
        return any(one in self.forgotten for one in names) or matches(self._globs, path, cwd)

    def bar(self, path: str, card: Located | None, cwd: str = "", session_id: str = "") -> bool:
        """The same, where there may be a card that knows better."""
        if card is None:
            return self.match(path, cwd, session_id)
        return self.match(path, card.cwd, card.session_id)

    def forbid(self, card: Located) -> bool:
        """Whether a session is excluded now, even while a reload is on its way."""
        return card.session_id in self.forgotten or matches(self._wanted(), card.path, card.cwd)


def matches(globs: list[str], path: str, cwd: str) -> bool:
    """Whether one of these fits a session's file, or the directory it ran in, or what is above."""
    names = [name for name in (path, cwd) if name]
    return any(
        fnmatch(name, glob) or fnmatch(name, glob.rstrip("/") + "/*")
        for glob in globs
        for name in names
    )
