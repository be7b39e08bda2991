"""Secrets of the user's own kinds are not searched, whenever the patterns came to be (X5)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexerd.io.catalog import Catalog
from indexerd.io.ledger import Ledger
from indexerd.io.stores import Store
from indexerd.service.answers import Answers
from indexerd.service.library import Library
from tests.e2e.world import Session

WORD = "zq4417xkcd"
PATTERN = r"zq\d+\w+"


class Place:
    """Three sessions, and one library after another over the same caches."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.patterns: list[str] = []
        self.sessions = [Session(root / "sessions/--w--") for _ in range(3)]
        for session in self.sessions:
            session.turn(f"The badge is {WORD}, said the porter.")
        self.library = self.started()

    def started(self) -> Library:
        """The next process, which has looked at the files."""
        self.library = Library(
            Ledger(self.root / "ledger.sqlite"),
            Catalog.open(self.root / "catalog.sqlite"),
            stores=lambda: [Store("pi", f"{self.root}/sessions", f"{self.root}/meta")],
            exclude=list,
            report=lambda *_: None,
            defect=lambda *_: None,
            patterns=lambda: self.patterns,
        )
        self.library.load()
        self.scan()
        return self.library

    def scan(self) -> None:
        """One reconciling scan."""
        for _ in self.library.scan():
            pass

    def read(self, most: int = 1000) -> None:
        """Do what may wait: all of it, or some steps."""
        for _ in range(most):
            if not self.library.texts.some() and not self.library.texts.due:
                return
        assert most < 1000, "it never ends"

    def restart(self) -> None:
        """An end without a word, as after kill -9, and the next start."""
        self.library.ledger._db.close()
        self.library.catalog.close()
        self.started()

    def found(self, word: str) -> int:
        """How many sessions are found by a word, whether in a name or in a message."""
        hits = self.library.catalog.search(f'"{word}"').hits
        return len({one["sessionId"] for one in hits})

    def on_disk(self) -> list[str]:
        """Which files of the catalog hold the secret."""
        self.library.catalog.close()
        self.library.ledger.close()
        files = self.root.glob("catalog.sqlite*")
        return [one.name for one in files if WORD.encode() in one.read_bytes().lower()]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Sessions that speak of a badge."""
    place = Place(tmp_path)
    yield place
    place.library.close()


def test_what_the_user_calls_a_secret_is_not_searched(place: Place) -> None:
    """X5: neither in a message nor in the name that a session goes by."""
    place.patterns = [PATTERN]
    place.restart()
    place.read()
    assert (place.found(WORD), place.found("badge")) == (0, 3)
    assert "[redacted:custom]" in place.library.catalog.search("badge").hits[0]["snippet"]
    assert place.on_disk() == []


@pytest.mark.parametrize("restarted", [False, True])
def test_new_patterns_hold_for_what_was_indexed_before(place: Place, *, restarted: bool) -> None:
    """X5: after a reload as after a start, and without a trace in the file."""
    place.read()
    assert place.found(WORD) == 3
    answers = Answers(place.library.catalog, time.time)
    assert WORD in answers.complete({})["items"][0]["label"]
    place.patterns = [PATTERN]
    if restarted:
        place.restart()
    else:
        place.library.reconsider()
    assert place.library.texts.unread == 3
    place.read()
    assert (place.found(WORD), place.found("badge")) == (0, 3)
    if not restarted:
        assert WORD not in answers.complete({})["items"][0]["label"]
    names = {one.name for one in place.library.catalog.known()}
    assert names == {"The badge is [redacted:custom], said the porter."}
    assert place.on_disk() == []


def test_nothing_is_left_beside_the_file(place: Place) -> None:
    """X5, S2.23: neither in its log nor in a catalog that was set aside once."""
    place.read()
    place.library.checkpoint()
    place.library.ledger.close()
    place.library.catalog.close()
    aside = place.root / "catalog.sqlite.aside"
    aside.write_bytes((place.root / "catalog.sqlite").read_bytes())
    place.patterns = [PATTERN]
    place.started()
    place.read()
    assert not aside.exists()
    files = [*place.root.glob("catalog.sqlite*")]
    assert [one.name for one in files if WORD.encode() in one.read_bytes().lower()] == []


def test_what_is_no_secret_any_more_is_found_again(place: Place) -> None:
    """X5: a pattern that took too much can be taken back."""
    place.patterns = [PATTERN]
    place.restart()
    place.read()
    place.patterns = []
    place.library.reconsider()
    place.read()
    assert place.found(WORD) == 3


def test_of_a_session_that_is_gone_it_goes_as_well(place: Place) -> None:
    """X5: its words are kept, and cannot be read again: they are changed where they stand."""
    place.read()
    place.sessions[0].path.unlink()
    place.scan()
    place.patterns = [PATTERN]
    place.library.reconsider()
    place.read()
    assert (place.found(WORD), place.found("badge")) == (0, 3)
    assert place.on_disk() == []


@pytest.mark.parametrize("steps", range(6))
def test_an_end_in_the_middle_forgets_nothing(place: Place, steps: int) -> None:
    """X5, A1: killed after any step, the next start does what was left."""
    place.read()
    place.sessions[0].path.unlink()
    place.scan()
    place.library.checkpoint()
    place.patterns = [PATTERN]
    place.library.reconsider()
    place.read(steps)
    place.restart()
    place.read()
    assert (place.found(WORD), place.found("badge")) == (0, 3)
    assert place.on_disk() == []


def test_the_same_patterns_are_no_reason_to_read_again(place: Place) -> None:
    """F9: not in another order either; and where there are none, nothing is done."""
    place.patterns = [PATTERN, "another"]
    place.restart()
    place.read()
    place.library.checkpoint()
    place.patterns = ["another", PATTERN, PATTERN]
    place.restart()
    assert place.library.texts.unread == 0
    steps = 0
    while place.library.texts.some():
        steps += 1
    assert steps <= 2  # the catalog is asked, and nothing is scoured
    assert not place.library.texts.due
