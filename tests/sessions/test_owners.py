"""Which of several files stands for a session: claim by claim, and in a library of real files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from indexerd.daemon.library import Library
from indexerd.search.index import TextIndex
from indexerd.sessions.duplicates import MARGIN_MS, DuplicateResolver
from indexerd.sessions.info import SessionInfo
from indexerd.sources.stores import Store
from indexerd.store.store import StateStore
from indexerd.times import iso_of_ms
from tests.sessions.plain_card import CARD


@dataclass
class File:
    """A file that claims the session, as far as owning it goes."""

    path: str
    card: SessionInfo | None = None
    rank: tuple[Any, ...] = ()


class Session:
    """One session with two copies, after the first scan."""

    def __init__(self, margin_ms: int = MARGIN_MS) -> None:
        self.owners: DuplicateResolver[File] = DuplicateResolver()
        self.one, self.two = File("/s/a.jsonl"), File("/s/b.jsonl")
        self.now = 1_000_000
        self.say(self.one)
        self.owners.margin_ms = margin_ms

    @property
    def owner(self) -> File | None:
        """Who stands for it."""
        return self.owners.get("s")

    def say(self, file: File, after_ms: int = 0) -> bool:
        """A message comes into a file, later than the last; says whether the owner changed."""
        self.now += after_ms
        before = self.owners.get("s")
        file.card = replace(CARD, path=file.path, activity_ms=self.now)
        self.owners.claim(file)
        return self.owners.get("s") is not before


@given(st.lists(st.integers(1, 10 * MARGIN_MS), max_size=30))
def test_two_who_write_in_turn_do_not_make_it_flip(gaps: list[int]) -> None:
    """F16: of appends that alternate, however far apart, at most one changes the owner."""
    session = Session()
    changes = 0
    for number, gap in enumerate(gaps):
        changes += session.say((session.two, session.one)[number % 2], gap)
    assert changes <= 1


def test_a_copy_that_is_little_ahead_takes_nothing_over() -> None:
    """F16: the margin is a minute of the messages' own time; beyond it the newer one counts."""
    session = Session()
    assert not session.say(session.two, MARGIN_MS)
    assert session.owner is session.one
    assert session.say(session.two, 1)
    assert session.owner is session.two
    assert session.owners.twins() == {"s": [session.two.path, session.one.path]}


def test_who_owned_it_gets_it_back_by_going_on_alone() -> None:
    """F16: a former owner must be ahead for longer than the margin, and the owner be silent."""
    session = Session()
    assert session.say(session.two, 2 * MARGIN_MS)
    assert not session.say(session.one, 2 * MARGIN_MS)
    assert not session.say(session.one, MARGIN_MS)
    assert not session.say(session.two, MARGIN_MS)  # it was not silent: all begins again
    assert not session.say(session.one, 2 * MARGIN_MS)
    assert not session.say(session.one, MARGIN_MS)
    assert session.say(session.one, 1)
    assert session.owner is session.one


def test_at_the_first_scan_the_newest_counts_whatever_is_met_first() -> None:
    """F16: with every file met for the first time there is one answer: newest, then path."""
    session = Session(margin_ms=0)
    assert session.say(session.two, 1)
    assert session.say(session.one, 0)  # the same moment: the smaller path
    assert session.owner is session.one
    assert not session.say(session.two, 0)


def test_a_file_of_a_higher_rank_counts_at_once() -> None:
    """F16: rank comes before time, and no file of a lower one takes over."""
    session = Session()
    session.two.rank = session.one.rank = (0,)
    session.say(session.one)
    session.two.rank = (1,)
    session.now -= 5
    assert session.say(session.two)
    assert not session.say(session.one, 9 * MARGIN_MS)


def test_an_owner_that_goes_leaves_it_to_the_other() -> None:
    """F16: a file that is gone stands for nothing; one that comes back is a file like any other."""
    session = Session()
    session.say(session.two, 2 * MARGIN_MS)
    session.owners.disown(session.two, "s")
    assert session.owner is session.one
    assert session.owners.twins() == {}
    assert session.say(session.two, 2 * MARGIN_MS)
    assert session.owner is session.two


def no_defect(path: str, bug: Exception) -> None:
    """Reading a copy is expected to be without defects."""
    raise AssertionError(path) from bug


def test_two_copies_that_are_written_in_turn(tmp_path: Path) -> None:
    """F16: ten appends, two minutes apart, change the owner once; a restart is no append."""
    folder = tmp_path / "agent/sessions/--w--"
    folder.mkdir(parents=True)
    store = StateStore(tmp_path / "store.sqlite")
    library = Library(
        store,
        TextIndex(tmp_path / "search", store),
        stores=lambda: [Store("pi", f"{tmp_path}/agent/sessions", f"{tmp_path}/metas")],
        exclude=list,
        report=lambda *_: None,
        defect=no_defect,
    )
    copies = [folder / "one.jsonl", folder / "two.jsonl"]
    head = {"type": "session", "version": 3, "id": "twin", "timestamp": iso_of_ms(0), "cwd": "/w"}
    for path in copies:
        path.write_text(json.dumps(head) + "\n")
    library.load()
    owners = []
    for number in range(10):
        at = (number + 1) * 2 * MARGIN_MS
        said = {"role": "user", "content": "Go on.", "timestamp": at}
        parent = f"{number - 2:08x}" if number > 1 else None
        entry = {"type": "message", "id": f"{number:08x}", "parentId": parent}
        with copies[number % 2].open("a") as file:
            file.write(json.dumps({**entry, "timestamp": iso_of_ms(at), "message": said}) + "\n")
        for _ in library.scan():
            pass
        card = library.files.card("twin")
        assert card is not None
        owners.append(card.path)
    assert sum(one != other for one, other in pairwise(owners)) == 1
    assert sorted(library.files.owners.twins()["twin"]) == sorted(map(str, copies))
    library.close()
