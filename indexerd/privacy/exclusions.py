"""Recognise sessions that must not be read: globs over directory and file, and purged ids.

A purged session's file still exists. Its id is in the file's header, or is the file's name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from fnmatch import fnmatch
from os.path import expanduser


class Exclusions:
    """The globs of the settings, and the purged sessions in `forgotten`."""

    def __init__(self, globs: Callable[[], list[str]]) -> None:
        self.forgotten: Collection[str] = frozenset()
        self._globs = globs
        self._seen: tuple[list[str], list[str]] = [], []

    def renew(self) -> bool:
        """Return whether globs or purged sessions changed since the last call."""
        old, self._seen = self._seen, (self._globs(), [*self.forgotten])
        return old != self._seen

    def match(self, path: str, cwd: str, session_id: str = "") -> bool:
        """Return whether this file, the session's directory, or the session is excluded."""
        ids = (session_id, path.rpartition("/")[2])
        return any(key in self.forgotten for key in ids) or matches(self._globs(), path, cwd)


def matches(globs: list[str], path: str, cwd: str) -> bool:
    """Return whether a glob matches a session's file, its directory, or a directory above.

    A leading `~/` is the user's home directory.
    """
    return any(
        fnmatch(name, glob) or fnmatch(name, glob.rstrip("/") + "/*")
        for glob in map(expanduser, globs)
        for name in (path, cwd)
        if name
    )
