"""The passages of a session that fit a question best: what `local/extractive` answers with.

A passage is a paragraph, or a part of a long one, ranked by the rarity of the question's words in
it, by their stems; scripts without spaces are compared by pairs of characters. A reply has half of
the words of what it replies to, as it rarely repeats them; a user's own questions count less, and
later passages a little more, as decisions are revised.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import log
from typing import Any

from indexerd.events import Question
from indexerd.models.extractive.lexicon import QUESTION_STOPS, UNSPACED, fold, stem

PASSAGES_MAX, PASSAGE_MAX, EXCERPT_MAX = 5, 700, 280  # the last two in characters
MATCHES_MAX = 20_000  # passages that fit; earlier ones are not looked at
FOUND = "No language model answered this: these passages of the session fit the question best."
NOTHING = (
    "No passage of the session fits the question. (Its words were looked for; no language model "
    "read the session.)"
)
_REPLY, _QUESTION = 0.5, 0.6
_FAR_BELOW = 0.35  # of the best score: what comes below it is left out
_WORDS = re.compile(rf"[{UNSPACED}]+|[^\W_{UNSPACED}]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BREAKS = re.compile(r"\n|(?<=[.!?;])\s|[。！？]")  # noqa: RUF001 - of other scripts


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
        if re.match(f"[{UNSPACED}]", word):
            yield from (word[at : at + 2] for at in range(max(1, len(word) - 1)))
        elif word not in QUESTION_STOPS and (len(word) > 1 or word.isdigit()):
            yield stem(word)


def answer(question: Question) -> dict[str, Any]:
    """Return the fields of an answer."""
    ranked = _ranked(question)
    best: list[_Passage] = []
    for one in ranked:
        twice = sum(one.entry == other.entry for other in best) > 1
        if len(best) < PASSAGES_MAX and one.score >= _FAR_BELOW * ranked[0].score and not twice:
            best.append(one)
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
    ranked = _ranked(Question(wanted, (("", "", text),)))
    return _excerpt(ranked[0], wanted) if ranked else ""


def _ranked(question: Question) -> list[_Passage]:
    """Return the passages in which a term of the question stands, and replies, best first."""
    terms = list(dict.fromkeys(_terms(question.text)))[:24]
    found = list(islice(_matches(question, frozenset(terms)), MATCHES_MAX))
    often = Counter(term for one in found for term in one.counts)
    weights = {term: log(1 + (len(found) + 8) / (often[term] + 0.5)) for term in terms}
    whole = sum(weights.values()) or 1.0
    for one in found:
        one.share = sum(weights[term] * min(1.0, n) for term, n in one.counts.items()) / whole
        score = sum(weights[term] * min(2.0, n) for term, n in one.counts.items())
        later = 1 + 0.2 * one.entry / len(question.said)
        one.score = score * (0.5 + one.share / 2) * later / (1 + len(one.text) / 1500)
        if question.said[one.entry][1] == "user" and one.text.endswith(("?", "？")):  # noqa: RUF001 - wide
            one.share *= _QUESTION
            one.score *= _QUESTION
    return sorted(found, key=lambda one: (-one.score, -one.entry))


def _matches(question: Question, wanted: frozenset[str]) -> Iterator[_Passage]:
    def counted(text: str) -> dict[str, float]:
        return {**Counter(term for term in _terms(text) if term in wanted)}

    for entry in reversed(range(len(question.said))):
        _, role, text = question.said[entry]
        asked: dict[str, float] = {}
        if role == "assistant" and entry and question.said[entry - 1][1] == "user":
            asked = dict.fromkeys(counted(question.said[entry - 1][2]), _REPLY)
        for number, passage in enumerate(passages(text)):
            counts = counted(passage)
            counts = asked | counts if number < 3 else counts  # noqa: PLR2004 - its beginning
            if counts:
                yield _Passage(entry, passage, counts)


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
