"""What a stretch of a conversation holds that a summary could: items by what they are, with scores.

In: messages, redacted, oldest first. Out: sentences as they were said (shortened at most), by the
names of `core/earlier`, in the order in which they were said, each with how much it tells. Of a
long stretch the beginning and the end are read whole, and in between the lines that hold a word of
a decision or a rule. What surprised us: two sentences with the same topics may say the opposite,
so that an item is what all its words are, and holds another only if it has all of that one's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from indexerd.models import cues, earlier, phrases
from indexerd.models.earlier import BLOCKED, CHOSEN, DOING, DONE, EXACT, GOAL, NEXT, RULES
from indexerd.models.phrases import clip
from indexerd.models.sentences import (
    ASKING,
    ITEM_MAX,
    LEADING_ON,
    Line,
    Turns,
    asked,
    decided,
    main_ask,
    tells,
    topics,
)

ENDED = "ended"  # results of the last turn that tells any; all others are DONE
_WHOLE_FIRST, _WHOLE_LAST, _THIN = 30_000, 50_000, 30_000  # characters that are read
_SENTENCE = 3  # spaces in what is more than a label and a name
_RECENT = 6  # turns whose open ends are still open
RESULT = 2.0  # the score of a sentence that tells a result
_LIFT = 4.0  # what a sentence gains that mentions what the user asked to dwell on


class Item(NamedTuple):
    """A bullet, how much it tells, and the words that make it what it is."""

    text: str
    score: float
    key: frozenset[str]

    def within(self, others: Iterable[Item]) -> bool:
        """Say whether one of the others tells all that this one does."""
        return any(self.key <= other.key for other in others)


Items = dict[str, list[Item]]


def thinned(
    messages: Sequence[tuple[str, str]], check: Callable[[], None]
) -> list[tuple[str, str]]:
    """All of a short stretch; of a long one its ends, and between them what may be needed."""
    size = sum(len(text) for _, text in messages)
    if size <= _WHOLE_FIRST + _WHOLE_LAST + _THIN:
        return list(messages)
    found: list[tuple[str, str]] = []
    passed, thin = 0, _THIN
    for role, text in messages:
        check()
        head = text[: max(0, _WHOLE_FIRST - passed)]
        middle = text[len(head) : max(len(head), size - _WHOLE_LAST - passed)]
        tail = text[len(head) + len(middle) :]
        passed += len(text)
        part = _telling(middle, thin) if middle else ""
        thin -= len(part)
        whole = "\n".join(one for one in (head, part, tail) if one)
        if whole:
            found.append((role, whole))
    return found


_NEEDED = (
    *("decided", "decision", "chose", "will use", "'ll use", "going with", "went with", "agreed"),
    *(
        "must",
        "never",
        "always",
        "root cause",
        "turned out",
        "instead of",
        "important",
        "ruled out",
    ),
    *("entschieden", "niemals", "決定", "决定", "必须", "必ず"),
)


def _telling(text: str, limit: int) -> str:
    """The lines of a text that hold a word of a decision or a rule, outside of fences."""
    low = text.lower()
    if limit <= 0 or not any(word in low for word in _NEEDED):
        return ""
    lines: list[str] = []
    fenced = False
    for line in text.split("\n"):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            continue
        if not fenced and 0 < len(line) < phrases.SENTENCE_MAX:
            known = line.lower()
            if any(word in known for word in _NEEDED):
                lines.append(line)
                limit -= len(line) + 1
                if limit <= 0:
                    break
    return "\n\n".join(lines)


def item(text: str, score: float = 0.0) -> Item:
    """Make a bullet of a text."""
    text = clip(text.rstrip("".join(LEADING_ON)) or text, earlier.EARLIER_MAX)
    words = frozenset(phrases.words(text)) - _EMPTY
    return Item(text, score, words or frozenset([text]))


_EMPTY = phrases.word_set("""the a an we i you it to of is was are were be been that this and in for
    on with so now then have has had its our by as at der die das und ist wir ich""")


def heard(turns: Turns, focus: set[str]) -> Items:
    """Everything that a summary could hold, with scores, in the order in which it was said."""
    asks = asked(turns)
    main = main_ask(asks, turns)
    lines = [line for turn in turns for line in turn]
    found: dict[str, list[tuple[float, Line]]] = {
        RULES: [(score, one) for one in lines if (score := _rule(one)) and one is not main],
        CHOSEN: [(score, one) for score, one in decided(turns, main) if not _leads_on(one)],
        EXACT: [(score, one) for one in lines if (score := _exact(one)) and one is not main],
        **_results(turns),
        DOING: _doing(turns),
        BLOCKED: [(1.0, one) for one in _late(turns) if tells(one) and cues.STUCK.search(one.low)],
        NEXT: [(1.0, one) for one in _late(turns) if _open(one)],
    }
    if focus:
        found[EXACT] += [(1.0, one) for one in lines if tells(one) and focus & topics(one.runs)]
    items = {
        name: [item(clip(one.text, ITEM_MAX), _lifted(score, one, focus)) for score, one in scored]
        for name, scored in found.items()
    }
    items[GOAL] = [
        item(text, _asking(one, main, asks, focus))
        for one, text in zip(asks, _requests(asks), strict=True)
    ]
    if not any(items.values()):
        items[DONE] = [item(clip(one.text, ITEM_MAX)) for one in [*lines[:1], *lines[1:][-1:]]]
    return items


def _lifted(score: float, line: Line, focus: set[str]) -> float:
    return score + _LIFT * bool(focus and focus & topics(line.runs))


def _requests(asks: Sequence[Line]) -> list[str]:
    """The requests; the first one with the sentence after it, which often explains it."""
    texts = [one.text for one in asks]
    for first in asks[:1]:
        texts[0] += f" {first.after}" if first.after and not first.text[-1].isalnum() else ""
    return [clip(text, ITEM_MAX) for text in texts]


def _asking(line: Line, main: Line | None, asks: Sequence[Line], focus: set[str]) -> float:
    score = 9.0 * (line is main) + 5.0 * (line is asks[0]) + min(len(line.runs), 5)
    return _lifted(score, line, focus)


def _leads_on(line: Line) -> bool:
    return line.text.endswith(LEADING_ON)


def _statement(line: Line) -> bool:
    ends = line.text.endswith(ASKING + LEADING_ON)
    return bool(line.runs) and not ends and not cues.PLAN.match(line.low)


def _rule(line: Line) -> float:
    """How much a sentence looks like a rule; what a person says of rules counts at once."""
    if not _statement(line) or cues.NO_RULE.search(line.low):
        return 0.0
    score = 2.0 * min(len(cues.BOUND.findall(line.low)), 2)
    score += min(len(cues.PREFERRED.findall(line.low)), 2)
    return score if score >= (1.0 if line.user else 3.0) else 0.0


def _exact(line: Line) -> float:
    """How much a sentence holds that nobody could guess: paths, ports, errors, causes."""
    if not _statement(line) or line.text.count(" ") < _SENTENCE:
        return 0.0
    marks = len(set(cues.EXACT.findall(line.text)))
    score = 2.0 * min(marks, 3) + 1.0 * bool(cues.FIGURE.search(line.text))
    score += 2.0 * bool(cues.FOUND.search(line.low)) + 0.5 * line.user
    score -= 1.5 * bool(cues.RESULT.search(line.low) and not line.user)
    return score if score >= 1.5 else 0.0  # noqa: PLR2004 - a figure alone is no fact


def _results(turns: Turns) -> dict[str, list[tuple[float, Line]]]:
    """What the agent said came of it; of its last words that tell anything, all."""
    told = [one for turn in turns for one in turn if tells(one) and not _open(one)]
    last = told[-1].turn if told else 0
    scored = [(2.0 * bool(cues.RESULT.search(one.low)) + one.turn / 1e6, one) for one in told]
    return {
        DONE: [(score, one) for score, one in scored if score >= RESULT and one.turn < last],
        ENDED: [
            (score + 0.5, one)
            for score, one in scored
            if one.turn == last and (score >= RESULT or sum(map(len, one.runs)) > 1)
        ],
    }


def _doing(turns: Turns) -> list[tuple[float, Line]]:
    """What was begun and not ended: work that was announced last, a request without an answer."""
    last = turns[-1] if turns else []
    if last and last[0].user:
        return [(2.0, one) for one in (asked([last]) or last[:1])]
    return [(1.0, one) for one in last[-1:] if cues.PLAN.match(one.low)]


def _late(turns: Turns) -> list[Line]:
    return [one for turn in turns[-_RECENT:] for one in turn if not one.user]


def _open(line: Line) -> bool:
    return bool(cues.OPEN.search(line.low)) and bool(line.runs) and line.text[-1] != ":"
