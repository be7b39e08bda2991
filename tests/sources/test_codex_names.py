"""CodexNames of Codex threads, read from the index file and from the database."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from indexerd.sources.scan import CodexNames

EARLY, LATE = 1_772_355_600_000, 1_772_442_000_000  # 2026-03-01 and -02, 09:00


def say(home: Path, *lines: dict[str, Any] | str) -> None:
    with (home / "session_index.jsonl").open("a") as file:
        for line in lines:
            file.write(line if isinstance(line, str) else json.dumps(line) + "\n")


def named(
    thread: str, name: str | None, at: str = "2026-03-01T09:00:00.12345678Z"
) -> dict[str, Any]:
    return {"id": thread, "thread_name": name, "updated_at": at}


@contextmanager
def database(
    home: Path, number: int = 5, columns: str = "name TEXT,"
) -> Iterator[sqlite3.Connection]:
    """Codex's database, open and with a write-ahead log."""
    with closing(sqlite3.connect(home / f"state_{number}.sqlite", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute(
            "CREATE TABLE IF NOT EXISTS threads (id TEXT PRIMARY KEY, rollout_path TEXT,"
            f" title TEXT, {columns} updated_at_ms INTEGER)"
        )
        yield db


def put(db: sqlite3.Connection, **fields: Any) -> None:
    names, marks = ", ".join(fields), ", ".join("?" * len(fields))
    insert = f"INSERT OR REPLACE INTO threads ({names}) VALUES ({marks})"  # noqa: S608 - constant names
    db.execute(insert, tuple(fields.values()))


def test_a_torn_line_waits_and_a_damaged_one_is_skipped(tmp_path: Path) -> None:
    """A line counts once it has its newline; other shapes are ignored."""
    names, whole = CodexNames(str(tmp_path)), json.dumps(named("a", "whole"))
    say(
        tmp_path, "{bad\n", "[]\n", "5\n", '{"id":1}\n', '{"id":"x","thread_name":[]}\n', whole[:30]
    )
    assert names.refresh() == set()
    with (tmp_path / "session_index.jsonl").open("ab") as file:
        file.write(
            (whole[30:] + "\n" + '{"id":"b","thread_name":"?"}\n').encode().replace(b"?", b"\xff")
        )
        file.write(b'{"id":"c","thread_name":' + b"[" * 100_000 + b"\n")
    assert names.refresh() == {"a", "b"}
    assert (names.name("a"), names.name("b")) == ("whole", "\ufffd")


def test_names_in_the_database_are_seen_as_they_are_written(tmp_path: Path) -> None:
    """S3.3: also while they are only in the write-ahead log."""
    names = CodexNames(str(tmp_path))
    with database(tmp_path) as db:
        put(db, id="a", name="first", title="t", updated_at_ms=EARLY)
        put(db, id="b", title="t", updated_at_ms=EARLY)
        assert names.refresh() == {"a"}
        assert (names.name("a"), names.name("b")) == ("first", None)
        put(db, id="a", name="second", title="t", updated_at_ms=LATE)
        assert names.refresh() == {"a"}
        assert names.name("a") == "second"
    for file in tmp_path.glob("state_5*"):
        file.unlink()
    assert names.refresh() == {"a"}


def test_the_newer_of_two_names_wins(tmp_path: Path) -> None:
    """Releases write to different places: the newer name counts, an empty row does not."""
    names = CodexNames(str(tmp_path))
    early, late = "2026-03-01T09:00:00Z", "2026-03-02T09:00:00Z"
    say(tmp_path, named("a", "index", late), named("b", "index", early), named("c", "index", early))
    say(tmp_path, named("d", "", late), named("e", "", early))
    with database(tmp_path) as db:
        put(db, id="a", name="row", updated_at_ms=EARLY)
        put(db, id="b", name="row", updated_at_ms=LATE)
        put(db, id="c", name=None, updated_at_ms=LATE)
        put(db, id="d", name="row", updated_at_ms=EARLY)
        put(db, id="e", name="row", updated_at_ms=LATE)
    names.refresh()
    assert [names.name(thread) for thread in "abcde"] == ["index", "row", "index", "", "row"]


def test_a_title_is_a_name_only_if_the_user_gave_it(tmp_path: Path) -> None:
    """formats.md 3.11: by default Codex's title is the first message or its beginning."""
    columns = "first_user_message TEXT, preview TEXT,"
    with database(tmp_path, columns=columns) as db:
        first = {"first_user_message": "fix the cache now", "preview": "of the parent"}
        for thread, title in (
            ("a", "fix the cache now"),
            ("b", "fix the…"),
            ("c", "of the parent"),
        ):
            put(db, id=thread, title=title, **first)
        put(db, id="d", title="Cache work", **first)
        put(db, id="e", title="")
    with database(tmp_path, number=4, columns="") as db:  # an older database that was left behind
        put(db, id="f", title="Cache work")
    names = CodexNames(str(tmp_path))
    assert names.refresh() == {"d"}
    assert names.name("d") == "Cache work"
    for file in tmp_path.glob("state_5*"):
        file.unlink()
    assert names.refresh() == {"d"}  # without the message the kind of title is unknown


def test_unreadable_files_leave_known_names(tmp_path: Path) -> None:
    """A damaged index or database does not remove names; the next read tries again."""
    names = CodexNames(str(tmp_path))
    with database(tmp_path) as db:
        put(db, id="a", name="one", updated_at_ms=EARLY)
    assert names.refresh() == {"a"}
    whole = (tmp_path / "state_5.sqlite").read_bytes()
    (tmp_path / "state_5.sqlite").write_bytes(b"no database" * 1000)
    (tmp_path / "session_index.jsonl").mkdir()
    assert names.refresh() == set()
    assert names.name("a") == "one"
    (tmp_path / "session_index.jsonl").rmdir()
    (tmp_path / "state_5.sqlite").write_bytes(whole)
    assert names.refresh() == set()
    with closing(sqlite3.connect(tmp_path / "state_6.sqlite")) as db:
        db.execute("CREATE TABLE threads (other TEXT)")
        db.commit()
    assert names.refresh() == {"a"}
    assert CodexNames(str(tmp_path / "missing")).refresh() == set()
