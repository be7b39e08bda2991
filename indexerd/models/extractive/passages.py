"""Answer a question about a session with the passages of it that fit best, one of a message.

A passage is worth the rarity of the question's terms in it and, less, in the prompt that it replies
to. Later messages count more than earlier ones, as what was said may have changed, the last one of
a turn more than those on the way, the user's less than the agent's, unless the question is about
the user. If a prompt has the question word for word, the replies to it have all of its terms.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import log
from typing import Any, NamedTuple

from indexerd.entries import Question
from indexerd.models.extractive.sentences import bare_words, terms
from indexerd.privacy.patterns import lazy_pattern

PASSAGES_MAX, PASSAGE_MAX, EXCERPT_MAX = 5, 700, 280  # the last two in characters
FOUND = "No language model answered this: these passages of the session fit the question best."
NOTHING = (
    "No passage of the session fits the question. (Its words were looked for; no language model "
    "read the session.)"
)
PROMPT = 0.5  # a term that is only in the prompt
LAST, USER, TOLD = 1.4, 0.6, 2.5  # a turn's last message; the user's; if that is asked for
LATER = 1.0  # what being last adds to a factor of 1; being in the middle adds half of that
_QUOTED, _QUOTATION = 0.9, 6  # share of at least so many terms: it counts as if it were last
_VERBATIM = 3  # words, at least, of a question that a prompt has word for word
_APART = PASSAGE_MAX // 4  # characters from the start of a passage to the next one's, at least
_LONG = 12  # passages of a message, which halve its worth; more do no more
_ALONE = 0.6  # of the best passage's fit: it is sure if no other has as much
_FAR_BELOW = 0.35  # of the best score: lower passages are left out
_BREAKS = lazy_pattern(r"\n|(?<=[.!?;])\s|[。！？]")  # noqa: RUF001 - of other scripts
_SENTENCES = lazy_pattern(
    r"(?m)[^\n]{1,280}?(?:(?<=[.!?;])(?=\s)|[。！？]|$)|[^\n]{1,280}"  # noqa: RUF001 - as above
)
_SPEAKER = lazy_pattern(r"(?i)\b(?:the|this) (?:agent|assistant|session|user)\b")
_OF_USER = lazy_pattern(r"(?i)\bthe user\b|\bdid i\b")


class _Passage(NamedTuple):
    score: float
    fit: float  # the score, wherever the passage stands
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
    ranked = _ranked(question)[:PASSAGES_MAX]
    best = [passage for passage in ranked if passage.score > _FAR_BELOW * ranked[0].score]
    first, *others = best or [_Passage(0, 0, 0, 0, "", 0)]
    if first.share < 0.2:  # noqa: PLR2004 - of the question
        return {"answerMarkdown": NOTHING, "confidence": "low", "citations": []}
    quotes, citations = [FOUND], list[dict[str, str]]()
    for passage in best:
        entry_id, role, _ = question.sections[passage.entry]
        lines = f"[{entry_id}] {role.capitalize()}: {passage.text}".split("\n")
        quotes.append("\n".join(f"> {line}".rstrip() for line in lines))
        excerpt = " ".join(passage.excerpt.split())
        citations.append({"entryId": entry_id, "role": role, "excerpt": excerpt})
    alone = all(other.fit < _ALONE * first.fit for other in others)
    sure = ("high" if alone else "medium") if first.share > 0.5 else "low"  # noqa: PLR2004 - of the question
    markdown = "\n\n".join(quotes)
    return {"answerMarkdown": markdown, "confidence": sure, "citations": citations}


def nearest(text: str, wanted: str) -> str:
    """Return the passage of a text with most of the words; "" if it has none of them."""
    ranked = _ranked(Question(wanted, (("", "", text),)))
    return ranked[0].excerpt if ranked else ""


def _ranked(question: Question) -> list[_Passage]:
    """Return the best passage of each message that has or answers the terms, best first."""
    asked, often = _SPEAKER.sub(" ", question.text), Counter[str]()
    wanted = terms(asked)
    entries = list[list[tuple[str, frozenset[str]]]]()  # passages, each with its terms
    for _, _, text in question.sections:
        entries.append([(passage, wanted & terms(passage)) for passage in passages(text)])
        often.update(term for _, there in entries[-1] for term in there)
    many = sum(map(len, entries)) + 8
    weights = {term: log(1 + many / (often[term] + 0.5)) for term in wanted}
    whole, of_user = sum(weights.values()), _OF_USER.search(question.text)
    roles = [*(role for _, role, _ in question.sections), "user"]
    words = bare_words(question.text)
    ranked, prompt, asked_here = list[_Passage](), dict[str, float](), False
    for entry, read in enumerate(entries):
        asks, last = roles[entry] == "user", roles[entry : entry + 2] == ["assistant", "user"]
        if asks:
            prompt, asked_here = {}, False
        factor = LAST if last else 1.0
        if asks:
            factor = TOLD if of_user else USER
        factor /= min(2, 1 + len(read) / _LONG)  # a long message has many chances
        best = _Passage(0, 0, 0, entry, "", 0)
        for text, there in read:
            if not (there or (last and prompt)):
                continue
            share = sum((prompt | {term: weights[term] for term in there}).values()) / whole
            quoted = asked_here or (share > _QUOTED and len(wanted) >= _QUOTATION)
            fit = factor * share * (0.25 + 0.75 * share)
            score = fit * (1 + LATER * (1.0 if quoted else entry / len(entries)))
            if score > best.score:
                best = _Passage(score, fit, share, entry, text, _start(text, weights))
        if best.score:
            ranked.append(best)
        if asks:
            there = frozenset[str]().union(*(found for _, found in read))
            if words.count(" ") >= _VERBATIM - 1:
                asked_here = f" {words} " in f" {bare_words(question.sections[entry][2])} "
            prompt = {term: (1 if asked_here else PROMPT) * weights[term] for term in there}
    return sorted(ranked, key=lambda passage: -passage.score)


def _start(text: str, weights: dict[str, float]) -> int:
    """Return where the sentence with the rarest of the terms starts."""
    return max(
        _SENTENCES.finditer(text),
        key=lambda part: sum(weights.get(term, 0) for term in terms(part[0])),
    ).start()


def passages(text: str) -> Iterator[str]:
    """Yield overlapping parts of a text: as many whole paragraphs as fit into PASSAGE_MAX."""
    pieces = [*_paragraphs(text)]
    end = size = shown = 0  # of the part: its end, its characters; the last part's end
    apart = _APART  # characters since the last part's start
    for at, piece in enumerate(pieces):
        while end < len(pieces) and (end == at or size + len(pieces[end]) <= PASSAGE_MAX):
            size += len(pieces[end]) + 2
            end += 1
        if end > shown and (apart >= _APART or at >= shown):
            yield "\n\n".join(pieces[at:end])
            shown, apart = end, 0
        size -= len(piece) + 2
        apart += len(piece) + 2


def _paragraphs(text: str) -> Iterator[str]:
    """Yield a text's paragraphs, headings with the next one; long ones are split at lines."""
    lead = ""
    for paragraph in [*re.split(r"\n(?:[ \t]*\n)+", text.strip("\n")), ""]:
        part = f"{lead}{paragraph}".rstrip()
        last = part.rpartition("\n")[2]
        leads = last.startswith("#") or last.endswith((":", "："))  # noqa: RUF001 - wide
        lead = f"{part}\n\n" if paragraph and leads and len(part) < PASSAGE_MAX // 4 else ""
        while part.strip() and not lead:
            ends = [gap.end() for gap in _BREAKS.finditer(part[:PASSAGE_MAX], PASSAGE_MAX // 2)]
            end = PASSAGE_MAX if len(part) <= PASSAGE_MAX or not ends else ends[-1]
            yield part[:end].rstrip()
            part = part[end:]
