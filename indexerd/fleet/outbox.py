"""What this machine has to tell: found in the store, numbered, sent once, and remembered.

SQLite triggers note every session whose row changes, in the transaction that changes it. A batch is
made of the present state of such sessions, so many changes of one make one record. Records on the
server that a newer one replaces are deleted with the batch that replaces them.

A batch that is under way is stored first. Its token tells, after any interruption, whether the
server has it. If the server has something else, another machine uses this identity.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from indexerd import __version__
from indexerd.fleet import records
from indexerd.fleet.identity import Identity
from indexerd.fleet.records import Complete, Drop, Hello, Purge, Record, Session, Text
from indexerd.privacy.redact import StoredRow
from indexerd.search.index import TextIndex

TOPIC = "fleet"  # of the store's notes
BATCH_RECORDS, BATCH_BYTES = 50, 1 << 20  # made while appends wait
TOKEN_BYTES = 16
_TRIGGERS = """
CREATE TRIGGER IF NOT EXISTS fleet_put AFTER INSERT ON record
WHEN (SELECT machine FROM session WHERE id = new.id) IS NULL BEGIN
  INSERT OR REPLACE INTO outbox (id) VALUES (new.id);
  DELETE FROM remote WHERE id = new.id;
END;
CREATE TRIGGER IF NOT EXISTS fleet_forget AFTER DELETE ON record BEGIN
  INSERT OR REPLACE INTO outbox (id)
    SELECT old.id WHERE (SELECT machine FROM session WHERE id = old.id) IS NULL;
  DELETE FROM remote WHERE id = old.id;
END;
"""
_UNSENT = "SELECT n, id FROM outbox ORDER BY n LIMIT ?"


class Position(msgspec.Struct, frozen=True, array_like=True):
    """How far a machine's log goes; the token is new with each batch."""

    head: int = 0
    token: bytes = b""


class SentRecord(msgspec.Struct, frozen=True, array_like=True):
    """A record of this machine on the server."""

    seq: int
    kind: str
    id: str
    next_row: int = 0  # the row after the last message of a text
    print: bytes = b""


class Batch(msgspec.Struct, array_like=True):
    """Records to send, and what is true once the server has them."""

    before: Position
    after: Position
    records: list[SentRecord] = []
    stale: list[int] = []  # numbers of records to delete
    done: list[tuple[int, str]] = []  # rows of `outbox`
    through: int | None = None  # a restart ends: delete all own records up to this one
    packed: dict[int, bytes] = {}  # by number; not stored


_batch = msgspec.msgpack.Decoder(Batch).decode
_position = msgspec.msgpack.Decoder(Position).decode
_numbers = msgspec.msgpack.Decoder(tuple[int, int]).decode


class Outbox:
    """What this machine has to tell. For the thread that owns the store."""

    def __init__(
        self,
        index: TextIndex,
        shared: Callable[[str], tuple[StoredRow, dict[str, Any]] | None],
        forgotten: Mapping[str, str],
        text: Callable[[], bool],
    ) -> None:
        """`shared` is `Library.shared`; `forgotten`: purged sessions with their agents.

        `text()`: whether messages travel.
        """
        self._index, self._store = index, index.store
        self._shared, self._forgotten, self._text = shared, forgotten, text
        self.unshareable: set[str] = set()  # sessions that cannot be told

    def close(self) -> None:
        """Stop noting changes, and forget the fleet."""
        with self._store.batch():
            for name in ("put", "forget"):
                self._store.run(f"DROP TRIGGER IF EXISTS fleet_{name}")
            for table in ("outbox", "sent", "remote"):
                self._store.run(f"DELETE FROM {table}")  # noqa: S608 - ours
            for key in self._store.notes(TOPIC, bytes):
                self._store.note(TOPIC, key, None)

    @property
    def position(self) -> Position:
        return self._store.noted(TOPIC, "position", _position) or Position()

    @property
    def unsent(self) -> int:
        return int(self._store.select("SELECT count(*) FROM outbox")[0][0])

    def restart(self, position: Position) -> None:
        """Tell everything again, after what the server has; then the older records are void.

        From now on changes are noted.
        """
        store = self._store
        self.unshareable.clear()
        with store.batch():
            for statement in _TRIGGERS.split("END;")[:-1]:
                store.run(f"{statement}END")
            store.note(TOPIC, "position", msgspec.msgpack.encode(position))
            store.note(TOPIC, "flight", None)
            store.run("DELETE FROM sent")
            store.run(
                "INSERT OR IGNORE INTO outbox (id) SELECT id FROM session WHERE machine IS NULL"
            )
            last = store.select("SELECT coalesce(max(n), 0) FROM outbox")[0][0]
            store.note(TOPIC, "restart", msgspec.msgpack.encode((position.head, last)))

    def mark(self, session_id: str) -> None:
        """Note a change that is not in the session's row, as of its digest."""
        sql = "INSERT OR REPLACE INTO outbox (id) SELECT id FROM session WHERE id = ?"
        self._store.run(f"{sql} AND machine IS NULL", session_id)

    # -- batches

    def under_way(self) -> Batch | None:
        """Return the batch of which it is unknown whether the server has it."""
        return self._store.noted(TOPIC, "flight", _batch)

    def plan(self, name: str) -> Batch | None:
        """Make a machine's next batch, and store that it is under way; None: all is told."""
        with self._store.batch():
            return self._plan(name)

    def _plan(self, name: str) -> Batch | None:
        before = self.position
        batch = Batch(before, Position(before.head, os.urandom(TOKEN_BYTES)))
        self._add_changed(batch, Hello(name, __version__), "")
        self._plan_switch()
        self._plan_purges(batch)
        for n, session_id in self._store.select(_UNSENT, BATCH_RECORDS):
            if _full(batch):
                break
            if self._plan_session(batch, session_id):
                batch.done.append((n, session_id))
        self._plan_completion(batch)
        batch.stale += [seq for (seq,) in self._store.select("SELECT seq FROM sent WHERE stale")]
        if not (batch.records or batch.stale or batch.done):
            return None
        batch.after = Position(max([before.head, *batch.packed]), batch.after.token)
        stored = msgspec.structs.replace(batch, packed={})
        self._store.note(TOPIC, "flight", msgspec.msgpack.encode(stored))
        return batch

    def arrived(self, batch: Batch) -> None:
        """Remember that the server has a batch."""
        store = self._store
        with store.batch():
            for record in batch.records:
                values = (record.seq, record.kind, record.id, record.next_row, record.print)
                store.run("INSERT OR REPLACE INTO sent VALUES (?, ?, ?, ?, ?, 0)", *values)
            for seq in batch.stale:
                store.run("DELETE FROM sent WHERE seq = ?", seq)
            for n, session_id in batch.done:  # a change meanwhile has another number
                store.run("DELETE FROM outbox WHERE n = ? AND id = ?", n, session_id)
            if batch.through is not None:
                store.note(TOPIC, "restart", None)
            store.note(TOPIC, "position", msgspec.msgpack.encode(batch.after))
            store.note(TOPIC, "flight", None)

    def _add(self, batch: Batch, record: Record, session_id: str, next_row: int = 0) -> None:
        packed = records.pack(record)
        seq = batch.before.head + len(batch.records) + 1
        printed = records.fingerprint(packed)
        batch.records.append(
            SentRecord(seq, records.kind_of(record), session_id, next_row, printed)
        )
        batch.packed[seq] = packed

    def _add_changed(self, batch: Batch, record: Record, session_id: str) -> None:
        """Tell a session's new state, unless it was told."""
        kinds = ("hello",) if isinstance(record, Hello) else ("session", "drop")
        sql = "SELECT seq, print FROM sent WHERE id = ? AND kind IN (?, ?) AND NOT stale"
        old = self._store.select(sql, session_id, kinds[0], kinds[-1])
        if [printed for _, printed in old] != [records.fingerprint(records.pack(record))]:
            batch.stale += [seq for seq, _ in old]
            self._add(batch, record, session_id)

    def _plan_switch(self) -> None:
        """Take back all messages if they no longer travel; tell them if they do again."""
        store, off = self._store, not self._text()
        if off == (store.noted(TOPIC, "no text", bytes) is not None):
            return
        store.note(TOPIC, "no text", b"" if off else None)
        store.run("UPDATE sent SET stale = 1 WHERE kind = 'text'")
        store.run("INSERT OR IGNORE INTO outbox (id) SELECT id FROM session WHERE machine IS NULL")

    def _plan_purges(self, batch: Batch) -> None:
        told = {key for (key,) in self._store.select("SELECT id FROM sent WHERE kind = 'purge'")}
        for session_id, agent in self._forgotten.items():
            if session_id not in told and not _full(batch):
                self._add(batch, Purge(session_id, agent), session_id)

    def _plan_session(self, batch: Batch, session_id: str) -> bool:
        """Tell what is new about a session; return whether that is all."""
        shared = self._shared(session_id)
        if shared is None:
            sql = "SELECT count(*), coalesce(sum(kind = 'drop'), 0) FROM sent"
            known, dropped = self._store.select(f"{sql} WHERE id = ?", session_id)[0]
            if known and not dropped:
                if session_id not in self._forgotten:
                    self._add(batch, Drop(session_id), session_id)
                sql = "SELECT seq FROM sent WHERE id = ? AND kind IN ('session', 'text')"
                batch.stale += [seq for (seq,) in self._store.select(sql, session_id)]
            return True
        written, documents = shared
        try:
            present = {key: value for key, value in written.row.items() if value is not None}
            row = msgspec.convert(present, records.SharedRow)
            shown = msgspec.convert(documents, records.Documents)
        except msgspec.ValidationError:  # a row that the others would refuse
            self.unshareable.add(session_id)
            return True
        aliases = [*written.aliases][:16]
        record = Session(session_id, row, written.summary, aliases, shown)
        if len(records.pack(record)) > records.TEXTS_MAX:
            shown.digest = records.Digest()
        self._add_changed(batch, record, session_id)
        return self._plan_texts(batch, session_id)

    def _plan_texts(self, batch: Batch, session_id: str) -> bool:
        """Tell new messages; first of all also that there are none, which voids what was told."""
        if session_id in self._index.uncommitted:  # after the commit it is tried again
            return False
        sql = "SELECT max(next_row), coalesce(max(stale), 1) FROM sent WHERE id = ?"
        first, anew = self._store.select(f"{sql} AND kind = 'text'", session_id)[0]
        if anew:
            first = 0
            sql = "UPDATE sent SET stale = 1 WHERE id = ? AND kind = 'text'"
            self._store.run(sql, session_id)
        chunk, size = Text(session_id, first, []), 0
        travels = self._text()
        for message in self._index.messages(session_id, first) if travels else ():
            if size > records.TEXTS_MAX:
                self._add(batch, chunk, session_id, chunk.messages[-1][0] + 1)
                chunk, size = Text(session_id, chunk.messages[-1][0] + 1, []), 0
                if _full(batch):
                    return False
            chunk.messages.append((*message,))
            size += len(message.text)
        is_first = anew and not chunk.first
        if is_first and not chunk.messages and travels:
            is_first = self._index.mark(session_id) is not None  # else they are not read yet
        if chunk.messages or is_first:
            last = chunk.messages[-1][0] + 1 if chunk.messages else 0
            self._add(batch, chunk, session_id, last)
        return True

    def _plan_completion(self, batch: Batch) -> None:
        """End a restart, once all that waited when it began is told."""
        numbers = self._store.noted(TOPIC, "restart", _numbers)
        if numbers is None or _full(batch):
            return
        start, last = numbers
        waiting = {n for n, _ in self._store.select(_UNSENT, BATCH_RECORDS) if n <= last}
        if waiting <= {n for n, _ in batch.done}:
            self._add(batch, Complete(start), "")
            batch.through = start


def _full(batch: Batch) -> bool:
    size = sum(map(len, batch.packed.values()))
    return len(batch.packed) >= BATCH_RECORDS or size > BATCH_BYTES


def seal(batch: Batch, identity: Identity) -> list[tuple[int, str, int, bytes]]:
    """Encrypt a batch: number, kind, version and body of each record."""
    rows = list[tuple[int, str, int, bytes]]()
    for record in batch.records:
        place = records.Place(identity.fleet, identity.machine, record.seq, record.kind)
        body = records.seal(identity.key, place, batch.packed[record.seq])
        rows.append((record.seq, record.kind, records.VERSION, body))
    return rows
