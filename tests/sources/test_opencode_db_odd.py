"""opencode's database, where it is not as it should be: schema, columns, ids, texts, records."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.errors import SessionUnreadableError
from indexerd.sources.opencode_db import Database, look, tail
from tests.sessions.opencode_rows import SCHEMA, SCHEMA_2, Rows
from tests.sources.opencode_reading import in_full, rendered, sides, two


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
