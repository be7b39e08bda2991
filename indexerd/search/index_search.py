"""Searching the catalog: from a parsed query to ranked hits.

In: a connection, an `Asked` (core.query), the sessions that may be found. Out: hits, best first,
at most one field and one message for each session, and warnings. What has all words in one field
or in one message comes first. Only where whole words give too few hits may words have other
endings and the last one go on ("conf" for "config"), do ids, directories and files count that
have the words anywhere in them, and then sessions that have each word in some place. Where
nothing is found, names that look alike are, what has the words that were probably meant, or
what has most words of a question; a warning says so.

A score is the field's weight, times how well the text fits (BM25 over the candidates, brought
into 0.5 to 1), times 0.85 to 1 for how lately the session was used. SQLite's own bm25() counts
every text that has a word, 26 to 185 ms for the commonest in 218,000 messages; so candidates
are bounded instead (catalog_candidates).

A message that was copied into forks is shown once, in the oldest session that has it; so is a
name that is such a message's beginning. Any name that is a message's counts half, and
references to other sessions in it do not count.
Patterns look at names and all else first, then at messages from new to old, until there are
enough hits or the caller's patience ends, which a warning says.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from itertools import chain
from typing import Any

from indexerd.search.candidates import FIELD_MAX, SCORED, Candidates, Text
from indexerd.search.copies import is_copied_name, is_copy, originals
from indexerd.search.loose import FIELDS, likeliest, own_words
from indexerd.search.names_fuzzy import folded
from indexerd.search.paths import files_with, is_path, marked, places_with
from indexerd.search.query import Asked, Finder, excerpt, segment, shown
from indexerd.search.query_pattern import Pattern
from indexerd.search.spread import (
    best_place,
    mended,
    rarity_of,
    sessions_with,
    terms_of,
    weight_of,
)
from indexerd.search.stored_texts import all_fields, all_messages
from indexerd.store.rows import together

WEIGHTS = {
    "name": 12.0,
    "id": 10.0,
    "tags": 6.0,
    "description": 4.0,
    "files": 3.0,
    "summary": 2.5,
    "message": 1.5,
    "cwd": 0.5,
}
_BEGUN = 0.6  # what words are worth that end otherwise, or only begin as asked
_UNNAMED = 0.5  # what a name is worth that is only a message
_READ = 0.6  # what a file is worth that was only read
_QUESTION = 3  # words typed that make a question, of which some may be missing
_PLAIN = 0.75  # what a place is worth that no words were counted in
_SPREAD = 0.4  # what one is worth that has only some of the words
_HALF_LIFE_MS = 30 * 86_400_000
_ALIKE_MAX, _ALIKE_MIN = 100, 75.0  # names compared for typing errors; rapidfuzz's WRatio
_ALIKE_ROWS, _ALIKE_GRAMS = 4000, 4  # looked at for these: at most so many, or so few grams
_K1, _B = 1.2, 0.75

_SESSIONS = "SELECT no, id, name FROM session WHERE no IN (SELECT value FROM json_each(:sessions))"
_COUNTED = """SELECT value AS gram, (SELECT count(*) FROM (SELECT 1 FROM about_letters
    WHERE about_letters MATCH '"' || value || '"' LIMIT :most)) AS n FROM json_each(:grams)"""
_WITH_LETTERS = """SELECT rowid AS no FROM about_letters WHERE about_letters MATCH :match
    AND (:scope IS NULL OR +rowid IN (SELECT value FROM json_each(:scope))) LIMIT :most"""
_NEARLY = "SELECT no, nearly FROM about WHERE no IN (SELECT value FROM json_each(:found))"
_ABOUT = ", ".join(FIELDS)
_FIELDS = f"SELECT no, {_ABOUT} FROM about WHERE no IN (SELECT value FROM json_each(:sessions))"  # noqa: S608 - ours
_SAID = "text, entry, role, at"
_MESSAGES = f"SELECT id, {_SAID} FROM message WHERE id IN (SELECT value FROM json_each(:keys))"  # noqa: S608 - ours


Snippet = Callable[[str], str]  # of the text as it is stored, where it is a field or a message


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
    snippet: Snippet


def search(
    db: sqlite3.Connection, asked: Asked, scope: frozenset[int] | None, limit: int, patience: float
) -> SearchResult:
    """Answer one query; `scope` None stands for all sessions, `patience` is in seconds."""
    look = _Look(db, scope, limit)
    if asked.pattern is not None:
        look.by_pattern(asked.pattern, time.monotonic() + patience)
    elif asked.terms:
        look.by_words(asked)
        likely = [look.by_letters, look.by_likeness]
        if asked.typed >= _QUESTION and len(asked.terms) > 1:
            likely = [look.by_likeness, look.by_most, look.by_letters]
        for guess in likely:
            if not look.found and not asked.quoted:
                guess(asked)
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
    _named: dict[int, bool] = field(default_factory=dict)
    _copied: dict[int, bool] = field(default_factory=dict)  # names, by session
    _rarities: dict[str, float] = field(default_factory=dict)  # by FTS5 expression
    _listed: str | None = None  # the scope as SQL gets it

    def __post_init__(self) -> None:
        if self.scope is not None:
            self._listed = json.dumps([*self.scope])

    def _all(self, columns: str, sql: str, **values: Any) -> list[list[Any]]:
        return together(self.db, columns, sql, {"scope": self._listed, **values})

    def add(self, one: _Found, weight: float | None = None) -> None:
        """Keep the better of two places of one kind in a session, unless it is a copy.

        `weight` is the field's, where the score does not have it already.
        """
        if one.no not in self._factors:
            self._weigh_age([one.no])
        if one.field == "name" and self._goes_by_copy(one.no):
            return
        if weight is None:
            weight = WEIGHTS[one.field]
            if one.field == "name" and not self._named.get(one.no):
                weight *= _UNNAMED
        one.score *= weight * self._factors.get(one.no, 1.0)
        place = (one.no, one.field == "message")
        if place not in self.found or self.found[place].score < one.score:
            self.found[place] = one

    def _goes_by_copy(self, no: int) -> bool:
        if no not in self._copied:
            named = self._named.get(no, False)
            self._copied[no] = not named and is_copied_name(self.db, no, self._listed)
        return self._copied[no]

    def _weigh_age(self, sessions: Sequence[int]) -> None:
        sql = (
            "SELECT no, (SELECT max(modified) FROM session) - ifnull(modified, 0) AS age, named"
            " FROM session WHERE no IN (SELECT value FROM json_each(:sessions))"
        )
        new = [no for no in dict.fromkeys(sessions) if no not in self._factors]
        for no, age, named in (
            self._all("no, age, named", sql, sessions=json.dumps(new)) if new else ()
        ):
            self._factors[no] = 0.85 + 0.15 * 0.5 ** (age / _HALF_LIFE_MS)
            self._named[no] = bool(named)

    def _enough(self, score: float = 0.0) -> bool:
        """Say whether there are as many sessions as asked for, with this score or better."""
        wanted = self.limit
        if not score and self.scope is not None:
            wanted = min(wanted, len(self.scope))
        return len({no for (no, _), one in self.found.items() if one.score >= score}) >= wanted

    def by_words(self, asked: Asked) -> None:
        """Find fields and messages that have all words, then sessions that do."""
        self._words(asked, widen=False)
        if not self._enough():
            self._places(asked.terms)
            if asked.open_end or any(asked.forms):
                self._words(asked, widen=True)
        if not self._enough() and len(asked.terms) > 1:
            self._spread(asked)

    def _words(self, asked: Asked, *, widen: bool) -> None:
        """Find places that have all words; `widen`: with other endings, the last going on."""
        going_on = widen and asked.open_end
        matches = asked.matches(widen=going_on, inflect=widen)
        finder = asked.finder(widen=going_on, inflect=widen)
        worth = _BEGUN if widen else 1.0
        rarity = self._rarity(matches)
        candidates = Candidates(self.db, self.scope, self.limit)
        for name in (*FIELDS, "message"):
            if self._enough(WEIGHTS[name] * worth):
                return  # none of those still to come could be among the best
            match = " AND ".join(matches)
            if name == "message":
                texts = candidates.messages(match, forms=widen)
            else:
                texts = candidates.fields(name, f"{{{name}}} : ({match})")
            self._weigh_age([no for no, _, _ in texts])
            average = sum(len(text) for _, _, text in texts) / max(1, len(texts)) or 1.0
            for no, key, text in texts:
                counts = finder.counts(text)
                if widen and not all(counts) and len(text) < SCORED:
                    continue  # FTS5 finds everything that begins so
                if name == "name" and not all(finder.counts(own_words(text))) and "@@" in text:
                    continue
                length = _K1 * (1 - _B + _B * len(text) / average)
                tally = zip(rarity, (max(count, 1) for count in counts), strict=True)
                fits = sum(w * n / (n + length) for w, n in tally)
                score = worth * (0.5 + 0.5 * fits / sum(rarity))
                self.add(_Found(no, name, key, score, finder.snippet))

    def _rarity(self, matches: Sequence[str]) -> list[float]:
        """BM25's weights of words: the rarer, the more."""
        if len(matches) == 1:
            return [1.0]
        for one in matches:
            if one not in self._rarities:
                self._rarities[one] = rarity_of(self.db, one)
        return [self._rarities[one] for one in matches]

    def _originals(self, keys: Sequence[int]) -> list[Text]:
        """Messages with their texts; of copies the one in the oldest session."""
        return originals(self.db, keys, self._listed, SCORED)

    def _places(self, terms: Sequence[str]) -> None:
        """Find ids and directories that have the words anywhere in them, and files."""
        words, most = [shown(term).lower() for term in terms], max(FIELD_MAX, self.limit)
        for no, column, text in places_with(self.db, words, self._listed, most):
            self.add(_Found(no, column, no, _PLAIN, _as_it_is(marked, text, words)))
        if len(words) == 1 and is_path(words[0]):
            for no, path, edited in files_with(self.db, words[0], self._listed, most):
                worth = _PLAIN if edited else _PLAIN * _READ
                self.add(_Found(no, "files", no, worth, _as_it_is(marked, path, words)))

    def _spread(self, asked: Asked) -> None:
        """Find sessions that have all words, each in any place."""
        terms = terms_of(asked, inflect=True)
        rarity = dict(zip(terms, self._rarity([one.match for one in terms]), strict=True))
        finder = asked.finder(widen=asked.open_end, inflect=True)
        rarest_first = sorted(terms, key=lambda term: -rarity[term])
        held = {no for no, _ in self.found}
        spread = sessions_with(self.db, rarest_first, self._listed)
        for no in [one for one in spread if one not in held][: self.limit]:
            place = best_place(self.db, no, terms, finder, FIELDS)
            if place.field == "message" and is_copy(self.db, no, place.key, self._listed):
                continue  # its original is found for itself
            snippet: Snippet = finder.snippet
            if place.text:
                snippet = _as_it_is(marked, place.text, [term.word for term in terms])
            self.add(_Found(no, place.field, place.key, _SPREAD * place.share, snippet))

    def by_likeness(self, asked: Asked) -> None:
        """Find what has the words that were probably meant."""
        terms = terms_of(asked)
        words = [word for word in mended(self.db, terms) if word]
        if len(words) < len(terms) or words == [one.word for one in terms]:
            return
        self.by_words(_instead(asked, words))
        if self.found:
            self.warning = f"nothing has these words; looked for: {' '.join(words)}"

    def by_most(self, asked: Asked) -> None:
        """Find what has most words of a question, mistyped ones mended."""
        words = mended(self.db, terms_of(asked, inflect=True))
        asked = _instead(asked, [word or shown(asked.terms[n]) for n, word in enumerate(words)])
        terms = terms_of(asked, inflect=True)
        finder = asked.finder(widen=asked.open_end, inflect=True)
        for one in likeliest(self.db, terms, finder, self._listed):
            if one.field == "message" and is_copy(self.db, one.no, one.key, self._listed):
                continue  # its original is found for itself
            snippet = one.snippet or finder.snippet
            self.add(_Found(one.no, one.field, one.key, one.score, snippet), weight=1.0)
        if self.found:
            self.warning = "nothing has all of these words; this has most of them"

    def by_letters(self, asked: Asked) -> None:
        """Find names that look like the query, typing errors and all."""
        from rapidfuzz import fuzz  # noqa: PLC0415 - few searches come here

        query, nothing = folded(" ".join(map(shown, asked.terms))), Finder([], widen=False)
        grams = sorted({query[at : at + 3] for at in range(len(query) - 2)})
        if not grams:
            return
        for no, names in self._all("no, nearly", _NEARLY, found=json.dumps(self._alike(grams))):
            alike = max(fuzz.WRatio(query, name) for name in names.split("\n"))
            if alike >= _ALIKE_MIN:
                self.add(_Found(no, "name", no, alike / 200, nothing.snippet))
        if self.found:
            self.warning = "nothing has these words; these names look like them"

    def _alike(self, grams: Sequence[str]) -> list[int]:
        """The sessions whose names share the most letters, weighed by their rarity.

        The letters of very many names tell little, and are left out. (SQLite's bm25() reads and
        cuts up every name that shares any.)
        """
        counted = self._all("gram, n", _COUNTED, grams=json.dumps(grams), most=_ALIKE_ROWS)
        kept, rows = dict[str, int](), 0
        for n, gram in sorted((n, gram) for gram, n in counted if n):
            if rows + n > _ALIKE_ROWS and len(kept) > _ALIKE_GRAMS:
                break
            kept[gram] = n
            rows += n
        shared: dict[int, float] = {}
        for gram, n in kept.items():
            for (no,) in self._all("no", _WITH_LETTERS, match=f'"{gram}"', most=_ALIKE_ROWS):
                shared[no] = shared.get(no, 0.0) + weight_of(n)
        return nlargest(_ALIKE_MAX, shared, key=shared.__getitem__)

    def by_pattern(self, pattern: Pattern, deadline: float) -> None:
        """Find texts that a pattern fits, until the deadline on the monotonic clock."""
        messages = 0
        for no, name, key, stored in chain(
            all_fields(self.db, self._listed), all_messages(self.db, self._listed)
        ):
            if name == "message" and (no, True) in self.found:
                continue
            text = shown(stored)
            for place in chain((None,), pattern.attempts(text)):
                if time.monotonic() > deadline:
                    self.warning = "re: not all texts were looked at; narrow the search"
                    return
                if place:
                    messages += self._add_fitting(
                        no, name, key, _as_it_is(excerpt, text, [(*place, 0)])
                    )
            if messages >= self.limit:
                return

    def _add_fitting(self, no: int, name: str, key: int, snippet: Snippet) -> bool:
        """Add a place that a pattern fits; says whether it is a message."""
        if name != "message":
            self.add(_Found(no, name, key, _PLAIN, snippet))
            return False
        for owner, original, _ in self._originals([key]):
            self.add(_Found(owner, name, original, _PLAIN, snippet))
        return True

    def hits(self) -> Iterator[dict[str, Any]]:
        """The best places found, in words."""
        best = sorted(self.found.values(), key=lambda one: (-one.score, -one.no, one.field))
        best = best[: self.limit]
        listed = json.dumps([one.no for one in best])
        sessions = {no: held for no, *held in self._all("no, id, name", _SESSIONS, sessions=listed)}
        about = {no: held for no, *held in self._all(f"no, {_ABOUT}", _FIELDS, sessions=listed)}
        keys = json.dumps([one.key for one in best if one.field == "message"])
        said = {key: held for key, *held in self._all(f"id, {_SAID}", _MESSAGES, keys=keys)}
        for one in best:
            if one.no not in sessions:  # forgotten meanwhile
                continue
            session_id, name = sessions[one.no]
            hit = {"sessionId": session_id, "name": name, "field": one.field}
            text, more = "", {}
            if one.field == "message":
                text, *where = said.get(one.key, ("", "", "", ""))
                more = dict(zip(("entryId", "role", "at"), where, strict=True))
            elif one.field in FIELDS and one.no in about:
                text = about[one.no][FIELDS.index(one.field)]
            shown_text = one.snippet(text)
            yield hit | {"snippet": shown_text, "score": round(one.score, 4)} | more


def _instead(asked: Asked, words: Sequence[str]) -> Asked:
    """The same query in other words; the last may go on only if it is the one that was typed."""
    going_on = asked.open_end and shown(asked.terms[-1]).lower() == words[-1].lower()
    return replace(asked, terms=tuple(map(segment, words)), open_end=going_on)


def _as_it_is(make: Callable[..., str], *of: Any) -> Snippet:
    """A snippet of a text that is at hand."""
    return lambda _stored: make(*of)
