"""Answer a question about a session with the passages of it that fit best.

A passage is worth what its best sentence is: the rarity of the question's terms in it and, less, in
the rest of the passage, in the message, and in the prompt that this replies to. A sentence with a
reason, a number or a name is worth more if the question asks for one, the last message of a turn
more than those on the way, and the user's less than the agent's, except to "what did the user want".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import log
from typing import Any, NamedTuple

from indexerd.entries import Question
from indexerd.models.extractive.sentences import terms

PASSAGES_MAX, PASSAGE_MAX, EXCERPT_MAX = 5, 700, 280  # the last two in characters
FOUND = "No language model answered this: these passages of the session fit the question best."
NOTHING = (
    "No passage of the session fits the question. (Its words were looked for; no language model "
    "read the session.)"
)
# What a term counts that is not in the sentence: in the passage, the message, or the prompt.
SAME, AROUND, PROMPT = 0.7, 0.25, 0.5
NAME, PART = 1.5, 0.3  # what a name like `a_b.py` or a number counts, and a word of a name
FITS, LAST, ASKS, USER, TOLD = 1.8, 1.6, 0.5, 0.6, 2.5
_FAR_BELOW = 0.35  # of the best score: lower passages are left out
_BREAKS = re.compile(r"\n|(?<=[.!?;])\s|[。！？]")  # noqa: RUF001 - of other scripts
_SENTENCES = re.compile(
    r"(?m)[^\n]{1,280}?(?:(?<=[.!?;])(?=\s)|[。！？]|$)|[^\n]{1,280}"  # noqa: RUF001 - as above
)
_SPEAKER = re.compile(r"(?i)\b(?:the|this) (?:agent|assistant|session|user)\b")
_OF_USER = re.compile(r"(?i)\bthe user\b|\bdid (?:i|we) (?:ask|say|want)|\basked for\b|\brequested\b")
_KINDS = (  # what a question asks for, and a sentence that has it
    (
        re.compile(r"(?i)\bwhy\b|\b(?:caus|reason)|\bwhat (?:broke|made|was wrong)\b"),
        re.compile(
            r"(?i)\b(?:because|caus\w+|due to|reasons?|since|so that|that's why|which means|wrong"
            r"|(?:bug|issue|problem) (?:is|was|with))\b"
        ),
    ),
    (
        re.compile(
            r"(?i)\bhow (?:big|fast|large|long|many|much|often)\b"
            r"|\b(?:limit|number|percent|port|size|version)"
        ),
        re.compile(r"(?i)\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|once|twice)\b"),
    ),
    (
        re.compile(
            r"(?i)\bwhere\b|\b(?:what|which)\b.{0,30}\b(?:address|branch|class|command|commit"
            r"|config|direct|doc|file|flag|folder|function|helper|issue|library|link|method|module"
            r"|option|package|path|pr\b|pull|setting|ticket|tool|type|url|variable)"
        ),
        re.compile(r"`|\w[/_]\w|\w\.\w{1,4}\b|--\w|\w\(\)|[a-z][A-Z]|#\d"),
    ),
)


class _Passage(NamedTuple):
    score: float
    share: float  # of the question's terms, weighted
    entry: int
    text: str
    start: int  # of its best sentence

    @property
    def excerpt(self) -> str:
        start = self.start if len(self.text) > EXCERPT_MAX else 0
        return self.text[start : start + EXCERPT_MAX]


def answer(question: Question) -> dict[str, Any]:
    """Answer a question; return the answer's fields."""
    ranked, best = _ranked(question), dict[int, _Passage]()  # entry -> its best passage
    for passage in ranked:
        if len(best) < PASSAGES_MAX and passage.score > _FAR_BELOW * ranked[0].score:
            best.setdefault(passage.entry, passage)
    first, *others = [*best.values()] or [_Passage(0, 0, 0, "", 0)]
    if first.share < 0.2:  # noqa: PLR2004 - of the question
        return {"answerMarkdown": NOTHING, "confidence": "low", "citations": []}
    quotes, citations = [FOUND], list[dict[str, str]]()
    for passage in best.values():
        entry_id, role, _ = question.sections[passage.entry]
        lines = f"[{entry_id}] {role.capitalize()}: {passage.text}".split("\n")
        quotes.append("\n".join(f"> {line}".rstrip() for line in lines))
        excerpt = " ".join(passage.excerpt.split())
        citations.append({"entryId": entry_id, "role": role, "excerpt": excerpt})
    clear = not others or others[0].score < 0.85 * first.score
    confidence = "high" if clear and first.share >= 0.8 else "medium" if first.share >= 0.5 else "low"  # noqa: PLR2004
    markdown = "\n\n".join(quotes)
    return {"answerMarkdown": markdown, "confidence": confidence, "citations": citations}


def nearest(text: str, wanted: str) -> str:
    """Return the passage of a text with most of the words; "" if it has none of them."""
    ranked = _ranked(Question(wanted, (("", "", text),)))
    return ranked[0].excerpt if ranked else ""


class _Wanted:
    """The terms of a question, and its names (`a_b.py`, `setTheme`), which are found whole."""

    def __init__(self, text: str) -> None:
        text = _SPEAKER.sub(" ", text)
        self.terms = frozenset(terms(text))
        words = {word.strip("\"'`()?,.;:!").lower(): word for word in text.split()}
        parts = {name: set(terms(word)) for name, word in words.items() if name.isascii()}
        self.names = {name: found for name, found in parts.items() if len(found) > 1}

    def found(self, text: str) -> frozenset[str]:
        low = text.lower() if self.names else ""
        return self.terms.intersection(terms(text)).union(n for n in self.names if n in low)

    def weights(self, often: Counter[str], many: int) -> dict[str, float]:
        """Weigh the terms by rarity: `often` counts the passages with a term, of `many`."""
        parts = frozenset[str]().union(*self.names.values())
        weights = {}
        for term in [*self.terms, *(name for name in self.names if often[name])]:
            named = NAME if term in self.names or term.isdigit() else 1.0
            rarity = log(1 + (many + 8) / (often[term] + 0.5))
            weights[term] = rarity * (PART if term in parts else named)
        return weights


def _ranked(question: Question) -> list[_Passage]:
    """Return the passages that have terms of the question or reply to them, best first."""
    wanted, often = _Wanted(question.text), Counter[str]()
    entries = list[list[tuple[str, frozenset[str]]]]()  # passages, each with its terms
    for _, _, text in question.sections:
        entries.append([(passage, wanted.found(passage)) for passage in passages(text)])
        often.update(term for _, there in entries[-1] for term in there)
    weights = wanted.weights(often, sum(map(len, entries)))
    whole, of_user = sum(weights.values()), _OF_USER.search(question.text)
    kinds = [fits for asked, fits in _KINDS if asked.search(question.text)]
    roles = [*(role for _, role, _ in question.sections), "user"]
    ranked, prompt = list[_Passage](), frozenset[str]()
    for entry, read in enumerate(entries):
        around = frozenset[str]().union(*(there for _, there in read))
        last = roles[entry] == "assistant" and roles[entry + 1] == "user"
        factor = LAST if last else 1.0
        if roles[entry] == "user":
            factor, prompt = TOLD if of_user else USER, around
        near = {term: AROUND * weights[term] for term in around}
        near |= {term: PROMPT * weights[term] for term in prompt}
        for text, there in read:
            if not there and not (last and prompt):
                continue
            held = near | {term: SAME * weights[term] for term in there}
            base, best = sum(held.values()), _Passage(0, 0, entry, text, 0)
            for part in _SENTENCES.finditer(text):
                more = (weights[term] - held.get(term, 0) for term in wanted.found(part[0]))
                share = (base + sum(more)) / whole
                score = factor * share * (0.25 + 0.75 * share)
                score *= FITS if any(kind.search(part[0]) for kind in kinds) else 1
                score *= ASKS if part[0].endswith(("?", "？")) and not of_user else 1  # noqa: RUF001 - wide
                best = max(best, _Passage(score, share, entry, text, part.start()))
            ranked.append(best)
    return sorted(ranked, key=lambda passage: -passage.score)


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
