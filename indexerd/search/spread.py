"""Words of a query that no one place has together, and words that nothing has.

In: a connection, a query's terms. Out: sessions that have every term somewhere, one in the name
and one in a message say, as if all of a session were one text; and for a mistyped word the word
of the texts that is nearest to it. Both are asked for only where little was found otherwise.

The work is bounded: sessions are looked for with the rarest term, the newest that have it, and
each other term is looked up in these alone. A mistyped word is compared with words that begin
with the same three letters, then, where none is one slip away, with the same two. They are read
from FTS5's own list of words, which a temporary table shows: it counts the texts of each, which is
3 ms and 25 ms on 210,000 messages.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from math import log
from typing import Any, NamedTuple

from indexerd.privacy.redact_paths import shown_path
from indexerd.search.letters import latest_with
from indexerd.search.query import Asked, Finder, fold, shown
from indexerd.store.rows import numbers, together
from indexerd.store.write import SESSION_SHIFT, messages_of

_SESSIONS = 100  # that have the rarest term
_MESSAGES = 500  # looked at for them
_PLACE_MIN = 3  # characters that may stand anywhere in an id or a directory
_WORD_MIN, _LONG = 4, 7  # letters of a word with a typing error, and of one with two
_SURE = 2  # first letters that are taken to be right
_WORDS_MAX = 5000
_RARITY_MAX = 2000  # matches up to which a word's rarity is counted
_OF_ALL = 20_000  # texts that this is compared with
_TABLES = ("about_words", "message_words")

_NEWEST_WITH = (
    """SELECT rowid AS no FROM about_words WHERE about_words MATCH :match
       AND (:scope IS NULL OR +rowid IN (SELECT value FROM json_each(:scope)))
       ORDER BY rowid DESC LIMIT :sessions""",
    """SELECT rowid >> :shift AS no FROM message_words WHERE message_words MATCH :match
       AND (:scope IS NULL OR +(rowid >> :shift) IN (SELECT value FROM json_each(:scope)))
       ORDER BY rowid DESC LIMIT :messages""",
)
_LISTED = """SELECT no FROM session WHERE row_seal IS NOT NULL
    AND no IN (SELECT value FROM json_each(:found)) ORDER BY modified DESC LIMIT :sessions"""
_HAVING = (
    """SELECT rowid AS no FROM about_words WHERE about_words MATCH :match
       AND rowid BETWEEN :oldest AND :newest
       AND +rowid IN (SELECT value FROM json_each(:found))""",
    """SELECT DISTINCT rowid >> :shift AS no FROM message_words WHERE message_words MATCH :match
       AND rowid BETWEEN :first AND :last
       AND (rowid >> :shift) IN (SELECT value FROM json_each(:found))""",
)
_IN_PLACE = """SELECT no FROM session WHERE no IN (SELECT value FROM json_each(:found))
    AND length(:word) >= :least AND (instr(lower(id), :word) OR instr(lower(cwd), :word))"""


class Term(NamedTuple):
    """One word or phrase: as an FTS5 expression, and as letters anywhere in an id or a path.

    `exact` is the expression for the word as it was typed, which is found faster.
    """

    match: str
    word: str
    exact: str


class Place(NamedTuple):
    """Where a session has some of the terms. `text` is there for an id or a directory."""

    no: int
    field: str
    key: int
    share: float  # of the terms
    text: str = ""


def terms_of(asked: Asked, *, inflect: bool = False) -> list[Term]:
    """Terms of a parsed query; the last may be the beginning of a word."""
    matches = asked.matches(widen=asked.open_end, inflect=inflect)
    return [
        Term(match, shown(term).lower(), f'"{term}"')
        for match, term in zip(matches, asked.terms, strict=True)
    ]


def rarity_of(db: sqlite3.Connection, match: str) -> float:
    """BM25's weight of a term, from a bounded count."""
    texts = 0
    for table in _TABLES:
        sql = f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT ?)"  # noqa: S608 - our own names
        texts += db.execute(sql, (match, _RARITY_MAX)).fetchone()[0]
    return weight_of(texts)


def weight_of(texts: int) -> float:
    """BM25's weight of a term that so many texts have."""
    return log(1 + (_OF_ALL - texts + 0.5) / (texts + 0.5))


def sessions_with(db: sqlite3.Connection, terms: Sequence[Term], scope: str | None) -> list[int]:
    """Sessions that have every term, the newest first. The rarest term should come first.

    `scope` is a list of session numbers in JSON; None stands for all.
    """
    given = {"sessions": _SESSIONS, "messages": _MESSAGES, "shift": SESSION_SHIFT}
    texts = {"scope": scope, **terms[0]._asdict()}
    held = {no for sql in _NEWEST_WITH for no in numbers(db, "no", sql, given | texts)}
    held.update(no for no, _, _ in latest_with(db, [terms[0].word], scope, _SESSIONS))
    found = numbers(db, "no", _LISTED, given | {"found": json.dumps([*held])})
    for term in terms[1:]:
        found = _having(db, term, found) if found else found
    return found


def _having(db: sqlite3.Connection, term: Term, found: Sequence[int]) -> list[int]:
    """Those of some sessions that have a term.

    All texts between the oldest and the newest are gone through: 0.2 µs for each that has the
    term, as against 1 ms to look up one that has many forms in one session, a hundred times.
    """
    oldest, newest = min(found), max(found)
    given = {"found": json.dumps(found), "shift": SESSION_SHIFT, "least": _PLACE_MIN}
    given |= {"oldest": oldest, "newest": newest, **term._asdict()}
    given |= {"first": messages_of(oldest)[0], "last": messages_of(newest)[1]}
    there = {no for sql in (_IN_PLACE, *_HAVING) for no in numbers(db, "no", sql, given)}
    return [no for no in found if no in there]


def best_place(
    db: sqlite3.Connection, no: int, terms: Sequence[Term], finder: Finder, fields: Sequence[str]
) -> Place:
    """Where a session has the most of the terms: one of these fields, a message, id or cwd."""
    columns = ", ".join(fields)
    row = db.execute(f"SELECT {columns} FROM about WHERE no = ?", (no,)).fetchone()  # noqa: S608 - columns of ours
    found = [
        Place(no, name, no, _share(finder, text))
        for name, text in zip(fields, row or (), strict=False)
    ]
    first, last = messages_of(no)
    sql = (
        "SELECT id, text FROM message WHERE id = (SELECT max(rowid) FROM message_words"
        " WHERE message_words MATCH ? AND rowid BETWEEN ? AND ?)"
    )
    for words in ([term.exact for term in terms], [term.match for term in terms]):
        rows = db.execute(sql, (" OR ".join(words), first, last)).fetchall()
        found += [Place(no, "message", key, _share(finder, text)) for key, text in rows]
        if rows:
            break
    session = db.execute("SELECT id, cwd FROM session WHERE no = ?", (no,)).fetchone()
    for name, text in zip(("id", "cwd"), map(shown_path, session or ()), strict=False):
        part = sum(term.word in text.lower() for term in terms) / len(terms)
        found.append(Place(no, name, no, part, text))
    return max(found, key=lambda place: place.share)


def _share(finder: Finder, text: str) -> float:
    counts = finder.counts(text)
    return sum(map(bool, counts)) / len(counts)


def mended(db: sqlite3.Connection, terms: Sequence[Term]) -> list[str | None]:
    """The terms, with each that nothing has replaced by the nearest word; None if it has none."""
    return [term.word if _is_known(db, term) else _nearest(db, term.word) for term in terms]


def _is_known(db: sqlite3.Connection, term: Term) -> bool:
    for table in _TABLES:
        sql = f"SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT 1"  # noqa: S608 - our own names
        if db.execute(sql, (term.match,)).fetchone():
            return True
    return bool(latest_with(db, [term.word], None, 1))


def _nearest(db: sqlite3.Connection, word: str) -> str | None:
    """The word of the texts that a mistyped one stands for: of those as near the commonest."""
    from rapidfuzz.distance import OSA  # noqa: PLC0415 - few searches come here

    asked = fold(word)
    if len(asked) < _WORD_MIN or not asked.isalnum():
        return None
    most = 2 if len(asked) >= _LONG else 1
    for begun, slips in ((asked[: _SURE + 1], 1), (asked[:_SURE], most)):
        near = [
            (slip, -texts, term)
            for table in _TABLES
            for term, texts in _vocabulary(db, table, begun)
            if (slip := OSA.distance(asked, term, score_cutoff=slips)) <= slips
        ]
        if near:
            return str(min(near)[2])
    return None


def _vocabulary(db: sqlite3.Connection, table: str, begun: str) -> list[list[Any]]:
    """Words of a table that begin like that, and how many texts have each."""
    name = f"{table}_list"
    held = db.execute("SELECT 1 FROM temp.sqlite_schema WHERE name = ?", (name,))
    if held.fetchone() is None:
        db.execute("PRAGMA query_only = 0")  # a temporary table changes nothing of the file
        try:
            db.execute(f"CREATE VIRTUAL TABLE temp.{name} USING fts5vocab('main', {table}, 'row')")
        finally:
            db.execute("PRAGMA query_only = 1")
    sql = f"SELECT term, doc FROM temp.{name} WHERE term >= :begun AND term < :end LIMIT :most"  # noqa: S608 - our own names
    given = {"begun": begun, "end": begun + "\U0010ffff", "most": _WORDS_MAX}
    return together(db, "term, doc", sql, given)
