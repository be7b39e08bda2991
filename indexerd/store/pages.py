"""Pages of a list: which sessions it has, and the word that stands for where a page ended.

A cursor holds a place (time of the last change, session id) with a checksum over that and the
list's filters: only the same list takes it back. The checksum is no secret.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from hashlib import blake2b

from indexerd.errors import UsageError
from indexerd.privacy.sanitize import scrub
from indexerd.times import iso_ms

_SEAL_SIZE = 8
_FEW = 500  # sessions below a directory that are sorted rather than walked through

Conditions = tuple[list[str], list[str | int]]
_BELOW = "(cwd = ? OR cwd >= ? AND cwd < ?)"
_NUMBERS = """SELECT json_group_array(no) FROM (
    SELECT no FROM session INDEXED BY session_cwd WHERE cwd = ?
    UNION ALL SELECT no FROM session INDEXED BY session_cwd WHERE cwd >= ? AND cwd < ? LIMIT ?)"""
_MANY = "SELECT 1 FROM session WHERE agent = ? LIMIT 1 OFFSET ?"
_OF_AGENT = """SELECT json_group_array(no) FROM (SELECT no FROM session WHERE agent = ? LIMIT ?)"""


def sealed(modified: int, session_id: str, filters: str) -> str:
    """The cursor of a place."""
    place = json.dumps([modified, session_id]).encode()
    return base64.urlsafe_b64encode(_seal(place, filters) + place).decode()


def opened(cursor: str, filters: str) -> tuple[int, str]:
    """The place of a cursor; UsageError for one that these filters did not give out."""
    try:
        held = base64.b64decode(cursor.encode("ascii"), b"-_", validate=True)
    except ValueError:
        held = b""
    place = held[_SEAL_SIZE:]
    if not place or held[:_SEAL_SIZE] != _seal(place, filters):
        raise UsageError(
            "not a cursor of this list", hint="leave the cursor out to begin with the first page"
        )
    modified, session_id = json.loads(place)
    return modified, session_id


def _seal(place: bytes, filters: str) -> bytes:
    text = filters.encode("utf-8", "replace") + b"\0" + place
    return blake2b(text, digest_size=_SEAL_SIZE, person=b"indexerd page").digest()


def conditions(agent: str | None, cwd: str | None, since: str | None) -> Conditions:
    """What limits sessions to an agent's, to those below a directory, to those changed since."""
    where: list[str] = []
    values: list[str | int] = []
    if cwd is not None:
        where.append(_BELOW)
        values += _bounds(cwd)
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


def index_for(db: sqlite3.Connection, agent: str | None, cwd: str | None) -> tuple[str, Conditions]:
    """By which index the sessions of a list are gone through, and what that takes."""
    few: list[tuple[str, tuple[str | int, ...]]] = []
    if cwd is not None:
        few.append((_NUMBERS, (*_bounds(cwd), _FEW)))
    if agent is not None and db.execute(_MANY, (scrub(agent), _FEW)).fetchone() is None:
        few.append((_OF_AGENT, (scrub(agent), _FEW)))
    for sql, values in few:
        numbers = db.execute(sql, values).fetchone()[0]
        if len(json.loads(numbers)) < _FEW:
            return "NOT INDEXED", (["no IN (SELECT value FROM json_each(?))"], [numbers])
    return "INDEXED BY session_listed", ([], [])


def _bounds(cwd: str) -> tuple[str, str, str]:
    # All that begins with `/a/b/` lies between that and `/a/b0`: 0 comes after the slash.
    base = scrub(cwd).rstrip("/")
    return base or "/", base + "/", base + "0"
