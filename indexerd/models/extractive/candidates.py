"""The sentences of a conversation that a summary could hold, sorted by what they are.

In: messages, redacted, oldest first; or an earlier summary by any hand, in any headings. Out:
items by the names below, as they were said (shortened at most), in the order in which they were
said, each with how much it says. Of a long conversation the beginning and the end are read whole,
and in between the lines that hold a word of a decision or a rule. What surprised us: half of what
users type is no request ("ok, go on"), and half of what agents say tells no result but announces
work ("Let me look at..."); two sentences with the same topics may say the opposite, so an item
holds another only if it has all of that one's words; sub-bullets and wrapped lines of a summary
belong to the item before them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from indexerd.models.extractive import lexicon
from indexerd.models.extractive.lexicon import word_set
from indexerd.models.extractive.sentences import (
    clip,
    dense,
    plain,
    sentences,
    tidy,
    topics,
    unpadded,
    words,
)
from indexerd.privacy.sanitize import clean_line, clean_text

GOAL, RULES, DONE, ENDED, DOING = "goal", "rules", "done", "ended", "doing"
BLOCKED, CHOSEN, NEXT, EXACT = "blocked", "chosen", "next", "exact"
NAMES = (GOAL, RULES, DONE, ENDED, DOING, BLOCKED, CHOSEN, NEXT, EXACT)
ITEM_MAX = 240  # characters
ASKING, LEADING_ON = ("?", "？"), (":", "：")  # noqa: RUF001 - of other scripts
RESULT = 2.0  # score of a sentence that tells a result

_FIRST, _LAST, _MIDDLE = 30_000, 50_000, 30_000  # characters that are read
_LEAST = 12  # characters of a sentence that says something
_RECENT = 6  # turns whose open ends are still open
_LIFT = 4.0  # for a sentence that mentions what the user asked to dwell on
_FEW_ASKS = 3  # of more than these the subject may have changed
_SUMMARY_MAX, _ITEMS_MAX = 60_000, 400  # characters and items of an earlier summary
_EMPTY = word_set("""the a an we i you it to of is was are be been that this and in for on""")


class Item(NamedTuple):
    """A bullet, how much it says, and the words that make it what it is."""

    text: str
    score: float
    key: frozenset[str]

    def within(self, others: Iterable[Item]) -> bool:
        """Whether one of the others says all that this one does."""
        return any(self.key <= other.key for other in others)


class Line(NamedTuple):
    """A sentence, its topic words, its turn, the sentence after it, and the question before."""

    text: str
    topics: frozenset[str]
    turn: int
    user: bool
    after: str = ""
    question: str = ""  # of the user, if this is the first sentence of the reply

    @property
    def states(self) -> bool:
        """Whether it says something, and neither asks nor announces."""
        leads = self.text.endswith(ASKING + LEADING_ON)
        return bool(self.topics) and not leads and not lexicon.PLAN.match(self.text)

    @property
    def reports(self) -> bool:
        """Whether the agent says something that is so."""
        return self.states and not self.user and len(self.text) >= _LEAST


Candidates = dict[str, list[Item]]
Turns = list[list[Line]]


def item(text: str, score: float = 0.0) -> Item:
    """Make a bullet of a text."""
    text = clip(text.rstrip("".join(LEADING_ON)) or text, ITEM_MAX)
    return Item(text, score, frozenset(words(text)) - _EMPTY or frozenset([text]))


# -- reading -------------------------------------------------------------------------------------


def read_turns(messages: Sequence[tuple[str, str]], check: Callable[[], None]) -> Turns:
    """Return the sentences of each message that has any; `check` may raise to end the work."""
    turns: Turns = []
    question = ""
    for number, (role, text) in enumerate(_thinned(messages)):
        check()
        user, said = role == "user", sentences(text)
        turn = [
            Line(one, topics(one), number, user, after, "" if user or at else question)
            for at, (one, after) in enumerate(zip(said, [*said[1:], ""], strict=False))
        ]
        question = said[-1] if user and said else ""
        turns += [turn] if turn else []
    return turns


def _thinned(messages: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield a short conversation whole; of a long one the ends, and what decides in between."""
    size = sum(len(text) for _, text in messages)
    passed, room = 0, _MIDDLE
    last = max(size - _LAST, _FIRST)
    for role, text in messages:
        head = text[: max(0, _FIRST - passed)]
        middle = text[len(head) : max(len(head), last - passed)]
        tail = text[len(head) + len(middle) :]
        passed += len(text)
        kept = _deciding(middle, room) if size > _FIRST + _LAST + _MIDDLE else middle
        room -= len(kept)
        yield role, "\n".join(part for part in (head, kept, tail) if part)


def _deciding(text: str, limit: int) -> str:
    """Return the lines that hold a word of a decision or a rule, outside of fences."""
    lines: list[str] = []
    fenced = False
    for line in text.split("\n"):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif limit <= 0 or fenced or len(line) > 4 * ITEM_MAX:
            continue
        elif lexicon.DECIDED.search(line) or lexicon.RULE.search(line):
            lines.append(line)
            limit -= len(line)
    return "\n\n".join(lines)


# -- sorting -------------------------------------------------------------------------------------


def requests(turns: Turns) -> list[Line]:
    """Return the request of each of the user's messages that has one."""
    mine = [turn for turn in turns if turn[0].user]
    asks = [next((line for line in turn[:40] if _is_request(line)), None) for turn in mine]
    return [ask for ask in asks if ask] or [turn[0] for turn in mine if turn[0].topics]


def _is_request(line: Line) -> bool:
    bare = unpadded(line.text)
    return (len(line.topics) > 1 or dense(bare)) and len(bare) * 2 >= _LEAST


def main_request(asks: Sequence[Line], turns: Turns) -> Line | None:
    """Return the first request, unless nobody came back to it and most is about another one."""
    heard = Counter(word for turn in turns[2:] for word in {w for one in turn for w in one.topics})

    def echo(ask: Line) -> int:
        return max((heard[word] for word in ask.topics), default=0)

    if len(asks) > _FEW_ASKS and not echo(asks[0]):
        best = max(asks, key=echo)
        if 2 * echo(best) > len(turns):
            return best
    return asks[0] if asks else None


def extract_candidates(turns: Turns, focus: frozenset[str] = frozenset()) -> Candidates:
    """Sort the sentences by what a summary would call them."""
    asks = requests(turns)
    main = main_request(asks, turns)
    lines = [line for turn in turns for line in turn]
    recent = [line for turn in turns[-_RECENT:] for line in turn if not line.user]
    told = [line for line in lines if line.reports and not lexicon.OPEN.search(line.text)]
    last = told[-1].turn if told else 0
    scored = {
        GOAL: [(_goal_score(ask, main, asks), ask) for ask in asks],
        RULES: [(_rule_score(line), line) for line in lines if line is not main],
        CHOSEN: [(_choice_score(line), line) for line in lines if line is not main],
        EXACT: [(_exact_score(line), line) for line in lines if line is not main],
        DONE: [(_result_score(line), line) for line in told if line.turn < last],
        ENDED: [(_result_score(line) + 0.5, line) for line in told if line.turn == last],
        DOING: _doing(turns),
        BLOCKED: [(1.0, one) for one in recent if one.reports and lexicon.STUCK.search(one.text)],
        NEXT: [(1.0, one) for one in recent if one.topics and lexicon.OPEN.search(one.text)],
    }
    found: Candidates = {}
    for name, each in scored.items():
        lifted = ((score + _LIFT * bool(focus & line.topics), score, line) for score, line in each)
        found[name] = [
            item(line.text, high)
            for high, score, line in lifted
            if score or (high > score and line.reports)
        ]
    found[ENDED] = [one for one in found[ENDED] if one.score >= RESULT or len(one.key) > 2]  # noqa: PLR2004 - says too little
    if asks and asks[0].after and not asks[0].text[-1].isalnum():
        first = found[GOAL][0]
        found[GOAL][0] = item(f"{first.text} {asks[0].after}", first.score)
    if not any(found.values()):
        found[DONE] = [item(line.text) for line in [*lines[:1], *lines[1:][-1:]]]
    return found


def _goal_score(line: Line, main: Line | None, asks: Sequence[Line]) -> float:
    return 9.0 * (line is main) + 5.0 * (line is asks[0]) + min(len(line.topics), 5)


def _rule_score(line: Line) -> float:
    """Score a rule; what a person says of rules counts at once."""
    if not line.states or lexicon.NO_RULE.search(line.text):
        return 0.0
    score = 2.0 * min(len(lexicon.RULE.findall(line.text)), 2)
    score += min(len(lexicon.WISH.findall(line.text)), 2)
    return score if score >= (1.0 if line.user else 3.0) else 0.0


def _choice_score(line: Line) -> float:
    """Score a decision, an order, or the answer to a question of choice."""
    if line.text.endswith(ASKING + LEADING_ON) or not line.topics:
        return 0.0
    score = 3.0 * bool(lexicon.DECIDED.search(line.text)) + 2.0 * bool(
        lexicon.ORDER.match(line.text)
    )
    score += 2.0 * bool(lexicon.CHOICE.search(line.question))
    return max(0.0, score - 1.5 * bool(lexicon.PLAN.match(line.text))) if score else 0.0


def _exact_score(line: Line) -> float:
    """Score what nobody could guess: paths, ports, errors, causes."""
    if not line.states or line.text.count(" ") < 3:  # noqa: PLR2004 - more than a label and a name
        return 0.0
    score = 2.0 * min(len(set(lexicon.EXACT.findall(line.text))), 3)
    score += 2.0 * bool(lexicon.FOUND.search(line.text)) + 0.5 * (line.user and score > 0)
    score -= 1.5 * bool(lexicon.RESULT.search(line.text) and not line.user)
    return max(score, 0.0)


def _result_score(line: Line) -> float:
    return RESULT + line.turn / 1e6 if lexicon.RESULT.search(line.text) else 0.0


def _doing(turns: Turns) -> list[tuple[float, Line]]:
    """Return what was begun and not ended: the last announcement, or an unanswered request."""
    last = turns[-1] if turns else []
    if last and last[0].user:
        return [(2.0, one) for one in (requests([last]) or last[:1])]
    return [(1.0, one) for one in last[-1:] if lexicon.PLAN.match(one.text)]


# -- earlier summaries ---------------------------------------------------------------------------

_HEADINGS = (  # what a heading announces; the first that fits counts
    (RULES, r"constraint|preference|instruction|requirement|rule"),
    (BLOCKED, r"block|obstacle|stuck"),
    (DOING, r"in progress|ongoing|current(?:ly)?\b(?! state)|doing|underway"),
    (NEXT, r"next|todo|to do|remaining|pending|open|follow|unresolved"),
    (CHOSEN, r"decision|decided|choices"),
    (DONE, r"done|progress|accomplish|complet|outcome|result|action|end state|current state"),
    (EXACT, r"context|discover|finding|file|critical|technical|fact|learn|note"),
    (GOAL, r"goal|objective|request|purpose|task|intent|overview|summary"),
)
_HEAD = re.compile(r"(?:#{1,6}\s+(.{1,120})|\*\*([^*]{1,80}?):?\*\*:?|([A-Z][\w &]{2,40}):)\s*")
_BULLET = re.compile(r"(\s*)(?:[-*+•]|\d{1,3}[.)])\s+(?:\[([ xX~])\]\s+)?")
_FILES = re.compile(r"<(read|modified)-files>.*?(?:</\1-files>|\Z)", re.DOTALL)
_NONE = re.compile(r"[\W_]*(?:none|n/?a|nothing|nothing explicit was found)?[\W_]*", re.IGNORECASE)
_FENCE = re.compile(r"\s*(?:`{3}|~{3}|-{3,}\s*$)")


def candidates_of(summary: str) -> Candidates:
    """Take a summary apart; what stands before any heading is its goal."""
    found: Candidates = {name: [] for name in NAMES}
    held: list[tuple[str, str]] = []
    name, fresh = GOAL, True
    for line in clean_text(_FILES.sub("\n", summary[:_SUMMARY_MAX]), _SUMMARY_MAX).split("\n"):
        head = _HEAD.fullmatch(line)
        if head:
            name, fresh = _named(head[1] or head[2] or head[3], name), True
            continue
        bullet = _BULLET.match(line)
        body = tidy(line[bullet.end() :] if bullet else line)
        if _FENCE.match(line) or _NONE.fullmatch(body):
            fresh = True
            continue
        if (bullet is None or len(bullet[1]) > 1) and not fresh and held:
            held[-1] = held[-1][0], clip(f"{held[-1][1]} {body}", 2 * ITEM_MAX)
        elif len(held) < _ITEMS_MAX:
            held.append((_ticked(bullet, name), body))
        fresh = False
    for place, body in held:
        found[place].append(item(body))
    return found


def _named(title: str, before: str) -> str:
    """Return what a heading announces; below another an unknown one holds what that one does."""
    low = title.lower()
    found = next((name for name, words in _HEADINGS if re.search(words, low)), None)
    return found or (EXACT if before == GOAL else before)


def _ticked(bullet: re.Match[str] | None, name: str) -> str:
    """A box that is ticked, or is not, says more than the heading it stands under."""
    if bullet is None or bullet[2] is None or name not in (DONE, DOING, NEXT):
        return name
    return DONE if bullet[2] in "xX" else DOING if name == DONE else name


# -- shared --------------------------------------------------------------------------------------


def distinct(items: Iterable[Item], seen: Iterable[Item] = ()) -> list[Item]:
    """Return the items that say something that no other one says."""
    kept, known = [], list(seen)
    for one in items:
        if not one.within(known):
            known.append(one)
            kept.append(one)
    return kept


def shown_paths(paths: Sequence[str], cwd: str) -> list[str]:
    """Return file names, relative to the session's directory where they are below it."""
    base = cwd.rstrip("/") + "/"
    shown = (plain(clean_line(path[:600].removeprefix(base), 160)) for path in paths[:200])
    return list(dict.fromkeys(path for path in shown if path))


def listed(names: Sequence[str], limit: int) -> str:
    """Return the first names in one line, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


# -- decisions of a segment ----------------------------------------------------------------------

PHRASES = ("decided to", "chose to", "will use", "going with")
_PHRASE = re.compile(
    r"\b(?:" + "|".join(one.replace(" ", r"\s{1,20}") for one in PHRASES) + r")\b", re.IGNORECASE
)
_MESSAGE_MAX = 100_000  # characters of one message that are looked at


def decisions(texts: Iterable[str], most: int = 5, longest: int = 300) -> tuple[str, ...]:
    """Return the first sentences that put a decision into words (S2.13), each once, on one line.

    Of more the first ones stay: what was settled early is what later work stands on.
    """
    found: dict[tuple[str, ...], str] = {}
    for text in texts:
        if not _PHRASE.search(text, 0, _MESSAGE_MAX):
            continue
        for sentence in sentences(text[:_MESSAGE_MAX]):
            if hit := _PHRASE.search(sentence):
                line = clean_line(_around(sentence, hit, longest), longest)
                found.setdefault(tuple(words(line)), line)
            if len(found) == most:
                return tuple(found.values())
    return tuple(found.values())


def _around(sentence: str, hit: re.Match[str], longest: int) -> str:
    """Return a sentence that is too long from shortly before its phrase on."""
    if hit.end() <= longest // 2 or len(sentence) <= longest:
        return sentence
    start = min(hit.start() - longest // 3, len(sentence) - longest)
    space = sentence.find(" ", start, hit.start())
    return "…" + sentence[space + 1 if space >= 0 else start :]
