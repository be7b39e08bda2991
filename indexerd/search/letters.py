"""Letters anywhere in a session's id or directory, by an index of all their three letters.

In: a connection, words in lower case, the sessions that may be found (a list in JSON; None stands
for all). Out: sessions, last modified first. Words shorter than three characters find nothing.
Every directory stands in the index once, however many sessions it has, and no longer than it
has one; ids stand there as long as their session. Letters are ASCII where case is concerned.

The index knows which texts have the three letters, not in which order: what it names is looked
at. Where it names very many, as for a directory above all others, the sessions themselves are
walked through, newest first: then there soon are enough.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from indexerd.store.rows import numbers, together

_MIN = 3  # characters
_FEW = 1000  # sessions that are looked at for themselves
_GRAMS = 24  # of a word that are looked up: its letters are compared anyway

_IDS = "SELECT rowid AS no FROM id_letters WHERE id_letters MATCH :grams LIMIT :few"
_IN_PLACES = """SELECT session.no AS no FROM place_letters
    CROSS JOIN place ON place.no = place_letters.rowid
    CROSS JOIN session INDEXED BY session_cwd ON session.cwd = place.cwd
    WHERE place_letters MATCH :grams AND instr(lower(place.cwd), :word) LIMIT :few"""
_LATEST = """row_seal IS NOT NULL
    AND (:scope IS NULL OR +no IN (SELECT value FROM json_each(:scope)))
    ORDER BY modified DESC, id LIMIT :most"""
_AMONG = "SELECT no, id, cwd FROM session WHERE no IN (SELECT value FROM json_each(:few))"
_WALKED = "SELECT no, id, cwd FROM session INDEXED BY session_listed WHERE true"


def latest_with(
    db: sqlite3.Connection, words: Sequence[str], scope: str | None, most: int
) -> list[list[Any]]:
    """The sessions last modified that have all words in their id, or in their directory."""
    if any(len(word) < _MIN for word in words):
        return []
    given = {"scope": scope, "most": most} | {f"word{n}": word for n, word in enumerate(words)}
    lists = [few for word in words if (few := _few(db, word)) is not None]
    few = min(lists, key=len, default=None)
    if few == []:
        return []
    places = " OR ".join(
        " AND ".join(f"instr(lower({column}), :word{n})" for n in range(len(words)))
        for column in ("id", "cwd")
    )
    sql = f"{_WALKED if few is None else _AMONG} AND ({places}) AND {_LATEST}"
    return together(db, "no, id, cwd", sql, given | {"few": json.dumps(few)})


def _few(db: sqlite3.Connection, word: str) -> list[int] | None:
    """The sessions that may have a word; None where these are many."""
    parts = [word[at : at + _MIN] for at in range(len(word) - _MIN + 1)]
    parts = parts[:: -(-len(parts) // _GRAMS)]
    grams = " AND ".join('"' + part.replace('"', '""') + '"' for part in parts)
    given = {"grams": grams, "word": word, "few": _FEW}
    found: set[int] = set()
    for sql in (_IDS, _IN_PLACES):
        rows = numbers(db, "no", sql, given)
        if len(rows) == _FEW:
            return None
        found.update(rows)
    return [*found]


def add_id(db: sqlite3.Connection, no: int, session_id: str) -> None:
    """Index the id of a new session."""
    db.execute("INSERT INTO id_letters (rowid, id) VALUES (?, ?)", (no, session_id))


def drop_id(db: sqlite3.Connection, no: int, session_id: str) -> None:
    """Take a session's id out of the index."""
    db.execute(
        "INSERT INTO id_letters (id_letters, rowid, id) VALUES ('delete', ?, ?)", (no, session_id)
    )


def enter_place(db: sqlite3.Connection, cwd: str) -> None:
    """Index a directory, where it is not yet."""
    made = db.execute("INSERT OR IGNORE INTO place (cwd) VALUES (?)", (cwd,))
    if made.rowcount:
        db.execute("INSERT INTO place_letters (rowid, cwd) VALUES (?, ?)", (made.lastrowid, cwd))


def leave_place(db: sqlite3.Connection, cwd: str | None) -> None:
    """Forget a directory, unless a session is in it."""
    if db.execute("SELECT 1 FROM session WHERE cwd = ? LIMIT 1", (cwd,)).fetchone():
        return
    for (no,) in db.execute("SELECT no FROM place WHERE cwd = ?", (cwd,)).fetchall():
        db.execute(
            "INSERT INTO place_letters (place_letters, rowid, cwd) VALUES ('delete', ?, ?)",
            (no, cwd),
        )
        db.execute("DELETE FROM place WHERE no = ?", (no,))
