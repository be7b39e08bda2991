"""What is kept of tens of thousands of files: little, and found by ways as true as slow ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.daemon import files as files_module
from indexerd.daemon.files import AT_ONCE
from indexerd.sessions.state import SessionState
from indexerd.sources import memory
from indexerd.sources.cursor import Cursor, Look, Verdict, glance
from indexerd.sources.memory import Memory, Tracked
from indexerd.sources.scan import Found
from indexerd.sources.stores import Kind, Store, Takers
from indexerd.store.store import StateStore
from tests.e2e.world import Session
from tests.store.grown_desk import Desk

NUMBERS = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))
STATS = st.tuples(NUMBERS, NUMBERS, NUMBERS, st.one_of(st.just(-1), NUMBERS))
STORES = [
    Store("pi", "/h/pi/sessions", "/m"),
    Store("codex", "/h/codex/sessions", "/m", beside="/h/codex"),
    Store("opencode", "/h/oc/opencode.db", "/m", kind=Kind.DATABASE, beside="/h/oc"),
    Store("opencode", "/h/oc/storage/session", "/m", kind=Kind.TREE, beside="/h/oc/storage"),
]
WORDS = st.sampled_from(
    ["h", "pi", "codex", "sessions", "oc", "opencode.db", "storage", "session", "x", "..", ".", ""]
)
NAMES = st.sampled_from(["a.jsonl", "b.jsonl.zst", "c.json", "ses_1", "..", ".", "", ".jsonl"])


@given(STATS, STATS, st.booleans())
def test_a_stat_is_compared_with_a_cursor_as_it_is_kept(
    held: tuple[int, int, int, int], seen: tuple[int, int, int, int], same: bool
) -> None:
    """F1: a file is looked at exactly where a glance at its cursor would say so."""
    seen = held if same else seen
    cursor = Cursor(*held, 0, 0, b"head", b"tail")
    file = Tracked("/h/a.jsonl", "pi", cursor)
    wanted = glance(cursor, Look(*seen)) is not Verdict.SAME
    assert file.differs(Found("/h/a.jsonl", *seen)) == wanted
    assert file.tail.cursor == cursor
    assert file.differs(Found("/h/a.jsonl", *seen)) == wanted
    file.doze()
    assert file.cursor == cursor


def test_a_file_that_was_never_read_is_looked_at() -> None:
    """F1: without a cursor every stat differs."""
    assert Tracked("/h/a.jsonl", "pi").differs(Found("/h/a.jsonl", 0, 0, 0, 0))


@given(st.lists(st.tuples(st.lists(WORDS, max_size=5), NAMES), max_size=20))
def test_a_store_is_found_by_directory_as_by_path(asked: list[tuple[list[str], str]]) -> None:
    """X12: what is remembered of a directory never lets a path in that its store does not take."""
    takers = Takers(lambda: STORES)
    for words, name in asked:
        path = "/".join(["", *words, name])
        slow = next((one for one in STORES if one.takes(path)), None)
        assert takers.of(path) == slow


def test_other_stores_are_noticed() -> None:
    """F19: a root that is pointed elsewhere takes no paths of the old place any more."""
    now = STORES
    takers = Takers(lambda: now)
    assert takers.of("/h/pi/sessions/p/a.jsonl") == STORES[0]
    now = [Store("pi", "/other", "/m")]
    assert takers.of("/h/pi/sessions/p/a.jsonl") is None
    assert takers.of("/other/p/a.jsonl") == now[0]


def test_who_wakes_all_sessions_keeps_few(tmp_path: Path) -> None:
    """S0.40: trees that are woken one after the other do not all stay in memory."""
    ledger = StateStore(tmp_path / "store.sqlite")
    count = memory.WOKEN_KEPT + 40
    cursor = Cursor(1, 2, 3, 4, 0, 0, b"", b"")
    paths = [f"/h/{number}.jsonl" for number in range(count)]
    ledger.put_files((path, cursor, b"", SessionState(path).encode()) for path in paths)
    held = Memory(ledger)
    files = [Tracked(path, "pi", cursor) for path in paths]
    files[0].dirty = True  # the ledger does not know it yet: it stays
    assert all(held.wake(file) for file in files)
    awake = [file for file in files if file.state is not None]
    assert len(awake) == memory.WOKEN_KEPT + 1
    assert files[0] in awake
    assert files[-1] in awake
    assert held.wake(files[1])
    ledger.close()


def test_what_comes_or_goes_all_at_once_is_told_in_parts(tmp_path: Path) -> None:
    """F9: nobody's turn is longer for it, and each session is told of once."""
    desk = Desk(tmp_path)
    there = {session.id for session in desk.sessions}
    new = [Session(desk.folder) for _ in range(3 * AT_ONCE)]
    for session in new:
        session.talk(1)
    coming = list(desk.library.scan())
    for session in new:
        session.path.unlink()
    going = list(desk.library.scan())
    for parts, present in ((coming, True), (going, False)):
        told = [one.session_id for part in parts for one in part]
        assert max(map(len, parts)) <= AT_ONCE
        assert sorted(told) == sorted(session.id for session in new)
        assert all((one.card is not None) == present for part in parts for one in part)
    assert {one.session_id for one in desk.library.files.owners.cards()} == there
    desk.library.close()


def test_a_file_that_is_back_before_its_turn_is_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F14: between the parts of one look another may see a file come back; it stays then."""
    monkeypatch.setattr(files_module, "AT_ONCE", 1)
    desk = Desk(tmp_path)
    back, other = desk.sessions[:2]
    aside = tmp_path / "aside"
    back.path.rename(aside)
    other.turn()
    parts = desk.library.hinted([str(back.path), str(other.path)])
    assert [one.session_id for one in next(parts)] == [other.id]
    aside.rename(back.path)
    back.turn()
    assert [one.card is None for part in desk.library.hinted([str(back.path)]) for one in part] == [
        False
    ]
    assert [one for part in parts for one in part] == []
    card = desk.library.files.card(back.id)
    assert card is not None
    assert card.users == 2
    desk.library.close()
