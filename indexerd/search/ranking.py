"""Rank a search: from a parsed query to hits, best session first, a field and a message of each.

Each term stands for words of the index: itself and, at less, those with its stem, and for the last
one those that it begins. If no session has all terms, each stands for its synonyms, too. A phrase
that nothing has is replaced by its words, a word that nothing has by the most similar one, with a
warning.

The unit is the session. Its score is BM25 over the session, where a term counts as often as its
messages, name, tags, other texts and places (id, files, directory) have it; plus the BM25 of its
best message, where words are close together. Sessions with all words in the title come first, then
those with all words. A recently used session gains a little, too. A message copied into forks is
shown once, in the oldest session that has it.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, product
from typing import Any, NamedTuple

import msgspec
from tantivy import DocAddress, Document, Occur, Query, Searcher

from indexerd.protocol.words import NO_MATCH
from indexerd.search.index import (
    SCHEMA,
    Message,
    TextIndex,
    about_in,
    both,
    copy_of,
    either,
    having,
    message_in,
)
from indexerd.search.meaning import Near
from indexerd.search.query import (
    TERMS_MAX,
    Finder,
    Span,
    Term,
    fold,
    is_slip,
    parse,
    snippet,
    split_filters,
    stem,
    synonyms,
    without_references,
)
from indexerd.store.store import Filter

WEIGHTS = {  # of the fields in a session's own texts, to choose the one that is shown
    "name": 12.0,
    "id": 10.0,
    "tags": 6.0,
    "description": 4.0,
    "files": 3.0,
    "summary": 2.5,
    "message": 1.5,
    "cwd": 0.5,
}
_VERBATIM = ("id", "files", "cwd")
_DESCRIBED = ("name", "tags", "description", "summary")
_FIELDS = ("text", "name", "tags", "place")  # of the index; `text` has names and tags, too
_OTHER = 0.7  # factor for words that are not the typed one
_MOST = 0.5  # share of rarity that a session needs to be listed below those with all words
_OLD = 0.95  # factor for an old session
_PART = 0.7  # factor for a sub-agent's session, whose name is no title: its parent has the work
_HALF_LIFE_MS = 30 * 86_400_000
_FEW = 60  # a smaller limit ranks as this one, so that CLI, web and MCP agree
_MORE = 10  # sessions of which texts are loaded in addition to the limit
_READ = 4  # places of a term that are read, for each session of the limit
_READ_ON = 1200  # places of a common term that are read in the best sessions
_READ_MAX = 20_000  # places of a single word that are read
_CANDIDATES = 30  # sessions that are ranked in addition to the limit
_SCOPE_MAX = 2000  # sessions to which the index limits a query: 30,000 would take 60 ms
_WIDER = 10  # how many more places are read if the scope is larger
_FORMS_MAX, _SIMILAR_MAX = 50, 2000  # words of the index that are compared with a typed one
_SIMILAR_MIN = 4  # letters of a word that may have a typo; with twice as many it may have two
_COPIES_MAX = 100  # of one message
_SESSIONS_AT_ONCE = 50  # in one step of a pattern's search
_STEM_MIN = 3  # letters of a word with other endings
_K1 = 1.2  # of BM25, as in tantivy
# Of two lists, a place in each counts 1 / (3 + place). That by meaning counts twice, if the best
# session by words has less than this share of their rarity, else half.
_NEARLY, _MEANT, _VAGUE = 3, 2.0, 0.4


class Candidate(NamedTuple):
    """A session that a text may mean; `matched` of `total` words were found."""

    session_id: str
    score: float
    matched: int
    total: int
    titled: bool  # its name has all words
    described: bool  # its name, tags, description or summary have half of the words or more


class _Row(NamedTuple):
    name: str
    titled: bool  # its name is a title that somebody, or a model, gave it
    created: int
    worth: float  # factor for how recently it was used, and whose it is


_Shown = tuple[str, str, Message | None]  # field, text, message


@dataclasses.dataclass(slots=True)
class _Place:
    """A document that has some of the terms, and how well each of them fits."""

    at: DocAddress
    is_message: bool
    terms: dict[int, float] = dataclasses.field(default_factory=dict)
    score: float = 0.0


@dataclasses.dataclass(slots=True)
class _Session:
    """A session, the places in it that have some of the terms, and its rank."""

    places: list[_Place] = dataclasses.field(default_factory=list)
    id: str = ""
    score: float = 0.0
    share: float = 0.0  # of the terms' rarity
    matched: int = 0
    titled: float = 0.0  # weight of name or tags, if all words are there
    shown: list[_Shown] = dataclasses.field(default_factory=list)


def search(
    index: TextIndex,
    query: str,
    *,
    limit: int = 20,
    near: Callable[[str, Sequence[str] | None, Sequence[str]], Sequence[Near]] | None = None,
    **fields: str | None,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Find sessions by names, tags, descriptions, summaries, messages, files, ids, directories.

    Returns hits `{sessionId, name, field, snippet, score, words?}`, for messages also `entryId`,
    `role` and `at`; and warnings, for example about an unusable query. Archived, gone and
    sub-agents' sessions are included, hidden ones are not. `fields` are those of a `Filter`, and
    the query may have further filters; if it has nothing else, all that fit are hits, newest first.
    `near` finds sessions by meaning, among some and without others; it is asked if no session has
    all words, of two or more.
    """
    filters, rest = split_filters(query, time.time())
    scope = index.store.matching(Filter(**fields), *filters)
    parsed, hits, warning = parse(rest), list[dict[str, Any]](), None
    if scope == [] and filters:
        return [], [NO_MATCH]
    if scope and filters and not rest.strip():
        return [_listed(row) for row in index.store.get_many(scope[:limit]).values()], []
    if index.is_there:
        with index.searcher() as searcher:
            ranking = _Search(index, searcher, scope, max(limit, _FEW))
            if parsed.find is not None:
                ranking.by_pattern(parsed.find)
            elif parsed.terms and not ranking.by_words(parsed.terms):
                full = False
                if _has_synonyms(parsed.terms):
                    ranking = _Search(index, searcher, scope, max(limit, _FEW), synonyms=True)
                    full = ranking.by_words(parsed.terms)
                quoted = any(term.quoted for term in parsed.terms)
                if near and not full and not quoted and ranking.total > 1:
                    less = index.store.select("SELECT id FROM session WHERE hidden OR subagent")
                    ranking.by_meaning(near(rest, scope, [row[0] for row in less]))
            hits, warning = [*islice(ranking.hits(), limit)], ranking.warning
    return hits, [text for text in (parsed.problem, warning) if text]


def best_sessions(index: TextIndex, text: str, *, limit: int) -> list[Candidate]:
    """Return the sessions that a text most likely means, best first.

    A word that no text has counts as missing, but for a slip of the keyboard.
    """
    parsed, found = parse(text), dict[str, Candidate]()
    if not index.is_there or not parsed.terms:
        return []
    with index.searcher() as searcher:
        ranking = _Search(index, searcher, None, _CANDIDATES)
        ranking.by_words(parsed.terms)
        total = ranking.total + ranking.replaced
        for session, _, own in ranking.shown():
            titled = session.titled >= WEIGHTS["name"]  # tags are words of many sessions
            told = titled, any(field in _DESCRIBED for field, *_ in session.shown)
            found.setdefault(own, Candidate(own, session.score, session.matched, total, *told))
    return [*found.values()][:limit]


class _Search:
    def __init__(
        self,
        index: TextIndex,
        searcher: Searcher,
        scope: Sequence[str] | None,
        limit: int,
        *,
        synonyms: bool = False,
    ) -> None:
        self.warning: str | None = None
        self.total = 0  # words that a session should have
        self.replaced = False  # whether nothing has some word, not even with a slip
        self._index = index
        self._searcher = searcher
        self._newest = scope
        self._scope = None if scope is None else frozenset(scope)
        self._limit = limit
        self._synonyms = synonyms  # whether a word stands for these, too
        self._most = _READ * limit  # places of a term that are read
        self._ranked: list[_Session] = []
        self._rows: dict[str, _Row] = {}
        self._spans: Callable[[str], Sequence[Span]]  # finds what a snippet marks
        self._sessions = max(1, searcher.doc_freq("kind", "about"))
        self._needed = set[int]()
        self._least = 0.0  # share of the words' rarity that a hit needs
        self._rare: list[float] = []  # of each term
        self._places: dict[tuple[int, int], _Place] = {}
        self._found: dict[int, _Session] = {}  # by owner
        self._within: list[tuple[Occur, Query]] = []
        if scope is not None and len(scope) <= _SCOPE_MAX:
            own = Query.term_set_query(SCHEMA, "session", [*scope])
            self._within = [(Occur.Must, Query.const_score_query(own, 0.0))]
        elif scope is None and (hidden := index.store.hidden()[:_SCOPE_MAX]):
            self._within = [(Occur.MustNot, Query.term_set_query(SCHEMA, "session", hidden))]

    def by_words(self, typed: Sequence[Term]) -> bool:
        """Rank the sessions that have all words, then those that have most of them.

        Returns whether a session has all of them.
        """
        terms = self._known(typed)
        needed = {n for n, term in enumerate(terms) if term.needed}
        self._needed = needed or {*range(len(terms))}  # of "of_the", only the whole is needed
        self.total, quoted = len(self._needed), any(term.quoted for term in terms)
        found = self._candidates(terms)
        for session in found:
            self._score(session)
        full = any(session.matched == self.total for session in found)
        if found and not quoted and (self._synonyms or not full):
            what = "others of the same meaning" if full else "some of them"
            what += ", or of the same meaning" if self._synonyms and not full else ""
            words = ", ".join(terms[n].text for n in sorted(self._needed))
            self.warning = self.warning or f"no session has all of: {words}; these have {what}"
        self._least = _MOST if full else 0.0
        self._rank(one for one in found if one.matched == self.total or not quoted)
        finder = Finder(terms)
        self._spans = finder.spans
        for session in self._ranked[: self._limit + _MORE]:
            self._show(session, finder)
        self._ranked.sort(key=self._order)
        return full

    def by_meaning(self, near: Sequence[Near]) -> None:
        """Put these sessions among those with some of the words, by their places in both lists."""
        self._meet(found.session_id for found in near)
        ranked = {session.id: session for session in self._ranked}
        for place, session in enumerate(ranked.values()):
            session.score = 1 / (_NEARLY + place)
        found = [each for each in near if each.session_id in self._rows]
        best = max((session.share for session in self._ranked), default=0.0)
        meant = _MEANT if best < _VAGUE else _MEANT / 4
        for place, (session_id, field, text) in enumerate(found):
            session = ranked.setdefault(session_id, _Session(id=session_id))
            session.shown = session.shown or [(field, text, None)]
            session.score += meant / (_NEARLY + place)
        self._ranked = sorted(ranked.values(), key=self._order)
        if found:
            why = self.warning or "no session has these words"
            self.warning = f"{why}; some are found by their meaning"

    def _rank(self, sessions: Iterable[_Session]) -> None:
        """Sort the sessions that are in the scope."""
        found = [*sessions]
        self._meet(session.id for session in found)
        self._ranked = [session for session in found if session.id in self._rows]
        for session in self._ranked:
            session.score *= self._rows[session.id].worth
        self._ranked.sort(key=self._order)

    def _order(self, session: _Session) -> tuple[Any, ...]:
        return -session.titled, session.matched < self.total, -session.score, session.id

    def _known(self, typed: Sequence[Term]) -> list[Term]:
        """Find the words of the index that each term stands for, or else looser terms."""
        terms, queue, changed = list[Term](), [*typed][::-1], False
        while queue:
            term = queue.pop()
            for words in term.spellings:
                term.forms[words[-1]] = self._forms(words[-1], term)
            looser = [] if self._count(term) else term.looser() or self._similar(term)
            queue += looser[::-1]
            terms += [] if looser else [term]
            changed |= bool(looser)
            slips = len(looser) == 1 and is_slip(fold(term.text), looser[0].text)
            self.replaced |= bool(looser) and not slips
        if changed:
            meant = " ".join(term.text for term in terms)
            self.warning = f"no session has these words; searched for: {meant}"
        return terms[:TERMS_MAX]

    def _forms(self, word: str, term: Term) -> set[str]:
        """Return the words of the index that a typed word stands for."""
        forms = {word}
        if term.quoted or len(word) < _STEM_MIN:
            return forms
        own = stem(word)
        begins = {own: own if word.startswith(own) else own[:-1]}  # happi, of happy
        begins |= {base: base for base in (synonyms(own) if self._synonyms else ())}
        for base, begin in begins.items():
            forms |= {other for other in self._begun(begin, _FORMS_MAX) if stem(other) == base}
        if term.begins and sum(map(self._frequency, forms)) < self._limit:
            forms |= self._begun(word, _FORMS_MAX).keys()
        return forms

    def _begun(self, begin: str, most: int) -> Counter[str]:
        """Count the documents of the most frequent words with a beginning."""
        known = Counter[str]()
        for name in ("text", "place"):
            known.update(dict(self._searcher.terms_with_prefix(name, begin, limit=most)))
        return known

    def _frequency(self, word: str) -> int:
        return self._searcher.doc_freq("text", word) + self._searcher.doc_freq("place", word)

    def _similar(self, term: Term) -> list[Term]:
        """Return the word that was probably meant: one or two typos away."""
        word = term.spellings[0][0]
        if term.quoted or len(word) < _SIMILAR_MIN or not word.isalpha():
            return []
        from rapidfuzz import process  # noqa: PLC0415 - 4 MB, for words that nothing has
        from rapidfuzz.distance import OSA  # noqa: PLC0415 - as above

        known, most = self._begun(word[:2], _SIMILAR_MAX), min(2, len(word) // _SIMILAR_MIN)
        near = process.extract(word, [*known], scorer=OSA.distance, score_cutoff=most, limit=None)
        best = min(near, key=lambda match: (match[1], -known[match[0]]))[0] if near else word
        return [Term(best)] if best != word else []

    def _count(self, term: Term) -> int:
        """Count the documents that have a term, about."""
        if all(len(words) == 1 for words in term.spellings):
            return sum(map(self._frequency, set[str]().union(*term.forms.values())))
        found = (
            self._searcher.search(query, self._most, count=False) for query in self._queries(term)
        )
        return sum(len(one.hits) for one in found)

    def _queries(self, term: Term) -> list[Query]:
        """Make queries for texts and for other fields; their scores are how well a place fits.

        One query for both would take twice as long. The length counts in texts only: of the other
        fields, few documents have any.
        """
        texts, others = list[Query](), list[Query]()
        for spelling in term.spellings:
            forms = term.forms_of(spelling[-1])
            last = "|".join(forms)
            words: list[Any] = [*spelling[:-1], f"({last})" if len(forms) > 1 else spelling[-1]]
            phrase = Query.regex_phrase_query if len(forms) > 1 else Query.phrase_query
            for name in _FIELDS:
                clauses = texts if name == "text" else others
                if len(spelling) > 1:
                    query = phrase(SCHEMA, name, words)
                    clauses.append(Query.const_score_query(query, 1.0))
                    continue
                for word in forms:
                    query, many = having(name, word), self._searcher.doc_freq(name, word)
                    factor = 1.0 if word == spelling[-1] else _OTHER
                    if many and name == "text":
                        clauses.append(Query.boost_query(query, factor / self._rarity(many)))
                    elif many:
                        clauses.append(Query.const_score_query(query, factor))
        return [
            either(texts) if texts else Query.empty_query(),
            *([either(others)] if others else ()),
        ]

    def _rarity(self, many: int) -> float:
        """Weigh by rarity, as tantivy's BM25 does."""
        total = max(many, self._searcher.num_docs)
        return math.log(1 + (total - many + 0.5) / (many + 0.5))

    def _candidates(self, terms: Sequence[Term]) -> list[_Session]:
        """Find the sessions that have some of the terms, with all their places."""
        queries, common = [*map(self._queries, terms)], list[int]()
        for n, term in enumerate(terms):
            read = self._read if len(terms) > 1 else self._read_wider
            many = sum(len(read(query, [n], self._most)) for query in queries[n])
            if many >= self._most:
                common += [n] if len(terms) > 1 else []
                many = max(many, self._count(term))
            self._rare.append(self._rarity(many))
        if common:
            every = both(*(queries[n][0] for n in self._needed))
            if len(self._read(every, [*self._needed], self._limit)) < self._limit:
                self._read_on(queries, common)
        self._sum_up()
        best = list[_Session]()
        for session in sorted(self._found.values(), key=lambda session: -session.score):
            session.id = str(self._searcher.doc(session.places[0].at).get_first("session"))
            if self._scope is None or session.id in self._scope:
                best.append(session)
            if len(best) == _CANDIDATES + self._limit:
                break
        return best

    def _read_on(self, queries: Sequence[Sequence[Query]], common: Iterable[int]) -> None:
        """Read all places of the best sessions that have one of the common terms."""
        near = self._read(either(texts for texts, *_ in queries), [], self._limit)
        self._sum_up()
        rare = self._needed.difference(common)

        def order(owner: int) -> tuple[int, float]:
            found = self._found[owner]
            return -len(rare & {n for place in found.places for n in place.terms}), -found.score

        some = {*near, *sorted(self._found, key=order)[: self._limit]}
        self._found = {owner: self._found[owner] for owner in some}
        own = Query.const_score_query(Query.term_set_query(SCHEMA, "owner", [*some]), 0.0)
        for n in common:
            for query in queries[n]:
                self._read(both(query, own), [n], _READ_ON, again=True)

    def _read_wider(self, query: Query, terms: Sequence[int], most: int) -> list[Any]:
        """Read more and more places, until they are of as many sessions as the limit."""
        owners = self._read(query, terms, most)
        while most <= len(owners) < _READ_MAX and len(set(owners)) < self._limit:
            most *= 4
            owners = self._read(query, terms, most, again=True)
        return owners

    def _read(
        self, query: Query, terms: Sequence[int], most: int, *, again: bool = False
    ) -> list[Any]:
        """Read the best places with all of these terms; return their owners."""
        if self._within:
            query = Query.boolean_query([(Occur.Must, query), *self._within])
        elif self._scope is not None:
            most *= _WIDER
        hits = self._searcher.search(query, most, count=False).hits
        at = [address for _, address in hits]
        owners = self._searcher.fast_field_values("owner", at)
        rows = self._searcher.fast_field_values("row", at)
        for (fit, address), owner, row in zip(hits, owners, rows, strict=True):
            key = address.segment_ord, address.doc
            if (place := self._places.get(key)) is None:
                place = self._places[key] = _Place(address, row is not None)
                self._found.setdefault(int(owner or 0), _Session()).places.append(place)
            for n in terms:
                if not (again or len(terms) > 1) or n not in place.terms:
                    place.terms[n] = place.terms.get(n, 0.0) + fit / len(terms)
        return owners

    def _sum_up(self) -> None:
        """Score each place, and each session roughly: by its best place."""
        for session in self._found.values():
            for place in session.places:
                place.score = sum(fit * self._rare[n] for n, fit in place.terms.items())
            session.places.sort(key=lambda place: -place.score)
            session.score = session.places[0].score

    def _score(self, session: _Session) -> None:
        average = self._searcher.num_docs / self._sessions
        length = self._searcher.doc_freq("session", session.id) / average
        there = Counter[int]()
        for place in session.places:
            there.update(place.terms)
        for n, often in there.items():
            session.score += self._rare[n] * often * (_K1 + 1) / (often + _K1 * length)
        session.matched = len(self._needed & there.keys())
        session.score /= 2 * sum(self._rare)
        rarest = sum(self._rare[n] for n in self._needed)
        session.share = sum(self._rare[n] for n in self._needed & there.keys()) / rarest

    def _show(self, session: _Session, finder: Finder) -> None:
        """Choose the field and the message that are shown."""
        seen = set[bool]()
        for place in session.places:
            matched = len(self._needed & place.terms.keys())
            if place.is_message in seen or 2 * matched < (session.matched if seen else 1):
                continue
            seen.add(place.is_message)
            document = self._searcher.doc(place.at)
            if place.is_message:
                message = message_in(document)
                session.shown.append(("message", message.text, message))
                continue
            best = 0.0
            for field, text in _texts(session.id, document):
                terms = finder.terms_in(without_references(text) if field == "name" else text)
                is_title = field == "tags" or (field == "name" and self._rows[session.id].titled)
                if is_title and self._needed <= terms:
                    session.titled = max(session.titled, WEIGHTS[field])
                fit = WEIGHTS[field] * sum(self._rare[n] for n in terms)
                if fit > best:
                    best, shown = fit, (field, text, None)
            session.shown += [shown] if best else []

    def _meet(self, session_ids: Iterable[str]) -> None:
        """Load sessions from the store, but no hidden ones, and none out of the scope."""
        new = [key for key in dict.fromkeys(session_ids) if key not in self._rows]
        columns = "id, name, named, created, modified, subagent"
        rows = self._index.store.some(columns, new) if new else ()
        for session_id, name, named, created, modified, subagent in rows:
            if self._scope is None or session_id in self._scope:
                age = max(0.0, 1000 * time.time() - modified)
                worth = _OLD + (1 - _OLD) * 0.5 ** (age / _HALF_LIFE_MS)
                worth *= _PART if subagent else 1.0
                titled = bool(named and not subagent)
                self._rows[session_id] = _Row(name, titled, created, worth)

    def by_pattern(self, find: Callable[[str], tuple[int, int] | None]) -> None:
        """Find texts that match a pattern, newest sessions first, for at most a second."""
        ids = self._index.store.newest() if self._newest is None else self._newest
        messages, deadline = 0, time.monotonic() + 1
        most, found = max(1, self._searcher.num_docs), dict[str, _Session]()
        self._spans = lambda text: [(*span, 0)] if (span := find(text)) else []
        for kind, at in product(("about", "message"), range(0, len(ids), _SESSIONS_AT_ONCE)):
            if messages >= self._limit or self.warning:
                break
            own = Query.term_set_query(SCHEMA, "session", ids[at : at + _SESSIONS_AT_ONCE])
            hits = self._searcher.search(both(own, having("kind", kind)), most, count=False).hits
            for document in (self._searcher.doc(at) for _, at in hits):
                if time.monotonic() > deadline:
                    self.warning = "re: only some texts were searched, for a second; narrow it"
                    break
                session_id = str(document.get_first("session"))
                session = found.setdefault(session_id, _Session(id=session_id))
                if any(message or kind == "about" for _, _, message in session.shown):
                    continue
                message = message_in(document) if kind == "message" else None
                texts = [("message", message.text)] if message else _texts(session_id, document)
                for field, text in texts:
                    if find(text):
                        session.shown.append((field, text, message))
                        session.score = max(session.score, WEIGHTS[field])
                        messages += message is not None
                        break
        self._rank(found.values())

    def _oldest(self, session_id: str, message: Message) -> str:
        """Find the session in which a message was written, not copied."""
        copy = copy_of(session_id, message)
        if self._searcher.doc_freq("copy", copy) == 1:
            return session_id
        hits = self._searcher.search(having("copy", copy), _COPIES_MAX, count=False).hits
        owners = {str(self._searcher.doc(at).get_first("session")) for _, at in hits}
        owners.add(session_id)  # there may be more than _COPIES_MAX
        if message.entry[:1] == "L":  # of Codex, a place in the file: only forks have copies
            root = self._root(session_id)
            owners = {other for other in owners if self._root(other) == root}
        self._meet(owners)
        known = owners & self._rows.keys()
        return min(known, key=lambda session_id: (self._rows[session_id].created, session_id))

    def _root(self, session_id: str) -> str:
        """Return the session that a fork, or a fork of a fork, began with."""
        trail = [session_id]
        while links := self._index.store.links("id", trail[-1:]):
            if not links[0].parent or links[0].parent in trail:
                break
            trail.append(links[0].parent)
        return trail[-1]

    def shown(self, least: float = 0.0) -> Iterator[tuple[_Session, _Shown, str]]:
        """Yield what is shown, best first, each with the session it comes from.

        Sessions with less than this share of the words' rarity are left out.
        """
        seen = set[tuple[str, bool]]()
        for session in self._ranked:
            if session.share < least:
                continue
            for shown in session.shown:
                own, message = session.id, shown[2]
                if message:
                    own = self._oldest(own, message)
                if (own, message is not None) in seen:
                    continue
                if len(seen) == self._limit:
                    return
                seen.add((own, message is not None))
                yield session, shown, own

    def hits(self) -> Iterator[dict[str, Any]]:
        for session, (field, text, message), own in self.shown(self._least):
            hit = {
                "sessionId": own,
                "name": self._rows[own].name,
                "field": field,
                "snippet": self._excerpt(field, text),
                "score": round(session.score, 4),
            }
            if message:
                hit |= {"entryId": message.entry, "role": message.role, "at": message.at}
            if session.matched < self.total:
                hit["words"] = f"{session.matched} of {self.total}"
            yield hit

    def _excerpt(self, field: str, text: str) -> str:
        """Make a snippet; of several paths or names, from the first with a match."""
        if field in ("files", "name"):
            lines = text.split("\n")
            text = next((line for line in lines if self._spans(line)), lines[0])
        return snippet(text, self._spans, markdown=field not in _VERBATIM)


def _listed(row: dict[str, Any]) -> dict[str, Any]:
    """Make a hit of a session that filters alone have found."""
    field = "description" if row["description"] else "name"
    text = snippet(row[field], lambda _: (), markdown=True)
    named = {"sessionId": row["sessionId"], "name": row["name"]}
    return {**named, "field": field, "snippet": text, "score": 0.0}


def _has_synonyms(terms: Iterable[Term]) -> bool:
    return any(synonyms(stem(words[-1])) for term in terms for words in term.spellings)


def _texts(session_id: str, document: Document) -> list[tuple[str, str]]:
    """Return a session's own texts by decreasing weight."""
    texts = {"id": session_id} | msgspec.structs.asdict(about_in(document))
    return [(name, texts[name]) for name in WEIGHTS if name in texts]
