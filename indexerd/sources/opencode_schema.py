"""What a release of opencode calls its tables and columns, and the questions to them.

In: a connection. Out: a `Schema` that asks for sessions, sums and messages, whichever columns
there are; SessionUnreadableError names the table or the column that is missing. The names that
are put into questions are those of the lists here, and no others.

Version 1 keeps a session in session, message and part. Version 2 keeps it in session_v2 and
session_message, under the same id: the older copy is then ignored. Some releases in between have
session_message without session_v2, with or without `seq`: nothing is in it that counts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass

from indexerd.errors import SessionUnreadableError
from indexerd.sources.opencode_lines import Session, decoded

SESSIONS_MAX = 200_000
_TIME_BITS = (1 << 42) - 1  # of a time in ms; sums of two million of them stay below 2^63
_MS_MAX = 9_000_000_000_000

_NEEDED = {
    "session": ("id",),
    "message": ("id", "session_id", "time_created", "time_updated", "data"),
    "part": ("id", "message_id", "session_id", "time_updated", "data"),
}
_NEEDED_2 = {
    "session_v2": ("id",),
    "session_message": (
        "id",
        "session_id",
        "type",
        "seq",
        "time_created",
        "time_updated",
        "data",
    ),
}
_OPTIONAL = ("project", "event")
_FIELDS = (  # of a session, in the order of `Session`
    "id",
    "parent_id",
    "fork_session_id",
    "title",
    "directory",
    "version",
    "time_created",
    "time_updated",
    "time_archived",
    "revert",
)
_TABLES = {"messages": {1: "message", 2: "session_message"}, "parts": {1: "part"}}

Sums = tuple[int, int, int]
Key = tuple[str, int]  # a session's id, and the version that it is kept in


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables as they are. `selects`: how sessions are asked for, by version."""

    selects: dict[int, str]
    events: bool

    def ids(self, db: sqlite3.Connection) -> set[str]:
        """The ids of all sessions."""
        tables = {1: "session", 2: "session_v2"}
        return {
            key
            for version in self.selects
            for (key,) in db.execute(f"SELECT id FROM {tables[version]}")  # noqa: S608 - our names
            if isinstance(key, str)
        }

    def sessions(self, db: sqlite3.Connection, ids: Collection[str] | None) -> dict[str, Session]:
        """These sessions, or (None) all; of one in both versions, the newer."""
        found: dict[str, Session] = {}
        for version, select in sorted(self.selects.items()):
            where, given = _among("s.id", ids)
            for row in db.execute(f"{select}{where} LIMIT {SESSIONS_MAX}", given):
                if isinstance(row[0], str):
                    found[row[0]] = _session(version, row)
        return found

    def sums(
        self, db: sqlite3.Connection, what: str, ids: Collection[str] | None
    ) -> dict[Key, Sums]:
        """Of each session's messages or parts: count, newest time_updated, sum of them."""
        where, given = _among("session_id", ids)
        return {
            (key, version): (count, _ms(newest), total or 0)
            for version, table in self._tables(what)
            for key, count, newest, total in db.execute(
                "SELECT session_id, count(*), max(time_updated),"  # noqa: S608 - our names
                f" sum(time_updated & {_TIME_BITS}) FROM {table}{where} GROUP BY session_id",
                given,
            )
        }

    def counts(self, db: sqlite3.Connection, what: str) -> dict[Key, int]:
        """How many messages or parts each session has; an index alone tells."""
        return {
            (key, version): count
            for version, table in self._tables(what)
            for key, count in db.execute(
                f"SELECT session_id, count(*) FROM {table} GROUP BY session_id"  # noqa: S608 - ours
            )
        }

    def messages_of(self, version: int) -> str:
        """Asks for rowid, id, time, data and type of a session's messages; given id and limit."""
        order = "seq" if version > 1 else "time_created, id"
        return f"{self._message(version)} session_id = ? AND rowid > 0 ORDER BY {order} LIMIT ?"

    def message_at(self, version: int) -> str:
        """Asks for the same of one message; given its rowid and its session's id."""
        return f"{self._message(version)} rowid = ? AND session_id = ?"

    def _message(self, version: int) -> str:
        kind, table = ("type", "session_message") if version > 1 else ("''", "message")
        return (
            f"SELECT rowid, id, time_created, CAST(data AS BLOB), {kind}"  # noqa: S608 - our names
            f" FROM {table} WHERE"
        )

    def _tables(self, what: str) -> list[tuple[int, str]]:
        return [
            (version, _TABLES[what][version])
            for version in self.selects
            if version in _TABLES[what]
        ]


def schema_of(db: sqlite3.Connection) -> Schema:
    """Look at the tables. A database without any has no sessions yet."""
    names = (*_NEEDED, *_NEEDED_2, *_OPTIONAL)
    marks = ",".join("?" * len(names))
    tables: dict[str, set[str]] = {}
    for table, column in db.execute(
        "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c"  # noqa: S608 - marks
        f" WHERE m.type = 'table' AND m.name IN ({marks})",
        names,
    ):
        tables.setdefault(table, set()).add(column)
    selects: dict[int, str] = {}
    if "session_v2" in tables:
        _demand(tables, _NEEDED_2)
        selects[2] = _select("session_v2", tables)
    if "session" in tables and not (selects and tables.keys().isdisjoint({"message", "part"})):
        _demand(tables, _NEEDED)
        selects[1] = _select("session", tables)
    if not selects and db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table'").fetchone():
        raise SessionUnreadableError("not a schema that we know: there is no table session")
    return Schema(selects, {"id", "aggregate_id"} <= tables.get("event", set()))


def _demand(tables: dict[str, set[str]], needed: dict[str, tuple[str, ...]]) -> None:
    for table, columns in needed.items():
        if table not in tables:
            raise SessionUnreadableError(f"not a schema that we know: there is no table {table}")
        for column in columns:
            if column not in tables[table]:
                raise SessionUnreadableError(
                    f"not a schema that we know: there is no column {table}.{column}"
                )


def _select(table: str, tables: dict[str, set[str]]) -> str:
    """Asks for a session's fields; those that this release does not have are NULL."""
    held = tables[table]
    fields = {one: f"s.{one}" if one in held else "NULL" for one in _FIELDS}
    join = ""
    if "project_id" in held and {"id", "worktree"} <= tables.get("project", set()):
        join = " LEFT JOIN project p ON p.id = s.project_id"
        fields["directory"] = (
            f"coalesce(nullif({fields['directory']}, ''), nullif(p.worktree, '/'))"
        )
    return f"SELECT {', '.join(fields.values())} FROM {table} s{join}"  # noqa: S608 - our names


def _among(column: str, ids: Collection[str] | None) -> tuple[str, tuple[str, ...]]:
    if ids is None:
        return "", ()
    return f" WHERE {column} IN ({','.join('?' * len(ids))})", tuple(ids)


def _session(version: int, row: tuple[object, ...]) -> Session:
    texts = [one if isinstance(one, str) else "" for one in row]
    created, updated, archived = (_ms(one) for one in row[6:9])
    revert = decoded(texts[9].encode("utf-8", "replace")) if texts[9] else None
    message, part = ((revert or {}).get(key) for key in ("messageID", "partID"))
    return Session(
        id=texts[0],
        schema=version,
        parent_id=texts[1],
        fork_id=texts[2],
        title=texts[3],
        directory=texts[4],
        version=texts[5],
        created=created,
        updated=updated,
        archived=archived,
        revert_message=message if isinstance(message, str) else "",
        revert_part=part if isinstance(part, str) else "",
    )


def _ms(value: object) -> int:
    return min(value, _MS_MAX) if isinstance(value, int) and value > 0 else 0
