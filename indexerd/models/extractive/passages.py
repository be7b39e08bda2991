r"""The passages of a session that fit a question best: what `local/extractive` answers with.

The answer says that no language model wrote it, and quotes what was found, best first. A passage
is a paragraph, or a part of a long one, ranked by BM25 over the stems of the question's words;
words inside identifiers count (`confirmButton`), and scripts without spaces are compared by pairs
of characters. Later passages count a little more, as decisions are revised; a user's own questions
count less, and what they have of a question helps the reply, which rarely repeats its words.
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
from indexerd.models.extractive.lexicon import ALIKE, DECIDED, QUESTION_STOPS, fold, stem

PASSAGES_MAX, PASSAGE_MAX, EXCERPT_MAX = 5, 700, 280  # the last two in characters
MATCHES_MAX = 20_000  # passages that fit; earlier ones are not looked at
FOUND = "No language model answered this: these passages of the session fit the question best."
NOTHING = (
    "No passage of the session fits the question. (Its words were looked for; no language model "
    "read the session.)"
)
_USUAL, _SHORT = 400, 150  # characters of a passage; a shorter one gains nothing by it
_K, _B = 1.2, 0.4  # of BM25
_REPLY, _QUESTION = 0.6, 0.6  # what a reply has of what it replies to; a question's own worth
_FAR_BELOW = 0.35  # of the best score: what comes below it is left out
_ASKS = ("?", "？")  # noqa: RUF001 - of other scripts
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
_WORDS = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BREAKS = re.compile(r"\n|(?<=[.!?;])\s|[。！？]")  # noqa: RUF001 - of other scripts
_ALIKE = {word: group.split() for group in ALIKE for word in group.split()}

Said = Sequence[tuple[str, str, str]]


@dataclass(slots=True)
class _Passage:
    entry: int
    text: str
    counts: dict[str, float]  # term -> how often it stands there
    score: float = 0.0
    share: float = 0.0  # of the question that it covers


def _terms(text: str) -> Iterator[str]:
    """Yield words in one form for all their endings; of unspaced scripts, pairs of characters."""
    spread = _CAMEL.sub(" ", text)
    for word in _WORDS.findall(fold(text if spread == text else f"{text} {spread}")):
        if re.match(f"[{_UNSPACED}]", word):
            yield from (word[at : at + 2] for at in range(max(1, len(word) - 1)))
        elif word not in QUESTION_STOPS and (len(word) > 1 or word.isdigit()):
            yield stem(word)


def answer(question: Question, check: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Return the fields of an answer; `check` may raise to end the work."""
    ranked = _ranked(question.text, question.said, check)
    best: list[_Passage] = []
    for one in ranked:
        if len(best) < PASSAGES_MAX and one.score >= _FAR_BELOW * ranked[0].score:
            best += [one] * (sum(one.entry == other.entry for other in best) < 2)  # noqa: PLR2004 - of an entry
    covered = max((one.share for one in best), default=0.0)
    if covered < 0.2:  # noqa: PLR2004 - of the question
        return {"answerMarkdown": NOTHING, "confidence": "low", "citations": []}
    quotes, citations = [FOUND], list[dict[str, str]]()
    for one in best:
        entry_id, role, _ = question.said[one.entry]
        lines = f"[{entry_id}] {role.capitalize()}: {one.text}".split("\n")
        quotes.append("\n".join(f"> {line}".rstrip() for line in lines))
        excerpt = " ".join(_excerpt(one, question.text).split())
        citations.append({"entryId": entry_id, "role": role, "excerpt": excerpt})
    sure = covered >= 0.8 and len(set(_terms(question.text))) > 1  # noqa: PLR2004 - as above
    confidence = "high" if sure else "medium" if covered >= 0.5 else "low"  # noqa: PLR2004 - as above
    markdown = "\n\n".join(quotes)
    return {"answerMarkdown": markdown, "confidence": confidence, "citations": citations}


def nearest(text: str, wanted: str) -> str:
    """Return the passage of a text that has most of the words; "" where it has none of them."""
    ranked = _ranked(wanted, (("", "", text),), lambda: None)
    return _excerpt(ranked[0], wanted) if ranked else ""


def _ranked(asked: str, said: Said, check: Callable[[], None]) -> list[_Passage]:
    """Return the passages in which a term of the question stands, and replies, best first."""
    terms = list(dict.fromkeys(_terms(asked)))[:24]
    forms = {form: (term, 0.6) for term in terms for form in _ALIKE.get(term, ())}
    found = _matches(said, forms | {term: (term, 1.0) for term in terms}, check)
    total = max(sum(len(text) for _, _, text in said) / _USUAL, len(found)) + 8
    frequency = Counter(term for one in found for term in one.counts)
    often = {term: max(1, frequency[term]) for term in terms}
    weights = {term: log(1 + (total - n + 0.5) / (n + 0.5)) for term, n in often.items()}
    decision = any(one.startswith(("wh", "reason", "warum", *ALIKE[0].split())) for one in terms)
    decision = decision or "why" in asked.lower()
    for one in found:
        length = _K * (1 - _B + _B * max(len(one.text), _SHORT) / _USUAL)
        covers = sum(weights[term] * min(1.0, n) for term, n in one.counts.items())
        bm25 = sum(weights[term] * n * (_K + 1) / (n + length) for term, n in one.counts.items())
        one.share = covers / (sum(weights.values()) or 1.0)
        one.score = bm25 * (0.5 + one.share / 2)
    found += _replies(said, found)
    for one in found:
        if said[one.entry][1] == "user" and one.text.endswith(_ASKS):
            one.share *= _QUESTION
            one.score *= _QUESTION
        one.score *= 1.25 if decision and DECIDED.search(one.text) else 1.0
        one.score *= 0.7 if one.text.endswith(":") else 1.0  # it only leads on
        one.score *= 1 + 0.2 * one.entry / max(1, len(said) - 1)
    return sorted(found, key=lambda one: (-one.score, -one.entry))


def _matches(
    said: Said, forms: dict[str, tuple[str, float]], check: Callable[[], None]
) -> list[_Passage]:
    found: list[_Passage] = []
    for entry in reversed(range(len(said))):
        for text in passages(said[entry][2]):
            check()
            counts: dict[str, float] = {}
            for form in _terms(text):
                if form in forms:
                    term, weight = forms[form]
                    counts[term] = counts.get(term, 0.0) + weight
            if counts:
                found.append(_Passage(entry, text, counts))
            if len(found) >= MATCHES_MAX:
                return found
    return found


def _replies(said: Said, found: list[_Passage]) -> list[_Passage]:
    """Let replies gain by what they reply to; return those that no word of the question is in."""
    asked: dict[int, _Passage] = {}
    for one in found:
        if said[one.entry][1] == "user":
            asked[one.entry] = max(one, asked.get(one.entry, one), key=lambda each: each.score)
    known = {(one.entry, one.text): one for one in reversed(found)}
    new: list[_Passage] = []
    for entry, one in asked.items():
        if entry + 1 == len(said) or said[entry + 1][1] != "assistant":
            continue
        weight = _REPLY
        for text in islice(passages(said[entry + 1][2]), 3):
            if reply := known.get((entry + 1, text)):
                reply.score += one.score * weight / 2
                reply.share = max(reply.share, one.share * weight)
            elif said[entry][2].rstrip().endswith(_ASKS):
                new.append(_Passage(entry + 1, text, {}, one.score * weight, one.share * weight))
            weight *= 0.85
    return new


def passages(text: str) -> Iterator[str]:
    """Yield the paragraphs of a text, a heading with what follows; long ones are cut at lines."""
    lead = ""
    for paragraph in [*re.split(r"\n[ \t]*\n\s*", text), ""]:
        part = f"{lead}\n\n{paragraph}".strip()
        leads = part.startswith("#") or part.endswith(":")
        lead = part if paragraph and leads and len(part) < PASSAGE_MAX // 4 else ""
        while part and not lead:
            ends = [one.end() for one in _BREAKS.finditer(part[:PASSAGE_MAX], PASSAGE_MAX // 2)]
            end = PASSAGE_MAX if len(part) <= PASSAGE_MAX or not ends else ends[-1]
            yield part[:end].rstrip()
            part = part[end:].lstrip()


def _excerpt(one: _Passage, asked: str) -> str:
    """Return at most EXCERPT_MAX characters of a passage, from shortly before the first term."""
    wanted = set(_terms(asked))
    hits = (word.start() for word in _WORDS.finditer(one.text) if wanted & set(_terms(word[0])))
    start = max(0, min(next(hits, 0) - EXCERPT_MAX // 5, len(one.text) - EXCERPT_MAX))
    start += one.text[start:].find(" ", 0, 40) + 1 if start else 0
    return one.text[start : start + EXCERPT_MAX]
