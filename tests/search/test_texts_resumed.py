"""What a process leaves unread when it ends is read by the next one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from indexerd.daemon.library import Library
from indexerd.errors import StateError, WriteError
from indexerd.search.ranking import search
from indexerd.sources.stores import Store
from tests.e2e.world import Session
from tests.store.rows import caches


class Place:
    """Sessions, and one library after another over the same caches."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sessions = [Session(root / "sessions/--w--") for _ in range(3)]
        for number, session in enumerate(self.sessions):
            session.talk(2)
            session.turn(f"Where is zebra{number}?")
        self.library = self.started()

    def started(self) -> Library:
        """The next process, as far as it needs no look at the files."""
        self.library = Library(
            *caches(self.root),
            stores=lambda: [Store("pi", f"{self.root}/sessions", f"{self.root}/meta")],
            exclude=list,
            report=lambda *_: None,
            defect=lambda *_: None,
        )
        self.library.load()
        return self.library

    def scan(self) -> None:
        """One reconciling scan."""
        for _ in self.library.scan():
            pass

    def read(self) -> int:
        """Read all that is to be read; says how many steps it took."""
        steps = 1
        while self.library.texts.step():
            steps += 1
            assert steps < 100
        return steps

    def found(self) -> list[bool]:
        """Which sessions a search finds by their words."""
        hits = [search(self.library.index, f"zebra{number}").hits for number in range(3)]
        return [bool(one) for one in hits]

    def kill(self) -> None:
        """As after kill -9: nothing is brought up to date."""
        self.library.index.close()
        self.library.store.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Three sessions that nobody has read."""
    place = Place(tmp_path)
    yield place
    place.library.close()


@pytest.mark.parametrize("killed", [False, True])
def test_text_that_was_not_read_is_read_after_the_start(place: Place, *, killed: bool) -> None:
    """A1, F2: the ledger says where the files end; what of them is searchable is known by itself.

    No session has to grow for that.
    """
    place.scan()
    assert place.library.texts.index(place.sessions[0].id)
    assert place.library.texts.unread == 3  # one is not committed
    place.library.checkpoint()
    if killed:
        place.kill()
    else:
        place.library.close()

    place.started()
    assert place.library.texts.unread == (3 if killed else 2)
    place.scan()
    place.read()
    assert place.found() == [True, True, True]


def test_text_that_was_read_is_not_read_again(place: Place) -> None:
    """F9: a start has nothing to do where nothing was left."""
    place.scan()
    place.read()
    place.library.close()
    place.started()
    assert (place.library.texts.unread, place.found()) == (0, [True, True, True])


def test_a_part_of_a_session_is_not_all_of_it(place: Place) -> None:
    """F9: a session read half is found, too."""
    place.scan()
    first = place.sessions[0]
    while place.library.texts.step():
        pass
    first.talk(3)
    place.scan()
    assert not place.library.texts.index(first.id, limit=1)
    place.library.close()
    place.started()
    assert place.library.texts.unread == 1
    place.read()
    place.library.close()
    place.started()
    assert place.library.texts.unread == 0


def test_the_ledger_is_not_ahead_of_the_catalog(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A3: rows that the catalog did not take are made anew after a crash, or an orderly end."""

    def full(*_: object) -> int:
        raise WriteError("no space is left on the device")

    with monkeypatch.context() as broken:
        broken.setattr(place.library.index, "put", full)
        place.scan()
        with pytest.raises(WriteError):
            place.library.checkpoint()
        with suppress(StateError):
            place.library.close()

    place.started()
    assert place.library.store.count() == 0
    place.scan()
    assert place.library.store.count() == 3


def test_a_file_that_went_is_gone_after_a_crash(place: Place) -> None:
    """A1: killed between two caches, the one that says what is followed knows of it still."""
    place.scan()
    place.library.checkpoint()
    gone = place.sessions[0]
    gone.path.unlink()
    changes = next(place.library.files.refresh([str(gone.path)]))
    assert [one.session_id for one in changes] == [gone.id]
    place.kill()  # before the catalog was told

    place.started()
    place.scan()
    row = place.library.store.get(gone.id)
    assert row is None or row["gone"]
