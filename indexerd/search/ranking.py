"""How a search ranks: from a parsed query to hits, best first, one field and one message a session.

Places (a field of a session, or a message) that have all words come first. Only where these give
too few hits may words have other endings and the last one go on ("conf" for "config"), and then
count sessions that have each word in some place. Where nothing is found, what has the words that
were probably meant is, or what has most words of a question; a warning says so.

tantivy gives the candidates, best first by BM25. A place's score is its field's weight, times how
well its text fits (0.5 to 1, by the rarity of the words), times 0.85 to 1 for how lately the
session was used. A message that was copied into forks is shown once, in the oldest session that has
it; the name of a fork that nobody named is such a message. Any name that is only a message counts
half, and references to other sessions in it do not count.

Patterns look at what describes sessions first, then at messages, from sessions last used to old
ones, until there are enough hits or the caller's patience ends, which a warning says.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from typing import TYPE_CHECKING, Any

from indexerd.errors import UsageError
from indexerd.privacy.sanitize import clean_line
from indexerd.search.index import ABOUT, TextIndex, about_in, copy_of, message_in
from indexerd.search.names_known import without_references
from indexerd.search.query import Asked, Finder, Pattern, excerpt, fold, parse, words_of

if TYPE_CHECKING:
    import tantivy

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
_TEXTS = ("name", "tags", "description", "summary")
_PLACES = ("id", "files", "cwd")  # how often words stand there tells nothing
_PLAIN = 0.75  # what such a place is worth
_BEGUN = 0.6  # what words are worth that end otherwise, or only begin as asked
_UNNAMED = 0.5  # what a name is worth that is only a message
_SPREAD = 0.4  # what a session is worth that has the words in different places
_LEAST = 0.35  # of the weight of all words, that a session has to have
_QUESTION = 3  # words typed that make a question, of which some may be missing
_HALF_LIFE_MS = 30 * 86_400_000
_CANDIDATES, _TIMES = 40, 3  # places that are looked at: so many, or so many times the limit
_FORMS_MAX, _SIMILAR_MAX = 50, 5000  # words of the index that stand for one, or are compared
_SLIP_MIN, _TWO_SLIPS_MIN = 4, 8  # letters of a word that may be mistyped
_FIRST_SLIP_MIN = 6  # at its beginning, too
_SCOPE_MAX = 2000  # sessions that a query is limited to; else hits are sorted out afterwards
_SIFTED = 50  # times as many hits as are wanted are looked at, where the scope is larger
_GATHERED = 2000  # documents that are looked at for each word of a question
_SESSIONS_READ, _PLACES_READ = 40, 8  # sessions of these that are read, and documents of each
_SESSIONS_AT_ONCE = 50  # that a pattern looks through
_AVERAGE = 200.0  # characters of a field
_NAME_BEGUN, _MESSAGE_READ = 40, 2000  # characters by which a name is known to be a message's
_PROMPTS = 6  # messages of a session among which the one is that it goes by
_K1, _B = 1.2, 0.75


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Hits `{sessionId, name, field, snippet, score}`, of messages `entryId`, `role`, `at` too."""

    hits: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Session:
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
    score: float
    text: str
    more: dict[str, Any] = dataclasses.field(default_factory=dict)
    copy: int = 0
    snippet: Callable[[str], str] | None = None


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
    """Hits over names, tags, descriptions, summaries, messages, files, ids and directories.

    Archived, gone and sub-agents' sessions included. `since` is about the session's last change;
    `patience`, in seconds, bounds `re:` patterns. Whatever is typed, the worst is no hit and a
    warning.
    """
    if limit < 1:
        raise UsageError("a limit is 1 or more")
    asked, scope = parse(query), index.store.matching(agent, cwd, since)
    if not index.is_there:
        return SearchResult(warnings=(asked.problem,) if asked.problem else ())
    limit = min(limit, LIMIT_MAX)

    def ask(searcher: tantivy.Searcher) -> SearchResult:
        look = _Look(index, searcher, scope, limit)
        if asked.pattern is not None:
            look.by_pattern(asked.pattern, time.monotonic() + patience)
        elif asked.terms:
            look.by_words(asked)
        warnings = (asked.problem, look.warning)
        return SearchResult(tuple(look.hits(asked)), tuple(one for one in warnings if one))

    return index.ask(ask)


class _Look:
    """One search under way."""

    def __init__(
        self,
        index: TextIndex,
        searcher: tantivy.Searcher,
        scope: frozenset[str] | None,
        limit: int,
    ) -> None:
        import tantivy  # noqa: PLC0415 - few commands need it

        self.warning: str | None = None
        self._index = index
        self._schema = index.schema
        self._searcher = searcher
        self._scope = scope
        self._limit = limit
        self._most = max(_CANDIDATES, _TIMES * limit)
        self._query, self._occur = tantivy.Query, tantivy.Occur
        self._found: dict[tuple[str, bool], _Place] = {}  # by session, is message
        self._sessions: dict[str, _Session] = {}
        self._copies: dict[int, str] = {}  # the session in which a message was met first
        self._fetched_hits = 0  # of the last query, sifted or not

    # -- words ---------------------------------------------------------------------------

    def by_words(self, asked: Asked) -> None:
        """Find places that have all words, then what comes nearest."""
        self._all_words(asked)
        if self._found or asked.quoted:
            return
        meant = self._mended(asked)
        if meant is not None:
            self._all_words(meant)
            if self._found:
                words = " ".join(meant.terms)
                self.warning = f"nothing has these words; looked for: {words}"
                return
        if asked.typed >= _QUESTION or len(asked.terms) > 1:
            self._any_words(meant or asked, all_of_them=False)
            if self._found:
                self.warning = "nothing has all of these words; this has most of them"

    def _all_words(self, asked: Asked) -> None:
        self._places(asked, widen=False)
        if not self._enough() and (asked.open_end or any(asked.forms)):
            self._places(asked, widen=True)
        if not self._enough() and len(asked.terms) > 1:
            self._any_words(asked, all_of_them=True)

    def _enough(self) -> bool:
        wanted = self._limit if self._scope is None else min(self._limit, len(self._scope))
        return len({session_id for session_id, _ in self._found}) >= wanted

    def _places(self, asked: Asked, *, widen: bool) -> None:
        """Find places that have all words; `widen`: with other endings, the last going on."""
        finder = asked.finder(widen=widen and asked.open_end, inflect=widen)
        rarity = [self._rarity(term) for term in asked.terms]
        worth = _BEGUN if widen else 1.0

        def fits(text: str, average: float) -> float:
            counts = finder.counts(text)
            return worth * _fit(counts, len(text), average, rarity) if all(counts) else 0.0

        for names in (_TEXTS, ("message",), _PLACES):
            if names is _PLACES and self._enough():
                return
            found = self._documents(
                [
                    self._either([self._in(name, asked, n, widen=widen) for name in names])
                    for n in range(len(asked.terms))
                ]
            )
            if names != ("message",):
                self._add_fields(found, names, fits, finder)
                continue
            messages = [(session_id, message_in(one)) for session_id, one in found]
            average = sum(len(one.text) for _, one in messages) / max(1, len(messages)) or 1.0
            for session_id, one in messages:
                if score := fits(one.text, average):
                    self._add(_message(session_id, one, score, finder.snippet))

    def _add_fields(
        self,
        found: Iterable[tuple[str, Any]],
        names: Sequence[str],
        fits: Callable[[str, float], float],
        finder: Finder,
    ) -> None:
        """Add of each session the field that has all words, the weightiest."""
        for session_id, document in found:
            for name, text in _fields(session_id, document):
                read = without_references(text) if name == "name" else text
                if name in names and (score := fits(read, _AVERAGE)):
                    score = _PLAIN if name in _PLACES else score
                    self._add(_Place(session_id, name, score, text, snippet=finder.snippet))
                    break

    def _any_words(self, asked: Asked, *, all_of_them: bool) -> None:
        """Find sessions that have most of the words' weight, or all, each in any place."""
        weights = self._weights(asked.terms)
        total = sum(weights)
        held: dict[int, set[int]] = {}  # terms, by session
        anywhere = []
        for n in range(len(asked.terms)):
            query = self._either(
                [self._in(name, asked, n, widen=True) for name in ("message", *ABOUT)]
            )
            anywhere.append(query)
            found = self._searcher.search(self._within(query), limit=_GATHERED, count=False).hits
            for one in self._searcher.fast_field_values("owner", [at for _, at in found]):
                held.setdefault(int(one or 0), set()).add(n)
        shares = {one: sum(weights[n] for n in there) / total for one, there in held.items()}
        likely = nlargest(_SESSIONS_READ, shares, key=shares.__getitem__)
        for owner in likely:
            if shares[owner] < _LEAST or (all_of_them and len(held[owner]) < len(weights)):
                break
            own = self._query.term_query(self._schema, "owner", owner)
            query = self._query.boolean_query(
                [(self._occur.Must, own), *((self._occur.Should, one) for one in anywhere)]
            )
            self._add_best(asked, query, weights, shares[owner], all_of_them=all_of_them)

    def _add_best(
        self, asked: Asked, query: Any, weights: Sequence[float], share: float, *, all_of_them: bool
    ) -> None:
        """Add the place of a session that shows most of the words' weight."""
        finder = asked.finder(widen=asked.open_end, inflect=True)
        places = []
        for session_id, document in self._fetched(query, _PLACES_READ):
            if (session_id, False) in self._found or (session_id, True) in self._found:
                return
            for place in _every_place(session_id, document):
                text = place.text
                counts = finder.counts(without_references(text) if place.field == "name" else text)
                here = sum(w for w, many in zip(weights, counts, strict=True) if many)
                places.append((here / sum(weights), WEIGHTS[place.field], place))
        if not places:
            return
        best, weight, place = max(places, key=lambda one: one[:2])
        if not best:
            return
        place.snippet = finder.snippet
        place.score = _SPREAD * best if all_of_them else share * (share + best) / 2
        self._add(place, None if all_of_them else 1.0 + weight / WEIGHTS["name"] / 2)

    def _mended(self, asked: Asked) -> Asked | None:
        """The same query in words that the index has; None where these are not nearly the same."""
        words = [self._nearest(term) for term in asked.terms]
        if words == list(asked.terms):
            return None
        open_end = asked.open_end and words[-1] == asked.terms[-1]
        return replace(asked, terms=tuple(words), open_end=open_end)

    def _nearest(self, term: str) -> str:
        """The word that was probably meant: the term, or one that is a slip or two away."""
        word = fold(term)
        if len(word) < _SLIP_MIN or not word.isalpha() or self._frequency(word):
            return term
        from rapidfuzz import process  # noqa: PLC0415 - few searches come here
        from rapidfuzz.distance import OSA  # noqa: PLC0415 - as above

        known: dict[str, int] = {}
        for name in ("message", "name", "tags", "description", "summary"):
            for one, many in self._searcher.terms_with_prefix(name, word[:2], limit=_SIMILAR_MAX):
                known[one] = known.get(one, 0) + many
        most = 2 if len(word) >= _TWO_SLIPS_MIN else 1
        near = process.extract(
            word, list(known), scorer=OSA.distance, score_cutoff=most, limit=None
        )
        if near:
            return min(near, key=lambda one: (one[1], -known[one[0]]))[0]
        if len(word) < _FIRST_SLIP_MIN:
            return term
        fuzzy = self._either(
            [
                self._query.fuzzy_term_query(self._schema, name, word)
                for name in (*_TEXTS, "message")
            ]
        )
        texts = [text for _, one in self._fetched(fuzzy, 1) for text in _texts_in(one)]
        words = {one for text in texts for one in words_of(text)}  # a slip at the beginning
        found = process.extractOne(word, sorted(words), scorer=OSA.distance, score_cutoff=1)
        return found[0] if found else term

    def _frequency(self, word: str) -> int:
        names = ("message", *ABOUT)
        return sum(self._searcher.doc_freq(name, word) for name in names)

    def _weights(self, terms: Sequence[str]) -> list[float]:
        """How much each word of a question tells; one that nothing has is like the others."""
        there = [any(self._frequency(one) for one in words_of(term)) for term in terms]
        rarity = [self._rarity(term) for term in terms]
        known = [w for w, is_there in zip(rarity, there, strict=True) if is_there] or [1.0]
        mean = sum(known) / len(known)
        return [w if is_there else mean for w, is_there in zip(rarity, there, strict=True)]

    def _rarity(self, term: str) -> float:
        """BM25's weight of a word, or of the rarest of a phrase: the rarer, the more."""
        many = min((self._searcher.doc_freq("message", one) for one in words_of(term)), default=0)
        total = self._searcher.num_docs
        return math.log(1 + (max(total - many, 0) + 0.5) / (many + 0.5))

    # -- asking tantivy ------------------------------------------------------------------

    def _in(self, name: str, asked: Asked, n: int, *, widen: bool) -> Any:
        """A term in a field; `widen`: in its other forms, the last going on."""
        words = words_of(asked.terms[n])
        going_on = widen and asked.open_end and n == len(asked.terms) - 1
        if len(words) > 1:
            of = self._query.phrase_prefix_query if going_on else self._query.phrase_query
            return of(self._schema, name, [*words])
        forms = asked.forms[n] if widen else None
        listed = dict.fromkeys(words)
        for stem in forms.stems if forms else ():
            many = self._searcher.terms_with_prefix(name, stem, limit=_SIMILAR_MAX)
            listed |= dict.fromkeys(one for one, _ in many if forms and forms.take(one))
        if going_on:
            many = self._searcher.terms_with_prefix(name, words[0], limit=_FORMS_MAX)
            listed |= dict.fromkeys(one for one, _ in many)
        some = list(listed)[:_FORMS_MAX]
        return self._either([self._query.term_query(self._schema, name, one) for one in some])

    def _either(self, queries: Iterable[Any]) -> Any:
        some = list(queries)
        if len(some) == 1:
            return some[0]
        return self._query.boolean_query([(self._occur.Should, one) for one in some])

    def _documents(self, terms: Sequence[Any]) -> Iterator[tuple[str, Any]]:
        """The best documents that have all terms, of the sessions that may be found."""
        query = self._within(self._query.boolean_query([(self._occur.Must, one) for one in terms]))
        most = self._most
        while True:
            kept, many = self._fetched(query, most), self._fetched_hits
            if many < most or len(kept) >= self._most or most > _SIFTED * self._most:
                return iter(kept)
            most *= 4

    def _within(self, query: Any) -> Any:
        """A query for the sessions that may be found; where these are many, hits are sifted."""
        if self._scope is None or len(self._scope) > _SCOPE_MAX:
            return query
        own = self._query.term_set_query(self._schema, "session", sorted(self._scope))
        limited = self._query.const_score_query(own, 0.0)
        return self._query.boolean_query([(self._occur.Must, query), (self._occur.Must, limited)])

    def _fetched(self, query: Any, most: int) -> list[tuple[str, Any]]:
        found = self._searcher.search(query, limit=most, count=False).hits
        self._fetched_hits = len(found)
        documents = [self._searcher.doc(at) for _, at in found]
        pairs = [(str(one.get_first("session")), one) for one in documents]
        kept = [one for one in pairs if self._scope is None or one[0] in self._scope]
        self._meet(session_id for session_id, _ in kept)
        return [one for one in kept if one[0] in self._sessions]

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
        ids = self._index.store.by_age(self._scope)
        messages = 0
        for kind in ("about", "message"):
            for at in range(0, len(ids), _SESSIONS_AT_ONCE):
                for place in self._stored(kind, ids[at : at + _SESSIONS_AT_ONCE]):
                    if time.monotonic() > deadline:
                        self.warning = "re: not all texts were looked at; narrow the search"
                        return
                    if (place.session_id, kind == "message") in self._found:
                        continue
                    span = pattern.find(place.text)
                    if span is not None:
                        place.score, messages = _PLAIN, messages + (kind == "message")
                        place.snippet = _marked(span)
                        self._add(place)
                if messages >= self._limit:
                    return

    def _stored(self, kind: str, ids: Sequence[str]) -> Iterator[_Place]:
        """Every text of a kind of some sessions, in their order; of one the newest first."""
        query = self._query.boolean_query(
            [
                (self._occur.Must, self._query.term_set_query(self._schema, "session", ids)),
                (self._occur.Must, self._query.term_query(self._schema, "kind", kind)),
            ]
        )
        most = max(1, self._searcher.num_docs)
        found = self._searcher.search(query, limit=most, count=False).hits
        order = {one: n for n, one in enumerate(ids)}
        self._meet(ids)
        documents = [self._searcher.doc(at) for _, at in found]
        documents.sort(
            key=lambda one: (order[str(one.get_first("session"))], -(one.get_first("row") or 0))
        )
        for one in documents:
            session_id = str(one.get_first("session"))
            if session_id in self._sessions:
                yield from _every_place(session_id, one)

    # -- what was found ------------------------------------------------------------------

    def _add(self, place: _Place, weight: float | None = None) -> None:
        """Keep the better of two places of one kind in a session, unless it is a copy."""
        session = self._sessions[place.session_id]
        if weight is None:
            weight = WEIGHTS[place.field]
            if place.field == "name" and not session.named:
                weight *= _UNNAMED
        place.score *= weight * session.worth
        if self._copies.setdefault(place.copy, place.session_id) != place.session_id and place.copy:
            return  # its original is told of, once
        key = (place.session_id, place.field == "message")
        if key not in self._found or self._found[key].score < place.score:
            self._found[key] = place

    def _to_original(self, place: _Place) -> None:
        """Of a message's copies take the one in the oldest session."""
        query = self._query.term_query(self._schema, "copy", place.copy)
        found = self._searcher.search(query, limit=100, count=False).hits
        if len(found) < 2:  # noqa: PLR2004 - itself
            return
        copies = {}
        for _, at in found:
            document = self._searcher.doc(at)
            copies[str(document.get_first("session"))] = document
        if self._scope is not None:
            copies = {one: held for one, held in copies.items() if one in self._scope}
        self._meet(copies)
        known = [one for one in copies if one in self._sessions]
        oldest = min(known, key=lambda one: (self._sessions[one].created, one), default=None)
        if oldest is not None and oldest != place.session_id:
            worth = self._sessions[oldest].worth / self._sessions[place.session_id].worth
            original = _message(oldest, message_in(copies[oldest]), place.score * worth, None)
            place.session_id, place.more, place.score = oldest, original.more, original.score

    def _goes_by_copy(self, session_id: str) -> bool:
        """Whether a session is called by a message that was another session's before."""
        session = self._sessions[session_id]
        if session.named:
            return False
        begun = clean_line(session.name, _NAME_BEGUN).rstrip("…")
        for message in self._index.messages(session_id, _PROMPTS):
            if clean_line(message.text, _MESSAGE_READ).startswith(begun):
                place = _message(session_id, message, 1.0, None)
                self._to_original(place)
                return place.session_id != session_id
        return False

    def hits(self, asked: Asked) -> Iterator[dict[str, Any]]:
        """The best places found, in words."""
        ranked = sorted(
            self._found.values(), key=lambda one: (-one.score, one.session_id, one.field)
        )
        plain = asked.finder()
        left, told = self._limit, set[str]()
        for one in ranked:
            if not left:
                return
            if one.field == "message":
                self._to_original(one)
            if one.field == "name" and self._goes_by_copy(one.session_id):
                continue
            if one.field == "message" and one.session_id in told:
                continue
            told |= {one.session_id} if one.field == "message" else set()
            left -= 1
            snippet = one.snippet or plain.snippet
            yield {
                "sessionId": one.session_id,
                "name": self._sessions[one.session_id].name,
                "field": one.field,
                "snippet": snippet(_best_line(one, snippet)),
                "score": round(one.score, 4),
            } | one.more


def _fit(counts: Sequence[int], size: int, average: float, rarity: Sequence[float]) -> float:
    """How well a text fits: 0.5 to 1, by BM25."""
    length = _K1 * (1 - _B + _B * size / average)
    fits = sum(w * n / (n + length) for w, n in zip(rarity, counts, strict=True))
    return 0.5 + 0.5 * fits / (sum(rarity) or 1.0)


def _fields(session_id: str, document: Any) -> Iterator[tuple[str, str]]:
    """A session's own texts, the weightiest first."""
    texts = about_in(document)
    for name in WEIGHTS:
        if name == "id":
            yield name, session_id
        elif name != "message":
            yield name, getattr(texts, name)


def _texts_in(document: Any) -> list[str]:
    return [one.text for one in _every_place("", document) if one.field not in _PLACES]


def _every_place(session_id: str, document: Any) -> Iterator[_Place]:
    if document.get_first("row") is not None:
        yield _message(session_id, message_in(document), 0.0, None)
        return
    for name, text in _fields(session_id, document):
        yield _Place(session_id, name, 0.0, text)


def _message(
    session_id: str, one: Any, score: float, snippet: Callable[[str], str] | None
) -> _Place:
    more = {"entryId": one.entry, "role": one.role, "at": one.at}
    return _Place(session_id, "message", score, one.text, more, copy_of(session_id, one), snippet)


def _marked(span: tuple[int, int]) -> Callable[[str], str]:
    return lambda text: excerpt(text, [(*span, 0)])


def _best_line(place: _Place, snippet: Callable[[str], str]) -> str:
    """Of several paths or names the first that has what is looked for."""
    if place.field not in ("files", "name") or "\n" not in place.text:
        return place.text
    return next((one for one in place.text.split("\n") if "«" in snippet(one)), place.text)
