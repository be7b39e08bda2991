"""Histories that begin in another file, read by `Files` from real files, over a real ledger."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from indexerd.agents import codex
from indexerd.sources.opencode_db import Database
from indexerd.sources.stores import Kind, Store
from indexerd.store.store import StateStore
from tests.sessions.opencode_rows import Rows
from tests.sources.thread_desk import A, B, C, Desk, Thread, fork

SEGMENTS = [f"01a1fff2-1111-7000-8000-00000000000{n}" for n in range(3)]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Nothing yet."""
    return Desk(tmp_path)


# -- what the user excluded ----------------------------------------------------------------------


@pytest.mark.parametrize("globs", [["/secret/*"], ["*-{A}.jsonl"]])
@pytest.mark.parametrize("met", [True, False])
def test_an_excluded_history_is_not_taken_in(desk: Desk, globs: list[str], *, met: bool) -> None:
    """X: neither a fork of an excluded session, nor the fork's own fork, has a word of it."""
    desk.exclude = [one.replace("{A}", A) for one in globs]
    base = Thread(desk.root, A, 1, cwd="/secret/p").say("hush", "hushed")
    middle = fork(desk, base).say("middle")
    if met:
        desk.scan()
    fork(desk, middle, C, 10).say("own")
    desk.scan()
    assert desk.texts(B) == ["middle"]
    assert desk.texts(C) == ["middle", "own"]
    assert desk.files.problems() == {}
    desk.restart()
    desk.scan()
    assert desk.texts(C) == ["middle", "own"]


@pytest.mark.parametrize("restart", [True, False])
def test_forks_follow_the_globs(desk: Desk, *, restart: bool) -> None:
    """X: globs that change while the daemon runs, or while it does not, hold for histories too."""
    base = Thread(desk.root, A, 1, cwd="/secret/p").say("hush")
    fork(desk, fork(desk, base).say("middle"), C, 10).say("own")
    desk.scan()
    for globs, before in ((["/secret/*"], []), ([], ["hush"]), (["/secret"], [])):
        desk.exclude = globs
        if restart:
            desk.restart()
            if not before:  # before anything was read
                assert desk.texts(C) == ["middle", "own"]
        desk.scan()
        assert desk.texts(C) == [*before, "middle", "own"]
        assert (desk.files.card(A) is None) == (not before)


def test_a_session_in_a_database_is_let_in_when_its_directory_changes(desk: Desk) -> None:
    """X: an excluded session of opencode is not looked at before something of it changed."""
    rows = Rows(desk.root / "opencode.db")
    place = str(rows.path)
    desk.stores.append(Store("opencode", place, f"{desk.root}/meta", kind=Kind.DATABASE))
    desk.database = Database(place)
    desk.exclude = ["/secret/*"]
    rows.session("ses_1", directory="/secret/q")
    rows.said("ses_1", "msg_1", "user", "psst")
    desk.scan()
    assert desk.files.card("ses_1") is None
    found = desk.database.sessions()
    assert desk.files.differing(found) == []
    move = "UPDATE session SET directory=?, time_updated=?"
    for directory, seen in (("/secret/r", False), ("/w", True), ("/secret/q", False), ("/w", True)):
        rows.run(move, directory, rows.tick())
        desk.scan()
        assert (desk.files.card("ses_1") is not None) == seen
        assert ("ses_1" in desk.files.hidden) != seen
    desk.exclude = [place + "/*"]
    desk.scan()
    rows.run(move, "/elsewhere", rows.tick())
    desk.scan()
    assert desk.files.card("ses_1") is None


# -- bases that come and go ----------------------------------------------------------------------


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("archived", [True, False])
def test_a_fork_met_before_its_base_is_mended(desk: Desk, *, restart: bool, archived: bool) -> None:
    """A base that comes late, after a restart too, and after its fork was moved."""
    base = Thread(desk.root, A, 1).say("one", "two")
    heir = fork(desk, base).say("own")
    away = base.path.rename(desk.root / "away")
    desk.scan()
    assert desk.texts(B) == ["own"]
    assert desk.files.problems() == {str(heir.path): f"the history it begins with is gone: {A}"}
    if archived:
        heir.path.rename(desk.root / "archived_sessions" / heir.path.name)
        desk.scan()
    if restart:
        desk.restart()
        assert desk.texts(B) == ["own"]
    away.rename(base.path)
    desk.scan()
    assert desk.texts(B) == ["one", "two", "own"]
    assert desk.files.problems() == {}


def test_a_base_that_came_just_before_the_end_is_found_at_the_start(desk: Desk) -> None:
    """The ledger knows the base already, and its fork not yet with it."""
    base = Thread(desk.root, A, 1).say("one")
    heir = fork(desk, base).say("own")
    away = base.path.rename(desk.root / "away")
    desk.scan()
    desk.files.checkpoint()
    other = StateStore(desk.root / "store.sqlite")
    kept = [(path, cursor, card, other.state(path) or b"") for path, cursor, card in other.cards()]
    away.rename(base.path)
    desk.scan()
    desk.files.checkpoint()
    other.put_files(one for one in kept if one[0] == str(heir.path))
    other.close()
    desk.start()
    desk.scan()
    assert desk.texts(B) == ["one", "own"]


def test_a_fork_is_read_on_without_its_base(desk: Desk) -> None:
    """What stood in a base that is gone is nothing, the own lines are there, and it is told."""
    base = Thread(desk.root, A, 1).say("one", "two")
    heir = fork(desk, base).say("own")
    desk.scan()
    base.path.unlink()
    heir.say("later")
    gone = {str(heir.path): f"the history it begins with is gone: {base.path.stem}.jsonl"}
    for _ in range(2):
        desk.scan()
        assert desk.texts(B) == ["own", "later"]
        assert desk.files.problems() == gone
        desk.restart()
    card = desk.files.card(B)
    assert card is not None
    assert card.users == 4
    assert desk.files.reread(B)
    assert desk.texts(B) == ["own", "later"]
    assert list(desk.files.problems().values()) == [f"the history it begins with is gone: {A}"]


def test_a_base_that_is_rewritten_or_restored_counts_as_it_is_now(desk: Desk) -> None:
    """A base that becomes shorter is none; once it is whole again, it is one again."""
    base = Thread(desk.root, A, 1).say("one", "two")
    content = base.path.read_bytes()
    fork(desk, fork(desk, base).say("middle"), C, 10).say("own")
    desk.scan()
    with desk.files.lines(C) as lines:
        base.path.write_bytes(content[:-20])
        assert lines.row(0)
        assert lines.row(5) == b""
    desk.scan()
    assert desk.texts(C) == ["middle", "own"]
    base.path.write_bytes(content)
    desk.scan()
    assert desk.texts(C) == ["one", "two", "middle", "own"]
    with base.path.open("r+b") as file:
        file.truncate(len(content) // 2)
    desk.scan()
    assert desk.texts(C) == ["middle", "own"]
    with base.path.open("ab") as file:
        file.write(content[len(content) // 2 :])
    desk.scan()
    assert desk.texts(C) == ["one", "two", "middle", "own"]


def test_a_session_needs_its_own_file(desk: Desk) -> None:
    """Only what was borrowed may be missing."""
    heir = fork(desk, Thread(desk.root, A, 1).say("one")).say("own")
    desk.scan()
    heir.path.unlink()
    with pytest.raises(Exception, match="gone"):
        desk.texts(B)


def test_two_that_claim_to_begin_in_one_another_are_read_once(desk: Desk) -> None:
    """A circle ends: neither waits for ever, nor is the other read without end."""
    ends = {"end_ordinal_exclusive": 99, "end_byte_offset": 700}
    one = Thread(desk.root, A, 1, history_base={"thread_id": B, **ends})
    two = Thread(desk.root, B, 1, history_base={"thread_id": A, **ends})
    for _ in range(4):
        one.say("tick")
        two.say("tock")
        desk.scan()
    assert desk.texts(A) == ["tick"] * 4
    assert desk.texts(B) == ["tock"] * 4


# -- which file it is ----------------------------------------------------------------------------


def test_a_fork_of_a_reverted_thread_has_its_own_past(desk: Desk) -> None:
    """Of two segments in which a line ends at the same byte, the one that was there counts."""
    first = Thread(desk.root, A, 1).say("k")
    point = first.end
    first.say("undone")
    segments = [
        Thread(desk.root, A, second, f"_{SEGMENTS[n]}", history_base=point).say(text)
        for n, (second, text) in enumerate([(2, "r1"), (6, "r2")])
    ]
    ends = [one.end for one in segments]
    assert ends[0] == ends[1]
    Thread(desk.root, B, 4, history_base=ends[0]).say("early")
    Thread(desk.root, C, 8, history_base=ends[0]).say("late")
    desk.scan()
    assert desk.texts(B) == ["k", "r1", "early"]
    assert desk.texts(C) == ["k", "r2", "late"]
    assert desk.texts(A) == ["k", "r2"]


def test_a_line_of_another_ordinal_is_no_end(desk: Desk) -> None:
    """A newline at the right byte is not enough, where lines have numbers."""
    base = Thread(desk.root, A, 1).say("one")
    end = base.end | {"end_ordinal_exclusive": base.ordinal - 1}
    Thread(desk.root, B, 3, history_base=end).say("own")
    desk.scan()
    assert desk.texts(B) == ["own"]
    text = base.path.read_text()
    base.path.write_text(text.replace('"ordinal"', '"ordinary"'))
    plain = {
        "thread_id": A,
        "end_ordinal_exclusive": 77,
        "end_byte_offset": base.path.stat().st_size,
    }
    Thread(desk.root, C, 4, history_base=plain).say("own")
    desk.scan()
    assert desk.texts(C) == ["one", "own"]


def test_the_ordinal_of_a_base_is_read(desk: Desk) -> None:
    """A number that is none is not believed."""
    held = Thread(desk.root, A, 1).end
    for ordinal, known in ((5, 5), (True, 0), (-1, 0), ("5", 0), (None, 0)):
        meta = {"id": B, "history_base": held | {"end_ordinal_exclusive": ordinal}}
        base = codex.base(json.dumps({"type": "session_meta", "payload": meta}).encode())
        assert base is not None
        assert base.end_ordinal == known


# -- archived and compressed ---------------------------------------------------------------------


def _archive(path: Path) -> Path:
    return path.rename(path.parents[1] / "archived_sessions" / path.name)


def _compress(path: Path) -> Path:
    zstandard = pytest.importorskip("zstandard")
    there = path.with_name(f"{path.name}.zst")
    there.write_bytes(zstandard.compress(path.read_bytes()))
    path.unlink()
    return there


def _both(path: Path) -> Path:
    there = _compress(path)
    return there.rename(path.parents[1] / "archived_sessions" / there.name)


@pytest.mark.parametrize("move", [_archive, _compress, _both])
def test_a_session_never_vanishes_on_its_way_to_the_archive(
    desk: Desk, move: Callable[[Path], Path]
) -> None:
    """F: a hint of the old path alone is enough, there and back."""
    base = Thread(desk.root, A, 1).say("one")
    fork(desk, base).say("own")
    desk.scan()
    gone = base.path
    there = move(gone)
    for _ in range(2):  # there, and unpacked again
        changes = [one for batch in desk.files.refresh([str(gone)]) for one in batch]
        assert changes
        assert all(one.card is not None for one in changes)
        card = desk.files.card(A)
        assert card is not None
        assert card.path == str(there)
        assert desk.texts(B) == ["one", "own"]
        if there.suffix != ".zst":
            break
        gone, there = there, _plain(there)


def _plain(path: Path) -> Path:
    there = path.with_suffix("")
    data: bytes = pytest.importorskip("zstandard").decompress(path.read_bytes())
    there.write_bytes(data)
    path.unlink()
    return there
