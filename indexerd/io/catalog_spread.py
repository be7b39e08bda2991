"""Words of a query that no one place has together, and words that nothing has.

In: a connection, the words. Out: sessions that have every word somewhere, one in the name and
one in a message say, as if all of a session were one text; and for a mistyped word the word of
the texts that is nearest to it. Both are asked only where nothing better was found.

The work is bounded: sessions are looked for with the rarest word, the newest that have it, and
each other word is looked up in these alone. A mistyped word is compared with words that begin
with the same two letters, read from FTS5's own list of words; a temporary table shows it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from indexerd.core.query import fold
from indexerd.io.catalog_write import SESSION_SHIFT, messages_of

_SESSIONS = 100  # that have the rarest word, of each kind of place
_MESSAGES = 500  # looked at for them
_PLACE_MIN = 3  # characters that may stand anywhere in an id or a directory
_SURE = 2  # first letters that are taken to be right
_WORD_MIN, _LONG = 4, 7  # letters; of a word with a typing error, with two
_WORDS_MAX = 5000
_TABLES = ("about_words", "message_words")

_IN_PLACE = "length(:word) >= :least AND (instr(lower(id), :word) OR instr(lower(cwd), :word))"
_SCOPED = "(:scope IS NULL OR {} IN (SELECT value FROM json_each(:scope)))"


def sessions_with(
    db: sqlite3.Connection, terms: Sequence[tuple[str, str]], scope: str | None
) -> list[int]:
    """Newest sessions that have every term; each is an FTS5 expression and its plain word.

    The first term should be the rarest. `scope` is a JSON list of session numbers, or None.
    """
    found = _newest_with(db, *terms[0], scope)
    for match, word in terms[1:]:
        if not found:
            break
        found = _having(db, match, word, found)
    return found


def _newest_with(db: sqlite3.Connection, match: str, word: str, scope: str | None) -> list[int]:
    given = {"match": match, "word": word, "scope": scope, "least": _PLACE_MIN}
    given |= {"most": _SESSIONS, "messages": _MESSAGES, "shift": SESSION_SHIFT}
    found: set[int] = set()
    for sql in (
        "SELECT rowid FROM about_words WHERE about_words MATCH :match"
        f" AND {_SCOPED.format('+rowid')} ORDER BY rowid DESC LIMIT :most",
        "SELECT rowid >> :shift FROM message_words WHERE message_words MATCH :match"
        f" AND {_SCOPED.format('+(rowid >> :shift)')} ORDER BY rowid DESC LIMIT :messages",
        f"SELECT no FROM session WHERE row_seal IS NOT NULL AND {_IN_PLACE}"
        f" AND {_SCOPED.format('no')} ORDER BY modified DESC LIMIT :most",
    ):
        found.update(no for (no,) in db.execute(sql, given))
    sql = (
        "SELECT no FROM session WHERE row_seal IS NOT NULL"
        " AND no IN (SELECT value FROM json_each(?)) ORDER BY modified DESC LIMIT ?"
    )
    return [no for (no,) in db.execute(sql, (json.dumps([*found]), _SESSIONS))]


def _having(db: sqlite3.Connection, match: str, word: str, sessions: list[int]) -> list[int]:
    first, last = messages_of(0)
    sql = (
        "SELECT value FROM json_each(:sessions) WHERE EXISTS"  # noqa: S608 - our own words
        " (SELECT 1 FROM about_words WHERE about_words MATCH :match AND rowid = value)"
        f" OR EXISTS (SELECT 1 FROM session WHERE no = value AND {_IN_PLACE})"
        " OR EXISTS (SELECT 1 FROM message_words WHERE message_words MATCH :match AND rowid"
        " BETWEEN (value << :shift) + :first AND (value << :shift) + :last)"
    )
    given = {"sessions": json.dumps(sessions), "match": match, "word": word, "least": _PLACE_MIN}
    given |= {"shift": SESSION_SHIFT, "first": first, "last": last}
    return [no for (no,) in db.execute(sql, given)]


def newest_message(db: sqlite3.Connection, no: int, matches: Sequence[str]) -> int | None:
    """The newest message of a session that has one of some terms."""
    first, last = messages_of(no)
    sql = (
        "SELECT max(rowid) FROM message_words WHERE message_words MATCH ?"
        " AND rowid BETWEEN ? AND ?"
    )
    found: int | None = db.execute(sql, (" OR ".join(matches), first, last)).fetchone()[0]
    return found


def is_known(db: sqlite3.Connection, match: str, word: str) -> bool:
    """Say whether anything at all has a term."""
    for table in _TABLES:
        sql = f"SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT 1"  # noqa: S608 - our own names
        if db.execute(sql, (match,)).fetchone():
            return True
    sql = f"SELECT 1 FROM session WHERE {_IN_PLACE} LIMIT 1"  # noqa: S608 - as above
    return db.execute(sql, {"word": word, "least": _PLACE_MIN}).fetchone() is not None


def nearest(db: sqlite3.Connection, word: str) -> str | None:
    """The word of the texts that a mistyped one stands for; the commonest of those as near."""
    from rapidfuzz.distance import OSA  # noqa: PLC0415 - few searches come here

    asked = fold(word)
    if len(asked) < _WORD_MIN or not asked.isalnum():
        return None
    slips = 2 if len(asked) >= _LONG else 1
    sure = asked[:_SURE]
    best: tuple[int, int, str] | None = None
    for table in _TABLES:
        for term, texts in _vocabulary(db, table, sure):
            slip = OSA.distance(asked, term, score_cutoff=slips)
            if slip <= slips and (best is None or (slip, -texts, term) < best):
                best = (slip, -texts, term)
    return best[2] if best else None


def _vocabulary(db: sqlite3.Connection, table: str, begun: str) -> list[tuple[str, int]]:
    """Words of a table that begin like that, and how many texts have each."""
    held = db.execute("SELECT 1 FROM temp.sqlite_schema WHERE name = ?", (f"{table}_list",))
    if held.fetchone() is None:
        db.execute("PRAGMA query_only = 0")  # a temporary table is nobody else's
        try:
            made = f"CREATE VIRTUAL TABLE temp.{table}_list USING fts5vocab('main', {table}, 'row')"
            db.execute(made)
        finally:
            db.execute("PRAGMA query_only = 1")
    sql = f"SELECT term, doc FROM temp.{table}_list WHERE term >= ? AND term < ? LIMIT ?"  # noqa: S608 - our own names
    return db.execute(sql, (begun, begun + "\U0010ffff", _WORDS_MAX)).fetchall()
