"""`local/extractive`: the built-in model. It needs no key, no network and no money.

It reads only `prompt.facts`, `prompt.question` or `prompt.stretch`, and answers like any model. A
question is answered with passages: paragraphs, or parts of long ones, ranked by the rarity of the
question's terms in them. The terms of a prompt count half in its reply, which rarely repeats them;
a user's own questions count less, and later passages a little more, because decisions are revised.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator
from math import log
from typing import Any, NamedTuple

from indexerd.entries import Facts, Prompt, Question
from indexerd.errors import DeadlineError
from indexerd.models.base import LOCAL, Reply, TokenCounts
from indexerd.models.extractive.describe import describe
from indexerd.models.extractive.sentences import WORD, terms
from indexerd.models.extractive.summarize import summarize

PASSAGES_MAX, PASSAGE_MAX, EXCERPT_MAX = 5, 700, 280  # the last two in characters
FOUND = "No language model answered this: these passages of the session fit the question best."
NOTHING = (
    "No passage of the session fits the question. (Its words were looked for; no language model "
    "read the session.)"
)
_REPLY, _QUESTION = 0.5, 0.6
_FAR_BELOW = 0.35  # of the best score: lower passages are left out
_BREAKS = re.compile(r"\n|(?<=[.!?;])\s|[。！？]")  # noqa: RUF001 - of other scripts


class Extractive:
    """A model that describes sessions, quotes passages and summarizes stretches by rules."""

    key = LOCAL + "extractive"
    remote = False

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """Answer in a thread; DeadlineError after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                text = await asyncio.to_thread(_answer, prompt)
        except TimeoutError:
            raise DeadlineError(f"{self.key}: no answer within {timeout:g} s") from None
        return Reply(text=text, model=self.key, tokens=TokenCounts(0, 0))


def _answer(prompt: Prompt) -> str:
    if prompt.question is not None:
        return json.dumps(answer(prompt.question))
    if prompt.stretch is not None:
        return summarize(prompt.stretch)
    return describe(prompt.facts or Facts(())).model_dump_json()


class _Passage(NamedTuple):
    score: float
    entry: int
    text: str
    share: float  # of the question's terms, weighted


def answer(question: Question) -> dict[str, Any]:
    """Answer a question; return the answer's fields."""
    best: list[_Passage] = []
    for passage in _ranked(question):
        if best and (len(best) == PASSAGES_MAX or passage.score < _FAR_BELOW * best[0].score):
            break
        if sum(passage.entry == other.entry for other in best) <= 1:
            best.append(passage)
    covered = max((passage.share for passage in best), default=0.0)
    if covered < 0.2:  # noqa: PLR2004 - of the question
        return {"answerMarkdown": NOTHING, "confidence": "low", "citations": []}
    quotes, citations = [FOUND], list[dict[str, str]]()
    for passage in best:
        entry_id, role, _ = question.sections[passage.entry]
        lines = f"[{entry_id}] {role.capitalize()}: {passage.text}".split("\n")
        quotes.append("\n".join(f"> {line}".rstrip() for line in lines))
        excerpt = " ".join(_excerpt(passage.text, question.text).split())
        citations.append({"entryId": entry_id, "role": role, "excerpt": excerpt})
    sure = covered >= 0.8 and len(set(terms(question.text))) > 1  # noqa: PLR2004 - as above
    confidence = "high" if sure else "medium" if covered >= 0.5 else "low"  # noqa: PLR2004 - as above
    markdown = "\n\n".join(quotes)
    return {"answerMarkdown": markdown, "confidence": confidence, "citations": citations}


def nearest(text: str, wanted: str) -> str:
    """Return the passage of a text with most of the words; "" if it has none of them."""
    ranked = _ranked(Question(wanted, (("", "", text),)))
    return _excerpt(ranked[0].text, wanted) if ranked else ""


def _ranked(question: Question) -> list[_Passage]:
    """Return the passages with a term of the question or replying to one, best first."""
    passages = list(_matches(question))
    often = Counter(term for _, _, counts in passages for term in counts)
    many = len(passages) + 8
    weights = {term: log(1 + many / (often[term] + 0.5)) for term in terms(question.text)}
    whole = sum(weights.values()) or 1.0
    ranked = []
    for entry, text, counts in passages:
        share = sum(weights[term] * min(1.0, n) for term, n in counts.items()) / whole
        score = sum(weights[term] * min(2.0, n) for term, n in counts.items())
        score *= (
            (0.5 + share / 2) * (1 + 0.2 * entry / len(question.sections)) / (1 + len(text) / 1500)
        )
        asks = question.sections[entry][1] == "user" and text.endswith(("?", "？"))  # noqa: RUF001 - wide
        factor = _QUESTION if asks else 1.0
        ranked.append(_Passage(score * factor, entry, text, share * factor))
    return sorted(ranked, reverse=True)


def _matches(question: Question) -> Iterator[tuple[int, str, dict[str, float]]]:
    """Yield entry, text and term counts of the passages with a term of the question."""
    wanted = set(terms(question.text))
    prompted: dict[str, float] = {}  # terms of the message before, to which an entry replies
    for entry, (_, role, text) in enumerate(question.sections):
        for number, passage in enumerate(passages(text)):
            replies = role == "assistant" and number < 3  # noqa: PLR2004 - its beginning
            counts = prompted.copy() if replies else {}
            counts |= Counter(term for term in terms(passage) if term in wanted)
            if counts:
                yield entry, passage, counts
        prompted = dict.fromkeys(wanted.intersection(terms(text)), _REPLY) if role == "user" else {}


def passages(text: str) -> Iterator[str]:
    """Yield a text's paragraphs, headings with the next one; long ones are split at lines."""
    lead = ""
    for paragraph in [*re.split(r"\n[ \t]*\n\s*", text), ""]:
        part = f"{lead}\n\n{paragraph}".strip()
        leads = part.startswith("#") or part.endswith(":")
        lead = part if paragraph and leads and len(part) < PASSAGE_MAX // 4 else ""
        while part and not lead:
            ends = [gap.end() for gap in _BREAKS.finditer(part[:PASSAGE_MAX], PASSAGE_MAX // 2)]
            end = PASSAGE_MAX if len(part) <= PASSAGE_MAX or not ends else ends[-1]
            yield part[:end].rstrip()
            part = part[end:].lstrip()


def _excerpt(text: str, question: str) -> str:
    """Return at most EXCERPT_MAX characters of a passage, from just before its first term."""
    wanted = set(terms(question))
    hits = (word.start() for word in WORD.finditer(text) if wanted & set(terms(word[0])))
    start = max(0, min(next(hits, 0) - EXCERPT_MAX // 5, len(text) - EXCERPT_MAX))
    start += text[start:].find(" ", 0, 40) + 1 if start else 0
    return text[start : start + EXCERPT_MAX]
