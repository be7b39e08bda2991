"""Turn opencode's sessions, in its database or as files, into JSON lines for its adapter.

    {"type": "session", "schema": 1|2, "id", "parentID", "forkID", "title", "titles", "directory",
     "version", "time": {"created", "updated", "archived"}, "revert": {"messageID", "partID"}}
    {"type": "message", "id", "role", "at", "time", "finish", "error", "parentID", "summary", …,
     "parts": [{"type", "text", "synthetic", "ignored", "tool", "state": {…}, …}]}

`titles` are those that the log of a database's changes has for the session, oldest first.
A session is read whole at each change: records are rewritten in place, deleted, or hidden by a
revert. The brief form of a message, for a scan, has cut texts, and of a tool call only the status
and what it asks the user.

Version 1 of the database keeps a session in the tables session, message and part; version 2 in
session_v2 and session_message. If a session is in both, the older copy is ignored. Columns vary by
release. A line's offset is its message's rowid. Older releases have a tree of small files:

    session/<project>/<session>.json    message/<session>/<message>.json
    part/<message>/<part>.json

Then a line's offset is the inode of its message's file, and an id in a file's name counts.

Pitfalls: a session's time_updated does not change with its messages and parts, and theirs has no
index; a deletion leaves no trace but a missing row. So only a scan reads the times of all rows; a
hint reads those of the most recently updated sessions. The output of an aborted call is only in its
metadata, and a pruned output stays in place, with a time next to it. Files are truncated and
rewritten, so half a record is common: it is skipped, and its completion is a change.
"""

from __future__ import annotations

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from indexerd.agents.json_lines import as_dict, as_list, parse_object, string, time_ms
from indexerd.agents.opencode import ASKING, OUTPUT
from indexerd.errors import SessionUnreadableError
from indexerd.paths import is_session_id
from indexerd.sessions.pictures import PICTURE_MAX
from indexerd.sources import tail
from indexerd.sources.foreign_db import DatabaseFiles, files_of, opened, reading
from indexerd.sources.tail import Block, Cursor, Look

BRIEF_TEXT = 2_000  # characters of a part's text in the brief form
NESTING_MAX = 32  # of a part's fields
NAME_MAX = 200  # characters of a file's name or type
ROWS_MAX = 500_000  # messages of a session, or parts of a message
RECENT = 16  # sessions of each version that are checked when the database changes
RECORD_MAX = 64 * 1024 * 1024  # bytes of a record's file
TITLES_MAX = 100  # of one session
NEWEST = 3  # newest messages whose parts are checked for changes

Record = dict[str, Any]

_MS_MAX = 9_000_000_000_000  # the year 2255; its nanoseconds fit into 63 bits
_TABLES = {1: ("session", "message", "part"), 2: ("session_v2", "session_message")}
_Listed = dict[str, tuple[Record, Look]]  # by id: a session's own record, and its signature
_FIELDS = {  # a session's field -> its column
    "id": "id",
    "parentID": "parent_id",
    "forkID": "fork_session_id",
    "title": "title",
    "directory": "directory",
    "version": "version",
    "created": "time_created",
    "updated": "time_updated",
    "archived": "time_archived",
    "revert": "revert",
}

_OF_SESSION = ("parentID", "forkID", "title", "directory", "version")
_OF_MESSAGE = (
    *("role", "time", "finish", "parentID", "modelID", "providerID", "cost", "tokens"),
    *("status", "outcome", "command", "output", "recent"),  # of version 2
)
_OF_PART = ("type", "synthetic", "ignored", "overflow", "tail_start_id")  # in the brief form

_encode = msgspec.json.Encoder().encode


class Message(NamedTuple):
    """One message's record, and its offset."""

    place: int
    id: str
    at: int
    record: Record


class Records(ABC):
    """The records of one session; calling it reads a line, as `Lines` do."""

    session: Record  # made by `_session_of`

    @abstractmethod
    def messages(self, place: int = 0) -> Iterator[Message]:
        """Yield all messages whose records are complete, in order, or the one at `place`."""

    @abstractmethod
    def parts(self, message_id: str) -> Iterator[tuple[str, Record]]:
        """Yield the ids and records of a message's parts."""

    def titles(self) -> list[str]:
        """List the different titles that the session has had, oldest first, if a log says so."""
        return []

    def brief_lines(self) -> list[Block]:
        """Return the session's lines for a scan.

        An answer's parts matter only while its turn may be open: those of older answers, which are
        most of the data, are not read.
        """
        rows = [(message.place, _fields(message, full=False)) for message in self.messages()]
        if self.session["schema"] == 1:  # ids wrap around: time first
            rows.sort(key=lambda row: (row[1]["at"], row[1]["id"]))
        prompts = [n for n, (_, line) in enumerate(rows) if line.get("role") == "user"]
        newest = max(prompts, default=0)
        blocks = [Block(_line(self.session | {"titles": self.titles()}), 0)]
        for n, (place, line) in enumerate(rows):
            is_read = n >= newest or line.get("role") == "user"
            parts = [*line["parts"], *self._visible(line["id"], full=False)] if is_read else []
            blocks.append(Block(_line(line | {"parts": parts}), place))
        return blocks

    def __call__(self, offset: int, _length: int) -> bytes:
        """Return the message at an offset with all its text.

        An answer that means little without the message it answers, like a summary, has that
        message's parts as `parent`.
        """
        message = next(self.messages(offset), None)
        if message is None:
            raise SessionUnreadableError("the message is gone")
        line = _fields(message, full=True)
        line["parts"] += self._visible(message.id, full=True)
        if self.session["parentID"]:
            line["child"] = True
        parent = string(line.get("parentID"))
        if parent and (line.get("summary") or not (line.get("finish") or line.get("error"))):
            before = list(self._visible(parent, full=False))
            line |= {"parent": before} if before else {}
        return _line(line)

    def _visible(self, message_id: str, *, full: bool) -> Iterator[Record]:
        """Yield a message's parts, without those that were reverted."""
        for part_id, record in self.parts(message_id):
            if {"messageID": message_id, "partID": part_id} == self.session["revert"]:
                return
            yield _part(record, full=full)


def _digest(text: str) -> int:
    """Hash a text to 63 bits."""
    digest = blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _decoded(data: bytes) -> Record | None:
    """Parse a record's JSON object; None for anything else."""
    try:
        return parse_object(data)
    except ValueError:
        return None


def _session_of(session_id: str, record: Record, schema: int = 1) -> Record:
    """Make a session's first line from its own record. Times in ms; 0: none."""
    time, revert = as_dict(record.get("time")), as_dict(record.get("revert"))
    return {
        "type": "session",
        "schema": schema,
        "id": session_id,
        **{key: string(record.get(key)) for key in _OF_SESSION},
        "time": {key: time_ms(time.get(key)) for key in ("created", "updated", "archived")},
        "revert": {key: string(revert.get(key)) for key in ("messageID", "partID")},
    }


def _line(record: Record) -> bytes:
    return _encode(record) + b"\n"


def _fields(message: Message, *, full: bool) -> Record:
    """Make a message's line without the parts that have their own records."""
    model = as_dict(message.record.get("model"))  # an object in some releases
    record = {
        "modelID": model.get("modelID") or model.get("id"),
        "providerID": model.get("providerID"),
        **message.record,
    }
    line = {key: _bounded(record[key]) for key in _OF_MESSAGE if record.get(key) is not None}
    line |= {"type": "message", "id": message.id, "at": message.at}
    if record.get("summary") is True:
        line["summary"] = True
    if record.get("error"):
        error = as_dict(record["error"])
        why = string(as_dict(error.get("data")).get("message"))[:OUTPUT]
        line["error"] = {"name": error.get("name") or "error", "message": why or None}
    line["parts"] = [_part(part, full=full) for part in _inline(record)]
    return line


def _inline(record: Record) -> Iterator[Record]:
    """Yield the parts that version 2 keeps within a message."""
    role = record.get("role")
    if isinstance(record.get("text"), str):
        yield {"type": "text", "text": record["text"]}
    if role == "compaction" and isinstance(record.get("summary"), str):
        yield {"type": "text", "text": record["summary"]}
    for key, kind in (("files", "file"), ("agents", "agent")):
        yield from (as_dict(item) | {"type": kind} for item in as_list(record.get(key)))
    yield from map(as_dict, as_list(record.get("content")))


def _part(part: Record, *, full: bool) -> Record:
    """Return a part for the adapter."""
    kind, text = part.get("type"), part.get("text")
    if kind == "tool":
        return _tool(part, full=full)
    brief: Record = _bounded(part) if full else {}
    brief |= {key: part[key] for key in _OF_PART if part.get(key) is not None}
    if kind == "text" or (kind == "reasoning" and full):
        brief["text"] = string(text)[: None if full else BRIEF_TEXT]
    return brief


def _tool(part: Record, *, full: bool) -> Record:
    """Return a call and its result, with the names of version 1."""
    state, tool = as_dict(part.get("state")), part.get("tool", part.get("name"))
    if not full:
        brief = {"status": state.get("status")}
        if tool == ASKING:
            brief["input"] = _bounded(state.get("input"))
        return {"type": "tool", "tool": tool, "state": brief}
    kept = {key: _bounded(value) for key, value in state.items() if key != "input"}
    kept["input"] = state.get("input")
    if isinstance(state.get("error"), dict):  # of version 2
        kept["error"] = string(state["error"].get("message"))[:OUTPUT]
    call: Record = {"type": "tool", "tool": tool, "callID": part.get("callID", part.get("id"))}
    return call | {"state": kept, "time": _bounded(part.get("time"))}


def _bounded(value: Any, depth: int = 0) -> Any:
    """Cut the strings of a value to OUTPUT characters; leave out deep nesting, and files' data.

    The data of an image stays.
    """
    if isinstance(value, dict) and ("mime" in value or value.get("type") == "file"):
        named = {"mime": value.get("mime"), "filename": value.get("filename") or value.get("name")}
        data = string(value.get("url") or value.get("uri"))
        kept = {"url": data} if data.startswith("data:image/") and len(data) <= PICTURE_MAX else {}
        texts = {key: string(text)[:NAME_MAX] for key, text in named.items()}
        return {"type": "file", **texts, **kept}
    if isinstance(value, list | dict) and depth > NESTING_MAX:
        return None
    if isinstance(value, list):
        return [_bounded(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {key: _bounded(item, depth + 1) for key, item in value.items()}
    return value[:OUTPUT] if isinstance(value, str) else value


class Database:
    """Lists the sessions of one database. For one thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: dict[str, Look] = {}
        self._files: DatabaseFiles | None = None  # at the last listing

    def sessions(self) -> dict[str, Look]:
        """Return every session's signature by path. FileNotFoundError or SessionUnreadableError."""
        files = files_of(self._path)
        if files != self._files:
            self._found = self._ask(Tables.listed, files)
            self._files = files
        return self._found.copy()

    def touched(self) -> list[str]:
        """List the recent sessions that changed since the last call."""
        files = files_of(self._path)
        if self._files is None or self._files.main[:2] != files.main[:2]:  # another file
            return [*self.sessions()]
        stamps = self._ask(Tables.recent, files)
        changed = [path for path, now in stamps.items() if self._found.get(path) != now]
        self._found |= stamps
        return changed

    def _ask(self, ask: Callable[[Tables], _Listed], files: DatabaseFiles) -> dict[str, Look]:
        listed = reading(self._path, lambda db: ask(Tables(db, files)))
        return {f"{self._path}/{key}": now for key, (_, now) in listed.items()}


class Tables:
    """The tables of a database, whatever its release, within one transaction."""

    def __init__(self, db: sqlite3.Connection, files: DatabaseFiles) -> None:
        self._db, self._main = db, files.main
        db.execute("BEGIN")
        named = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self.there = {name for (name,) in named}
        self._versions = [key for key, names in _TABLES.items() if self.there >= set(names)]
        if self.there and not self._versions:  # without any tables, it is being created
            raise SessionUnreadableError("an unknown schema of opencode's database")

    def listed(self, ids: Iterable[str] | None = None) -> _Listed:
        """Return these sessions, or all; of a session in both versions, the newer copy."""
        sessions: _Listed = {}
        wanted = list(ids or ())
        among = " NOT NULL" if ids is None else f" IN ({','.join('?' * len(wanted))})"
        for version in self._versions:
            table, *others = _TABLES[version]
            sums = [self._sums(other, f"session_id{among}", wanted) for other in others]
            for row in self._db.execute(f"{self._select(table)} WHERE s.id{among}", wanted):
                record = dict(zip(_FIELDS, row, strict=True))
                key = string(record["id"])
                if is_session_id(key):
                    hidden = _decoded(string(record["revert"]).encode())
                    session = _session_of(key, record | {"time": record, "revert": hidden}, version)
                    stamp = self._stamp(session, [counts.get(key) for counts in sums])
                    sessions[key] = session, stamp
        return sessions

    def recent(self) -> _Listed:
        ids = set[str]()
        for version in self._versions:
            newest = f"{self._select(_TABLES[version][0])} ORDER BY 8 DESC LIMIT {RECENT}"
            ids |= {string(row[0]) for row in self._db.execute(newest)}  # 8: time_updated
        return self.listed(ids)

    def one(self, session_id: str) -> tuple[Record, Look]:
        """Return one session; FileNotFoundError if it is gone."""
        listed = self.listed([session_id]).get(session_id)
        if listed is None:
            raise FileNotFoundError(session_id)
        return listed

    def _select(self, table: str) -> str:
        """Make a SELECT of the sessions' fields, with NULL for columns that this release lacks."""
        columns = self._columns(table)
        fields = [f"s.{column}" if column in columns else "NULL" for column in _FIELDS.values()]
        join = ""
        if "project_id" in columns and {"id", "worktree"} <= self._columns("project"):
            join = " LEFT JOIN project p ON p.id = s.project_id"
            fields[4] = f"coalesce(nullif({fields[4]}, ''), nullif(p.worktree, '/'))"
        return f"SELECT {', '.join(fields)} FROM {table} s{join}"  # noqa: S608 - our names

    def _columns(self, table: str) -> set[str]:
        """Return the columns of a table; none if it does not exist."""
        return {name for _, name, *_ in self._db.execute(f"PRAGMA table_info({table})")}

    def _sums(self, table: str, where: str, ids: list[str]) -> dict[str, tuple[Any, ...]]:
        """Return for each session the newest time_updated of its rows, their count, and the sum."""
        rows = self._db.execute(
            "SELECT session_id, max(time_updated), count(*), sum(time_updated)"  # noqa: S608 - ours
            f" FROM {table} WHERE {where} GROUP BY 1",
            ids,
        )
        return {key: tuple(sums) for key, *sums in rows}

    def _stamp(self, session: Record, sums: list[tuple[Any, ...] | None]) -> Look:
        """Make a session's signature, in 63-bit fields like those of a file's stat."""
        written = max(session["time"]["updated"], *(time_ms(row[0]) for row in sums if row), 0)
        ino, size = _digest(f"{self._main.ino}/{session['id']}"), _digest(repr((session, sums)))
        return Look(self._main.dev, ino, size, min(written, _MS_MAX) * 1_000_000)


class DatabaseRecords(Records):
    """The records of one session in a database."""

    def __init__(self, db: sqlite3.Connection, session: Record) -> None:
        self._db, self.session = db, session

    def titles(self) -> list[str]:
        with suppress(sqlite3.OperationalError):  # this release has no such table
            rows = self._db.execute(
                "SELECT json_extract(data, '$.info.title') AS title FROM event"
                " WHERE aggregate_id = ? AND type LIKE 'session.%' AND json_valid(data)"
                " AND title IS NOT NULL GROUP BY title ORDER BY min(seq) LIMIT ?",
                (self.session["id"], TITLES_MAX),
            )
            return [string(title) for (title,) in rows]
        return []

    def messages(self, place: int = 0) -> Iterator[Message]:
        table, kind, order = "message", "''", "id"
        if self.session["schema"] > 1:
            table, kind, order = "session_message", "type", "seq"
        rows = self._db.execute(
            f"SELECT rowid, id, time_created, CAST(data AS BLOB), {kind} FROM {table}"  # noqa: S608 - our names
            f" WHERE rowid {'=' if place else '>'} ? AND session_id = ? ORDER BY {order}"
            f" LIMIT {ROWS_MAX}",
            (place, self.session["id"]),
        )
        for rowid, message_id, at, data, role in rows:
            record = _decoded(data or b"") or {}
            if role:
                record["role"] = role
            yield Message(rowid, str(message_id), at if isinstance(at, int) else 0, record)

    def parts(self, message_id: str) -> Iterator[tuple[str, Record]]:
        if self.session["schema"] > 1:  # it keeps them within the message
            return
        rows = self._db.execute(
            "SELECT id, CAST(data AS BLOB) FROM part WHERE message_id = ? AND session_id = ?"
            " ORDER BY id LIMIT ?",
            (message_id, self.session["id"], ROWS_MAX),
        )
        for part_id, data in rows:
            if (record := _decoded(data or b"")) is not None:
                yield part_id, record


def _session_in(db: sqlite3.Connection, path: str) -> tuple[Records, Look]:
    """Return the records of a session, and its signature."""
    place, _, session_id = path.rpartition("/")
    session, now = Tables(db, files_of(place)).one(session_id)
    db.execute("COMMIT")  # messages are read one by one, not in a long transaction
    return DatabaseRecords(db, session), now


def look_in_database(path: str) -> Look | None:
    """Return a session's signature; None if there is none. Else SessionUnreadableError."""
    try:
        return reading(path.rpartition("/")[0], lambda db: _session_in(db, path)[1])
    except FileNotFoundError:
        return None


def load_from_database(path: str, cursor: Cursor | None) -> tuple[Look, list[Block]]:
    """Return what `Load` does."""

    def load(db: sqlite3.Connection) -> tuple[Look, list[Block]]:
        records, now = _session_in(db, path)
        return now, [] if cursor and cursor.matches(now) else records.brief_lines()

    return reading(path.rpartition("/")[0], load)


@contextmanager
def in_database(path: str) -> Iterator[Records]:
    """Open a session; FileNotFoundError or SessionUnreadableError if that fails."""
    with opened(path.rpartition("/")[0]) as db:
        yield _session_in(db, path)[0]


def _files(directory: str) -> list[tuple[str, str, int]]:
    """List id, path and inode of a directory's records; none if it cannot be listed."""
    with suppress(OSError), os.scandir(directory) as entries:
        return sorted(
            (own, file.path, file.inode())
            for file in entries
            if (own := file.name.removesuffix(".json")) != file.name and is_session_id(own)
        )
    return []


def _record(path: str) -> Record | None:
    """Read a record; None if it is incomplete or gone."""
    try:
        with tail.opened(path) as fd, open(fd, "rb", closefd=False) as file:
            return _decoded(file.read(RECORD_MAX))
    except (OSError, SessionUnreadableError):
        return None


def _places(path: str) -> tuple[str, str, str]:
    """Return a session's id, the directory of its messages, and that of all parts."""
    project, _, name = path.rpartition("/")
    storage, own = project.rpartition("/")[0].rpartition("/")[0], name.removesuffix(".json")
    return own, f"{storage}/message/{own}", f"{storage}/part"


class TreeRecords(Records):
    """The records of one session in files; SessionUnreadableError if its own is incomplete."""

    def __init__(self, path: str) -> None:
        own, directory, self._parts = _places(path)
        self._messages = {inode: (id_, file) for id_, file, inode in _files(directory)}
        record = _record(path)
        if record is None:
            raise SessionUnreadableError("the session is gone or being written")
        self.session = _session_of(own, record)

    def messages(self, place: int = 0) -> Iterator[Message]:
        for inode in self._messages.keys() & {place} if place else self._messages:
            own, path = self._messages[inode]
            if (record := _record(path)) is not None:
                created = time_ms(as_dict(record.get("time")).get("created"))
                yield Message(inode, own, created, record)

    def parts(self, message_id: str) -> Iterator[tuple[str, Record]]:
        directory = f"{self._parts}/{message_id}"
        for own, path, _ in _files(directory) if is_session_id(message_id) else ():
            if (record := _record(path)) is not None:
                yield own, record


def look_at_tree(path: str) -> Look | None:
    """Return a session's signature: a digest of the stats that change when it does."""
    own = tail.look(path)
    if own is None:
        return None
    _, directory, parts = _places(path)
    messages, places = _files(directory), [directory]
    for message_id, file, _ in {*messages[:1], *messages[-NEWEST:]}:  # ids wrap around
        of_parts = f"{parts}/{message_id}"
        places += [file, of_parts, *(place for _, place, _ in _files(of_parts))]
    seen = [(own.mtime_ns, own.size, own.ino)]
    for place in sorted(places):
        with suppress(OSError):
            status = os.stat(place)  # noqa: PTH116 - paths here are text
            seen.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return Look(own.dev, own.ino, _digest(repr(seen)), max(seen)[0])
