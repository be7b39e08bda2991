r"""The passages of a session that fit a question best: what `local/extractive` answers with.

In: a question and what was said, oldest first. Out: the fields of an answer, whose text says
plainly that no language model wrote it and then quotes what was found, best first. Nothing is
put together or made up.

A passage is a paragraph, or a part of a long one. It is ranked by BM25 over the words of the
question that carry meaning, in one form for all endings; rare words count most. Words stand in
identifiers, too (`confirmButton`); scripts without spaces are looked at by pairs of characters.
Later ones count a little more, as decisions are revised; so does what tells a decision where one
is asked for, and the reply to a user's message that fits. A user's own questions count less:
they rarely hold their answer. What is cited holds a word of the question: a reply in which none
stands is quoted as one, and what it replies to is cited.

Work is linear: only places where a word stands are looked at, and where those are too many, only
the newest, which is said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import log
from typing import Any, NamedTuple

from indexerd.events import Question
from indexerd.models.question_words import ALIKE, STEM_LEAST, WORDS, Term, stem, terms_of
from indexerd.privacy.late import late
from indexerd.search.query import fold

PASSAGES_MAX = 5
PASSAGE_MAX = 700  # characters
EXCERPT_MAX = 280
HITS_MAX = 40_000  # places at which a word of the question stands; later ones are not looked at
_USUAL = 400  # characters of a passage
_SHORT = 150  # one that is shorter gains nothing by it
_K, _B = 1.2, 0.4
_BEYOND = 8  # passages that every session is taken to have besides its own
_REPLY, _REPLY_LATER, _REPLY_PASSAGES = 0.75, 0.85, 3  # what replies have of what they reply to
_ASKED = 0.6  # what a user's question is worth as an answer
_ASKING = ("?", "\uff1f")
_ENTRY_MAX = 2  # passages of one entry
_FAR_BELOW = 0.35  # of the best score: what comes below it is left out
# Parts of the question that are covered, rare words counting most.
_HIGH, _MEDIUM, _SOME, _FITS = 0.8, 0.5, 0.4, 0.2

FOUND = "No language model answered this: these passages of the session fit the question best."
CROWDED = " Its words stand in so many places that only the newest of these were looked at."
NOTHING = (
    "No passage of the session fits the question. (Its words were looked for; no language model "
    "read the session.)"
)

_DECISIONS = frozenset([*ALIKE[0].split(), *ALIKE[1].split(), "reason", "rather", "why", "warum"])
_DECIDED = late(
    r"\b(?:decided|decision|chose|choosing|went with|go(?:ing)? with|settled|opted|agreed"
    r"|instead of|because|rather than|reason|root cause|let's use|we use|entschieden|nehmen wir"
    r"|weil|stattdessen)\b"
)
_OWN = late(r"\b(?:did|do|have) (?:i|we|the user) (?:ask|want|say|request)|\buser\b")
_BLANK = late(r"\n[ \t]*\n\s*")
_BREAKS = late(r"\n|(?<=[.!?;])\s|[\u3002\uff01\uff1f]")
_RUN = late(r"[^\W_]+")
_OPEN_END = 5  # a stem of so many may go on, at half its weight


Check = Callable[[], None]


@dataclass(slots=True)
class Passage:
    """A part of an entry in which words of the question stand."""

    entry: int  # its place among what was said
    start: int
    end: int
    counts: dict[int, float] = field(default_factory=dict)  # term -> how often, weighed
    fits: dict[int, float] = field(default_factory=dict)  # term -> how well, 1 at most
    places: list[int] = field(default_factory=list)
    score: float = 0.0
    share: float = 0.0  # of the question that it covers
    to: Passage | None = None  # what it replies to, where no word of the question stands in it


def answer(question: Question, check: Check = lambda: None) -> dict[str, Any]:
    """The fields of an answer: answerMarkdown, confidence, citations.

    `check` is called now and then; what it raises ends the work.
    """
    terms = terms_of(question.text)
    found = _passages(question.said, terms, check)
    weights = _weights(question.said, terms, found)
    best = _best(_ranked(question, found, weights, check))
    crowded = CROWDED if sum(len(one.places) for one in found) >= HITS_MAX else ""
    if not best or max(one.share for one in best) < _FITS:
        return {"answerMarkdown": NOTHING + crowded, "confidence": "low", "citations": []}
    quotes, citations = [FOUND + crowded], list[dict[str, str]]()
    for one in best:
        entry_id, role, text = question.said[one.entry]
        who = role.capitalize()
        if one.to is not None:
            who += f", in reply to [{question.said[one.to.entry][0]}]"
        quotes.append(_quoted(f"[{entry_id}] {who}: {text[one.start : one.end]}"))
        cited = _citation(question, one.to or one)
        citations += [] if cited in citations else [cited]
    confidence = _confidence(best, weights)
    return {
        "answerMarkdown": "\n\n".join(quotes),
        "confidence": confidence,
        "citations": citations,
    }


def _citation(question: Question, one: Passage) -> dict[str, str]:
    entry_id, role, text = question.said[one.entry]
    excerpt = " ".join(_around(text, one).split())
    return {"entryId": entry_id, "role": role, "excerpt": excerpt}


def nearest(text: str, words: str) -> str:
    """The passage of a text that has most of the words; nothing where it has none of them."""
    said = (("", "", text),)
    terms = terms_of(words)
    found = _passages(said, terms)
    ranked = _ranked(Question(words, said), found, _weights(said, terms, found))
    return _around(text, ranked[0]) if ranked else ""


# -- finding -------------------------------------------------------------------------------------


def _passages(
    said: Sequence[tuple[str, str, str]], terms: Sequence[Term], check: Check = lambda: None
) -> list[Passage]:
    """Every passage in which a term stands."""
    found: list[Passage] = []
    left = HITS_MAX
    for entry in reversed(range(len(said))):
        text = said[entry][2]
        hits = sorted(islice(_hits(text, terms, check), left))
        left -= len(hits)
        if hits:
            found += _spread(entry, text, hits)
        if not left:
            break
    return found


def _hits(text: str, terms: Sequence[Term], check: Check) -> Iterator[tuple[int, int, float]]:
    """Where terms stand in a text: (place, term, what it counts)."""
    low = fold(text)
    for number, term in enumerate(terms):
        check()
        for form, weight in term.forms.items():
            needle = form.removesuffix("y") if len(form) > STEM_LEAST else form
            at = low.find(needle)
            while at >= 0:
                counts = _counts(text, low, at, form) if term.spaced else 1.0
                if counts:
                    yield at, number, counts * weight
                at = low.find(needle, at + len(needle))


def _counts(text: str, low: str, at: int, form: str) -> float:
    """What a place counts at which a form may begin: it has to begin a word, and be all of it."""
    if at and low[at - 1].isalnum() and not (text[at].isupper() and text[at - 1].islower()):
        return 0.0
    run = _RUN.match(low, at, at + 2 * PASSAGE_MAX)
    end = run.end() if run else at
    word = low[at:end]
    if text[at:end] != word:  # a part of an identifier may end sooner
        ends = (to for to in range(at + 1, end) if text[to].isupper() and text[to - 1].islower())
        word = low[at : next(ends, end)]
    if word == form or stem(word) == form:
        return 1.0
    return 0.5 if len(form) >= _OPEN_END and word.startswith(form) else 0.0


def _spread(entry: int, text: str, hits: Sequence[tuple[int, int, float]]) -> Iterator[Passage]:
    """Passages around hits, which come in the text's order."""
    here = iter(hits)
    hit = next(here, None)
    for start, end in spans(text):
        one = Passage(entry, start, end)
        while hit is not None and hit[0] < end:
            one.counts[hit[1]] = one.counts.get(hit[1], 0.0) + hit[2]
            one.fits[hit[1]] = max(one.fits.get(hit[1], 0.0), hit[2])
            one.places.append(hit[0])
            hit = next(here, None)
        if one.places:
            yield one
        if hit is None:
            return


def spans(text: str) -> Iterator[tuple[int, int]]:
    """Where the passages of a text are: paragraphs, of which long ones are cut at lines.

    A short one that leads on to the next, such as a heading, goes with it.
    """
    start = 0
    borders = [found.span() for found in _BLANK.finditer(text)]
    for stop, after in [*borders, (len(text), len(text))]:
        part = text[start:stop].strip()
        leads = part.startswith("#") or part.endswith(":")
        if leads and len(part) < PASSAGE_MAX // 4 and stop < len(text):
            continue
        if part:
            yield from _cut(text, start, stop)
        start = after


def _cut(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Parts of at most PASSAGE_MAX characters, which end at a line's or sentence's end."""
    while stop - start > PASSAGE_MAX:
        window = text[start : start + PASSAGE_MAX]
        ends = [found.end() for found in _BREAKS.finditer(window, PASSAGE_MAX // 2)]
        end = start + (ends[-1] if ends else window.rfind(" ", PASSAGE_MAX // 2) + 1 or len(window))
        yield start, end
        start = end
    if start < stop:
        yield start, stop


# -- ranking -------------------------------------------------------------------------------------


def _weights(
    said: Sequence[tuple[str, str, str]], terms: Sequence[Term], found: Sequence[Passage]
) -> list[float]:
    """How much each term tells: rare ones most, those that stand nowhere as much as those."""
    passages = max(sum(len(text) for _, _, text in said) / _USUAL, len(found))
    total = passages + _BEYOND  # in a short session no word is common
    in_passages = Counter(number for one in found for number in one.counts)
    counts = [max(1, in_passages[number]) for number in range(len(terms))]
    return [log(1 + (total - count + 0.5) / (count + 0.5)) for count in counts]


def _ranked(
    question: Question,
    found: Sequence[Passage],
    weights: Sequence[float],
    check: Check = lambda: None,
) -> list[Passage]:
    """The passages by their scores, best first; replies to what fits are among them."""
    whole = sum(weights) or 1.0
    for one in found:
        check()
        length = _K * (1 - _B + _B * max(one.end - one.start, _SHORT) / _USUAL)
        one.share = sum(weights[number] * well for number, well in one.fits.items()) / whole
        one.score = sum(
            weights[number] * count * (_K + 1) / (count + length)
            for number, count in one.counts.items()
        )
        one.score *= 0.5 + one.share / 2
    everything = [*found, *_replies(question, found)]
    manner = _Manner.of(question.text)
    for one in everything:
        check()
        _, role, text = question.said[one.entry]
        passage = text[one.start : one.end].rstrip()
        one.score *= manner.factor(role, passage)
        if role == "user" and passage.endswith(_ASKING):
            one.share *= _ASKED
        one.score *= 1 + 0.2 * one.entry / max(1, len(question.said) - 1)
    return sorted(everything, key=lambda one: (-one.score, -one.entry, one.start))


class _Manner(NamedTuple):
    """What kind of passage a question is after."""

    decision: bool  # what was decided, and why
    own: bool  # what the user said

    @classmethod
    def of(cls, text: str) -> _Manner:
        asked = fold(text)
        words = WORDS.findall(asked)
        decision = any(word in _DECISIONS or stem(word) in _DECISIONS for word in words)
        return cls(decision, _OWN.search(asked) is not None)

    def factor(self, role: str, passage: str) -> float:
        """What a passage is worth by how it is said."""
        worth = 1.25 if self.decision and _DECIDED.search(fold(passage)) else 1.0
        if role == "user":
            return worth * (1.2 if self.own else _ASKED if passage.endswith(_ASKING) else 0.95)
        return worth * (0.7 if passage.endswith(":") else 1.0)  # it announces, and tells nothing


def _replies(question: Question, found: Sequence[Passage]) -> Iterator[Passage]:
    """The beginnings of replies to what a user asked in the words of the question.

    Where such a passage was found by its own words already, it only gains by it. One without a
    word of the question is worth showing only as the reply to what asks something.
    """
    known = {(one.entry, one.start): one for one in found}
    asked: dict[int, Passage] = {}
    for one in found:
        if question.said[one.entry][1] == "user":
            held = asked.get(one.entry)
            asked[one.entry] = max(held, one, key=lambda each: each.score) if held else one
    for place, one in asked.items():
        reply = place + 1
        if reply >= len(question.said) or question.said[reply][1] != "assistant":
            continue
        weight = _REPLY
        for start, end in islice(spans(question.said[reply][2]), _REPLY_PASSAGES):
            same = known.get((reply, start))
            if same is not None:
                same.score += one.score * weight / 2
                same.share = max(same.share, one.share * weight)
            elif _asks(question.said[place][2], one):
                made = Passage(reply, start, end, to=one)
                made.score, made.share = one.score * weight, one.share * weight
                made.fits.update(one.fits)
                yield made
            weight *= _REPLY_LATER


def _asks(text: str, one: Passage) -> bool:
    """Whether a passage of a user's text is a question, or the text ends with one."""
    return any(
        text[max(0, end - 80) : end].rstrip().endswith(_ASKING) for end in (one.end, len(text))
    )


def _best(ranked: Sequence[Passage]) -> list[Passage]:
    """The first few that are not far below the best, no more than two of an entry."""
    kept: list[Passage] = []
    entries: Counter[int] = Counter()
    for one in ranked:
        if len(kept) >= PASSAGES_MAX or one.score < _FAR_BELOW * ranked[0].score:
            break
        if entries[one.entry] < _ENTRY_MAX:
            entries[one.entry] += 1
            kept.append(one)
    return kept


def _confidence(best: Sequence[Passage], weights: Sequence[float]) -> str:
    """How much of the question is covered: by one passage, or by the best few together."""
    alone = max(one.share for one in best)
    together = sum(
        weight * max(one.fits.get(number, 0.0) for one in best[:3])
        for number, weight in enumerate(weights)
    ) / (sum(weights) or 1.0)
    if alone >= _HIGH and len(weights) > 1:
        return "high"
    return "medium" if alone >= _MEDIUM or (alone >= _SOME and together >= _HIGH) else "low"


# -- showing -------------------------------------------------------------------------------------


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.strip().split("\n"))


def _around(text: str, one: Passage) -> str:
    """At most EXCERPT_MAX characters of a passage, where the question's words are densest."""
    if one.end - one.start <= EXCERPT_MAX or not one.places:
        return text[one.start : min(one.end, one.start + EXCERPT_MAX)]
    reach = EXCERPT_MAX * 3 // 4
    most = max(one.places, key=lambda at: (sum(at <= to < at + reach for to in one.places), -at))
    start = max(one.start, min(most - EXCERPT_MAX // 5, one.end - EXCERPT_MAX))
    if start > one.start:
        space = re.compile(r"\s").search(text, start, most)
        start = space.end() if space else most
    return text[start : min(one.end, start + EXCERPT_MAX)]
