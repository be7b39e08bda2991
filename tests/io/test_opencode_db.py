"""Sessions in opencode's database: what tells a changed one, and what is read of it."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.core.cursor import Look, Verdict
from indexerd.core.lines import Block
from indexerd.errors import SessionUnreadableError
from indexerd.io import opencode_db
from indexerd.io.opencode_db import Database, lines, look, tail
from indexerd.io.opencode_lines import BRIEF_TEXT
from indexerd.io.scan import Found
from indexerd.io.source import Source
from tests.io.opencode_rows import EVENTS, SCHEMA, SCHEMA_2, START, Rows

SHARED = Path(__file__).parents[3] / "shared" / "fixtures"
REAL = SHARED / "real" / "opencode"
SOURCE: Source = opencode_db
OLD = (1, 1)  # a time at which nobody writes any more


def rendered(path: str) -> list[dict[str, Any]]:
    """A session's lines, parsed."""
    found = tail().read(path)
    assert (found.verdict, found.whole, found.more) == (Verdict.CONTINUE, True, False)
    return [json.loads(one.data) for one in found.lines if isinstance(one, Block)]


def offsets(path: str) -> list[int]:
    """Where a session's lines stand."""
    return [one.offset for one in tail().read(path).lines]


def in_full(path: str) -> list[dict[str, Any]]:
    """A session's lines in full, parsed."""
    with lines(path) as held:
        return [json.loads(held.at(offset, 1)) for offset in offsets(path)]


def sides(found: list[Found]) -> dict[str, Look]:
    """A listing by session id."""
    return {
        one.path.rpartition("/")[2]: Look(one.dev, one.ino, one.size, one.mtime_ns) for one in found
    }


def two(path: Path, schema: str = SCHEMA) -> Rows:
    """A database of two sessions, each a prompt and an answer."""
    rows = Rows(path, schema)
    for name in ("ses_a", "ses_b"):
        rows.session(name)
        rows.said(name, f"msg_{name}_1", "user", "hello")
        rows.said(name, f"msg_{name}_2", "assistant", "hi")
    return rows


def aged(path: Path) -> None:
    """Make a database's files old: a stat can be trusted then."""
    for one in path.parent.glob(f"{path.name}*"):
        os.utime(one, OLD)


# -- what tells a changed session ----------------------------------------------------------------

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


# -- what is read --------------------------------------------------------------------------------


def test_a_session_begins_with_what_it_is(tmp_path: Path) -> None:
    """S3.9, S3.10: parent, title, directory, times, archive and revert stand in the first line."""
    rows = Rows(tmp_path / "opencode.db")
    revert = json.dumps({"messageID": "msg_1", "partID": "prt_1", "diff": "x" * 9000})
    path = rows.session("ses_a", parent_id="ses_0", time_archived=START, revert=revert)
    assert rendered(path) == [
        {
            "type": "session",
            "schema": 1,
            "id": "ses_a",
            "parentID": "ses_0",
            "forkID": None,
            "title": "A title",
            "directory": "/work/demo",
            "version": "1.18.33",
            "time": {"created": START + 10, "updated": START + 10, "archived": START},
            "revert": {"messageID": "msg_1", "partID": "prt_1"},
        }
    ]


def test_messages_come_in_the_order_of_their_time(tmp_path: Path) -> None:
    """formats.md 4.2: ids wrap around; time first, id second."""
    rows = Rows(tmp_path / "opencode.db")
    path = rows.session("ses_a")
    for at, name in ((30, "msg_000"), (10, "msg_ffe"), (20, "msg_b"), (20, "msg_a")):
        rows.message("ses_a", name, "user", at=START + at)
    assert [one["id"] for one in rendered(path)[1:]] == ["msg_ffe", "msg_a", "msg_b", "msg_000"]
    assert [one["id"] for one in in_full(path)[1:]] == ["msg_ffe", "msg_a", "msg_b", "msg_000"]


def worked(path: Path, *, status: str = "completed") -> tuple[Rows, str]:
    """A session in which a tool was used, and then something else was asked."""
    rows = Rows(path)
    place = rows.session("ses_a")
    rows.said("ses_a", "msg_1", "user", "x" * 5000)
    rows.message(
        "ses_a",
        "msg_2",
        "assistant",
        modelID="m-1",
        cost=0.5,
        tokens={"input": 3},
        finish="tool-calls",
        summary={"diffs": ["d" * 900]},
    )
    state = {
        "status": status,
        "input": {"filePath": "/a", "content": "c" * 9000},
        "output": "o" * 52_000,
        "metadata": {"sessionId": "ses_c", "preview": "p" * 9000},
    }
    rows.part("ses_a", "msg_2", "prt_2a", type="text", text="y" * 5000)
    rows.part("ses_a", "msg_2", "prt_2b", type="tool", tool="write", callID="c1", state=state)
    rows.part("ses_a", "msg_2", "prt_2c", type="file", mime="image/png", url="data:" + "z" * 9000)
    return rows, place


def test_a_skim_sees_little_and_a_reader_all(tmp_path: Path) -> None:
    """Two reads: the brief form is cut, the full one has every text and input."""
    rows, path = worked(tmp_path / "opencode.db")
    _, prompt, answer = rendered(path)
    assert prompt["parts"] == [{"type": "text", "text": "x" * BRIEF_TEXT}]
    assert answer["parts"] == [
        {"type": "text", "text": "y" * BRIEF_TEXT},
        {"type": "tool", "tool": "write", "state": {"status": "completed"}},
        {"type": "file"},
    ]
    assert (answer["role"], answer["finish"], answer["error"]) == ("assistant", "tool-calls", None)
    assert "summary" not in answer

    _, prompt, answer = in_full(path)
    assert prompt["parts"] == [{"type": "text", "text": "x" * 5000}]
    assert [one["type"] for one in answer["parts"]] == ["text", "tool", "file"]
    assert answer["parts"][0]["text"] == "y" * 5000
    call = answer["parts"][1]
    assert (call["tool"], call["callID"]) == ("write", "c1")
    assert call["state"]["input"] == {"filePath": "/a", "content": "c" * 9000}
    assert call["state"]["output"] == "o" * 52_000
    assert call["state"]["metadata"] == {"sessionId": "ses_c"}
    assert answer["parts"][2] == {"type": "file", "mime": "image/png"}
    assert (answer["modelID"], answer["cost"], answer["tokens"]) == ("m-1", 0.5, {"input": 3})

    rows.said("ses_a", "msg_3", "user", "and now")  # the answer is an old one then
    assert rendered(path)[2]["parts"] == []
    assert len(in_full(path)[2]["parts"]) == 3


def test_an_open_turn_shows_its_tools(tmp_path: Path) -> None:
    """formats.md 4.3: pending, running, completed: the newest answer's tools are seen."""
    _, path = worked(tmp_path / "opencode.db", status="running")
    assert rendered(path)[2]["parts"][1]["state"] == {"status": "running"}


def test_what_a_revert_hides_within_a_message_is_left_out(tmp_path: Path) -> None:
    """formats.md 4.5: with partID, the parts from that one on are hidden, in both forms."""
    rows, path = worked(tmp_path / "opencode.db")
    revert = json.dumps({"messageID": "msg_2", "partID": "prt_2b"})
    rows.run("UPDATE session SET revert = ?", revert)
    for form in (rendered, in_full):
        assert [one["type"] for one in form(path)[2]["parts"]] == ["text"]


def test_an_answer_that_hangs_on_its_question_comes_with_it(tmp_path: Path) -> None:
    """formats.md 4.6: what a summary keeps is said in the message that asked for it."""
    rows = Rows(tmp_path / "opencode.db")
    path = rows.session("ses_a", parent_id="ses_0")
    rows.message("ses_a", "msg_1", "user")
    rows.part("ses_a", "msg_1", "prt_1", type="compaction", auto=True, tail_start_id="msg_0")
    rows.said("ses_a", "msg_2", "assistant", "So far.", parentID="msg_1", summary=True)
    answer = in_full(path)[2]
    assert answer["parent"] == [{"type": "compaction", "tail_start_id": "msg_0"}]
    assert answer["child"] is True
    assert "parent" not in in_full(path)[1]


def test_a_message_that_is_gone_says_so(tmp_path: Path) -> None:
    """An offset is a rowid: it names its message, or nothing, or raises."""
    rows = two(tmp_path / "opencode.db")
    path = f"{rows.path}/ses_a"
    _, first, second = offsets(path)
    with lines(path) as held:
        assert json.loads(held.at(second, 5))["id"] == "msg_ses_a_2"
    rows.run("DELETE FROM message WHERE id = 'msg_ses_a_2'")
    with lines(path) as held:
        assert json.loads(held.at(first, 5))["id"] == "msg_ses_a_1"
        for gone in (second, offsets(f"{rows.path}/ses_b")[1], 1 << 40):
            with pytest.raises(SessionUnreadableError, match="gone"):
                held.at(gone, 5)


# -- version 2 -----------------------------------------------------------------------------------


def test_version_2_hides_the_older_copy_and_goes_by_seq(tmp_path: Path) -> None:
    """formats.md 4.8: an id in session_v2 is read from there, in the order of seq."""
    rows = two(tmp_path / "opencode.db", SCHEMA + SCHEMA_2)
    path = rows.session_2("ses_a", fork_session_id="ses_b", title=None)
    tool = {"type": "tool", "id": "c1", "name": "write", "state": {"status": "running"}}
    rows.row_2("ses_a", "m0", "assistant", 9, content=[tool, {"type": "text", "text": "t"}])
    rows.row_2(
        "ses_a", "m1", "user", 2, text="p" * 5000, files=[{"name": "f.txt", "uri": "u" * 99}]
    )
    rows.row_2("ses_a", "m2", "compaction", 5, summary="S", status="completed", recent="R")
    said = rendered(path)
    assert [said[0][key] for key in ("schema", "title", "forkID")] == [2, "", "ses_b"]
    assert [(one["id"], one["role"]) for one in said[1:]] == [
        ("m1", "user"),
        ("m2", "compaction"),
        ("m0", "assistant"),
    ]
    assert said[1]["parts"] == [{"type": "text", "text": "p" * BRIEF_TEXT}, {"type": "file"}]
    assert said[3]["parts"] == [
        {"type": "tool", "tool": "write", "state": {"status": "running"}},
        {"type": "text", "text": "t"},
    ]
    _, prompt, summary, answer = in_full(path)
    assert prompt["parts"] == [
        {"type": "text", "text": "p" * 5000},
        {"type": "file", "name": "f.txt"},
    ]
    assert (summary["parts"], summary["recent"]) == ([{"type": "text", "text": "S"}], "R")
    assert answer["parts"][0]["callID"] == "c1"
    assert sides(Database(str(rows.path)).sessions()).keys() == {"ses_a", "ses_b"}
    assert rendered(f"{rows.path}/ses_b")[0]["schema"] == 1


def test_changes_of_version_2_are_told(tmp_path: Path) -> None:
    """A row inserted, updated or removed in session_message, and nothing in the older copy."""
    rows = two(tmp_path / "opencode.db", SCHEMA + SCHEMA_2)
    rows.session_2("ses_a")
    rows.row_2("ses_a", "m1", "user", 1, text="one")
    base = Database(str(rows.path))
    base.sessions()
    for change in (
        "UPDATE session_message SET time_updated = time_updated + 5",
        "DELETE FROM session_message",
        "UPDATE session_v2 SET title = 'Other'",
    ):
        rows.run(change)
        assert sides(base.touched() or []).keys() == {"ses_a"}, change
    rows.run("UPDATE session SET title = 'nobody reads this' WHERE id = 'ses_a'")
    assert base.touched() == []


def test_session_message_without_seq_is_not_read(tmp_path: Path) -> None:
    """formats.md 4.1: an intermediate schema has the table, and keeps nothing in it."""
    schema = SCHEMA + "CREATE TABLE session_message (id TEXT, session_id TEXT, data TEXT);"
    rows = two(tmp_path / "opencode.db", schema)
    rows.run("INSERT INTO session_message VALUES ('m1', 'ses_a', '{}')")
    assert [one["id"] for one in rendered(f"{rows.path}/ses_a")[1:]] == [
        "msg_ses_a_1",
        "msg_ses_a_2",
    ]


@pytest.mark.shared
@pytest.mark.parametrize(("version", "messages"), [("v1", 19), ("v2", 7)])
def test_public_databases(tmp_path: Path, version: str, messages: int) -> None:
    """The two schemas as others drew them."""
    source = SHARED / "public" / "opencode" / "synthetic" / version / "opencode.db"
    if not source.is_file():
        pytest.skip("the shared fixtures are not beside this checkout")
    path = shutil.copy(source, tmp_path)
    found = Database(str(path)).sessions()
    assert sum(len(rendered(one.path)) - 1 for one in found) == messages


# -- what is not as it should be -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "missing"),
    [
        ("CREATE TABLE other (a)", "session"),
        ("CREATE TABLE session (id TEXT)", "message"),
        (SCHEMA.replace("message_id TEXT NOT NULL,", "").replace("(message_id, id)", "(id)"),
         "part.message_id"),
        (SCHEMA + SCHEMA_2.replace(" seq INTEGER NOT NULL,", ""), "session_message.seq"),
        (SCHEMA_2.partition("CREATE TABLE session_message")[0], "session_message"),
    ],
)  # fmt: skip
def test_a_schema_that_is_not_understood_is_named(
    tmp_path: Path, schema: str, missing: str
) -> None:
    """S3.9: it disables this database, and says which table or column is not there."""
    path = tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(schema)
    with pytest.raises(SessionUnreadableError, match=rf"no (table|column) {missing}$"):
        Database(str(path)).sessions()
    assert look(f"{path}/ses_a") is None
    with pytest.raises(SessionUnreadableError):
        tail().read(f"{path}/ses_a")


def test_a_database_without_tables_has_no_sessions_yet(tmp_path: Path) -> None:
    """The client creates the file first, and the tables a moment later."""
    path = tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
    assert Database(str(path)).sessions() == []


def test_columns_that_a_release_does_not_have_are_done_without(tmp_path: Path) -> None:
    """formats.md 4.3: columns vary; a directory can stand with the project alone."""
    path = tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(SCHEMA.replace("CREATE TABLE session", "CREATE TABLE gone", 1))
        db.execute("CREATE TABLE session (id TEXT, project_id TEXT, directory TEXT)")
        db.execute("INSERT INTO project VALUES ('p', '/work/tree'), ('global', '/')")
        db.execute("INSERT INTO session VALUES ('ses_a', 'p', ''), ('ses_b', 'global', '')")
    first = rendered(f"{path}/ses_a")[0]
    assert (first["directory"], first["title"], first["time"]["created"]) == ("/work/tree", "", 0)
    assert rendered(f"{path}/ses_b")[0]["directory"] == ""


def test_ids_that_cannot_be_part_of_a_path_are_not_listed(tmp_path: Path) -> None:
    """X1: an id is what the form allows, or its session does not exist for us."""
    rows = two(tmp_path / "opencode.db")
    for bad in ("../up", "a/b", "", "x" * 200, "a\nb"):
        rows.session(bad)
    base = Database(str(rows.path))
    assert sides(base.sessions()).keys() == {"ses_a", "ses_b"}
    assert base.touched() == []
    assert look(f"{rows.path}/a/b") is None


def test_columns_of_the_wrong_type_are_absent(tmp_path: Path) -> None:
    """SQLite keeps anything in any column; numbers that are none read as 0, texts as nothing."""
    rows = Rows(tmp_path / "opencode.db")
    path = rows.session(
        "ses_a",
        title=b"\xff\xfe",
        directory=7,
        time_created="soon",
        time_updated=1 << 62,
        revert="[",
    )
    rows.message("ses_a", "msg_1", "user")
    rows.run(
        "INSERT INTO message (rowid, id, session_id, time_created, time_updated, data)"
        " VALUES (-3, 'msg_0', 'ses_a', 1, 1, '{}')"
    )
    rows.run("UPDATE message SET time_created = 'never', time_updated = -5, data = x'7b22ff'")
    found = Database(str(rows.path)).sessions()
    assert 0 < found[0].mtime_ns < 1 << 63
    first, only = rendered(path)
    assert [first[key] for key in ("title", "directory", "revert")] == ["", "7", None]
    assert (only["role"], only["at"], only["parts"]) == (None, 0, [])
    assert in_full(path)[1]["parts"] == []


@pytest.mark.parametrize("half", [b"\xff", b"\\ud83d", b"\xed\xa0\xbd"])
def test_texts_that_are_no_utf8_are_read(tmp_path: Path, half: bytes) -> None:
    """F7: what cannot be decoded becomes U+FFFD; the message and its other texts stay."""
    rows = two(tmp_path / "opencode.db")
    data = b'{"type": "text", "text": "cut ' + half + b'"}'
    rows.run("UPDATE part SET data = CAST(? AS TEXT) WHERE id = 'prt_msg_ses_a_1'", data)
    role = b'{"role": "user", "agent": "' + half + b'"}'
    rows.run("UPDATE message SET data = CAST(? AS TEXT) WHERE id = 'msg_ses_a_1'", role)
    for form in (rendered, in_full):
        prompt = form(f"{rows.path}/ses_a")[1]
        assert prompt["role"] == "user"
        assert prompt["parts"][0]["text"].rstrip("\ufffd") == "cut "
        assert prompt["parts"][0]["text"] != "cut "


KEYS = [
    "role",
    "time",
    "finish",
    "error",
    "summary",
    "parentID",
    "text",
    "type",
    "state",
    "content",
    "files",
    "tool",
    "synthetic",
    "tokens",
    "model",
    "created",
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)
WRITTEN = VALUES.map(lambda held: json.dumps(held).encode())
ODD = st.binary(max_size=60) | WRITTEN | WRITTEN.map(lambda data: data.replace(b"e", b"\xff"))


@settings(max_examples=50)
@given(st.lists(st.tuples(ODD, ODD), min_size=1, max_size=5))
def test_nothing_that_a_record_holds_raises(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[bytes, bytes]]
) -> None:
    """F4: whatever stands in `data`, every message has its line, in both forms."""
    rows = Rows(tmp_path_factory.mktemp("odd") / "opencode.db", SCHEMA + SCHEMA_2)
    one, second = rows.session("ses_a"), rows.session_2("ses_b")
    with rows.writing() as db:
        for n, (message, part) in enumerate(records):
            db.execute("INSERT INTO message VALUES (?, 'ses_a', 1, 1, ?)", (f"m{n}", message))
            db.execute("INSERT INTO part VALUES (?, ?, 'ses_a', 1, 1, ?)", (f"p{n}", f"m{n}", part))
            db.execute(
                "INSERT INTO session_message VALUES (?, 'ses_b', ?, ?, 1, 1, ?)",
                (f"s{n}", ("user", "assistant")[n % 2], n, message),
            )
    for path in (one, second):
        assert len(rendered(path)) == len(in_full(path)) == len(records) + 1
