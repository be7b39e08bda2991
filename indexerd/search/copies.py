"""Copies: a message that stands in several sessions, because one was forked from the other.

In: a connection, and the sessions that may be found (a list in JSON; None stands for all). Out:
of each message the one in the session that began first. A fork that nobody named goes by the
first message of its history, which is the parent's: such a name is a copy, too.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from indexerd.privacy.sanitize import clean_line
from indexerd.search.query import shown
from indexerd.store.rows import together
from indexerd.store.write import SESSION_SHIFT, messages_of

_BEGUN = 40  # characters by which a name is known to be a message's
_LOOKED_AT = 2000  # characters of a message
_PROMPTS = 3  # human messages of a session among which the one is that it goes by

_OLDEST = """
    SELECT m.copy AS copy, m.id AS id FROM message m JOIN session s ON s.no = m.id >> :shift
    WHERE m.copy IN (SELECT copy FROM message WHERE id IN (SELECT value FROM json_each(:keys)))
    AND s.row_seal IS NOT NULL
    AND (:scope IS NULL OR s.no IN (SELECT value FROM json_each(:scope)))
    ORDER BY s.created DESC, s.no DESC, m.id DESC"""
_TEXTS = """
    SELECT id, substr(text, 1, :most) AS text FROM message
    WHERE id IN (SELECT value FROM json_each(:keys))"""
_ASKED = """
    SELECT id, substr(text, 1, :most) FROM message
    WHERE id BETWEEN :first AND :last AND role = 'user' ORDER BY id LIMIT :prompts"""


def originals(
    db: sqlite3.Connection, keys: Sequence[int], scope: str | None, most: int
) -> list[tuple[int, int, str]]:
    """Messages with `most` characters of their texts; of copies the one in the oldest session."""
    given = {"shift": SESSION_SHIFT, "keys": json.dumps(keys), "scope": scope}
    oldest = dict(together(db, "copy, id", _OLDEST, given))
    listed = {"most": most, "keys": json.dumps([*oldest.values()])}
    rows = together(db, "id, text", _TEXTS, listed)
    return [(key >> SESSION_SHIFT, key, text) for key, text in rows]


def is_copy(db: sqlite3.Connection, no: int, key: int, scope: str | None) -> bool:
    """Whether a session's message was another session's before."""
    return any(owner != no for owner, _, _ in originals(db, [key], scope, 0))


def is_copied_name(db: sqlite3.Connection, no: int, scope: str | None) -> bool:
    """Whether a session goes by the words of a message that was another session's before."""
    row = db.execute("SELECT name, named FROM session WHERE no = ?", (no,)).fetchone()
    if row is None or row[1]:
        return False
    begun = clean_line(row[0], _BEGUN).rstrip("…")
    first, last = messages_of(no)
    given = {"first": first, "last": last, "most": _LOOKED_AT, "prompts": _PROMPTS}
    for key, text in db.execute(_ASKED, given).fetchall():
        if clean_line(shown(text), _LOOKED_AT).startswith(begun):
            return is_copy(db, no, key, scope)
    return False
