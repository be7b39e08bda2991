"""Sessions that are not to be read: globs over directory and file, and ids that were purged.

The globs are those of `privacy.exclude`. A purged session counts as excluded, although its file is
still there. An id is known only once a file's header was read, but for agents whose file names end
in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from fnmatch import fnmatch


class Exclusions:
    """The globs in force, and the purged sessions in `forgotten`."""

    def __init__(self, wanted: Callable[[], list[str]]) -> None:
        """`wanted()` returns the globs of the settings."""
        self.forgotten: Collection[str] = frozenset()
        self._wanted = wanted
        self._globs: list[str] = []
        self._touched = False

    def changed(self) -> None:
        """Have the next `renew` report a change: of `forgotten`."""
        self._touched = True

    def renew(self) -> bool:
        """Take over the globs of the settings; say whether anything changed."""
        touched, self._touched = self._touched, False
        old, self._globs = self._globs, self._wanted()
        return touched or old != self._globs

    def packed(self) -> bytes:
        """The globs in force, for the store."""
        return "\0".join(self._globs).encode("utf-8", "surrogateescape")

    def match(self, path: str, cwd: str, session_id: str = "") -> bool:
        """Whether this file, the directory its session ran in, or its session is excluded."""
        ids = (session_id, path.rpartition("/")[2])
        return any(one in self.forgotten for one in ids) or matches(self._globs, path, cwd)

    def forbid(self, path: str, cwd: str, session_id: str) -> bool:
        """Whether a session is excluded by the settings of this moment, taken over or not."""
        return session_id in self.forgotten or matches(self._wanted(), path, cwd)


def at_home(globs: list[str], home: object) -> list[str]:
    """The globs with the user's home directory in place of a leading `~/`."""
    return [f"{home}{one[1:]}" if one.startswith("~/") else one for one in globs]


def matches(globs: list[str], path: str, cwd: str) -> bool:
    """Whether a glob fits a session's file, the directory it ran in, or one above these."""
    return any(
        fnmatch(name, glob) or fnmatch(name, glob.rstrip("/") + "/*")
        for glob in globs
        for name in (path, cwd)
        if name
    )
