"""What the user does not want read: globs over a session's directory and its file."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatch

from indexerd.core.card import Card


class Exclusions:
    """The globs of `privacy.exclude` that are in force."""

    def __init__(self, wanted: Callable[[], list[str]]) -> None:
        """`wanted()` gives the globs that the settings hold now."""
        self._wanted = wanted
        self._globs: list[str] = []

    def renew(self) -> bool:
        """Take over what the settings hold; says whether it is something else."""
        old, self._globs = self._globs, self._wanted()
        return old != self._globs

    def packed(self) -> bytes:
        """The globs in force, for the ledger."""
        return "\0".join(self._globs).encode("utf-8", "surrogateescape")

    def match(self, path: str, cwd: str) -> bool:
        """Whether the user excluded this file, or the directory its session ran in."""
        return _matches(self._globs, path, cwd)

    def forbid(self, card: Card) -> bool:
        """Whether the settings exclude a session now, even while a reload is on its way."""
        return _matches(self._wanted(), card.path, card.cwd)


def _matches(globs: list[str], path: str, cwd: str) -> bool:
    names = [name for name in (path, cwd) if name]
    return any(
        fnmatch(name, glob) or fnmatch(name, glob.rstrip("/") + "/*")
        for glob in globs
        for name in names
    )
