"""What other machines told: checked, and written to our own store and text index.

Each machine's records are read in their order, up to a stored number. The number is stored only
after the text index has committed, and every record may be applied twice, so an interruption at any
moment loses and repeats nothing.

If several machines have a session, ours wins, then that of the machine that joined last.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from indexerd.agents import resume_command
from indexerd.errors import StateError
from indexerd.fleet.records import Complete, Drop, Hello, Purge, Record, Session, Text
from indexerd.search.index import PULLED, Message, TextIndex

NAMES, NUMBERS, REFUSED, SHADOWED, HIDDEN = (
    f"fleet {what}" for what in ("names", "nth", "refused", "two", "hidden")
)
REFUSED_MAX = 1000  # records of one machine that are remembered as refused

Row = dict[str, Any]
_number = msgspec.msgpack.Decoder(int).decode
_refused = msgspec.msgpack.Decoder(dict[int, str]).decode


class Arrived(NamedTuple):
    """A record, or why it cannot be used."""

    seq: int
    record: Record | str


class Applied(NamedTuple):
    """What changed: rows by session (None: it is gone), and sessions to purge with their agents."""

    rows: dict[str, Row | None]
    purged: dict[str, str]
    again: bool = False  # all records must be read again


class Inbox:
    """Applies other machines' records. For the thread that owns the store."""

    def __init__(
        self,
        index: TextIndex,
        hides: Callable[[str, str, str], bool],
        hosts: Callable[[], Mapping[str, str]],
    ) -> None:
        """`hides(file, cwd, id)`: whether the user excluded or purged a session.

        `hosts()`: what ssh calls machines, by their names.
        """
        self._index, self._store = index, index.store
        self._hides, self._hosts = hides, hosts
        self._failures = index.failures  # at the last commit

    def cursors(self) -> dict[str, int]:
        """Return how far each machine's records were read."""
        return self._store.notes(PULLED, _number)

    def begin(self, machine: str) -> None:
        """Prepare to read a machine's records; `apply` tells if all must be read again since."""
        sql = "INSERT OR IGNORE INTO note VALUES (?, ?, ?)"
        self._store.run(sql, PULLED, machine, msgspec.msgpack.encode(0))

    def machines(self) -> list[str]:
        """List the machines of which something was applied."""
        return [*self._store.notes(NUMBERS, _number)]

    def names(self) -> dict[str, str]:
        return self._store.notes(NAMES, bytes.decode)

    def refused(self) -> dict[str, dict[int, str]]:
        """Return the reasons why records were set aside, by machine and number."""
        return self._store.notes(REFUSED, _refused)

    def counts(self) -> dict[str, int]:
        """Count the sessions of each machine."""
        return dict(self._store.select("SELECT machine, count(*) FROM remote GROUP BY machine"))

    def again(self) -> None:
        """Read all records again: a key, an exclusion or a host's name is new."""
        with self._store.batch():
            for topic in (PULLED, REFUSED, SHADOWED, HIDDEN):
                self._store.run("DELETE FROM note WHERE topic = ?", topic)

    # -- records

    def apply(self, machine: str, number: int, arrived: Sequence[Arrived]) -> Applied | None:
        """Write some records of a machine, the `number`th that joined. None: try again later."""
        if self._index.busy:
            return None
        applied = Applied({}, {})
        with self._store.batch():
            self._store.note(NUMBERS, machine, msgspec.msgpack.encode(number))
            for seq, record in arrived:
                if isinstance(record, str):
                    self._refuse(machine, seq, record)
                else:
                    self._apply(machine, seq, record, applied)
        return applied._replace(again=self._store.noted(PULLED, machine, _number) is None)

    def commit(self) -> None:
        """Make what was applied searchable; StateError if it must be applied again. Any thread."""
        self._index.commit()
        failures, self._failures = self._failures, self._index.failures
        if self._failures != failures or self._index.busy:
            raise StateError("the index could not be written; the records are read again")

    def advance(self, machine: str, seq: int) -> None:
        """Store that a machine's records up to `seq` were applied, unless all is read again."""
        sql = "UPDATE note SET value = ? WHERE topic = ? AND key = ?"
        self._store.run(sql, msgspec.msgpack.encode(seq), PULLED, machine)

    def leave(self, machine: str) -> dict[str, Row | None]:
        """Drop all of a machine that has left."""
        applied = Applied({}, {})
        with self._store.batch():
            self._drop(machine, "true", (), applied)
            for topic in (NAMES, NUMBERS, REFUSED, PULLED):
                self._store.note(topic, machine, None)
        return applied.rows

    def _refuse(self, machine: str, seq: int, why: str) -> None:
        refused = self._store.noted(REFUSED, machine, _refused) or {}
        if len(refused) < REFUSED_MAX:
            refused[seq] = why
            self._store.note(REFUSED, machine, msgspec.msgpack.encode(refused))

    def _apply(self, machine: str, seq: int, record: Record, applied: Applied) -> None:
        match record:
            case Hello():
                self._rename(machine, record.name)
            case Session():
                self._put(machine, seq, record, applied)
            case Text():
                self._put_text(machine, seq, record)
            case Drop():
                self._drop(machine, "id = ?", (record.id,), applied)
            case Purge():
                applied.purged[record.id] = record.agent
            case Complete():
                self._drop(machine, "seq <= ?", (record.start,), applied)

    def _rename(self, machine: str, name: str) -> None:
        if name != self._store.noted(NAMES, machine, bytes.decode):
            self._store.note(NAMES, machine, name.encode())
            ids = "SELECT id FROM remote WHERE machine = ?"
            sql = "UPDATE record SET row = json_set(row, '$.machine', ?) WHERE id IN"
            self._store.run(f"{sql} ({ids})", name, machine)

    def _put(self, machine: str, seq: int, record: Session, applied: Applied) -> None:
        shared = record.row
        if not self._claim(machine, seq, record.id):
            return
        hidden = self._hides(shared.session_file, shared.cwd, record.id)
        if not hidden and self._store.noted(HIDDEN, record.id, bytes) is not None:
            self.again()  # for its messages
        self._store.note(HIDDEN, record.id, b"" if hidden else None)
        if hidden:
            self._index.forget(record.id)
            self._store.run("DELETE FROM remote WHERE id = ?", record.id)
            return
        name = self._store.noted(NAMES, machine, bytes.decode) or machine[:8]
        row: Row = msgspec.to_builtins(shared)
        row = _DEFAULTS | row | {"machine": name}
        own = (shared.agent, record.id, shared.cwd, shared.session_file)
        host = self._hosts().get(name, name)
        there = not (shared.gone or shared.copy_only)
        row["resume"] = _over_ssh(host, resume_command(*own)) if there else ""
        self._index.put_rows([(row, record.summary, tuple(record.aliases))])
        sql = "UPDATE remote SET documents = ? WHERE id = ?"
        self._store.run(sql, msgspec.json.encode(record.documents), record.id)
        applied.rows[record.id] = row

    def _put_text(self, machine: str, seq: int, record: Text) -> None:
        hidden = self._store.noted(HIDDEN, record.id, bytes) is not None
        if hidden or self._hides("", "", record.id):
            return
        if not self._claim(machine, seq, record.id):
            return
        sql = "SELECT next_row FROM remote WHERE id = ?"
        next_row = self._store.select(sql, record.id)[0][0]
        items = [Message(*message) for message in record.messages]
        replaced = record.first if record.first < next_row else None
        self._index.put_messages(record.id, items, replaced)
        last = items[-1].row + 1 if items else record.first
        self._store.run("UPDATE remote SET next_row = ? WHERE id = ?", last, record.id)

    def _claim(self, machine: str, seq: int, session_id: str) -> bool:
        """Return whether a machine's version of a session is the one that is shown."""
        store = self._store
        sql = "SELECT 1 FROM session WHERE id = ? AND machine IS NULL"
        if store.select(sql, session_id):
            return False
        owners = store.select("SELECT machine FROM remote WHERE id = ?", session_id)
        owner = owners[0][0] if owners else machine
        if owner != machine:
            number = {key: store.noted(NUMBERS, key, _number) or 0 for key in (owner, machine)}
            store.note(SHADOWED, session_id, b"")
            if number[owner] > number[machine]:
                return False
            self._index.put_messages(session_id, (), 0)
            store.run("DELETE FROM remote WHERE id = ?", session_id)
        sql = "INSERT INTO remote (id, machine, seq) VALUES (?, ?, ?)"
        sql += " ON CONFLICT (id) DO UPDATE SET seq = excluded.seq"
        store.run(sql, session_id, machine, seq)
        return True

    def _drop(self, machine: str, where: str, values: tuple[Any, ...], applied: Applied) -> None:
        """Drop sessions of a machine; if another one has them too, all is read again."""
        sql = f"SELECT id FROM remote WHERE machine = ? AND {where}"  # noqa: S608 - ours
        for (session_id,) in self._store.select(sql, machine, *values):
            self._index.forget(session_id)
            self._store.run("DELETE FROM remote WHERE id = ?", session_id)
            applied.rows[session_id] = None
            if self._store.noted(SHADOWED, session_id, bytes) is not None:
                self.again()


_DEFAULTS: Row = {
    "newUserMessages": 0, "subagent": False, "version": 0, "compactions": 0, "leafId": None,
    "filesRead": [], "filesModified": [], "toolsUsed": {}, "toolUses": {}, "models": [],
    "costUsd": None, "costEstimatedUsd": None,
}  # fmt: skip


def _over_ssh(host: str, command: str) -> str:
    """Make a command that runs another one on a host, in a login shell: agents are on its PATH."""
    inner = f'exec "$SHELL" -lc {shlex.quote(command)}'
    return f"ssh {shlex.quote(host)} -t {shlex.quote(inner)}"
