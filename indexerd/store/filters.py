"""Which sessions a list or a search is limited to, in SQL.

In: an agent, a directory, a time, as they were typed. Out: conditions on the session table with
their values, to be joined by AND. UsageError for a time that is none. Nothing typed gets into
the SQL itself.

A directory stands for itself and all below. A list goes through the sessions newest first until
its page is full, which is soon where most of them are below the directory, or the agent's, and long
where few are: these are looked up and sorted instead.
"""

from __future__ import annotations

import json
import sqlite3

from indexerd.errors import UsageError
from indexerd.search.query import scrub
from indexerd.times import iso_ms

_FEW = 500  # sessions below a directory that are sorted rather than walked through

Conditions = tuple[list[str], list[str | int]]
_BELOW = "(cwd = ? OR cwd >= ? AND cwd < ?)"
_NUMBERS = """SELECT json_group_array(no) FROM (
    SELECT no FROM session INDEXED BY session_cwd WHERE cwd = ?
    UNION ALL SELECT no FROM session INDEXED BY session_cwd WHERE cwd >= ? AND cwd < ? LIMIT ?)"""
_MANY = "SELECT 1 FROM session WHERE agent = ? LIMIT 1 OFFSET ?"
_OF_AGENT = """SELECT json_group_array(no) FROM (SELECT no FROM session WHERE agent = ? LIMIT ?)"""


def conditions(agent: str | None, since: str | None) -> Conditions:
    """What limits sessions to an agent's, and to those changed since a time."""
    where: list[str] = []
    values: list[str | int] = []
    if agent is not None:
        where.append("agent = ?")
        values.append(scrub(agent))
    if since is not None:
        moment = iso_ms(since)
        if moment == 0:
            raise UsageError("since is not a time", hint="write it like 2026-01-31T12:00:00Z")
        where.append("modified >= ?")
        values.append(moment)
    return where, values


def below(cwd: str | None) -> Conditions:
    """What limits sessions to those of a directory and all below."""
    return ([], []) if cwd is None else ([_BELOW], [*_bounds(cwd)])


def listed(db: sqlite3.Connection, cwd: str | None, agent: str | None) -> tuple[str, Conditions]:
    """The same for a list, and by which index its sessions are gone through."""
    few: list[tuple[str, tuple[str | int, ...]]] = []
    if cwd is not None:
        few.append((_NUMBERS, (*_bounds(cwd), _FEW)))
    if agent is not None and db.execute(_MANY, (scrub(agent), _FEW)).fetchone() is None:
        few.append((_OF_AGENT, (scrub(agent), _FEW)))
    for sql, values in few:
        found = json.loads(db.execute(sql, values).fetchone()[0])
        if len(found) < _FEW:
            place, bounds = below(cwd)
            numbers = json.dumps(found)
            return "NOT INDEXED", (
                ["no IN (SELECT value FROM json_each(?))", *place],
                [numbers, *bounds],
            )
    return "INDEXED BY session_listed", below(cwd)


def _bounds(cwd: str) -> tuple[str, str, str]:
    # All that begins with `/a/b/` lies between that and `/a/b0`: 0 comes after the slash.
    base = scrub(cwd).rstrip("/")
    return base or "/", base + "/", base + "0"
