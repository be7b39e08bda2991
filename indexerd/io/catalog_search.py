"""Searching the catalog: from a parsed query to ranked hits.

In: a connection, an `Asked` (core.query), the sessions that may be found. Out: hits, best first,
at most one field and one message for each session, and warnings. What has all words in one field
or in one message comes first. Only where whole words give too few hits may the last word go on
("conf" for "config"), do ids and directories count that have the words anywhere in them, and
then sessions that have each word in some place. Where nothing is found, names that look alike
are, or what has the words that were probably meant.

A score is the field's weight, times how well the text fits (BM25 over the candidates, brought
into 0.5 to 1), times 0.85 to 1 for how lately the session was used. SQLite's own bm25() counts
every text that has a word, 26 to 185 ms for the commonest in 218,000 messages; so candidates
are bounded instead: a field's are the newest 100 that match. Of messages the newest 500 are
looked at, then, as long as they are of few sessions, the next 500 below the last of these, and
so on; then those of the 30 sessions last used. Each session in turn, 200 for a page of 20 hits
are compared.

A message that was copied into forks is shown once, in the oldest session that has it; so is a
name that is such a message's beginning.
Patterns look at names and all else first, then at messages from new to old, until there are
enough hits or the caller's patience ends, which a warning says.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

from indexerd.core.names_fuzzy import folded
from indexerd.core.query import Asked, Finder, excerpt, segment, shown
from indexerd.core.query_pattern import Pattern
from indexerd.io.catalog_copies import is_copied_name, is_copy, originals
from indexerd.io.catalog_spread import (
    best_place,
    marked,
    mended,
    places_with,
    rarity_of,
    sessions_with,
    terms_of,
)
from indexerd.io.catalog_write import SESSION_SHIFT, messages_of

WEIGHTS = {
    "name": 12.0,
    "id": 10.0,
    "tags": 6.0,
    "description": 4.0,
    "summary": 2.5,
    "message": 1.5,
    "cwd": 0.5,
}
_FIELDS = ("name", "tags", "description", "summary")
_FIELD_MAX = 100  # candidates of a field
_ROUND, _ROUNDS = 500, 8  # matching messages looked at in one go; how often
_SESSIONS = 5  # with matching messages, for each hit asked for
_COMPARED, _COMPARED_MORE = 100, 5  # messages; more for each hit asked for
_LATELY = 30  # sessions last used that are looked at anyway
_FEW = 60  # sessions in scope that are looked at one by one
_EACH = 20  # messages of a session looked at by itself
_SCORED = 8192  # characters of a text in which words are counted
_BEGUN = 0.6  # what a word is worth that only begins as asked
_PLAIN = 0.75  # what a place is worth that no words were counted in
_SPREAD = 0.4  # what one is worth that has only some of the words
_HALF_LIFE_MS = 30 * 86_400_000
_ALIKE_MAX, _ALIKE_MIN = 50, 75.0  # names compared for typing errors; rapidfuzz's WRatio
_NUMBER_MAX = (1 << 63) - 1
_K1, _B = 1.2, 0.75


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Hits `{sessionId, name, field, snippet, score}`, of messages `entryId`, `role`, `at` too."""

    hits: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Found:
    """One place in a session. `key` is the message's number, or the session's."""

    no: int
    field: str
    key: int
    score: float
    snippet: Callable[[], str]


def search(
    db: sqlite3.Connection, asked: Asked, scope: frozenset[int] | None, limit: int, patience: float
) -> SearchResult:
    """Answer one query; `scope` None stands for all sessions, `patience` is in seconds."""
    look = _Look(db, scope, limit)
    if asked.pattern is not None:
        look.by_pattern(asked.pattern, time.monotonic() + patience)
    elif asked.terms:
        look.by_words(asked)
        for likely in (look.by_letters, look.by_likeness):
            if not look.found and not asked.quoted:
                likely(asked)
    warnings = (asked.problem, look.warning)
    return SearchResult(tuple(look.hits()), tuple(one for one in warnings if one))


@dataclass(slots=True)
class _Look:
    """One search under way."""

    db: sqlite3.Connection
    scope: frozenset[int] | None
    limit: int
    found: dict[tuple[int, bool], _Found] = field(default_factory=dict)  # by session, is message
    warning: str | None = None
    _factors: dict[int, float] = field(default_factory=dict)
    _copied: dict[int, bool] = field(default_factory=dict)  # names, by session
    _listed: str | None = None  # the scope as SQL gets it

    def __post_init__(self) -> None:
        if self.scope is not None:
            self._listed = json.dumps([*self.scope])

    def _all(self, sql: str, **values: Any) -> list[Any]:
        return self.db.execute(sql, {"scope": self._listed, **values}).fetchall()

    def add(self, one: _Found) -> None:
        """Keep the better of two places of one kind in a session, unless it is a copy."""
        if one.field == "name" and self._goes_by_copy(one.no):
            return
        if one.no not in self._factors:
            self._weigh_age([one.no])
        one.score *= WEIGHTS[one.field] * self._factors[one.no]
        place = (one.no, one.field == "message")
        if place not in self.found or self.found[place].score < one.score:
            self.found[place] = one

    def _goes_by_copy(self, no: int) -> bool:
        if no not in self._copied:
            self._copied[no] = is_copied_name(self.db, no, self._listed)
        return self._copied[no]

    def _weigh_age(self, sessions: Sequence[int]) -> None:
        sql = (
            "SELECT no, (SELECT max(modified) FROM session) - ifnull(modified, 0) FROM session"
            " WHERE no IN (SELECT value FROM json_each(:sessions))"
        )
        for no, age in self._all(sql, sessions=json.dumps(sessions)):
            self._factors[no] = 0.85 + 0.15 * 0.5 ** (age / _HALF_LIFE_MS)

    def _enough(self, score: float = 0.0) -> bool:
        """Say whether there are as many sessions as asked for, with this score or better."""
        return len({no for (no, _), one in self.found.items() if one.score >= score}) >= self.limit

    def by_words(self, asked: Asked) -> None:
        """Find fields and messages that have all words, then sessions that do."""
        self._words(asked, widen=False)
        if not self._enough():
            self._places(asked.terms)
            if asked.open_end:
                self._words(asked, widen=True)
        if not self._enough() and len(asked.terms) > 1:
            self._spread(asked)

    def _words(self, asked: Asked, *, widen: bool) -> None:
        finder, worth = asked.finder(widen=widen), _BEGUN if widen else 1.0
        rarity = self._rarity(asked.terms)
        for name in (*_FIELDS, "message"):
            if self._enough(WEIGHTS[name] * worth):
                return  # none of those still to come could be among the best
            if name == "message":
                texts = self._message_texts(asked.match(widen=widen))
            else:
                texts = self._field_texts(name, asked, widen=widen)
            self._weigh_age([no for no, _, _ in texts])
            average = sum(len(text) for _, _, text in texts) / max(1, len(texts)) or 1.0
            for no, key, text in texts:
                length = _K1 * (1 - _B + _B * len(text) / average)
                counts = [max(count, 1) for count in finder.counts(text)]
                fits = sum(w * n / (n + length) for w, n in zip(rarity, counts, strict=True))
                score = worth * (0.5 + 0.5 * fits / sum(rarity))
                self.add(_Found(no, name, key, score, self._snippet(name, key, finder)))

    def _rarity(self, terms: Sequence[str]) -> list[float]:
        """BM25's weights of words: the rarer, the more."""
        return [rarity_of(self.db, f'"{term}"') if len(terms) > 1 else 1.0 for term in terms]

    def _snippet(self, name: str, key: int, finder: Finder) -> Callable[[], str]:
        table, no = ("message", "id") if name == "message" else ("about", "no")
        column = "text" if name == "message" else name
        sql = f"SELECT {column} FROM {table} WHERE {no} = ?"  # noqa: S608 - our own names

        def snippet() -> str:
            row = self.db.execute(sql, (key,)).fetchone()
            return finder.snippet(row[0]) if row else ""

        return snippet

    def _field_texts(self, name: str, asked: Asked, *, widen: bool) -> list[tuple[int, int, str]]:
        sql = (
            f"SELECT rowid, substr({name}, 1, :scored) FROM about_words"  # noqa: S608 - a column of ours
            " WHERE about_words MATCH :match AND (:scope IS NULL"
            " OR +rowid IN (SELECT value FROM json_each(:scope)))"
            " ORDER BY rowid DESC LIMIT :most"
        )
        match = asked.match(column=name, widen=widen)
        rows = self._all(sql, match=match, scored=_SCORED, most=max(_FIELD_MAX, self.limit))
        return [(no, no, text) for no, text in rows]

    def _message_texts(self, match: str) -> list[tuple[int, int, str]]:
        if self.scope is not None and len(self.scope) <= _FEW:
            of_session = {no: self._messages_in(no, match) for no in self.scope}
        else:
            of_session = self._newest_messages(match)
        turns = sorted(
            (turn, place, key)
            for place, keys in enumerate(of_session.values())
            for turn, key in enumerate(keys)
        )
        most = _COMPARED + _COMPARED_MORE * self.limit
        return self._originals([key for _, _, key in turns[:most]])

    def _newest_messages(self, match: str) -> dict[int, list[int]]:
        """Sessions' newest matching messages, those of the newest sessions that have some."""
        sql = (
            "SELECT rowid FROM message_words WHERE message_words MATCH :match AND rowid < :below"
            " AND (:scope IS NULL OR +(rowid >> :shift) IN (SELECT value FROM json_each(:scope)))"
            " ORDER BY rowid DESC LIMIT :most"
        )
        below, of_session = _NUMBER_MAX, dict[int, list[int]]()
        for _ in range(_ROUNDS):
            rows = self._all(sql, match=match, below=below, shift=SESSION_SHIFT, most=_ROUND)
            for (key,) in rows:
                of_session.setdefault(key >> SESSION_SHIFT, []).append(key)
            if len(rows) < _ROUND:
                return of_session
            if len(of_session) >= _SESSIONS * self.limit:
                break
            below, _ = messages_of(rows[-1][0] >> SESSION_SHIFT)  # enough of that session
        lately = self._used_lately()
        first = {no: of_session.get(no) or self._messages_in(no, match) for no in lately}
        return first | of_session

    def _messages_in(self, no: int, match: str) -> list[int]:
        """One session's matching messages, newest first; FTS5 finds its way only upwards."""
        sql = (
            "SELECT rowid FROM message_words WHERE message_words MATCH :match"
            " AND rowid BETWEEN :first AND :last ORDER BY rowid LIMIT :most"
        )
        first, last = messages_of(no)
        rows = self._all(sql, match=match, first=first, last=last, most=_ROUND)
        return [key for (key,) in reversed(rows[-_EACH:])]

    def _used_lately(self) -> list[int]:
        sql = (
            "SELECT no FROM session"
            " WHERE :scope IS NULL OR +no IN (SELECT value FROM json_each(:scope))"
            " ORDER BY modified DESC LIMIT :most"
        )
        return [no for (no,) in self._all(sql, most=_LATELY)]

    def _originals(self, keys: Sequence[int]) -> list[tuple[int, int, str]]:
        """Messages with their texts; of copies the one in the oldest session."""
        return originals(self.db, keys, self._listed, _SCORED)

    def _places(self, terms: Sequence[str]) -> None:
        """Find ids and directories that have the words anywhere in them."""
        words, most = [shown(term).lower() for term in terms], max(_FIELD_MAX, self.limit)
        for no, column, text in places_with(self.db, words, self._listed, most):
            self.add(_Found(no, column, no, _PLAIN, partial(marked, text, words)))

    def _spread(self, asked: Asked) -> None:
        """Find sessions that have all words, each in any place."""
        terms = terms_of(asked.terms, open_end=asked.open_end)
        rarity = dict(zip(terms, self._rarity(asked.terms), strict=True))
        finder = asked.finder(widen=asked.open_end)
        rarest_first = sorted(terms, key=lambda term: -rarity[term])
        held = {no for no, _ in self.found}
        spread = sessions_with(self.db, rarest_first, self._listed)
        for no in [one for one in spread if one not in held][: self.limit]:
            place = best_place(self.db, no, terms, finder, _FIELDS)
            if place.field == "message" and is_copy(self.db, no, place.key, self._listed):
                continue  # its original is found for itself
            snippet = self._snippet(place.field, place.key, finder)
            if place.text:
                snippet = partial(marked, place.text, [term.word for term in terms])
            self.add(_Found(no, place.field, place.key, _SPREAD * place.share, snippet))

    def by_likeness(self, asked: Asked) -> None:
        """Find what has the words that were probably meant."""
        words = mended(self.db, terms_of(asked.terms, open_end=asked.open_end))
        if not words:
            return
        going_on = asked.open_end and shown(asked.terms[-1]).lower() == words[-1]
        self.by_words(replace(asked, terms=tuple(map(segment, words)), open_end=going_on))
        if self.found:
            self.warning = f"nothing has these words; looked for: {' '.join(words)}"

    def by_letters(self, asked: Asked) -> None:
        """Find names that look like the query, typing errors and all."""
        from rapidfuzz import fuzz  # noqa: PLC0415 - few searches come here

        query, nothing = folded(" ".join(map(shown, asked.terms))), Finder([], widen=False)
        grams = sorted({query[at : at + 3] for at in range(len(query) - 2)})
        if not grams:
            return
        sql = (
            "SELECT rowid, nearly FROM about_letters WHERE about_letters MATCH :match"
            " AND (:scope IS NULL OR +rowid IN (SELECT value FROM json_each(:scope)))"
            " ORDER BY rank LIMIT :most"
        )
        match = " OR ".join(f'"{gram}"' for gram in grams)
        for no, names in self._all(sql, match=match, most=_ALIKE_MAX):
            alike = max(fuzz.WRatio(query, name) for name in names.split("\n"))
            if alike >= _ALIKE_MIN:
                self.add(_Found(no, "name", no, alike / 200, self._snippet("name", no, nothing)))
        if self.found:
            self.warning = "nothing has these words; these names look like them"

    def by_pattern(self, pattern: Pattern, deadline: float) -> None:
        """Find texts that a pattern fits, until the deadline on the monotonic clock."""
        messages = 0
        for no, name, key, stored in chain(self._all_fields(), self._all_messages()):
            if name == "message" and (no, True) in self.found:
                continue
            text = shown(stored)
            for place in chain((None,), pattern.attempts(text)):
                if time.monotonic() > deadline:
                    self.warning = "re: not all texts were looked at; narrow the search"
                    return
                if place:
                    messages += self._add_fitting(no, name, key, _excerpt_of(text, [(*place, 0)]))
            if messages >= self.limit:
                return

    def _add_fitting(self, no: int, name: str, key: int, snippet: Callable[[], str]) -> bool:
        """Add a place that a pattern fits; says whether it is a message."""
        if name != "message":
            self.add(_Found(no, name, key, _PLAIN, snippet))
            return False
        for owner, original, _ in self._originals([key]):
            self.add(_Found(owner, name, original, _PLAIN, snippet))
        return True

    def _all_fields(self) -> Iterator[tuple[int, str, int, str]]:
        columns = ("name", "id", "tags", "description", "summary", "cwd")
        for no, *texts in self.db.execute(
            "SELECT no, about.name, id, tags, description, summary, cwd"
            " FROM session JOIN about USING (no)"
            " WHERE :scope IS NULL OR no IN (SELECT value FROM json_each(:scope))"
            " ORDER BY modified DESC",
            {"scope": self._listed},
        ):
            for name, text in zip(columns, texts, strict=True):
                yield no, name, no, text

    def _all_messages(self) -> Iterator[tuple[int, str, int, str]]:
        for key, text in self.db.execute(
            "SELECT id, text FROM message WHERE :scope IS NULL"
            " OR (id >> :shift) IN (SELECT value FROM json_each(:scope)) ORDER BY id DESC",
            {"scope": self._listed, "shift": SESSION_SHIFT},
        ):
            yield key >> SESSION_SHIFT, "message", key, text

    def hits(self) -> Iterator[dict[str, Any]]:
        """The best places found, in words."""
        best = sorted(self.found.values(), key=lambda one: (-one.score, -one.no, one.field))
        for one in best[: self.limit]:
            sql = "SELECT id, name FROM session WHERE no = ?"
            session = self.db.execute(sql, (one.no,)).fetchone()
            if session is None:  # forgotten meanwhile
                continue
            hit = {
                "sessionId": session[0],
                "name": session[1],
                "field": one.field,
                "snippet": one.snippet(),
                "score": round(one.score, 4),
            }
            if one.field == "message":
                sql = "SELECT entry, role, at FROM message WHERE id = ?"
                entry, role, at = self.db.execute(sql, (one.key,)).fetchone() or ("", "", "")
                hit |= {"entryId": entry, "role": role, "at": at}
            yield hit


def _excerpt_of(text: str, spans: list[tuple[int, int, int]]) -> Callable[[], str]:
    return lambda: excerpt(text, spans)
