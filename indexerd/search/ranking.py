"""How a search ranks: from a parsed query to hits, best first, one field and one message a session.

Messages and sessions' own texts that have all words come first. Only where these give too few
hits may words have other endings, and the last one go on ("conf" for "config"); then sessions
count that have each word somewhere. Where nothing is found, what has the words that were probably
meant is, or what has most words of a question; a warning says so.

tantivy gives the candidates, best first by BM25. A place's score is its field's weight, times how
well its text fits (0.5 to 1, by the rarity of the words), times 0.85 to 1 for how lately the
session was used. A message that was copied into forks is shown once, in the oldest session that has
it; a fork that nobody named goes by such a message, and its name is no hit. Any other name that is
only a message counts half, and references to other sessions in it do not count.

Patterns look at what describes sessions first, then at messages, from sessions last used to old
ones, until there are enough hits or the caller's patience ends, which a warning says.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tantivy import Document, Query, Searcher

from indexerd.errors import UsageError
from indexerd.search.index import (
    ABOUT,
    SCHEMA,
    Message,
    TextIndex,
    about_in,
    both,
    copy_of,
    either,
    message_in,
    term,
)
from indexerd.search.names import without_references
from indexerd.search.query import Asked, Finder, Pattern, Term, excerpt, fold, parse, words_of

LIMIT_MAX = 1000  # hits of a search
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
_FIELDS = ("message", *ABOUT)
_MESSAGE = ("message",)
_TEXTS = ("name", "tags", "description", "summary")
_PLACES = ("id", "files", "cwd")  # how often words stand there tells nothing
_PLAIN = 0.75  # what a place is worth that a pattern fits
_BEGUN = 0.6  # what words are worth that end otherwise, or only begin as asked
_UNNAMED = 0.5  # what a name is worth that is only a message
_SPREAD = 0.4  # what a session is worth that has the words in different places
_LEAST = 0.35  # of the weight of all words, that a session has to have
_QUESTION = 3  # words typed that make a question, of which some may be missing
_HALF_LIFE_MS = 30 * 86_400_000
_MORE = 10  # sessions that are looked at beside as many as are wanted
_GATHERED = 100  # documents that are looked at for most words of a question
_MOST_HITS = 20_000  # of the index, of which those of the sessions in scope are taken
_FORMS_MAX = 50  # words of the index that stand for one
_SLIP_MIN, _FIRST_SLIP_MIN, _TWO_SLIPS_MIN = 4, 6, 8  # letters of a word that may be mistyped
_SCOPE_MAX = 2000  # sessions that a query is limited to; else hits are sorted out afterwards
_COPIES_MAX = 100  # of one message
_SESSIONS_AT_ONCE = 50  # that a pattern looks through
_AVERAGE = 200.0  # characters of a field
_K1, _B = 1.2, 0.75  # of BM25


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Hits `{sessionId, name, field, snippet, score}`, of messages `entryId`, `role`, `at` too."""

    hits: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()


class _Session(NamedTuple):
    """What ranking needs of a session."""

    name: str
    named: bool
    created: int
    worth: float  # for how lately it was used


@dataclass(slots=True)
class _Place:
    """One place in a session that fits."""

    session_id: str
    field: str
    text: str
    score: float = 0.0
    more: dict[str, Any] = dataclasses.field(default_factory=dict)
    copy: int = 0
    snippet: Callable[[str], str] = str


def search(
    index: TextIndex,
    query: str,
    *,
    agent: str | None = None,
    cwd: str | None = None,
    since: str | None = None,
    limit: int = 20,
    patience: float = 1.0,
) -> SearchResult:
    """Find sessions by names, tags, descriptions, summaries, messages, files, ids, directories.

    Archived, gone and sub-agents' sessions included. `since` is about the session's last change;
    `patience`, in seconds, bounds `re:` patterns. Whatever is typed, the worst is no hit and a
    warning.
    """
    if limit < 1:
        raise UsageError("a limit is 1 or more")
    asked, scope = parse(query), index.store.matching(agent, cwd, since)

    def ask(searcher: Searcher) -> SearchResult:
        found = _Search(index, searcher, scope, min(limit, LIMIT_MAX))
        if asked.pattern is not None:
            found.by_pattern(asked.pattern, time.monotonic() + patience)
        elif asked.terms:
            found.by_words(asked)
        warnings = (asked.problem, found.warning)
        return SearchResult(tuple(found.hits()), tuple(one for one in warnings if one))

    if not index.is_there:
        return SearchResult(warnings=(asked.problem,) if asked.problem else ())
    return index.ask(ask)


class _Search:
    """One search under way."""

    def __init__(
        self, index: TextIndex, searcher: Searcher, scope: frozenset[str] | None, limit: int
    ) -> None:
        self.warning: str | None = None
        self._index = index
        self._searcher = searcher
        self._scope = scope
        self._limit = limit
        self._found: dict[tuple[str, bool], _Place] = {}  # by session, is message
        self._sessions: dict[str, _Session] = {}

    # -- words ---------------------------------------------------------------------------

    def by_words(self, asked: Asked) -> None:
        """Find places that have all words, then what comes nearest."""
        self._all_words(asked)
        if self._found or asked.quoted:
            return
        words = tuple(map(self._nearest, asked.terms))
        if words != asked.terms:
            asked = replace(asked, terms=words)
            self._all_words(asked)
            if self._found:
                self.warning = f"nothing has these words; looked for: {' '.join(words)}"
                return
        if asked.typed >= _QUESTION or len(asked.terms) > 1:
            self._any_words(asked.as_terms(widen=True), all_of_them=False)
            if self._found:
                self.warning = "nothing has all of these words; this has most of them"

    def _all_words(self, asked: Asked) -> None:
        exact, wide = asked.as_terms(), asked.as_terms(widen=True)
        self._places(exact, 1.0)
        if not self._enough() and any(one.begun or one.stems for one in wide):
            self._places(wide, _BEGUN)
        if not self._enough() and len(wide) > 1:
            self._any_words(wide, all_of_them=True)

    def _enough(self) -> bool:
        wanted = self._limit if self._scope is None else min(self._limit, len(self._scope))
        return len({session_id for session_id, _ in self._found}) >= wanted

    def _places(self, terms: Sequence[Term], worth: float) -> None:
        """Find places that have all words; ids, files and directories where others are too few."""
        finder, rarity = Finder(terms), [self._rarity(one) for one in terms]
        total = sum(rarity)
        for groups in ((_TEXTS, _MESSAGE), (_PLACES,)):
            queries = [both(*(self._in(names, one) for one in terms)) for names in groups]
            for score, session_id, document in self._best(self._limit + _MORE, *queries):
                for place in _fields(session_id, document, (*_MESSAGE, *groups[0])):
                    if place.field == "message":
                        fits = min(1.0, score / (_K1 + 1) / total)
                    elif all(counts := finder.counts(_read(place))):
                        fits = _fit(counts, len(place.text), rarity) / total
                    else:
                        continue
                    fits = 0.5 if groups[0] is _PLACES else fits
                    self._add(place, finder, worth * (1 + fits) / 2)
                    break
            if self._enough():
                return

    def _any_words(self, terms: Sequence[Term], *, all_of_them: bool) -> None:
        """Find sessions that have most of the words' weight, or all, each in any place."""
        finder, weights = Finder(terms), self._weights(terms)
        total = sum(weights)
        places: dict[str, list[tuple[float, _Place]]] = {}
        terms_of: dict[str, set[int]] = {}
        query = either(self._in(_FIELDS, one) for one in terms)
        for _, session_id, document in self._best(_GATHERED, query, one_a_session=False):
            for place in _fields(session_id, document):
                there = [n for n, many in enumerate(finder.counts(_read(place))) if many]
                terms_of.setdefault(session_id, set()).update(there)
                best = sum(weights[n] for n in there) / total
                places.setdefault(session_id, []).append((best, place))
        for session_id, held in terms_of.items():
            share = sum(weights[n] for n in held) / total
            known = any((session_id, one) in self._found for one in (True, False))
            if known or share < (1.0 if all_of_them else _LEAST) - 1e-9:
                continue
            best, place = max(places[session_id], key=lambda one: (one[0], WEIGHTS[one[1].field]))
            if all_of_them:
                self._add(place, finder, _SPREAD * best)
            else:
                weight = 1.0 + WEIGHTS[place.field] / WEIGHTS["name"] / 2
                self._add(place, finder, share * (share + best) / 2, weight)

    def _nearest(self, text: str) -> str:
        """Give the word that was probably meant: the term, or one that is a slip or two away."""
        word = fold(text)
        if len(word) < _SLIP_MIN or not word.isalpha() or self._frequency(word):
            return text
        from rapidfuzz import process  # noqa: PLC0415 - few searches come here
        from rapidfuzz.distance import OSA  # noqa: PLC0415 - as above

        most = 2 if len(word) >= _TWO_SLIPS_MIN else 1
        fuzzy = either(
            Query.fuzzy_term_query(SCHEMA, one, word, most) for one in (*_MESSAGE, *_TEXTS)
        )
        known = {
            one
            for _, session_id, document in self._best(_MORE, fuzzy)
            for place in _fields(session_id, document)
            for one in words_of(place.text)
            if one[:2] == word[:2] or len(word) >= _FIRST_SLIP_MIN
        }
        near = process.extract(
            word, sorted(known), scorer=OSA.distance, score_cutoff=most, limit=None
        )
        return min(near, key=lambda one: (one[1], -self._frequency(one[0])))[0] if near else text

    def _frequency(self, word: str) -> int:
        return sum(self._searcher.doc_freq(name, word) for name in _FIELDS)

    def _weights(self, terms: Sequence[Term]) -> list[float]:
        """Say how much each word of a question tells; one that nothing has is like the others."""
        there = [any(map(self._frequency, one.words)) for one in terms]
        rarity = [self._rarity(one) for one in terms]
        known = [w for w, is_there in zip(rarity, there, strict=True) if is_there] or [1.0]
        mean = sum(known) / len(known)
        return [w if is_there else mean for w, is_there in zip(rarity, there, strict=True)]

    def _rarity(self, one: Term) -> float:
        """Weigh a word as BM25 does, or the rarest of a phrase: the rarer, the more."""
        many = min(self._searcher.doc_freq("message", word) for word in one.words)
        total = self._searcher.num_docs
        return math.log(1 + (max(total - many, 0) + 0.5) / (many + 0.5))

    # -- asking tantivy ------------------------------------------------------------------

    def _in(self, names: Iterable[str], one: Term) -> Query:
        """Ask for a term in any of some fields."""
        queries = []
        for name in names:
            if len(one.words) > 1:
                queries.append(Query.phrase_query(SCHEMA, name, [*one.words]))
                continue
            words = dict.fromkeys(one.words)
            for begin in (*one.stems, *([one.begun] if one.begun else [])):
                many = self._searcher.terms_with_prefix(name, begin, limit=_FORMS_MAX)
                words |= dict.fromkeys(word for word, _ in many if one.takes(word))
            queries += [term(name, word) for word in words]
        return queries[0] if len(queries) == 1 else either(queries)

    def _best(
        self, most: int, *queries: Query, one_a_session: bool = True
    ) -> list[tuple[float, str, Document]]:
        """Give each query's best documents of sessions that may be found: score, session, it."""
        found: list[tuple[float, str, Document]] = []
        for query in queries:
            if self._scope is not None and len(self._scope) <= _SCOPE_MAX:
                own = Query.term_set_query(SCHEMA, "session", sorted(self._scope))
                query = both(query, Query.const_score_query(own, 0.0))  # noqa: PLW2901
            found += self._best_of(query, most, one_a_session=one_a_session)
        self._meet(session_id for _, session_id, _ in found)
        return [one for one in found if one[1] in self._sessions]

    def _best_of(
        self, query: Query, most: int, *, one_a_session: bool
    ) -> list[tuple[float, str, Document]]:
        found: list[tuple[float, str, Document]] = []
        seen: set[Any] = set()
        size, begun = 2 * most, 0
        while True:
            hits = self._searcher.search(query, limit=size, count=False).hits
            owners = self._searcher.fast_field_values("owner", [at for _, at in hits])
            for (score, at), owner in zip(hits[begun:], owners[begun:], strict=True):
                if one_a_session and owner in seen:
                    continue
                seen.add(owner)
                document = self._searcher.doc(at)
                session_id = str(document.get_first("session"))
                if self._scope is None or session_id in self._scope:
                    found.append((float(score), session_id, document))
                    if len(found) == most:
                        return found
            if len(hits) < size or size > _MOST_HITS:
                return found
            begun, size = len(hits), 8 * size

    def _meet(self, session_ids: Iterable[str]) -> None:
        """Ask the store for sessions; those that have no row any more are not found."""
        new = [one for one in dict.fromkeys(session_ids) if one not in self._sessions]
        if not new:
            return
        columns = "id, name, named, created, modified, (SELECT max(modified) FROM session)"
        for one, name, named, created, modified, newest in self._index.store.some(columns, new):
            age = (newest or 0) - (modified or 0)
            worth = 0.85 + 0.15 * 0.5 ** (age / _HALF_LIFE_MS)
            self._sessions[one] = _Session(name, bool(named), created or 0, worth)

    # -- patterns ------------------------------------------------------------------------

    def by_pattern(self, pattern: Pattern, deadline: float) -> None:
        """Find texts that a pattern fits, until the deadline on the monotonic clock."""
        ids, messages = self._index.store.by_age(self._scope), 0
        for kind in ("about", "message"):
            for at in range(0, len(ids), _SESSIONS_AT_ONCE):
                for place in self._stored(kind, ids[at : at + _SESSIONS_AT_ONCE]):
                    if time.monotonic() > deadline:
                        self.warning = "re: not all texts were looked at; narrow the search"
                        return
                    if (place.session_id, kind == "message") in self._found:
                        continue
                    if span := pattern.find(place.text):
                        messages += kind == "message"
                        place.snippet = _marked(span)
                        self._add(place, None, _PLAIN)
                if messages >= self._limit:
                    return

    def _stored(self, kind: str, ids: Sequence[str]) -> Iterator[_Place]:
        """Give every text of a kind of some sessions, in their order; of each the newest first."""
        query = both(Query.term_set_query(SCHEMA, "session", ids), term("kind", kind))
        found = self._searcher.search(query, max(1, self._searcher.num_docs), count=False).hits
        order = {one: n for n, one in enumerate(ids)}
        self._meet(ids)
        documents = [self._searcher.doc(at) for _, at in found]
        owned = [(str(one.get_first("session")), one) for one in documents]
        owned.sort(key=lambda one: (order[one[0]], -(one[1].get_first("row") or 0)))
        for session_id, document in owned:
            if session_id in self._sessions:
                yield from _fields(session_id, document)

    # -- what was found ------------------------------------------------------------------

    def _add(
        self, place: _Place, finder: Finder | None, share: float, weight: float | None = None
    ) -> None:
        """Keep the better of two places of one kind in a session."""
        session = self._sessions[place.session_id]
        if place.field == "name" and not session.named:
            share *= _UNNAMED
        place.score = share * (weight or WEIGHTS[place.field]) * session.worth
        place.snippet = finder.snippet if finder else place.snippet
        key = (place.session_id, place.field == "message")
        if key not in self._found or self._found[key].score < place.score:
            self._found[key] = place

    def _original(self, place: _Place) -> _Place:
        """Of a message's copies take the one in the oldest session."""
        found = self._searcher.search(term("copy", place.copy), _COPIES_MAX, count=False).hits
        if len(found) < 2:  # noqa: PLR2004 - itself
            return place
        documents = [self._searcher.doc(at) for _, at in found]
        copies = {str(one.get_first("session")): one for one in documents}
        self._meet(copies)
        known = [
            one
            for one in copies
            if one in self._sessions and (self._scope is None or one in self._scope)
        ]
        oldest = min(known, key=lambda one: (self._sessions[one].created, one))
        worth = self._sessions[oldest].worth / self._sessions[place.session_id].worth
        original = _said(oldest, message_in(copies[oldest]))
        original.score, original.snippet = place.score * worth, place.snippet
        return original

    def _goes_by_copy(self, session_id: str) -> bool:
        """Say whether nobody named a session, and its first message was another's before."""
        if self._sessions[session_id].named:
            return False
        first = self._index.messages(session_id, 1)
        return any(self._original(_said(session_id, one)).session_id != session_id for one in first)

    def hits(self) -> Iterator[dict[str, Any]]:
        """Give the best places found, in words."""
        ranked = sorted(
            self._found.values(), key=lambda one: (-one.score, one.session_id, one.field)
        )
        left, shown = self._limit, set[str]()
        for place in ranked:
            if place.field == "name" and self._goes_by_copy(place.session_id):
                continue
            one = self._original(place) if place.copy else place
            if one.copy and one.session_id in shown:
                continue
            if one.copy:
                shown.add(one.session_id)
            yield {
                "sessionId": one.session_id,
                "name": self._sessions[one.session_id].name,
                "field": one.field,
                "snippet": one.snippet(_best_line(one)),
                "score": round(one.score, 4),
            } | one.more
            left -= 1
            if not left:
                return


def _fit(counts: Sequence[int], size: int, rarity: Sequence[float]) -> float:
    """Say how well a field fits, by BM25."""
    length = _K1 * (1 - _B + _B * size / _AVERAGE)
    return sum(w * n / (n + length) for w, n in zip(rarity, counts, strict=True))


def _fields(
    session_id: str, document: Document, names: Container[str] = WEIGHTS
) -> Iterator[_Place]:
    """Give the message of a document, or a session's own texts, the weightiest first."""
    if document.get_first("row") is not None:
        yield _said(session_id, message_in(document))
        return
    texts = about_in(document)
    for name in WEIGHTS:
        if name in names and name != "message":
            text = session_id if name == "id" else getattr(texts, name)
            yield _Place(session_id, name, text)


def _said(session_id: str, one: Message) -> _Place:
    more = {"entryId": one.entry, "role": one.role, "at": one.at}
    return _Place(session_id, "message", one.text, more=more, copy=copy_of(session_id, one))


def _read(place: _Place) -> str:
    """Give the text that counts: without references to other sessions in a name."""
    return without_references(place.text) if place.field == "name" else place.text


def _marked(span: tuple[int, int]) -> Callable[[str], str]:
    return lambda text: excerpt(text, [(*span, 0)])


def _best_line(place: _Place) -> str:
    """Of several paths or names give the first that has what is looked for."""
    if place.field not in ("files", "name") or "\n" not in place.text:
        return place.text
    lines = place.text.split("\n")
    return next((one for one in lines if "«" in place.snippet(one)), place.text)
