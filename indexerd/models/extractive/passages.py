r"""The passages of a session that fit a question best: what `local/extractive` answers with.

The answer says plainly that no language model wrote it, and then quotes what was found, best
first. A passage is a paragraph, or a part of a long one, ranked by BM25 over the stems of the
question's words; words inside identifiers count (`confirmButton`), and scripts without spaces are
looked at by pairs of characters. Later passages count a little more, as decisions are revised; so
does what tells a decision where one is asked for, and the reply to a user's question that fits. A
user's own questions count less: they rarely hold their answer. What is cited holds a word of the
question: for a reply in which none stands, what it replies to is cited.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import log
from typing import Any

from indexerd.events import Question
from indexerd.models.extractive.lexicon import ALIKE, DECIDED, fold, question_stops, stem

PASSAGES_MAX, PASSAGE_MAX, EXCERPT_MAX = 5, 700, 280  # the last two in characters
MATCHES_MAX = 20_000  # passages that fit; earlier ones are not looked at
FOUND = "No language model answered this: these passages of the session fit the question best."
CROWDED = " Its words stand in so many places that only the newest of these were looked at."
NOTHING = (
    "No passage of the session fits the question. (Its words were looked for; no language model "
    "read the session.)"
)
_TERMS_MAX = 24
_USUAL, _SHORT = 400, 150  # characters of a passage; a shorter one gains nothing by it
_K, _B = 1.2, 0.4
_BEYOND = 8  # passages that every session is taken to have besides its own
_REPLY, _REPLY_LATER, _REPLY_PASSAGES = 0.75, 0.85, 3  # what replies have of what they reply to
_QUESTION = 0.6  # what a user's question is worth as an answer
_ENTRY_MAX = 2  # passages of one entry
_FAR_BELOW = 0.35  # of the best score: what comes below it is left out
_HIGH, _MEDIUM, _FITS = 0.8, 0.5, 0.2  # parts of the question that are covered
_ASKING = ("?", "？")  # noqa: RUF001 - of other scripts
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
_WORDS = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BLANK = re.compile(r"\n[ \t]*\n\s*")
_BREAKS = re.compile(r"\n|(?<=[.!?;])\s|[。！？]")  # noqa: RUF001 - of other scripts
_ALIKE = {word: group.split() for group in ALIKE for word in group.split()}
_DECIDING = frozenset([*ALIKE[0].split(), "reason", "rather", "whi", "why", "warum"])

Said = Sequence[tuple[str, str, str]]


@dataclass(slots=True)
class Passage:
    """A part of an entry in which words of the question stand."""

    entry: int
    start: int
    end: int
    counts: dict[str, float]  # term -> how often
    score: float = 0.0
    share: float = 0.0  # of the question that it covers
    to: Passage | None = None  # what it replies to, where no word of the question stands in it


class Terms:
    """The words of a question that carry meaning, each in one form for all its endings."""

    def __init__(self, question: str) -> None:
        self.pairs: list[str] = []  # of scripts without spaces
        self.words: dict[str, dict[str, float]] = {}  # term -> stems that stand for it
        for word in _WORDS.findall(fold(f"{question} {_CAMEL.sub(' ', question)}")):
            if re.match(f"[{_UNSPACED}]", word):
                self.pairs += [word[at : at + 2] for at in range(max(1, len(word) - 1))]
            elif word not in question_stops() and (len(word) > 1 or word.isdigit()):
                base = stem(word)
                alike = dict.fromkeys(_ALIKE.get(base, ()), 0.6)
                self.words[base] = alike | {base: 1.0}
        self.pairs = list(dict.fromkeys(self.pairs))[:_TERMS_MAX]
        self.words = dict(islice(self.words.items(), _TERMS_MAX))
        # Stems end otherwise than words do ("retri"): a word is searched by what they share.
        needles = {
            one[:-1] if one[-1] in "iy" else one for forms in self.words.values() for one in forms
        }
        self._needles = re.compile(
            "|".join(map(re.escape, sorted({*needles, *self.pairs}) or ["$^"]))
        )

    @property
    def all(self) -> list[str]:
        """Every term."""
        return [*self.words, *self.pairs]

    def stand_in(self, folded: str) -> bool:
        """Whether any word of the question may stand in a folded text."""
        return self._needles.search(folded) is not None

    def count(self, text: str) -> dict[str, float]:
        """Return how often each term stands in a text; none where none does."""
        low = fold(text)
        if not self.stand_in(low):
            return {}
        found = {pair: float(low.count(pair)) for pair in self.pairs if pair in low}
        spread = _CAMEL.sub(" ", text)
        stems = Counter(
            map(stem, _WORDS.findall(low if spread == text else f"{low} {fold(spread)}"))
        )
        for term, forms in self.words.items():
            if number := sum(
                stems[form] * weight for form, weight in forms.items() if form in stems
            ):
                found[term] = number
        return found

    def place(self, text: str) -> int:
        """Return where in a text the words of the question are densest."""
        places = [hit.start() for hit in self._needles.finditer(fold(text))]
        reach = EXCERPT_MAX * 3 // 4
        return max(
            places, key=lambda at: (sum(at <= to < at + reach for to in places), -at), default=0
        )


def answer(question: Question, check: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Return the fields of an answer; `check` may raise to end the work."""
    terms = Terms(question.text)
    found = _passages(question.said, terms, check)
    weights = _weights(question.said, terms, found)
    best = _best(_ranked(question, found, weights))
    crowded = CROWDED if len(found) >= MATCHES_MAX else ""
    if not best or max(one.share for one in best) < _FITS:
        return {"answerMarkdown": NOTHING + crowded, "confidence": "low", "citations": []}
    quotes, citations = [FOUND + crowded], list[dict[str, str]]()
    for one in best:
        entry_id, role, text = question.said[one.entry]
        who = role.capitalize()
        if one.to is not None:
            who += f", in reply to [{question.said[one.to.entry][0]}]"
        lines = f"[{entry_id}] {who}: {text[one.start : one.end]}".strip().split("\n")
        quotes.append("\n".join(f"> {line}".rstrip() for line in lines))
        cited = _citation(question.said, one.to or one, terms)
        citations += [] if cited in citations else [cited]
    covered = max(one.share for one in best)
    confidence = "high" if covered >= _HIGH and len(weights) > 1 else "low"
    return {
        "answerMarkdown": "\n\n".join(quotes),
        "confidence": "medium" if confidence == "low" and covered >= _MEDIUM else confidence,
        "citations": citations,
    }


def nearest(text: str, wanted: str) -> str:
    """Return the passage of a text that has most of the words; "" where it has none of them."""
    said, terms = (("", "", text),), Terms(wanted)
    found = _passages(said, terms)
    ranked = _ranked(Question(wanted, said), found, _weights(said, terms, found))
    return _excerpt(text, ranked[0], terms) if ranked else ""


def _passages(said: Said, terms: Terms, check: Callable[[], None] = lambda: None) -> list[Passage]:
    """Return the passages in which a term stands, the newest first."""
    found: list[Passage] = []
    for entry in reversed(range(len(said))):
        check()
        text = said[entry][2]
        if not terms.stand_in(fold(text)):
            continue
        for start, end in spans(text):
            if counts := terms.count(text[start:end]):
                check()
                found.append(Passage(entry, start, end, counts))
                if len(found) >= MATCHES_MAX:
                    return found
    return found


def spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the passages of a text: paragraphs, of which long ones are cut at lines.

    A short one that leads on to the next, such as a heading, goes with it.
    """
    start = 0
    for stop, after in [*(found.span() for found in _BLANK.finditer(text)), (len(text), len(text))]:
        part = text[start:stop].strip()
        leads = part.startswith("#") or part.endswith(":")
        if leads and len(part) < PASSAGE_MAX // 4 and stop < len(text):
            continue
        if part:
            yield from _cut(text, start, stop)
        start = after


def _cut(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield parts of at most PASSAGE_MAX characters, which end at a line's or sentence's end."""
    while stop - start > PASSAGE_MAX:
        window = text[start : start + PASSAGE_MAX]
        ends = [found.end() for found in _BREAKS.finditer(window, PASSAGE_MAX // 2)]
        end = start + (ends[-1] if ends else window.rfind(" ", PASSAGE_MAX // 2) + 1 or len(window))
        yield start, end
        start = end
    if start < stop:
        yield start, stop


def _weights(said: Said, terms: Terms, found: Sequence[Passage]) -> dict[str, float]:
    """Return how much each term says: rare ones most, those that stand nowhere as much as those."""
    total = max(sum(len(text) for _, _, text in said) / _USUAL, len(found)) + _BEYOND
    in_passages = Counter(term for one in found for term in one.counts)
    counts = {term: max(1, in_passages[term]) for term in terms.all}
    return {term: log(1 + (total - n + 0.5) / (n + 0.5)) for term, n in counts.items()}


def _ranked(question: Question, found: list[Passage], weights: dict[str, float]) -> list[Passage]:
    """Return the passages by their scores, best first; replies to what fits are among them."""
    whole = sum(weights.values()) or 1.0
    asked = {stem(word) for word in _WORDS.findall(fold(question.text))}
    decision = bool(asked & _DECIDING)
    for one in found:
        length = _K * (1 - _B + _B * max(one.end - one.start, _SHORT) / _USUAL)
        one.share = (
            sum(weights[term] * min(1.0, count) for term, count in one.counts.items()) / whole
        )
        bm25 = (weights[term] * n * (_K + 1) / (n + length) for term, n in one.counts.items())
        one.score = sum(bm25) * (0.5 + one.share / 2)
    everything = [*found, *_replies(question.said, found)]
    for one in everything:
        _, role, text = question.said[one.entry]
        passage = text[one.start : one.end].rstrip()
        if role == "user" and passage.endswith(_ASKING):
            one.share *= _QUESTION
            one.score *= _QUESTION
        one.score *= 1.25 if decision and DECIDED.search(passage) else 1.0
        one.score *= 0.7 if role != "user" and passage.endswith(":") else 1.0  # it only announces
        one.score *= 1 + 0.2 * one.entry / max(1, len(question.said) - 1)
    return sorted(everything, key=lambda one: (-one.score, -one.entry, one.start))


def _replies(said: Said, found: Sequence[Passage]) -> Iterator[Passage]:
    """Yield the beginnings of replies to what a user asked in the words of the question.

    A passage that was found by its own words gains by it instead.
    """
    known = {(one.entry, one.start): one for one in found}
    asked: dict[int, Passage] = {}
    for one in found:
        if said[one.entry][1] == "user" and one.score > getattr(asked.get(one.entry), "score", 0.0):
            asked[one.entry] = one
    for place, one in asked.items():
        reply, weight = place + 1, _REPLY
        if reply >= len(said) or said[reply][1] != "assistant":
            continue
        asks = said[place][2].rstrip().endswith(_ASKING)
        asks = asks or said[place][2][: one.end].rstrip().endswith(_ASKING)
        for start, end in islice(spans(said[reply][2]), _REPLY_PASSAGES):
            same = known.get((reply, start))
            if same is not None:
                same.score += one.score * weight / 2
                same.share = max(same.share, one.share * weight)
            elif asks:
                yield Passage(reply, start, end, {}, one.score * weight, one.share * weight, one)
            weight *= _REPLY_LATER


def _best(ranked: Sequence[Passage]) -> list[Passage]:
    """Return the first few that are not far below the best, no more than two of an entry."""
    kept: list[Passage] = []
    entries: Counter[int] = Counter()
    for one in ranked:
        if len(kept) >= PASSAGES_MAX or one.score < _FAR_BELOW * ranked[0].score:
            break
        if entries[one.entry] < _ENTRY_MAX:
            entries[one.entry] += 1
            kept.append(one)
    return kept


def _citation(said: Said, one: Passage, terms: Terms) -> dict[str, str]:
    entry_id, role, text = said[one.entry]
    return {
        "entryId": entry_id,
        "role": role,
        "excerpt": " ".join(_excerpt(text, one, terms).split()),
    }


def _excerpt(text: str, one: Passage, terms: Terms) -> str:
    """Return at most EXCERPT_MAX characters of a passage, where the words are densest."""
    passage = text[one.start : one.end]
    if len(passage) <= EXCERPT_MAX:
        return passage
    start = max(0, min(terms.place(passage) - EXCERPT_MAX // 5, len(passage) - EXCERPT_MAX))
    space = re.compile(r"\s").search(passage, start, start + 40) if start else None
    start = space.end() if space else start
    return passage[start : start + EXCERPT_MAX]
