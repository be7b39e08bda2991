"""Sessions in opencode's database: what tells one that changed from all that did not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from indexerd.errors import SessionUnreadableError
from indexerd.sources import opencode_db
from indexerd.sources.cursor import Look, Verdict
from indexerd.sources.opencode_db import Database, lines, look, tail
from tests.sessions.opencode_rows import EVENTS, SCHEMA, START, Rows
from tests.sources.opencode_reading import SHARED, in_full, rendered, sides, two

REAL = SHARED / "real" / "opencode"
OLD = (1, 1)  # a time at which nobody writes any more


def aged(path: Path) -> None:
    """Make a database's files old: a stat can be trusted then."""
    for one in path.parent.glob(f"{path.name}*"):
        os.utime(one, OLD)


CHANGES: dict[str, Callable[[Rows], None]] = {
    "title": lambda one: one.run("UPDATE session SET title = 'New' WHERE id = 'ses_a'"),
    "archived": lambda one: one.run("UPDATE session SET time_archived = 7 WHERE id = 'ses_a'"),
    "parent": lambda one: one.run("UPDATE session SET parent_id = 'ses_b' WHERE id = 'ses_a'"),
    "touched": lambda one: one.run(
        "UPDATE session SET time_updated = time_updated + 1 WHERE id = 'ses_a'"
    ),
    "revert": lambda one: one.run(
        """UPDATE session SET revert = '{"messageID": "msg_ses_a_1"}' WHERE id = 'ses_a'"""
    ),
    "message added": lambda one: one.said("ses_a", "msg_new", "user", "more"),
    "message changed": lambda one: one.run(
        "UPDATE message SET time_updated = time_updated + 1 WHERE id = 'msg_ses_a_1'"
    ),
    "message deleted": lambda one: one.run("DELETE FROM message WHERE id = 'msg_ses_a_1'"),
    "part added": lambda one: one.part("ses_a", "msg_ses_a_2", "prt_new", type="patch"),
    "part changed": lambda one: one.run(
        "UPDATE part SET time_updated = time_updated + 1 WHERE id = 'prt_msg_ses_a_1'"
    ),
    "part deleted": lambda one: one.run("DELETE FROM part WHERE id = 'prt_msg_ses_a_1'"),
}


@pytest.mark.parametrize("logged", [True, False], ids=["events", "no events"])
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_told_and_no_other_session_is(
    tmp_path: Path, change: str, logged: bool
) -> None:
    """Inserted, updated, deleted, hidden: the signature of that one differs."""
    rows = two(tmp_path / "opencode.db", SCHEMA + EVENTS if logged else SCHEMA)
    if logged:
        rows.event("ses_b")
    base = Database(str(rows.path))
    before = sides(base.sessions())
    assert base.touched() == []
    position = tail()
    assert position.read(f"{rows.path}/ses_a").verdict is Verdict.CONTINUE
    assert position.read(f"{rows.path}/ses_a").verdict is Verdict.SAME

    CHANGES[change](rows)
    if logged:
        rows.event("ses_a")

    touched = base.touched()
    assert touched is not None
    assert list(sides(touched)) == ["ses_a"]
    after = sides(Database(str(rows.path)).sessions())
    assert sides(touched)["ses_a"] == after["ses_a"] != before["ses_a"]
    assert after["ses_b"] == before["ses_b"]
    assert after["ses_a"].ino == before["ses_a"].ino != before["ses_b"].ino
    assert look(f"{rows.path}/ses_a") == after["ses_a"]
    assert sides(base.sessions()) == after
    assert base.touched() == []
    assert position.read(f"{rows.path}/ses_a").verdict is Verdict.CONTINUE


def test_a_session_is_as_old_as_its_newest_row(tmp_path: Path) -> None:
    """formats.md 4.3: its own time_updated says nothing of its messages and parts."""
    rows = two(tmp_path / "opencode.db")
    rows.run("UPDATE part SET time_updated = ? WHERE id = 'prt_msg_ses_a_1'", START + 5000)
    found = sides(Database(str(rows.path)).sessions())
    assert found["ses_a"].mtime_ns == (START + 5000) * 1_000_000
    rows.run("UPDATE message SET time_updated = ? WHERE id = 'msg_ses_a_1'", START + 6000)
    rows.run("UPDATE session SET time_updated = ? WHERE id = 'ses_b'", START + 7000)
    found = sides(Database(str(rows.path)).sessions())
    assert found["ses_a"].mtime_ns == (START + 6000) * 1_000_000
    assert found["ses_b"].mtime_ns == (START + 7000) * 1_000_000


@pytest.mark.parametrize("schema", [SCHEMA, SCHEMA + EVENTS], ids=["no events", "events"])
def test_a_session_that_is_gone_asks_for_a_listing(tmp_path: Path, schema: str) -> None:
    """F18 in a database: a deletion leaves no trace but a missing row."""
    rows = two(tmp_path / "opencode.db", schema)
    base = Database(str(rows.path))
    assert base.touched() is None
    assert len(base.sessions()) == 2
    for table, key in (("part", "session_id"), ("message", "session_id"), ("session", "id")):
        rows.run(f"DELETE FROM {table} WHERE {key} = 'ses_a'")  # noqa: S608 - names of ours
    rows.session("ses_c")
    assert base.touched() is None
    assert sides(base.sessions()).keys() == {"ses_b", "ses_c"}
    assert base.touched() == []
    assert look(f"{rows.path}/ses_a") is None
    with pytest.raises(FileNotFoundError):
        tail().read(f"{rows.path}/ses_a")
    with pytest.raises(SessionUnreadableError), lines(f"{rows.path}/ses_a"):
        pass


def test_rowids_of_events_that_are_given_out_again_hide_nothing(tmp_path: Path) -> None:
    """The log loses its newest rows with their session, and numbers go on below them."""
    rows = two(tmp_path / "opencode.db", SCHEMA + EVENTS)
    rows.event("ses_a")
    rows.event("ses_b")
    base = Database(str(rows.path))
    base.sessions()
    rows.run("DELETE FROM event WHERE aggregate_id = 'ses_b'")
    for name in ("ses_a", "ses_b"):  # the first of these events gets the number of the lost one
        rows.said(name, f"msg_new_{name}", "user", "more")
        rows.event(name)
    assert sides(base.touched() or []).keys() == {"ses_a", "ses_b"}


def test_a_log_that_is_not_kept_is_not_believed(tmp_path: Path) -> None:
    """Some releases have the table and write nothing into it."""
    rows = two(tmp_path / "opencode.db", SCHEMA + EVENTS)
    rows.event("ses_a")
    base = Database(str(rows.path))
    base.sessions()
    rows.run("UPDATE part SET time_updated = time_updated + 9 WHERE id = 'prt_msg_ses_b_1'")
    assert sides(base.touched() or []).keys() == {"ses_b"}


@pytest.mark.parametrize(
    "change", [one for one in CHANGES if not one.endswith(("message changed", "part changed"))]
)
def test_without_events_rows_are_counted(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a session that was not among the last: its row, or a number of rows, differs."""
    monkeypatch.setattr(opencode_db, "RECENT", 1)
    base = Database(str((rows := two(tmp_path / "opencode.db")).path))
    base.sessions()
    CHANGES[change](rows)
    assert sides(base.touched() or []).keys() == {"ses_a"}


def test_a_file_written_a_moment_ago_is_looked_into(tmp_path: Path) -> None:
    """A second write within the clock's grain leaves the stat as it was."""
    rows = two(tmp_path / "opencode.db")
    base = Database(str(rows.path))
    base.sessions()
    stamp = rows.path.stat()
    rows.run("UPDATE session SET title = 'A tit1e' WHERE id = 'ses_a'")
    os.utime(rows.path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert rows.path.stat().st_size == stamp.st_size
    assert sides(base.touched() or []).keys() == {"ses_a"}
    before = base.sessions()
    stamp = rows.path.stat()
    rows.run("UPDATE session SET title = 'A titl3' WHERE id = 'ses_a'")
    os.utime(rows.path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert base.sessions() != before


def test_unchanged_files_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle database costs a stat, unless it was written just before it was looked at."""
    rows = two(tmp_path / "opencode.db")
    base = Database(str(rows.path))
    base.sessions()
    aged(rows.path)
    listed = base.sessions()
    assert base.touched() == []

    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(opencode_db, "reading", refuse)
    assert base.sessions() == listed
    assert base.touched() == []
    monkeypatch.undo()
    rows.said("ses_a", "msg_new", "user", "more")
    assert sides(base.touched() or []).keys() == {"ses_a"}


def test_a_hint_that_told_too_little_is_made_good_by_a_listing(tmp_path: Path) -> None:
    """W: events are hints; what was changed without one is found by the next listing."""
    rows = two(tmp_path / "opencode.db", SCHEMA + EVENTS)
    rows.event("ses_a")
    base = Database(str(rows.path))
    before = sides(base.sessions())
    rows.run("UPDATE part SET time_updated = time_updated + 9 WHERE id = 'prt_msg_ses_b_1'")
    rows.event("ses_a")
    aged(rows.path)
    assert base.touched() == []
    after = sides(base.sessions())
    assert after["ses_b"] != before["ses_b"]
    assert after["ses_a"] == before["ses_a"]


def test_another_database_in_its_place_is_another(tmp_path: Path) -> None:
    """A restored database has other inodes: everything is read anew."""
    rows = two(tmp_path / "opencode.db")
    base = Database(str(rows.path))
    before = sides(base.sessions())
    shutil.copy(rows.path, tmp_path / "copy")
    os.replace(tmp_path / "copy", rows.path)
    assert base.touched() is None
    after = sides(base.sessions())
    assert all(after[key].ino != before[key].ino for key in before)
    rows.path.unlink()
    for ask in (base.sessions, base.touched):
        with pytest.raises(FileNotFoundError):
            ask()
    assert look(f"{rows.path}/ses_a") is None


@pytest.mark.shared
def test_the_real_database_as_the_client_left_it(tmp_path: Path) -> None:
    """S3.9: 13 sessions, most of them in the -wal; each look and each listing agree."""
    if not REAL.is_dir():
        pytest.skip("the shared fixtures are not beside this checkout")
    for file in REAL.glob("opencode.db*"):
        shutil.copy(file, tmp_path)
    listed = Database(str(tmp_path / "opencode.db")).sessions()
    assert len(listed) == 13
    for one in listed:
        assert look(one.path) == Look(one.dev, one.ino, one.size, one.mtime_ns)
        said = rendered(one.path)
        assert said[0]["id"] == one.path.rpartition("/")[2]
        assert {line["role"] for line in said[1:]} == {"user", "assistant"}
        assert [line["id"] for line in said] == [line["id"] for line in in_full(one.path)]
