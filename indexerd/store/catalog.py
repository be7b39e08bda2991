"""The catalog: rows and texts for look-ups, in one SQLite file that may be deleted at any time.

In: a session's row (interfaces.md, section 5), the texts to find it by, its messages. Out: rows,
pages of rows, hits. It never reads session or meta files, and nothing in it is the only copy.

One thread writes. Any thread reads, through a connection of its own, what was last committed.
`readonly` is for commands that run without a daemon: whatever is wrong with the file, they get
an empty catalog and a `problem` instead of an error.

Search by words is SQLite's FTS5 with its usual tokenizer; texts without spaces between words
(Chinese, Japanese, …) are cut into characters beforehand (`search.query`), which costs nothing
for other texts. The trigram tokenizer, measured on 40 MB of messages, takes three times as long
to build and finds no word of two characters; only names have it, for typing errors. On the same
messages words take 2 times the size of the text, the text included, and are built at 12-16 MB/s in
batches, as fast as by a bare FTS5 table. (SQLite 3.40, bench/bench_lookup.py.)
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from indexerd.errors import UsageError
from indexerd.search.index_search import SearchResult, search
from indexerd.search.names import Known
from indexerd.search.query import parse, scrub
from indexerd.search.redo import (
    drop_wholly,
    forget_wholly,
    held_under,
    owes_scour,
    redo,
    scoured,
    stored_under,
)
from indexerd.sessions.family import Link
from indexerd.sources.once_through import once_through
from indexerd.store import kin as catalog_kin
from indexerd.store.cache_file import drop_aside
from indexerd.store.connections import Connections
from indexerd.store.cursor import opened, sealed
from indexerd.store.filters import below, conditions, listed
from indexerd.store.rows import together
from indexerd.store.write import (
    Message,
    SearchText,
    add_messages,
    drop_messages,
    forget,
    get_mark,
    item_of,
    put_items,
    set_mark,
)

__all__ = ["LIMIT_MAX", "Catalog", "Message", "Page", "SearchResult", "SearchText"]

LIMIT_MAX = 1000  # rows of a page, hits of a search

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows, and what to ask for the next ones with; None where there are none.

    `texts` are the rows in JSON: who passes them on need not read them.
    """

    texts: tuple[str, ...]
    next_cursor: str | None = None

    @property
    def rows(self) -> tuple[dict[str, Any], ...]:
        """The rows themselves."""
        return tuple(json.loads(text) for text in self.texts)


class Catalog(Connections):
    """What is known of all sessions, and found in them."""

    # Reading: any thread.

    def get(self, session_id: str) -> dict[str, Any] | None:
        """The row of a session."""
        return self.get_many([session_id]).get(session_id)

    def get_many(self, session_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The rows of some sessions by their ids; unknown ones are left out."""
        wanted = list(dict.fromkeys(session_ids))
        sql = "SELECT row FROM record JOIN session USING (no) WHERE id = ?"

        def ask(db: sqlite3.Connection) -> dict[str, dict[str, Any]]:
            found = ((one, db.execute(sql, (scrub(one),)).fetchone()) for one in wanted)
            return {one: json.loads(row[0]) for one, row in found if row}

        return self._ask(ask)

    def by_file(self, path: str) -> tuple[dict[str, Any], ...]:
        """The rows of all sessions in a file: one, but for agents that keep a database."""
        sql = "SELECT row FROM record JOIN session USING (no) WHERE file = ? ORDER BY id"

        def ask(db: sqlite3.Connection) -> tuple[dict[str, Any], ...]:
            return tuple(json.loads(row) for (row,) in db.execute(sql, (scrub(path),)))

        return self._ask(ask)

    def links(self, session_ids: Iterable[str]) -> list[Link]:
        """Which session each of these came from; unknown ones are left out."""
        return self._ask_at_once(lambda db: catalog_kin.links(db, session_ids))

    def children(self, parents: Iterable[str]) -> list[Link]:
        """The sessions that came from these: their ids, or files that nobody has met."""
        return self._ask_at_once(lambda db: catalog_kin.children(db, parents))

    def carry_on(self, pairs: Iterable[tuple[str, str]]) -> dict[str, bool | None]:
        """Whether the child of each pair goes on where its parent ended; None: not known."""
        asked = list(pairs)
        return self._ask_at_once(lambda db: {b: catalog_kin.carries_on(db, a, b) for a, b in asked})

    def count(self) -> int:
        """How many sessions there are, hidden ones included."""
        sql = "SELECT count(*) FROM record"
        return self._ask(lambda db: int(db.execute(sql).fetchone()[0]))

    def known(self) -> tuple[Known, ...]:
        """What `search.names` needs of every session."""
        live = "NOT (archived OR gone OR subagent) AS live"
        sql = f"SELECT *, {live} FROM session WHERE row_seal NOT NULL"  # noqa: S608 - our own words
        columns = "id, name, aliases, cwd, modified, named, live"
        return self._whole(columns, sql, _known)

    def shown(self) -> list[list[str]]:
        """The id, file and directory of every session whose file was there last."""
        sql = "SELECT * FROM session WHERE row_seal NOT NULL AND NOT gone"
        return self._whole("id, file, cwd", sql, list)

    def _whole(self, columns: str, sql: str, read: Callable[[list[list[Any]]], _T]) -> _T:
        """Something of all sessions, as `read` makes it of rows."""

        def ask(db: sqlite3.Connection) -> _T:
            with once_through(db):
                return read(together(db, columns, sql, {}))

        return self._ask(ask)

    def list(
        self,
        *,
        agent: str | None = None,
        cwd: str | None = None,
        since: str | None = None,
        archived: bool = False,
        subagents: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """Rows, last modified first, then by id.

        `cwd` stands for that directory and all below; `archived` adds archived and gone
        sessions, `subagents` those of sub-agents. Raises UsageError for a limit below 1, a
        `since` that is no time, a cursor that was not given out for the same filters.
        """
        where, values = conditions(agent, since)
        where += ["modified NOT NULL"]  # which a session is whose words alone are known
        where += [] if archived else ["NOT archived", "NOT gone"]
        where += [] if subagents else ["NOT subagent"]
        seal = repr((agent, cwd, since, archived, subagents))
        if cursor is not None:
            where.append("modified <= ? AND (modified < ? OR id > ?)")
            modified, last = opened(cursor, seal)
            values += [modified, modified, last]
        limit = _limited(limit)

        def ask(db: sqlite3.Connection) -> list[tuple[str, int, str]]:
            how, (place, bounds) = listed(db, cwd, agent)
            sql = (  # what is sorted has no rows in it: 500 of these take 3 ms so, and not 9
                "SELECT row, modified, id FROM (SELECT no, modified, id FROM session"  # noqa: S608 - ours
                f" {how} WHERE {' AND '.join([*place, *where])} ORDER BY modified DESC, id LIMIT ?)"
                " CROSS JOIN record USING (no)"  # which goes through the former as it is sorted
            )
            return db.execute(sql, (*bounds, *values, limit + 1)).fetchall()

        found = self._ask(ask)
        following = (
            sealed(found[limit - 1][1], found[limit - 1][2], seal) if len(found) > limit else None
        )
        return Page(tuple(text for text, _, _ in found[:limit]), following)

    def search(
        self,
        query: str,
        *,
        agent: str | None = None,
        cwd: str | None = None,
        since: str | None = None,
        limit: int = 20,
        patience: float = 1.0,
    ) -> SearchResult:
        """Hits over names, tags, descriptions, summaries, messages, ids and directories.

        Best first, at most one field and one message a session; archived, gone and sub-agents'
        sessions included. `since` is about the session's last change; `patience`, in seconds,
        bounds `re:` patterns. Whatever is typed, the worst is no hit and a warning.
        """
        asked, limit = parse(query), _limited(limit)
        where, values = conditions(agent, since)
        place, bounds = below(cwd)
        where, values = [*place, *where], [*bounds, *values]
        scope_sql = f"SELECT no FROM session WHERE {' AND '.join(where)}" if where else None  # noqa: S608 - ours

        def ask(db: sqlite3.Connection) -> SearchResult:
            scope = None
            if scope_sql:
                scope = frozenset(no for (no,) in db.execute(scope_sql, values))
            return search(db, asked, scope, limit, patience)

        return self._ask_at_once(ask)

    # Writing: one thread.

    @contextmanager
    def batch(self) -> Iterator[None]:
        """One transaction around many calls: two to three times as fast when a lot is put in."""
        with self._transaction(ours=False):
            yield

    def put(self, rows: Iterable[tuple[Mapping[str, Any], SearchText]]) -> int:
        """Add rows or take over what changed in them; says how many were not the same before."""
        items = [item_of(row, text) for row, text in rows]  # which may fail by what is given
        with self._transaction() as db:
            return put_items(db, items)

    def forget(self, session_id: str, *, wholly: bool = False) -> None:
        """Drop a session with all its messages; `wholly`: their words are to be scoured, too."""
        with self._transaction() as db:
            (forget_wholly if wholly else forget)(db, session_id)

    @property
    def owes_scour(self) -> bool:
        """Whether words were taken out that are in the file as long as it was not scoured."""
        return self._writer is not None and self._ask(owes_scour)

    def scour(self) -> Iterator[bool]:
        """Take the words of forgotten sessions out of the file, in steps of some milliseconds."""
        steps, more = None, True
        while more:
            with self._transaction() as db:
                steps = steps or scoured(db)
                more = next(steps)
            yield more
        self.fold()

    def add_messages(
        self, session_id: str, items: Iterable[Message], *, mark: str | None = None
    ) -> int:
        """Add messages, maybe before there is a row; how many are new. `mark` is kept with them."""
        given = list(items)  # which may fail by what gives them
        with self._transaction() as db:
            return add_messages(db, session_id, given, mark)

    def drop_messages(self, session_id: str, *, wholly: bool = False) -> None:
        """Drop a session's messages and its mark; `wholly`: their words are to be scoured, too."""
        with self._transaction() as db:
            (drop_wholly if wholly else drop_messages)(db, session_id)

    def redo_messages(
        self, session_id: str, above: int, most: int, change: Callable[[str], str]
    ) -> int:
        """Change `most` messages with a number above; the last one's, or 0 after all of them."""
        with self._transaction() as db:
            return redo(db, session_id, above, most, change)

    def set_messages_mark(self, session_id: str, mark: str | None) -> None:
        """Keep how far the caller has come with a session's messages."""
        with self._transaction() as db:
            set_mark(db, session_id, mark)

    def held_under(self) -> str:
        """The mark of the secrets that all rows are without."""
        return self._ask(held_under)

    def ids(self) -> tuple[str, ...]:
        """The sessions that have a row."""
        sql = "SELECT id FROM session WHERE row_seal NOT NULL"
        return self._whole("id", sql, lambda rows: tuple(one for (one,) in rows))

    def stored_under(self, mark: str) -> None:
        """What is stored from now on is without the secrets that a mark stands for."""
        with self._transaction() as db:
            new = stored_under(db, mark)
        if new:
            drop_aside(self._path)

    def messages_mark(self, session_id: str) -> str | None:
        """What was kept last. In the writer's thread, a batch that goes on counts, too."""
        if self._writer is None:
            return self._ask(lambda db: get_mark(db, session_id))
        with self._transaction() as db:
            return get_mark(db, session_id)

    def mark_signs(self) -> dict[str, str]:
        """The first word of every session's mark: what is before its first space."""
        sign = "substr(mark, 1, instr(mark, ' ') - 1) AS sign"
        sql = f"SELECT id, {sign} FROM session WHERE mark NOT NULL"  # noqa: S608 - our own words
        return self._whole("id, sign", sql, dict)


def _known(rows: list[list[Any]]) -> tuple[Known, ...]:
    found = []
    for one, name, aliases, cwd, at, named, alive in rows:
        names = tuple(json.loads(aliases)) if aliases else (name,)
        found.append(Known(one, name, names, sys.intern(cwd), at, bool(named), bool(alive)))
    return tuple(found)


def _limited(limit: int) -> int:
    if limit < 1:
        raise UsageError("a limit is 1 or more")
    return min(limit, LIMIT_MAX)
