"""Copies of opencode's sessions: the rows of one session as a small database of their own.

A copy is read like opencode's database, from a compressed file in our archive. opencode's own
command line imports what `exported` makes of it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

from indexerd.errors import SessionUnreadableError
from indexerd.sources.compressed import decompressed
from indexerd.sources.foreign_db import DatabaseFiles, files_of, reading
from indexerd.sources.opencode import DatabaseRecords, Records, Tables
from indexerd.sources.tail import Block, Look

_ROWS = {  # the rows of a session, by table
    "session": "id = :id",
    "message": "session_id = :id",
    "part": "session_id = :id",
    "session_v2": "id = :id",
    "session_message": "session_id = :id",
    "todo": "session_id = :id",
    "event": "aggregate_id = :id AND type LIKE 'session.%'",  # its titles
    "project": "id IN (SELECT project_id FROM session WHERE id = :id)",
}
_OBJECTS = ("time", "summary", "tokens", "cache", "share")  # whose fields are columns
_ENCODED = ("revert", "permission", "model", "metadata", "diffs")  # as JSON


def rows_of(path: str, known_ns: int) -> tuple[bytes, int] | None:
    """Return the bytes of a session's copy, and when it last changed, in ns since the epoch.

    None: that was `known_ns`. FileNotFoundError if it is gone, or SessionUnreadableError.
    """
    place, _, session_id = path.rpartition("/")

    def copied(db: sqlite3.Connection) -> tuple[bytes, int] | None:
        db.execute("ATTACH ':memory:' AS copy")
        tables = Tables(db, files_of(place))
        _, now = tables.one(session_id)
        # Rows may change without their times; the rest of the signature does not fit into a time.
        at = now.mtime_ns + now.size % 1_000_000
        if at == known_ns:
            return None
        for table in tables.there & _ROWS.keys():
            rows = f"SELECT * FROM main.{table} WHERE {_ROWS[table]}"  # noqa: S608 - ours
            with suppress(sqlite3.OperationalError):  # a table of another release
                db.execute(f"CREATE TABLE copy.{table} AS {rows}", {"id": session_id})
        return db.serialize(name="copy"), at

    return reading(place, copied)


@contextmanager
def _opened(data: bytes | memoryview) -> Iterator[sqlite3.Connection]:
    try:
        with closing(
            sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        ) as db:
            db.deserialize(data)
            yield db
    except (sqlite3.Error, MemoryError) as bad:  # SQLite may say that damaged pages do not fit
        raise SessionUnreadableError(f"the copy is damaged: {bad}") from None


@contextmanager
def in_copy(path: str) -> Iterator[Records]:
    """Open a session; FileNotFoundError or SessionUnreadableError if that fails."""
    session_id = path.rpartition("/")[2].removesuffix(".zst")
    with _opened(decompressed(path)) as db:
        tables = Tables(db, DatabaseFiles(Look(0, 0, 0, 0), None, shm=False))
        yield DatabaseRecords(db, tables.one(session_id)[0])


def lines_in_copy(path: str) -> list[Block]:
    with in_copy(path) as records:
        return records.brief_lines()


def exported(data: bytes) -> dict[str, Any]:
    """Make what `opencode export` prints. SessionUnreadableError if opencode imports no such."""
    with _opened(data) as db:
        db.row_factory = sqlite3.Row
        try:
            [session] = db.execute("SELECT * FROM session")
            rows = [*db.execute("SELECT * FROM message ORDER BY time_created, id")]
        except (sqlite3.OperationalError, ValueError):
            raise SessionUnreadableError("opencode cannot import such a session") from None
        sql = "SELECT * FROM part WHERE message_id = ? ORDER BY id"
        messages = [
            {
                "info": json.loads(row["data"]) | {"id": row["id"], "sessionID": session["id"]},
                "parts": [
                    json.loads(part["data"])
                    | {"id": part["id"], "sessionID": session["id"], "messageID": row["id"]}
                    for part in db.execute(sql, [row["id"]])
                ],
            }
            for row in rows
        ]
        return {"info": _info(session), "messages": messages}


def _info(session: sqlite3.Row) -> dict[str, Any]:
    """Make a session's record of its columns: `time_created` is `created` in `time`."""
    info: dict[str, Any] = {}
    for column in session.keys():  # noqa: SIM118 - iterating a Row yields values
        value, into, name = session[column], info, column
        while (outer := name.partition("_"))[0] in _OBJECTS and outer[2]:
            into, name = into.setdefault(outer[0], {}), outer[2]
        if value is None:
            continue
        if name.endswith("_id"):
            name = f"{name.removesuffix('_id')}ID"
        into[name] = json.loads(value) if name in _ENCODED else value
    return {key: value for key, value in info.items() if value != {}}
