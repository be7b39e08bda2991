"""Relations: whose child a session is, who its children are, and where a child's words begin.

In: a connection and sessions' ids. Out: links as they are stored. Each look-up goes by an index,
and so costs as much as what it finds: nothing here reads all sessions.

A parent is known by its id, or, where nobody has met it, by its file alone; either is the key
that its children are found by. Messages tell a session that went on where its parent ended from
one that left it earlier: a copy keeps its entry's id with pi, Claude Code and Codex, and its
place in the history, role and text with opencode, whose copies have ids of their own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from indexerd.search.query import scrub
from indexerd.sessions.family import Link
from indexerd.store.write import messages_of

_LINKS = """
    SELECT id, parent, created, subagent FROM session
    WHERE row_seal IS NOT NULL AND {key} = ?"""
_IS_COPY = "SELECT 1 FROM message WHERE copy = ? AND id BETWEEN ? AND ?"
_MESSAGE = "SELECT id, copy, role, text FROM message WHERE id BETWEEN ? AND ? ORDER BY id"

_Message = tuple[int, int, str, str]  # number, what it is a copy of, role, text


def links(db: sqlite3.Connection, session_ids: Iterable[str]) -> list[Link]:
    """The links of these sessions, as far as they are known."""
    return _links(db, "id", session_ids)


def children(db: sqlite3.Connection, parents: Iterable[str]) -> list[Link]:
    """The sessions that came from these, in no order."""
    return _links(db, "parent", parents)


def _links(db: sqlite3.Connection, key: str, wanted: Iterable[str]) -> list[Link]:
    # One by one: a list in JSON would end at a null character, which any hand can have written.
    sql = _LINKS.format(key=key)
    rows = (row for one in wanted for row in db.execute(sql, (scrub(one),)))
    return [Link(one, parent or "", born or 0, bool(sub)) for one, parent, born, sub in rows]


def carries_on(db: sqlite3.Connection, parent: str, child: str) -> bool | None:
    """Whether a child has its parent's last message; None where they have no message in common.

    Nor is it known as long as the text of one of them was not read.
    """
    above, below = _span(db, parent), _span(db, child)
    last, first = _end(db, above, "DESC"), _end(db, below, "ASC")
    if last is None or first is None:
        return None
    if _has(db, below, last, last[0] - above[0]):
        return True
    return False if _has(db, above, first, first[0] - below[0]) else None


def _span(db: sqlite3.Connection, session_id: str) -> tuple[int, int]:
    """The numbers that a session's messages may have; none is ever 0."""
    row = db.execute("SELECT no FROM session WHERE id = ?", (scrub(session_id),)).fetchone()
    return messages_of(row[0]) if row else (0, 0)


def _end(db: sqlite3.Connection, span: tuple[int, int], order: str) -> _Message | None:
    found: _Message | None = db.execute(f"{_MESSAGE} {order} LIMIT 1", span).fetchone()
    return found


def _has(db: sqlite3.Connection, span: tuple[int, int], message: _Message, place: int) -> bool:
    """Whether a session has a message: a copy anywhere, or the same words at the same place."""
    _, copy, role, text = message
    if db.execute(_IS_COPY, (copy, *span)).fetchone():
        return True
    number = span[0] + place
    there: _Message | None = db.execute(_MESSAGE, (number, number)).fetchone()
    return there is not None and there[2:] == (role, text)
