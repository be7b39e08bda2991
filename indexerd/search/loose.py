"""Sessions that have most of a question's words, where none has them all.

In: a connection, the terms of a query, the finder of these terms. Out: the likeliest sessions,
best first, each with the place to show. People ask in words of their own: "comments preserved by
the parser" for "must keep its comments". So the words are weighed by their rarity, and a session
by the weight of those that it has, by how many of them one place has together, and by where each
stands: in a name more than in a message.

The work is bounded: of each word the newest 500 fields and 2000 messages are listed, and only the
40 sessions with the most weight are read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import NamedTuple

from indexerd.search.names_known import without_references
from indexerd.search.paths import files_with, is_path, marked, places_with
from indexerd.search.query import Finder, shown
from indexerd.search.spread import Term, weight_of
from indexerd.store.rows import numbers
from indexerd.store.write import SESSION_SHIFT

_READ_ONLY = "read"  # a place of its own, shown as one of "files"
FIELDS = ("name", "tags", "description", "summary")
_WORTH = {
    "name": 1.0,
    "tags": 0.9,
    "description": 0.8,
    "summary": 0.7,
    "message": 0.6,
    "files": 0.6,
    _READ_ONLY: 0.5,
    "id": 0.5,
    "cwd": 0.4,
}
_FIELD_ROWS, _MESSAGE_ROWS, _PATHS = 500, 2000, 100
_SESSIONS_READ = 40
_LEAST = 0.35  # of the weight of all words
_APART = 0.4  # what words are worth that stand in different places

_ABOUT = """SELECT rowid AS no FROM about_words WHERE about_words MATCH :match
    AND (:scope IS NULL OR +rowid IN (SELECT value FROM json_each(:scope)))
    ORDER BY rowid DESC LIMIT :most"""
_MESSAGES = """SELECT rowid AS id FROM message_words WHERE message_words MATCH :match
    AND (:scope IS NULL OR +(rowid >> :shift) IN (SELECT value FROM json_each(:scope)))
    ORDER BY rowid DESC LIMIT :most"""


class Likely(NamedTuple):
    """A session, how likely (0 to 1) it is meant, and the place that shows it."""

    no: int
    score: float
    field: str
    key: int
    snippet: Callable[[str], str] | None  # None: the place's text, as the finder shows it


@dataclass(slots=True)
class _Session:
    """Which terms a session has, and where."""

    terms: set[int] = field(default_factory=set)
    messages: dict[int, set[int]] = field(default_factory=dict)
    paths: dict[str, set[int]] = field(default_factory=dict)  # by field
    texts: dict[str, str] = field(default_factory=dict)  # of these


def likeliest(
    db: sqlite3.Connection, terms: Sequence[Term], finder: Finder, scope: str | None
) -> list[Likely]:
    """The sessions that have most of the terms' weight, best first."""
    sessions: dict[int, _Session] = {}
    weights = [_gather(db, n, term, scope, sessions) for n, term in enumerate(terms)]
    known = [weight for weight in weights if weight]
    if not known:
        return []
    unknown = sum(known) / len(known)  # a word that nothing has counts like the others
    total = sum(weight or unknown for weight in weights)
    shares = [weight / total for weight in weights]

    def share(held: set[int]) -> float:
        return sum(shares[n] for n in held)

    found = nlargest(
        _SESSIONS_READ, sessions.items(), key=lambda one: (share(one[1].terms), one[0])
    )
    likely = [
        _weighed(db, no, one, finder, share) for no, one in found if share(one.terms) >= _LEAST
    ]
    return sorted(likely, key=lambda one: -one.score)


def _gather(
    db: sqlite3.Connection, n: int, term: Term, scope: str | None, into: dict[int, _Session]
) -> float:
    """Note which sessions have a term; its weight, 0 where none has it."""
    given = {"match": term.match, "scope": scope, "shift": SESSION_SHIFT}
    rows = numbers(db, "no", _ABOUT, given | {"most": _FIELD_ROWS})
    for no in rows:
        into.setdefault(no, _Session()).terms.add(n)
    keys = numbers(db, "id", _MESSAGES, given | {"most": _MESSAGE_ROWS})
    for key in keys:
        session = into.setdefault(key >> SESSION_SHIFT, _Session())
        session.terms.add(n)
        session.messages.setdefault(key, set()).add(n)
    texts = len(rows) + len(keys)
    if not texts or is_path(term.word):
        texts += _gather_paths(db, n, term, scope, into)
    return weight_of(texts) if texts else 0.0


def _gather_paths(
    db: sqlite3.Connection, n: int, term: Term, scope: str | None, into: dict[int, _Session]
) -> int:
    found = list(places_with(db, [term.word], scope, _PATHS))
    for no, path, edited in files_with(db, term.word, scope, _PATHS):
        found.append((no, "files" if edited else _READ_ONLY, path))
    for no, name, text in found:
        session = into.setdefault(no, _Session())
        session.terms.add(n)
        session.paths.setdefault(name, set()).add(n)
        session.texts[name] = marked(text, [term.word])
    return len(found)


def _weighed(
    db: sqlite3.Connection,
    no: int,
    session: _Session,
    finder: Finder,
    share: Callable[[set[int]], float],
) -> Likely:
    """How likely a session is meant, and by which place."""
    places: dict[tuple[str, int], set[int]] = {
        (name, no): held for name, held in _fields_with(db, no, finder).items()
    }
    places |= {("message", key): held for key, held in session.messages.items()}
    places |= {(name, no): held for name, held in session.paths.items()}
    worth: dict[int, float] = {}
    for (name, _), held in places.items():
        for n in held:
            worth[n] = max(worth.get(n, 0.0), _WORTH[name])
    if not worth:
        return Likely(no, 0.0, "message", 0, lambda _: "")
    have = set(worth)
    strength = sum(share({n}) * value for n, value in worth.items()) / share(have)
    (name, key), best = max(
        places.items(), key=lambda one: (share(one[1]), _WORTH[one[0][0]], one[0][1])
    )
    together = share(best) / share(have)
    score = share(have) ** 2 * (_APART + (1 - _APART) * together) * strength
    text = session.texts.get(name)
    field_shown = "files" if name == _READ_ONLY else name
    return Likely(no, score, field_shown, key, None if text is None else lambda _: text)


def _fields_with(db: sqlite3.Connection, no: int, finder: Finder) -> Mapping[str, set[int]]:
    sql = f"SELECT {', '.join(FIELDS)} FROM about WHERE no = ?"  # noqa: S608 - columns of ours
    row = db.execute(sql, (no,)).fetchone() or ()
    found: dict[str, set[int]] = {}
    for name, text in zip(FIELDS, row, strict=False):
        words = own_words(text) if name == "name" else text
        held = {n for n, count in enumerate(finder.counts(words)) if count}
        if held:
            found[name] = held
    return found


def own_words(names: str) -> str:
    """A session's names, one a line, without what they say of other sessions."""
    if "@@" not in names:
        return names
    return "\n".join(without_references(shown(name)) for name in names.split("\n"))
