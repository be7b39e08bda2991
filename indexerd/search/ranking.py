"""Rank a search: from a parsed query to hits, best first, one field and one message per session.

First it looks for places that have all words. If there are too few, words may have other endings
and the last may be a prefix ("conf" for "config"); then sessions count that have each word
somewhere. If nothing matches, likely spellings are tried, then any of the words, with a warning.

A place's score is its field's weight, times 0.5 to 1 for how well its text matches (BM25 for a
message; for another field, a shorter text is better), times 0.85 to 1 for how recently the session
was used. If words are missing, the rarity of those present counts instead of field and text. In
ids, files and directories, and for patterns, the text's factor is 0.75. A message copied into
forks is shown once, in the oldest session that has it; an unnamed fork gets its name from such a
message, so that name is not a hit. Any other name that is only a message counts half.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec
from tantivy import Document, Query, Searcher

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
from indexerd.search.query import (
    Finder,
    ParsedQuery,
    Term,
    excerpt,
    fold,
    parse,
    without_references,
)

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
_PLACES = ("id", "files", "cwd")  # here the length of the text does not count
_PLAIN = 0.75  # factor for a place where a pattern matches, or one of _PLACES
_BEGUN = 0.6  # factor for words with another ending or matched by a prefix
_UNNAMED = 0.5  # factor for a name that is only a message
_SPREAD = 0.4  # factor for a session that has the words in different places
_QUESTION = 3  # a query of so many words is a question, of which some may be missing
_HALF_LIFE_MS = 30 * 86_400_000
_MORE = 10  # sessions that are ranked in addition to the limit
_GATHERED = 100  # documents that are ranked if words may be missing
_MOST_HITS = 20_000  # hits of the index that are read to find enough sessions
_SCOPE_MAX = 2000  # sessions to which the index limits a query: 30,000 would take 60 ms
_FORMS_MAX, _SIMILAR_MAX = 50, 2000  # words of the index that are compared with a typed one
_SLIP_MIN = 4  # letters of a word that may have a typo; with twice as many it may have two
_COPIES_MAX = 100  # of one message
_SESSIONS_AT_ONCE = 50  # in one step of a pattern's search
_K1, _B, _AVERAGE = 1.2, 0.75, 200.0  # of BM25; characters of a field


class _Session(NamedTuple):
    name: str
    named: bool
    created: int
    worth: float  # factor for how recently it was used


@dataclasses.dataclass(slots=True)
class _Place:
    session_id: str
    field: str
    text: str
    message: Message | None = None
    score: float = 0.0
    snippet: Callable[[str], str] = str

    def terms(self, finder: Finder) -> set[int]:
        return finder.terms_in(without_references(self.text) if self.field == "name" else self.text)


def search(
    index: TextIndex,
    query: str,
    *,
    agent: str | None = None,
    cwd: str | None = None,
    since: str | None = None,
    limit: int = 20,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Find sessions by names, tags, descriptions, summaries, messages, files, ids, directories.

    Returns hits `{sessionId, name, field, snippet, score}`, for messages also `entryId`, `role` and
    `at`; and warnings, for example about an unusable query. Archived, gone and sub-agents' sessions
    are included. `since` limits the session's last change.
    """
    parsed, hits, warning = parse(query), list[dict[str, Any]](), None
    if index.is_there:
        scope = index.store.matching(agent, cwd, since)
        with index.searcher() as searcher:
            ranking = _Search(index, searcher, scope, limit)
            if parsed.find is not None:
                ranking.by_pattern(parsed.find)
            elif parsed.terms:
                ranking.by_words(parsed)
            hits, warning = [*ranking.hits()], ranking.warning
    return hits, [text for text in (parsed.problem, warning) if text]


class _Search:
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

    def by_words(self, parsed: ParsedQuery) -> None:
        """Find places that have all words, or else the nearest matches."""
        self._all_words(parsed)
        if self._found or parsed.quoted:
            return
        words = tuple(map(self._nearest, parsed.terms))
        if words != parsed.terms:
            parsed = dataclasses.replace(parsed, terms=words)
            self._all_words(parsed)
            self.warning = f"nothing has these words; searched for: {' '.join(words)}"
        if not self._found and (parsed.typed >= _QUESTION or len(parsed.terms) > 1):
            self._scattered(parsed.as_terms(widen=True), every=False)
            self.warning = "nothing has all of these words; this has most of them"
        if not self._found:
            self.warning = None

    def _all_words(self, parsed: ParsedQuery) -> None:
        self._places(parsed.as_terms(), 1.0)
        wide = parsed.as_terms(widen=True)
        if not self._enough() and any(term.begins for term in wide):
            self._places(wide, _BEGUN)
        if not self._enough() and len(wide) > 1:
            self._scattered(wide, every=True)

    def _enough(self) -> bool:
        wanted = self._limit if self._scope is None else min(self._limit, len(self._scope))
        return len({session_id for session_id, _ in self._found}) >= wanted

    def _places(self, terms: Sequence[Term], worth: float) -> None:
        """Find places that have all words; in ids, files and directories only if needed."""
        finder, total = Finder(terms), sum(map(self._rarity, terms))
        query = both(*(self._in(("message",), term) for term in terms))
        places = [
            (worth * (1 + min(1.0, score / (_K1 + 1) / total)) / 2, _places_in(document)[0])
            for score, document in self._best(self._limit + _MORE, query)
        ]
        for place in self._abouts(_TEXTS, terms, finder):
            length = _K1 * (1 - _B + _B * len(place.text) / _AVERAGE)
            places.append((worth * (1 + 1 / (1 + length)) / 2, place))
        self._keep(places, finder.snippet)
        if not self._enough():
            more = self._abouts(_PLACES, terms, finder)
            self._keep([(worth * _PLAIN, place) for place in more], finder.snippet)

    def _abouts(
        self, names: tuple[str, ...], terms: Sequence[Term], finder: Finder
    ) -> Iterator[_Place]:
        """Find in each session the field of greatest weight, among `names`, that has all words."""
        query = both(*(self._in(names, term) for term in terms))
        for _, document in self._best(self._limit + _MORE, query):
            for place in _places_in(document):
                if place.field in names and len(place.terms(finder)) == len(terms):
                    yield place
                    break

    def _scattered(self, terms: Sequence[Term], *, every: bool) -> None:
        """Find sessions that have words in different places: `every` word, or at least some."""
        finder, rarity = Finder(terms), [*map(self._rarity, terms)]
        best: dict[str, tuple[float, float, _Place]] = {}
        terms_of: dict[str, set[int]] = {}
        query = either(self._in(tuple(WEIGHTS), term) for term in terms)
        for _, document in self._best(_GATHERED, query, per_session=False):
            for place in _places_in(document):
                session_id, there = place.session_id, place.terms(finder)
                terms_of.setdefault(session_id, set()).update(there)
                here = sum(rarity[n] for n in there) / sum(rarity)
                new = (here, WEIGHTS[place.field], place)
                best[session_id] = max(best.get(session_id, new), new, key=itemgetter(0, 1))
        known, spread = {session_id for session_id, _ in self._found}, list[tuple[float, _Place]]()
        for session_id, (here, weight, place) in best.items():
            if session_id in known or (every and len(terms_of[session_id]) < len(terms)):
                continue
            share = sum(rarity[n] for n in terms_of[session_id]) / sum(rarity)
            # `_keep` multiplies by the weight: if words are missing, the field must not count.
            spread.append((here * (_SPREAD if every else share / weight), place))
        self._keep(spread, finder.snippet)

    def _nearest(self, text: str) -> str:
        """Return the word that was probably meant: the term, or a word one or two typos away."""
        word, known = fold(text), Counter[str]()
        if len(word) < _SLIP_MIN or not word.isalpha():
            return text
        if any(self._searcher.doc_freq(name, word) for name in WEIGHTS):
            return text
        from rapidfuzz import process  # noqa: PLC0415 - 4 MB, for words that nothing has
        from rapidfuzz.distance import OSA  # noqa: PLC0415 - as above

        for name in ("message", *_TEXTS):
            begun = self._searcher.terms_with_prefix(name, word[:2], limit=_SIMILAR_MAX)
            known.update(dict(begun))
        most = min(2, len(word) // _SLIP_MIN)
        near = process.extract(word, [*known], scorer=OSA.distance, score_cutoff=most, limit=None)
        return min(near, key=lambda match: (match[1], -known[match[0]]))[0] if near else text

    def _rarity(self, term: Term) -> float:
        """Weigh a term by its rarity, as BM25 does."""
        many = min(self._searcher.doc_freq("message", word) for word in term.words)
        return math.log(1 + (max(self._searcher.num_docs - many, 0) + 0.5) / (many + 0.5))

    def _in(self, names: Iterable[str], term: Term) -> Query:
        """Make a query for a term in any of these fields."""
        if len(term.words) > 1:
            return either(Query.phrase_query(SCHEMA, name, [*term.words]) for name in names)
        return either(having(name, word) for name in names for word in self._forms(name, term))

    def _forms(self, name: str, term: Term) -> list[str]:
        """List the words of a field that match a term of one word."""
        words = dict.fromkeys(term.words)
        for begin in term.begins:
            begun = self._searcher.terms_with_prefix(name, begin, limit=_FORMS_MAX)
            words |= dict.fromkeys(word for word, _ in begun if term.takes(word))
        return [*words]

    def _best(
        self, most: int, query: Query, *, per_session: bool = True
    ) -> Iterator[tuple[float, Document]]:
        """Yield the best documents of sessions in the scope, with their scores."""
        scope, seen, size, begun = self._scope, set[Any](), most + 10, 0
        if scope is not None and len(scope) <= _SCOPE_MAX:
            own = Query.term_set_query(SCHEMA, "session", [*scope])
            query = both(query, Query.const_score_query(own, 0.0))
        while len(seen) < most:
            hits = self._searcher.search(query, limit=size, count=False).hits
            owners = self._searcher.fast_field_values("owner", [at for _, at in hits])
            for (score, at), owner in zip(hits[begun:], owners[begun:], strict=True):
                key = owner if per_session else len(seen)
                if key not in seen and len(seen) < most:
                    document = self._searcher.doc(at)
                    if scope is None or document.get_first("session") in scope:
                        seen.add(key)
                        yield float(score), document
            if len(hits) < size or size > _MOST_HITS:
                break
            begun, size = len(hits), 8 * size

    def _meet(self, session_ids: Iterable[str]) -> None:
        """Load sessions from the store; those without a row are left out."""
        new = [key for key in dict.fromkeys(session_ids) if key not in self._sessions]
        columns = "id, name, named, created, modified, (SELECT max(modified) FROM session)"
        rows = self._index.store.some(columns, new) if new else ()
        for session_id, name, named, created, modified, newest in rows:
            worth = 0.85 + 0.15 * 0.5 ** ((newest - modified) / _HALF_LIFE_MS)
            self._sessions[session_id] = _Session(name, bool(named), created, worth)

    def by_pattern(self, find: Callable[[str], tuple[int, int] | None]) -> None:
        """Find texts that match a pattern, newest sessions first, for at most a second."""
        ids, messages, deadline = self._index.store.by_age(self._scope), 0, time.monotonic() + 1
        most = max(1, self._searcher.num_docs)
        for kind, at in product(("about", "message"), range(0, len(ids), _SESSIONS_AT_ONCE)):
            if messages >= self._limit:
                return
            own = Query.term_set_query(SCHEMA, "session", ids[at : at + _SESSIONS_AT_ONCE])
            hits = self._searcher.search(both(own, having("kind", kind)), most, count=False).hits
            for place in (place for _, at in hits for place in _places_in(self._searcher.doc(at))):
                if time.monotonic() > deadline:
                    self.warning = (
                        "re: only some texts were searched, for a second; narrow the search"
                    )
                    return
                is_new = (place.session_id, kind == "message") not in self._found
                if is_new and (span := find(place.text)):
                    messages += kind == "message"
                    self._keep([(_PLAIN, place)], partial(excerpt, spans=[(*span, 0)]))

    def _keep(self, places: Sequence[tuple[float, _Place]], snippet: Callable[[str], str]) -> None:
        """Keep the best field and the best message of each session; places come with a factor."""
        self._meet(place.session_id for _, place in places)
        for share, place in places:
            if session := self._sessions.get(place.session_id):
                unnamed = place.field == "name" and not session.named
                weight = WEIGHTS[place.field] * (_UNNAMED if unnamed else 1.0)
                place.score, place.snippet = share * weight * session.worth, snippet
                key = place.session_id, place.message is not None
                if key not in self._found or self._found[key].score < place.score:
                    self._found[key] = place

    def _oldest(self, session_id: str, message: Message) -> str:
        """Find the session in which a message was written, not copied."""
        copy = copy_of(session_id, message)
        if self._searcher.doc_freq("copy", copy) == 1:
            return session_id
        hits = self._searcher.search(having("copy", copy), _COPIES_MAX, count=False).hits
        owners = {str(self._searcher.doc(at).get_first("session")) for _, at in hits}
        owners.add(session_id)  # there may be more than _COPIES_MAX
        self._meet(owners)
        known = owners & self._sessions.keys() & (owners if self._scope is None else self._scope)
        return min(known, key=lambda session_id: (self._sessions[session_id].created, session_id))

    def hits(self) -> Iterator[dict[str, Any]]:
        best = sorted(self._found.values(), key=lambda p: (-p.score, p.session_id, p.field))
        shown = set[tuple[str, bool]]()
        for place in best:
            if len(shown) == self._limit:
                return
            own, session, more = place.session_id, self._sessions[place.session_id], {}
            if place.message:
                own = self._oldest(own, place.message)
                _, entry, role, at, _ = place.message
                more = {"entryId": entry, "role": role, "at": at}
            elif place.field == "name" and not session.named:  # a first message, perhaps a copy
                first = self._index.messages(own, 1)
                if any(self._oldest(own, message) != own for message in first):
                    continue
            if (own, bool(more)) in shown:
                continue
            shown.add((own, bool(more)))
            yield {
                "sessionId": own,
                "name": self._sessions[own].name,
                "field": place.field,
                "snippet": _snippet(place),
                "score": round(place.score * self._sessions[own].worth / session.worth, 4),
            } | more


def _places_in(document: Document) -> list[_Place]:
    """Return the message of a document, or a session's own texts by decreasing weight."""
    session_id = str(document.get_first("session"))
    if document.get_first("row") is not None:
        message = message_in(document)
        return [_Place(session_id, "message", message.text, message)]
    texts = {"id": session_id} | msgspec.structs.asdict(about_in(document))
    return [_Place(session_id, name, texts[name]) for name in WEIGHTS if name in texts]


def _snippet(place: _Place) -> str:
    """Make a place's snippet; of several paths or names, from the first with a match."""
    for line in place.text.split("\n") if place.field in ("files", "name") else ():
        if "«" in (shown := place.snippet(line)):
            return shown
    return place.snippet(place.text)
