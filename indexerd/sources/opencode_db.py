"""Sessions in opencode's database, and each of them as lines of JSON.

In: a database's path, or a session's: that path with the session's id below it. Out: what tells
a changed session from an unchanged one, and a session whole, rendered anew at each change (rows
are rewritten in place, deleted, hidden by a revert: nothing here only grows). A line's offset is
its message's rowid, which holds as long as the message does. Two schemas are read, whatever
columns their release has: session, message and part, and session_v2 with session_message, which
hides the former's session of the same id. One that is not understood raises
SessionUnreadableError, with the name of what is missing.

What surprised us: time_updated of a session says nothing of its messages and parts, and no index
has theirs; so all of them are looked at only where the files changed since the last listing. In
between, the log of events names the sessions that changed; but its rowids are given out again
when the newest session is deleted, some releases leave it empty, and a deletion leaves no trace
but a missing row.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from indexerd.agents.base import Oversize
from indexerd.errors import SessionUnreadableError
from indexerd.paths import is_session_id
from indexerd.sources.cursor import Cursor, Look, Verdict
from indexerd.sources.foreign_db import Files, files_of, opened, reading
from indexerd.sources.lines import Block
from indexerd.sources.opencode_lines import (
    Head,
    Message,
    Session,
    brief,
    full,
    head_of,
    session_line,
)
from indexerd.sources.opencode_schema import Schema, schema_of
from indexerd.sources.scan import Found
from indexerd.sources.tail import Read

MESSAGES_MAX = 500_000  # of one session
PARTS_MAX = 100_000  # of one message
RECENT = 24  # sessions written last: those in which old rows are rewritten
ASKED_MAX = 400  # sessions asked for by name; all of them cost less than more names
GRAIN_NS = 2_000_000_000  # a file written later than that before a look may change unnoticed

_MS_MAX = 9_000_000_000_000  # the year 2255; in nanoseconds it still is 63 bits
_63_BITS = (1 << 63) - 1

Sums = tuple[int, int, int]  # count, newest time_updated, sum of all of them


class Facts(NamedTuple):
    """What a session's signature is made of."""

    session: Session
    messages: Sums
    parts: Sums


class Database:
    """All sessions of one database, and what differs since it was last asked. For one thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._facts: dict[str, Facts] | None = None
        self._found: dict[str, Found] = {}
        self._main = (0, 0)  # device and inode
        self._listed: Files | None = None  # the files at the last listing, if that can be trusted
        self._seen: Files | None = None  # the same, at the last look
        self._event: tuple[int, str] | None = None  # the newest event: its rowid and id

    def sessions(self) -> list[Found]:
        """Every session there is. FileNotFoundError, or SessionUnreadableError."""
        now, trusted = _files(self._path)
        if self._facts is None or not _same(now, self._listed):
            self._facts, self._event = reading(self._path, _everything)
            self._listed = self._seen = trusted
            self._main = now.main[:2]
            self._found = {key: self._stamped(one) for key, one in self._facts.items()}
        return list(self._found.values())

    def touched(self) -> list[Found] | None:
        """The sessions that differ since the last call, of this or of `sessions`.

        None when all must be listed: at first, when a session is gone, or the database is another.
        """
        now, trusted = _files(self._path)
        if self._facts is None or now.main[:2] != self._main:
            return None
        if _same(now, self._seen):
            return []
        known = self._facts
        news = reading(self._path, lambda db: self._news(db, known))
        if news is None:
            return None
        facts, self._event = news
        self._seen = trusted
        changed = {key: self._stamped(one) for key, one in facts.items() if known.get(key) != one}
        known.update(facts)
        self._found.update(changed)
        return list(changed.values())

    def _stamped(self, facts: Facts) -> Found:
        now = _stamp(self._main, facts)
        path = f"{self._path}/{facts.session.id}"
        return Found(path, now.dev, now.ino, now.size, now.mtime_ns)

    def _news(
        self, db: sqlite3.Connection, known: Mapping[str, Facts]
    ) -> tuple[dict[str, Facts], tuple[int, str] | None] | None:
        db.execute("BEGIN")
        schema = schema_of(db)
        there = schema.ids(db)
        if known.keys() - there:
            return None
        named = self._evented(db, schema)
        if named is None:
            named = _compared(db, schema, known)
        asked = (named | (there - known.keys())) & there
        return _facts_of(db, schema, asked), _newest_event(db, schema)

    def _evented(self, db: sqlite3.Connection, schema: Schema) -> set[str] | None:
        """The sessions that events since the last look are about; None where there are none."""
        if not schema.events or self._event is None:
            return None
        last, event_id = self._event
        held = db.execute("SELECT id FROM event WHERE rowid = ?", (last,)).fetchone()
        if held is None or held[0] != event_id:  # a rowid that was given out again
            return None
        asked = "SELECT aggregate_id FROM event NOT INDEXED WHERE rowid > ?"
        return {one for (one,) in db.execute(asked, (last,))} or None


def _files(path: str) -> tuple[Files, Files | None]:
    """The files of a database, and again if a later change of them would be seen in their stat."""
    now = files_of(path)
    newest = max(one[3] for one in now.content if one)
    return now, now if time.time_ns() - newest > GRAIN_NS else None


def _same(now: Files, then: Files | None) -> bool:
    return then is not None and then.content == now.content


def _stamp(main: tuple[int, int], facts: Facts) -> Look:
    """A session's signature, in the fields of a file's stat; 63 bits each."""
    written = max(facts.session.updated, facts.messages[1], facts.parts[1])
    ino = _digest(f"{main[1]}/{facts.session.id}")
    return Look(main[0], ino, _digest(repr(facts)), min(written, _MS_MAX) * 1_000_000)


def _digest(text: str) -> int:
    found = blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(found, "big") & _63_BITS


# -- questions to the database -------------------------------------------------------------------


def _everything(
    db: sqlite3.Connection,
) -> tuple[dict[str, Facts], tuple[int, str] | None]:
    db.execute("BEGIN")
    schema = schema_of(db)
    return _facts_of(db, schema, None), _newest_event(db, schema)


def _newest_event(db: sqlite3.Connection, schema: Schema) -> tuple[int, str] | None:
    if not schema.events:
        return None
    asked = "SELECT rowid, id FROM event ORDER BY rowid DESC LIMIT 1"
    found: tuple[int, str] | None = db.execute(asked).fetchone()
    return found


def _compared(db: sqlite3.Connection, schema: Schema, known: Mapping[str, Facts]) -> set[str]:
    """The sessions whose own row or number of rows differ, and those written last."""
    messages, parts = (schema.counts(db, table) for table in ("messages", "parts"))
    found = {
        key
        for key, row in schema.sessions(db, None).items()
        if (old := known.get(key)) is None
        or (old.session, old.messages[0], old.parts[0])
        != (row, messages.get((key, row.schema), 0), parts.get((key, row.schema), 0))
    }
    newest = sorted(known.values(), key=lambda one: max(one.messages[1], one.parts[1]))[-RECENT:]
    return found | {one.session.id for one in newest}


def _facts_of(
    db: sqlite3.Connection, schema: Schema, ids: Collection[str] | None
) -> dict[str, Facts]:
    """The facts of these sessions, or (None) of all."""
    asked = None if ids is None or len(ids) > ASKED_MAX else ids
    messages, parts = (schema.sums(db, table, asked) for table in ("messages", "parts"))
    none = (0, 0, 0)
    return {
        key: Facts(row, messages.get((key, row.schema), none), parts.get((key, row.schema), none))
        for key, row in schema.sessions(db, asked).items()
        if is_session_id(key) and (ids is None or key in ids)
    }


def _one(db: sqlite3.Connection, session_id: str) -> tuple[Schema, Facts]:
    """One session, in a transaction of its own; FileNotFoundError when it is gone."""
    db.execute("BEGIN")
    schema = schema_of(db)
    facts = _facts_of(db, schema, [session_id]).get(session_id)
    if facts is None:
        raise FileNotFoundError(session_id)
    return schema, facts


# -- the source ----------------------------------------------------------------------------------


def look(path: str) -> Look | None:
    """A session's signature; None where there is none, or it cannot be read."""
    place, _, session_id = path.rpartition("/")
    try:
        main = files_of(place).main
        return reading(place, lambda db: _stamp(main[:2], _one(db, session_id)[1]))
    except (FileNotFoundError, SessionUnreadableError):
        return None


class Tail:
    """One session's reading position: the signature of what was read last."""

    __slots__ = ("cursor",)
    pending = 0

    def __init__(self, cursor: Cursor | None = None) -> None:
        self.cursor = cursor

    def read(self, path: str) -> Read:
        """The whole session if its signature is another. FileNotFoundError when it is gone."""
        place, _, session_id = path.rpartition("/")
        main = files_of(place).main
        now, lines = reading(place, lambda db: self._ask(db, main[:2], session_id))
        if lines is None:
            return Read(Verdict.SAME)
        self.cursor = Cursor(now.dev, now.ino, now.size, now.mtime_ns, 0, 0, b"", b"")
        size = sum(len(one.data) for one in lines)
        return Read(Verdict.CONTINUE, list[Block | Oversize](lines), bytes=size, whole=True)

    def _ask(
        self, db: sqlite3.Connection, main: tuple[int, int], session_id: str
    ) -> tuple[Look, list[Block] | None]:
        schema, facts = _one(db, session_id)
        now, held = _stamp(main, facts), self.cursor
        if held and Look(held.dev, held.ino, held.size, held.mtime_ns) == now:
            return now, None
        return now, list(_render(db, schema, facts.session))


def tail(cursor: Cursor | None = None) -> Tail:
    """A reading position."""
    return Tail(cursor)


class Lines:
    """The messages of one session, in full, by their rowids."""

    def __init__(self, db: sqlite3.Connection, schema: Schema, session: Session) -> None:
        self._db, self._schema, self._session = db, schema, session

    def at(self, offset: int, length: int) -> bytes:  # noqa: ARG002 - a message is whole
        """A message as it is now; SessionUnreadableError when it is there no more."""
        session = self._session
        if not offset:
            return session_line(session)
        asked = self._schema.message_at(session.schema)
        row = self._db.execute(asked, (offset, session.id)).fetchone()
        if row is None:
            raise SessionUnreadableError("the message is gone")
        message = _message(row)
        parts = _parts(self._db, message, session) if session.schema == 1 else ()
        return full(message, parts, child=bool(session.parent_id), parent=self._parent(message))

    def _parent(self, message: Message) -> list[bytes]:
        """The parts of the message that this one answers, if they say what the answer is."""
        head = head_of(message)
        odd = bytes(head.summary) == b"true" or not (head.finish or bytes(head.error) != b"null")
        if self._session.schema != 1 or not odd or not isinstance(head.parent, str):
            return []
        return list(_parts(self._db, message._replace(id=head.parent), self._session))


_NULL = msgspec.Raw(b"null")


@contextmanager
def lines(path: str) -> Iterator[Lines]:
    """Open a session to read single messages; SessionUnreadableError when that fails."""
    place, _, session_id = path.rpartition("/")
    try:
        with opened(place) as db:
            schema, facts = _one(db, session_id)
            db.execute("COMMIT")  # each line is read by itself: no long transaction
            yield Lines(db, schema, facts.session)
    except FileNotFoundError:
        raise SessionUnreadableError("the session is gone") from None


# -- rendering -----------------------------------------------------------------------------------


def _message(row: tuple[Any, ...]) -> Message:
    """A message's row; a column may hold anything, in SQLite."""
    _, message_id, at, data, role = row
    return Message(str(message_id), at if isinstance(at, int) else 0, data or b"", str(role or ""))


def _render(db: sqlite3.Connection, schema: Schema, session: Session) -> Iterator[Block]:
    """A session's lines, briefly.

    Of an answer the parts matter only while its turn may still be open: those of older ones,
    most of the database, are not even read.
    """
    yield Block(session_line(session), 0)
    rows: list[tuple[int, Message, Head]] = []
    newest = 0
    asked = schema.messages_of(session.schema)
    for row in db.execute(asked, (session.id, MESSAGES_MAX)):
        message = _message(row)
        head = head_of(message)
        newest = len(rows) if head.role == "user" else newest
        rows.append((row[0], message._replace(data=b""), head))
    for n, (rowid, message, head) in enumerate(rows):
        parts: Iterable[bytes] = ()
        if head.role == "user" or n >= newest:
            parts = _parts(db, message, session) if session.schema == 1 else ()
        else:
            head.content = _NULL
        yield Block(brief(message, head, parts), rowid)


def _parts(db: sqlite3.Connection, message: Message, session: Session) -> Iterator[bytes]:
    """A message's parts, without those that were reverted."""
    asked = (
        "SELECT id, CAST(data AS BLOB) FROM part WHERE message_id = ? AND session_id = ?"
        " ORDER BY id LIMIT ?"
    )
    cut = session.revert_part if session.revert_message == message.id else ""
    for part_id, data in db.execute(asked, (message.id, session.id, PARTS_MAX)):
        if cut and part_id == cut:
            return
        yield data or b""
