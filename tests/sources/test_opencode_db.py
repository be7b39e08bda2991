"""Sessions in opencode's database: what tells a changed one, and what is read of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from indexerd.errors import SessionUnreadableError
from indexerd.sources import opencode_db
from indexerd.sources.opencode_db import Database, lines
from indexerd.sources.opencode_lines import BRIEF_TEXT
from indexerd.sources.source import Source
from tests.sessions.opencode_rows import SCHEMA, SCHEMA_2, START, Rows
from tests.sources.opencode_reading import SHARED, in_full, offsets, rendered, sides, two

SOURCE: Source = opencode_db


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
