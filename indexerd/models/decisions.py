"""Decisions that were put into words: the sentences that say so (S2.13).

In: texts of messages, oldest first, redacted by the caller. Out: at most five sentences, each
once, on one line and without control characters. Four phrases show a decision, in any case.

Of more than five the first ones stay: a stretch is summed up by itself, and what was settled
early in it is what later work stands on, and what nobody repeats. What comes late is what the
newest summaries tell of anyway. Code, logs and quoted tool output make no sentences and are not
looked at; nor is what stands beyond `TEXT_MAX` characters of one message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from indexerd.digests.segments import DECISION_MAX, DECISIONS_MAX
from indexerd.models.phrases import sentences, words
from indexerd.privacy.sanitize import clean_line

PHRASES = ("decided to", "chose to", "will use", "going with")
TEXT_MAX = 100_000  # characters of one message

_PHRASE = re.compile(
    r"\b(?:" + "|".join(one.replace(" ", r"\s{1,20}") for one in PHRASES) + r")\b", re.IGNORECASE
)


def decisions(texts: Iterable[str]) -> tuple[str, ...]:
    """The first five sentences with a phrase of `PHRASES`, of at most 300 characters each."""
    found: dict[tuple[str, ...], str] = {}
    for sentence in _deciding(texts):
        line = clean_line(_around(sentence), DECISION_MAX)
        found.setdefault(tuple(words(line)), line)
        if len(found) == DECISIONS_MAX:
            break
    return tuple(found.values())


def _deciding(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        part = text[:TEXT_MAX]
        if _PHRASE.search(part):
            yield from (one for one in sentences(part) if _PHRASE.search(one))


def _around(sentence: str) -> str:
    """A sentence that is too long, from shortly before its phrase on."""
    hit = _PHRASE.search(sentence)
    if hit is None or hit.end() <= DECISION_MAX // 2 or len(sentence) <= DECISION_MAX:
        return sentence
    start = min(hit.start() - DECISION_MAX // 3, len(sentence) - DECISION_MAX)
    space = sentence.find(" ", start, hit.start())
    return "\N{HORIZONTAL ELLIPSIS}" + sentence[space + 1 if space >= 0 else start :]
