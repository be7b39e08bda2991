"""Sessions in opencode's database: their lines, and how a changed session is noticed."""

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from indexerd.agents.opencode import OUTPUT, read
from indexerd.entries import Entry, ToolResult
from indexerd.errors import SessionUnreadableError
from indexerd.sources.opencode import BRIEF_TEXT, Database
from indexerd.sources.opencode import look_in_database as look
from indexerd.sources.source import DATABASE, Source
from indexerd.sources.tail import Block, Look, Verdict
from tests.sessions.opencode_rows import SCHEMA, SCHEMA_2, Rows

PICTURE = {"type": "file", "mime": "image/png", "url": "data:image/png;base64," + "Z" * 9000}
PDF = {"type": "file", "mime": "application/pdf", "filename": "a.pdf"}
PDF["url"] = "data:application/pdf;base64," + "Y" * 9000


def rendered(path: str, source: Source = DATABASE) -> list[dict[str, Any]]:
    found = source.tail().read(path)
    assert (found.verdict, found.whole, found.more) == (Verdict.CONTINUE, True, False)
    return [json.loads(line.data) for line in found.lines if isinstance(line, Block)]


def offsets(path: str, source: Source = DATABASE) -> list[int]:
    return [line.offset for line in source.tail().read(path).lines]


def in_full(path: str, source: Source = DATABASE) -> list[dict[str, Any]]:
    """A session's messages in full, parsed."""
    with source.lines(path) as held:
        return [json.loads(held(offset, 1)) for offset in offsets(path, source)[1:]]


def sides(found: dict[str, Look]) -> dict[str, Look]:
    return {path.rpartition("/")[2]: look for path, look in found.items()}


def two(path: Path, schema: str = SCHEMA) -> Rows:
    """A database of two sessions, each with a prompt and an answer."""
    rows = Rows(path, schema)
    for name in ("ses_a", "ses_b"):
        rows.session(name)
        rows.said(name, f"msg_{name}_1", "user", "hello")
        rows.said(name, f"msg_{name}_2", "assistant", "hi")
    return rows


def test_a_scan_reads_brief_lines_and_a_reader_full_ones(tmp_path: Path) -> None:
    """Brief lines are cut, full ones have every text; a revert hides messages in both."""
    rows = Rows(tmp_path / "opencode.db")
    path = rows.session("ses_a")
    rows.said("ses_a", "msg_1", "user", "x" * 5000)
    rows.message("ses_a", "msg_2", "assistant", finish="tool-calls", summary={"diffs": ["d"]})
    arguments = {"filePath": "/a", "content": "c" * 9000}
    state = {
        "status": "running",
        "input": arguments,
        "output": "o" * 52_000,
        "metadata": {"x": "p"},
    }
    rows.part("ses_a", "msg_2", "prt_2a", type="text", text="y" * 5000)
    rows.part("ses_a", "msg_2", "prt_2b", type="tool", tool="write", callID="c1", state=state)
    rows.part("ses_a", "msg_2", "prt_2c", **PICTURE)
    _, prompt, answer = rendered(path)
    assert prompt["parts"] == [{"type": "text", "text": "x" * BRIEF_TEXT}]
    assert answer["parts"] == [
        {"type": "text", "text": "y" * BRIEF_TEXT},
        {"type": "tool", "tool": "write", "state": {"status": "running"}},
        {"type": "file"},
    ]
    assert (answer["finish"], "error" in answer, "summary" in answer) == (
        "tool-calls",
        False,
        False,
    )

    prompt, answer = in_full(path)
    assert prompt["parts"] == [{"type": "text", "text": "x" * 5000}]
    text, call, file = answer["parts"]
    assert (text["text"], call["callID"], file) == ("y" * 5000, "c1", PICTURE | {"filename": ""})
    assert (call["state"]["input"], call["state"]["output"]) == (arguments, "o" * 52_000)

    rows.run("UPDATE session SET revert = ?", '{"messageID": "msg_2", "partID": "prt_2b"}')
    for message in (rendered(path)[2], in_full(path)[1]):
        assert [part["type"] for part in message["parts"]] == ["text"]
    rows.said("ses_a", "msg_3", "user", "and now")  # then the newest answer is an older one
    assert rendered(path)[2]["parts"] == []


def test_version_2_replaces_the_older_copy(tmp_path: Path) -> None:
    """formats.md 4.8: an id in session_v2 is read only from there, in the order of seq."""
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
    kinds = [("m1", "user"), ("m2", "compaction"), ("m0", "assistant")]
    assert [(message["id"], message["role"]) for message in said[1:]] == kinds
    assert said[1]["parts"] == [{"type": "text", "text": "p" * BRIEF_TEXT}, {"type": "file"}]
    assert [part["type"] for part in said[3]["parts"]] == ["tool", "text"]
    prompt, summary, answer = in_full(path)
    file = {"type": "file", "mime": "", "filename": "f.txt"}
    assert prompt["parts"] == [{"type": "text", "text": "p" * 5000}, file]
    assert (summary["parts"], summary["recent"]) == ([{"type": "text", "text": "S"}], "R")
    assert answer["parts"][0]["callID"] == "c1"
    base = Database(str(rows.path))
    assert sides(base.sessions()).keys() == {"ses_a", "ses_b"}
    assert rendered(f"{rows.path}/ses_b")[0]["schema"] == 1
    rows.run("DELETE FROM session_message WHERE id = 'm1'")
    assert base.touched() == [path]
    rows.run("UPDATE session SET title = 'nobody reads this' WHERE id = 'ses_a'")
    assert base.touched() == []


def tool(status: str = "completed", *, call: str = "c1", **state: Any) -> dict[str, Any]:
    """A tool part of version 1."""
    held = {"status": status, "input": {"command": "ls"}, **state}
    return {"type": "tool", "tool": "bash", "callID": call, "state": held}


def answered(path: Path, *parts: dict[str, Any]) -> Entry:
    """What is read of an answer with these parts."""
    rows = Rows(path)
    place = rows.session("ses_a")
    rows.message("ses_a", "msg_2", "assistant", finish="stop")
    made = [(f"prt_{n:04}", json.dumps(one)) for n, one in enumerate(parts)]
    with rows.writing() as db:
        db.executemany("INSERT INTO part VALUES (?, 'msg_2', 'ses_a', 1, 1, ?)", made)
    return entry_of(place)


def entry_of(path: str) -> Entry:
    """The newest message of a session in full."""
    with DATABASE.lines(path) as held:
        line = held(offsets(path)[-1], 1)
    assert b"YYY" not in line
    return read(line, "")


def test_outputs_are_as_long_as_opencode_keeps_them(tmp_path: Path) -> None:
    """formats.md 4.6: cut, cleared or aborted outputs; a file's name, and an image's data."""
    told = {"interrupted": True, "output": "h" * (OUTPUT + 1), "exit": None}
    entry = answered(
        tmp_path / "opencode.db",
        tool(output="m" * (OUTPUT + 1), attachments=[PICTURE, PDF, {"mime": 7}, None]),
        tool("error", error="e" * (OUTPUT + 1)),
        tool(output="old", time={"compacted": 1_795_000_000_000}, attachments=[PICTURE]),
        tool("error", call="c2", error="aborted", metadata=told),
        tool("error", call="c3", error="aborted", metadata=told | {"interrupted": False}),
        tool("running", call="c4"),
    )
    assert entry.results == (
        ToolResult("c1", "bash", "m" * OUTPUT),
        ToolResult("c1", "bash", "e" * OUTPUT),
        ToolResult("c1", "bash", "old", cleared=True),
        ToolResult("c2", "bash", "h" * OUTPUT),
        ToolResult("c3", "bash", "aborted"),
    )
    assert entry.failed == ("c1", "c2", "c3")
    assert (entry.images, entry.attached) == (1, ("a.pdf",))


def test_results_of_version_2(tmp_path: Path) -> None:
    """formats.md 4.8: a result in pieces, an error object, `pruned` next to the state."""

    def call(status: str, name: str, pruned: Any = None, **state: Any) -> dict[str, Any]:
        held = {"status": status, "input": {}, **state}
        when = {"created": 1, "pruned": pruned}
        return {"type": "tool", "id": name, "name": "read", "time": when, "state": held}

    pieces = [{"type": "text", "text": "one"}, PICTURE, None, {"type": "text", "text": "two"}]
    long = [{"type": "text", "text": "l" * size} for size in (40_000, OUTPUT + 1)]
    rows = Rows(tmp_path / "opencode.db", SCHEMA_2)
    path = rows.session_2("ses_a")
    content = [
        call("completed", "c1", content=pieces, structured={"diff": "d" * 9000}),
        call("completed", "c2", pruned=1_795_000_000_000, content=pieces),
        call("error", "c3", content=pieces, error={"type": "unknown", "message": "no"}),
        call("completed", "c4", content=long),
        call("running", "c5", content=pieces),
    ]
    rows.row_2("ses_a", "msg_1", "assistant", 1, content=content, finish="stop")
    entry = entry_of(path)
    assert entry.results == (
        ToolResult("c1", "read", "one\ntwo"),
        ToolResult("c2", "read", "one\ntwo", cleared=True),
        ToolResult("c3", "read", "no"),
        ToolResult("c4", "read", "l" * 40_000 + "\n" + "l" * OUTPUT),
    )
    assert entry.images == 3  # for c1, c3 and c5; the model no longer sees c2


def test_deleted_sessions_and_databases_are_gone(tmp_path: Path) -> None:
    """A session, then the database; a new database in its place is read from the start."""
    rows = two(tmp_path / "opencode.db")
    base = Database(str(rows.path))
    before = sides(base.sessions())
    rows.run("DELETE FROM session WHERE id = 'ses_a'")
    assert sides(base.sessions()).keys() == {"ses_b"}
    assert look(f"{rows.path}/ses_a") is None
    with pytest.raises(FileNotFoundError):
        DATABASE.tail().read(f"{rows.path}/ses_a")
    with pytest.raises(SessionUnreadableError), DATABASE.lines(f"{rows.path}/ses_a"):
        pass
    shutil.copy(rows.path, tmp_path / "copy")
    os.replace(tmp_path / "copy", rows.path)
    assert base.touched() == [f"{rows.path}/ses_b"]
    assert sides(base.sessions())["ses_b"].ino != before["ses_b"].ino
    rows.path.unlink()
    for ask in (base.sessions, base.touched):
        with pytest.raises(FileNotFoundError):
            ask()


def test_an_unknown_schema_is_an_error_and_an_empty_one_is_not(tmp_path: Path) -> None:
    """S3.9: the client creates the file before its tables."""
    path = tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        assert Database(str(path)).sessions() == {}
        db.execute("CREATE TABLE session (id TEXT)")
    with pytest.raises(SessionUnreadableError, match="schema"):
        Database(str(path)).sessions()
    with pytest.raises(SessionUnreadableError, match="schema"):
        look(f"{path}/ses_a")


def test_missing_columns_are_tolerated(tmp_path: Path) -> None:
    """formats.md 4.3: columns vary; the directory may be stored only with the project."""
    path = tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(SCHEMA.replace("CREATE TABLE session", "CREATE TABLE gone", 1))
        db.execute("CREATE TABLE session (id TEXT, project_id TEXT, directory TEXT)")
        db.execute("INSERT INTO project VALUES ('p', '/work/tree'), ('global', '/')")
        db.execute("INSERT INTO session VALUES ('ses_a', 'p', ''), ('ses_b', 'global', '')")
    first = rendered(f"{path}/ses_a")[0]
    assert (first["directory"], first["title"], first["time"]["created"]) == ("/work/tree", "", 0)
    assert rendered(f"{path}/ses_b")[0]["directory"] == ""
