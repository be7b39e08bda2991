"""Secrets of the user's own kinds are not searched, whenever the patterns came to be (X5)."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from indexerd.daemon.answers import Answers
from indexerd.daemon.library import Library
from indexerd.errors import StateError
from indexerd.protocol import params
from indexerd.protocol.params import decode
from indexerd.search.ranking import search
from indexerd.sources.stores import Store
from tests.e2e.world import Session
from tests.store.rows import caches

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
            *caches(self.root),
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
        self.library.find_stores()
        self.library.scan()
        while self.library.busy:
            self.library.step()

    def read(self, most: int = 1000) -> None:
        """Do what may wait: all of it, or some steps."""
        for _ in range(most):
            if not self.library.texts.step():
                return
        assert most < 1000, "it never ends"

    def restart(self) -> None:
        """An end without a word, as after kill -9, and the next start."""
        self.library.index.close()
        self.library.store.close()
        self.started()

    def found(self, word: str) -> int:
        """How many sessions are found by a word, whether in a name or in a message."""
        hits = search(self.library.index, f'"{word}"').hits
        return len({one["sessionId"] for one in hits})

    def on_disk(self) -> list[str]:
        """Which files of the catalog hold the secret."""
        self.library.index.close()
        self.library.store.close()
        return holding(self.root)


def holding(root: Path) -> list[str]:
    """Tables of rows, and files of the index, that hold the secret.

    Words of an index are in plain letters. Cursors stand beside states as the session file has
    them, and go when the file is read anew.
    """
    with closing(sqlite3.connect(root / "store.sqlite")) as db:
        rows = {
            "record": db.execute("SELECT * FROM record").fetchall(),
            "session": db.execute("SELECT * FROM session").fetchall(),
        }
    held = [name for name, found in rows.items() if WORD in str(found).lower()]
    files = root.glob("search/*/*")
    return held + [one.name for one in files if WORD.encode() in one.read_bytes().lower()]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Sessions that speak of a badge."""
    place = Place(tmp_path)
    yield place
    place.library.close()


@pytest.mark.parametrize("restarted", [False, True])
def test_new_patterns_hold_for_what_was_indexed_before(place: Place, *, restarted: bool) -> None:
    """X5: after a reload as after a start, and without a trace in the file."""
    place.read()
    assert place.found(WORD) == 3
    answers = Answers(place.library.index, time.time)
    assert WORD in answers.complete(decode(params.Complete, {}))["items"][0]["label"]
    place.patterns = [PATTERN]
    if restarted:
        place.restart()
    else:
        place.library.reconsider()
    assert place.library.texts.due
    place.read()
    assert (place.found(WORD), place.found("badge")) == (0, 3)
    if not restarted:
        assert WORD not in answers.complete(decode(params.Complete, {}))["items"][0]["label"]
    names = {one.name for one in place.library.store.names()}
    assert names == {"The badge is [redacted:custom], said the porter."}
    assert place.on_disk() == []


def test_a_store_that_fails_meanwhile_keeps_no_row(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X5: our own disk fails when the patterns change: rows are made anew all the same, later."""
    place.read()
    place.patterns = [PATTERN]

    def fails() -> set[str]:
        raise StateError("the disk is away")

    with monkeypatch.context() as broken:
        broken.setattr(place.library.store, "ids", fails)
        with pytest.raises(StateError):
            place.library.reconsider()
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
    place.patterns = [PATTERN]
    place.library.reconsider()
    place.read(steps)
    place.restart()
    place.read()
    assert (place.found(WORD), place.found("badge")) == (0, 3)
    assert place.on_disk() == []
