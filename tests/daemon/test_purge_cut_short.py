"""A purge that a crash cuts short: what the next process owes for it (S2.23, V12)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.privacy.test_own_secrets import Place

OWN = "qv7719untold"


class Forgetful(Place):
    """Whose sessions are forgotten stands before the library looks at any."""

    forgotten: frozenset[str] = frozenset()

    def scan(self) -> None:
        """One reconciling scan; a purge was noted, and nothing else of it was done."""
        self.library.files.exclusions.forgotten = self.forgotten
        self.library.files.exclusions.changed()
        super().scan()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Forgetful]:
    """Three sessions, of which one says what no other says."""
    place = Forgetful(tmp_path)
    place.sessions[0].turn(f"The word is {OWN}.")
    place.scan()
    place.read()
    yield place
    place.library.close()


def test_the_words_of_a_purge_cut_short_are_scoured(place: Forgetful) -> None:
    """The session is noted as forgotten, the process ends, and another one finds the note."""
    assert place.found(OWN) == 1
    place.forgotten = frozenset([place.sessions[0].id])
    place.restart()
    assert place.found(OWN) == 0
    assert place.library.catalog.owes_scour
    place.read()
    assert not place.library.catalog.owes_scour
    place.library.close()
    files = list(place.root.glob("catalog.sqlite*"))
    assert files
    assert not [one.name for one in files if OWN.encode() in one.read_bytes()]


def test_a_session_that_is_only_gone_costs_no_scouring(place: Forgetful) -> None:
    """Agents drop old sessions every day; to scour is to write all indexes anew."""
    place.sessions[0].path.unlink()
    place.scan()
    place.read()
    assert not place.library.catalog.owes_scour


def test_what_was_forgotten_already_costs_no_scouring(place: Forgetful) -> None:
    """Its file stays, and may grow: at each look at it there is nothing left to drop."""
    place.forgotten = frozenset([place.sessions[0].id])
    place.restart()
    place.read()
    place.sessions[0].turn("More of the same.")
    place.scan()
    assert not place.library.catalog.owes_scour
    place.restart()
    assert not place.library.catalog.owes_scour
