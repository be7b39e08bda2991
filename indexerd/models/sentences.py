"""What was said, sentence by sentence, and what each sentence tells: both summarisers' eyes.

In: messages, oldest first. Out: lines with their topics and places, and of them what was asked,
decided, achieved and left open, as it was said (shortened at most). Nothing is put together.
What surprised us: half of what users type is no request ("ok, go on"), and half of what agents say
tells no result but announces work ("Let me look at..."); a few words tell them apart.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from indexerd.models import cues, phrases
from indexerd.models.phrases import clip, dense, plain, topic_runs
from indexerd.privacy.sanitize import clean_line

TEXT_MAX = 120_000  # characters looked at
ITEM_MAX = 240  # of one bullet
HEAD, TAIL = 16_000, 8_000  # of one message, in characters
OPENING, LATEST = 20, 500  # messages: the first ones, and the last ones
LEAST = 12  # characters of a sentence that tells something
ASKING, LEADING_ON = ("?", "\uff1f"), (":", "\uff1a")


def topics(runs: list[list[str]]) -> set[str]:
    """Topic words, in one form each."""
    return {word.removesuffix("s") for run in runs for word in run}


class Line(NamedTuple):
    """A sentence, in small letters too, its topic words, the sentence after it, and its place."""

    text: str
    low: str
    runs: list[list[str]]
    after: str
    turn: int
    place: int
    user: bool


Turns = Sequence[Sequence[Line]]


def read_turns(
    messages: Sequence[tuple[str, str]],
    latest: int = LATEST,
    check: Callable[[], None] = lambda: None,
) -> Turns:
    """Sentences of each message that has any; where there is too much, the middle is left out.

    Of messages beyond the first ones the `latest` are read. `check` is called for each, and may
    raise to end the work.
    """
    places = list(range(len(messages)))
    turns: list[list[Line]] = []
    left = TEXT_MAX
    for at in places[:OPENING] + places[OPENING:][: -latest - 1 : -1]:
        check()
        role, text = messages[at]
        if len(text) > HEAD + TAIL:
            text = f"{text[:HEAD]}\n\n{text[-TAIL:]}"
        if (left := left - len(text)) < 0:
            break
        user = role == "user"
        said = phrases.sentences(text, headings=user)
        both = enumerate(zip(said, [*said[1:], ""], strict=False))
        turns += [[Line(a, f" {a.lower()}", topic_runs(a), b, at, n, user) for n, (a, b) in both]]
    return sorted((turn for turn in turns if turn), key=lambda turn: turn[0].turn)


def unpadded(text: str) -> str:
    """Leave greetings, politeness and articles out; addresses and paths keep their last part."""
    text = plain(text).lstrip("¿¡@ ")
    if "/" in text:
        text = cues.PATH.sub(r"\1", text)
    text = cues.PADDING.sub("", text, count=1) or text
    text = text[:-40] + cues.POLITE_END.sub("", cues.POLITE_END.sub("", text[-40:]))
    article = cues.ARTICLE.match(text)
    return text[article.end() :] if article and " " in text[article.end() :] else text


def is_request(line: Line) -> bool:
    """Say whether a sentence asks for, or reports, something that one could look for later."""
    bare = unpadded(line.text)
    found, spoken = topics(topic_runs(bare)), phrases.words(bare)
    if len(found) > 1 or dense(bare):
        return len(bare) * 2 >= LEAST
    ordered = bool(spoken) and spoken[0] in cues.VERBS and not {*spoken[1:2]} <= cues.IT
    polite = len(line.text) - len(bare) >= LEAST
    return ordered or any(polite or re.search(r"[\d._/]", word) for word in found)


def asked(turns: Turns) -> list[Line]:
    """The request of each of the user's messages that has one; else what has a topic at all."""
    mine = [turn for turn in turns if turn[0].user]
    firm = [[one for one in turn[:40] if is_request(one)] for turn in mine]
    best = [min(turn, key=lambda one: bool(cues.SETTING.match(one.low))) for turn in firm if turn]
    return best or [turn[0] for turn in mine if turn[0].runs]


def main_ask(asks: Sequence[Line], turns: Turns) -> Line | None:
    """The first request, unless nobody came back to it and most of the session is on another."""
    heard = Counter(w for turn in turns[2:] for w in {w for one in turn for w in topics(one.runs)})

    def echo(ask: Line) -> int:
        return max((heard[word] for word in topics(ask.runs)), default=0)

    best = max(asks, key=echo, default=None)
    moved = best and len(asks) > 3 and not echo(asks[0]) and 2 * echo(best) > len(turns)  # noqa: PLR2004 - too few to tell
    return best if moved else next(iter(asks), None)


def tells(line: Line) -> bool:
    """Say whether a sentence is the agent's, and neither asks nor announces."""
    told = not line.user and len(line.text) >= LEAST and bool(line.runs)
    return told and not line.text.endswith(LEADING_ON + ASKING) and not cues.PLAN.match(line.low)


def distinct(texts: Iterable[str], limit: int) -> list[str]:
    """The first of the texts that have nearly the same topics; at most `limit`."""
    found: list[tuple[str, set[str]]] = []
    for text in texts:
        mine = topics(topic_runs(text)) or {text}
        if len(found) < limit and not any(
            5 * len(mine & other) > 4 * min(len(mine), len(other)) for _, other in found
        ):
            found.append((text, mine))
    return [text for text, _ in found]


def best(scored: Sequence[tuple[float, Line]], limit: int) -> list[str]:
    """Those with the highest scores, in the order in which they were said."""
    ranked = sorted(scored, key=lambda one: (-one[0], one[1].turn, one[1].place))[:60]
    places = {clip(line.text, ITEM_MAX): (line.turn, line.place) for _, line in reversed(ranked)}
    return sorted(distinct(reversed(places), limit), key=places.__getitem__)


def merged(old: Sequence[str], new: Sequence[str], first: int, last: int) -> list[str]:
    """Old and new without doubles; of too many, the oldest and the newest."""
    both = distinct([*old[:20], *new], 40)
    return both if len(both) <= first + last else both[:first] + both[-last:]


def goals(asks: Sequence[Line], main: Line | None) -> list[str]:
    """The first request as it was made, then those that say most, in their order."""
    first = [f"{one.text} {one.after * (not one.text[-1].isalnum())}".strip() for one in asks[:1]]
    later = [(len(one.runs) + 9.0 * (one is main), one) for one in asks[1:] if one.runs]
    return distinct([*(clip(one, ITEM_MAX) for one in first), *best(later, 3)], 4)


def decided(turns: Turns, main: Line | None) -> list[tuple[float, Line]]:
    """Choices, orders, causes and advice with scores; `main`, the request itself, is none."""
    scored: list[tuple[float, Line]] = []
    question = ""
    for turn in turns:
        for line in turn:
            advised = cues.ADVISED.search(line.low) or cues.ORDERED.match(line.low)
            score = 3.0 * bool(cues.DECIDED.search(line.low)) + 2.0 * bool(advised)
            chosen = not line.user and line.place == 0 and bool(cues.CHOICE.search(question))
            score += 2.0 * chosen
            if score and line is not main and not line.text.endswith(ASKING):
                score -= 1.5 * bool(cues.PLAN.match(line.low))
                score -= 1.5 * line.text.endswith(LEADING_ON)
                scored += [(score, line)] * (score > 1)
        question = turn[-1].low if turn[0].user else ""
    return scored


def achieved(turns: Turns, before: list[str]) -> tuple[str, list[str]]:
    """The sentence that says best what came of it, and up to four that say it at all."""
    told = [one for turn in turns for one in turn if tells(one)]
    if not told:
        return "", before
    scored = [(bool(cues.RESULT.search(one.low)) + one.turn / 1e6, one) for one in told]
    final = [(2 + score, one) for score, one in scored if one.turn == told[-1].turn]
    final = [one for one in final if not cues.OPEN.search(one[1].low)] or final
    early = [one for one in scored if one[0] >= 1 and one[1].turn != told[-1].turn]
    latest = sorted(final, key=lambda one: (-one[0], one[1].place))[:3]
    lead = latest[0][1].text
    if latest[0][0] < 3 and lead[-1].isalnum():  # noqa: PLR2004 - no result; a list is told whole
        lead = "; ".join(one.text for _, one in final)
    return lead, before + best([*latest, *early], 4)


def left_open(turns: Turns) -> list[str]:
    """What is still open: a message without an answer, a question, work announced."""
    last = turns[-1] if turns else []
    found: list[str] = []
    if last and last[0].user:
        text = f"{last[0].text} {last[0].after}".strip()
        if set(phrases.words(text)) <= cues.CLOSING:
            return []
        found.append(f"Unanswered: {text}")
        last = turns[-2] if len(turns) > 1 and not is_request(last[0]) else []
    if last:
        if last[-1].text.endswith(ASKING):
            found.append(f"Awaiting an answer: {last[-1].text}")
        elif cues.PLAN.match(last[-1].low):
            found.append(last[-1].text.rstrip("".join(LEADING_ON)))
        found += [one.text for one in last if cues.OPEN.search(one.low) and one.text[-1] != ":"]
    return distinct((clip(text, ITEM_MAX) for text in found[:8]), 4)


def paths(paths: Sequence[str], cwd: str) -> list[str]:
    """File names to show, relative to the session's directory where they are below it."""
    base = cwd.rstrip("/") + "/"
    shown = (plain(clean_line(path[:600].removeprefix(base), 160)) for path in paths[:200])
    return list(dict.fromkeys(path for path in shown if path))


def listed(names: Sequence[str], limit: int) -> str:
    """The first names in one line, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
