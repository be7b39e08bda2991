"""Which of several files stands for a session.

One session id can be claimed by several files. One of them owns it: the one with the newest
message, and the smaller path where that is a tie. The owner stays until another is ahead by a
minute, so that two writers on two copies do not make it flip to and fro (F16).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from indexerd.core.card import Card

MARGIN_MS = 60_000


class Claimant(Protocol):
    """A file, as far as owning a session goes."""

    path: str
    card: Card | None


_C = TypeVar("_C", bound=Claimant)


class Owners(Generic[_C]):
    """Session ids, the files that claim them, and the one that counts."""

    def __init__(self) -> None:
        self._owners: dict[str, _C] = {}
        self._claims: dict[str, dict[str, _C]] = {}  # where there are several
        self.margin_ms = 0  # while all is met for the first time the newest counts

    def get(self, session_id: str) -> _C | None:
        """The file that stands for a session."""
        return self._owners.get(session_id)

    def cards(self) -> Iterator[Card]:
        """The card of every session."""
        files = list(self._owners.values())  # another thread may ask while this one reads
        return (file.card for file in files if file.card)

    def twins(self) -> dict[str, list[str]]:
        """Session ids claimed by several files, the owner first."""
        found = {}
        for session_id, claims in list(self._claims.items()):
            owner = self._owners.get(session_id)
            if owner is not None:
                found[session_id] = [owner.path, *sorted(set(claims) - {owner.path})]
        return found

    def claim(self, file: _C) -> None:
        """Let a file stand for its session, if it is the best one."""
        card = file.card
        if card is None:
            return
        owner = self._owners.get(card.session_id)
        if owner is None or owner is file:
            self._owners[card.session_id] = file
            return
        claims = self._claims.setdefault(card.session_id, {owner.path: owner})
        claims[file.path] = file
        ahead = card.activity_ms - (owner.card.activity_ms if owner.card else 0)
        if ahead > self.margin_ms or (ahead == 0 and file.path < owner.path):
            self._owners[card.session_id] = file

    def disown(self, file: _C, session_id: str) -> None:
        """A file stands for a session no more; another may."""
        claims = self._claims.get(session_id, {})
        claims.pop(file.path, None)
        if len(claims) < 2:  # noqa: PLR2004 - one file is no twin
            self._claims.pop(session_id, None)
        if self._owners.get(session_id) is file:
            del self._owners[session_id]
            for path in sorted(claims):
                self.claim(claims[path])
