"""Whether a regular expression can be slow, told from its shape before it is ever run.

In: a pattern. Out: why it is refused, or nothing. Python's `re` tries one way after another and
cannot be interrupted; so a pattern is taken only if it takes some `STEPS_MAX` steps at the most
on any text of `TEXT` characters without a line break: a second or so, where the text is made to
have it try all ways. What people write is far below; what doubles with each character is not.

The steps from one place are bounded from above by the ways through each part of a pattern: one,
where the text that comes next decides whether a repetition goes on, or which branch it is; else as
many as there are repetitions, or branches that agree. A word that must come next can do so only
every so often. Ways of neighbours multiply, and those of what is repeated do so each time. What
ends a pattern and cannot fail has nothing tried again, and is left out.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from importlib import import_module
from operator import or_
from typing import Any, TypeVar

from indexerd.settings.letters import ANYTHING, END, Letters

_parser: Any = import_module("re._parser")  # private to Python, and the one that `re` uses

TEXT = 1024  # characters that a pattern sees at once: core.redact.WINDOW
STEPS_MAX = 180_000_000  # a few ns each; measured on hostile texts
GROUPS_MAX = 100_000_000  # where a group is repeated, of which `re` notes each time
LENGTH_MAX = 2000  # characters of a pattern
_QUESTIONS_MAX = 20_000  # about parts of one pattern; repetitions within repetitions ask more
_AHEAD = 64  # characters that may decide what comes next
_LONG = 418  # as TEXT, for what begins where something else ended: 1024 * 418**2 == 1024**3 / 6,
# the ways to choose three places in their order
_ENDLESS = STEPS_MAX + 1

_T = TypeVar("_T")
_Sets = tuple[int, ...]  # what may stand at the next places: a bit for each character
_Part = tuple[int, _Sets, int]  # which, what follows it, with what flags

_CHARACTERS = ("LITERAL", "NOT_LITERAL", "ANY", "IN")
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_ASIDE = ("ASSERT", "ASSERT_NOT")  # looks about
_WITHOUT_WIDTH = (*_ASIDE, "AT", "FAILURE")
_KNOWN = (*_WITHOUT_WIDTH, "GROUPREF")


HINTS = {  # how a fault begins, and what to do about it
    (
        ENDLESS := "could take endless time"
    ): "say how much may lie between, with [^\\n]{0,80} in place"
    " of .* and \\s{0,8} of \\s*, and repeat nothing that is itself repeated",
    (EMPTY := "fits the empty text"): "demand something, with + in place of *",
    (LONG := f"is longer than {LENGTH_MAX} characters"): "write it as several",
    (
        LATER := "is read in another way by later versions of Python"
    ): "write \\[ for a bracket in a set",
    (
        BROKEN := "is not a regular expression"
    ): "it is read by Python's `re`; single quotes around it keep its backslashes",
}


@lru_cache(256)
def fault(pattern: str) -> str:
    """Say why a pattern is refused; nothing where it is sound."""
    if len(pattern) > LENGTH_MAX:
        return LONG
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            parsed = _parser.parse(pattern)
        analysis = _Analysis(parsed.state)
        if analysis.steps(parsed) > analysis.most:  # even of no text at all
            return f"{ENDLESS}: its repetitions can share one text in too many ways"
        return EMPTY if re.compile(pattern).search("") else ""
    except Warning as told:
        return f"{LATER}: {told}"
    except (re.error, OverflowError, RecursionError, ValueError) as bad:
        return f"{BROKEN}: {bad}"


def hint(why: str) -> str:
    """What to do about a fault."""
    return next((todo for begins, todo in HINTS.items() if why.startswith(begins)), "")


@dataclass(frozen=True, slots=True)
class _Cost:
    """What a part of a pattern can come to, from one place of a text."""

    ways: int = 1  # in which it can end, so that what follows can begin
    walk: int = 0  # steps; within _LONG, they are for characters, which neighbours share
    extra: int = 0  # steps besides, each time


_HOPELESS = _Cost(_ENDLESS, _ENDLESS, _ENDLESS)


def _bounded(number: int) -> int:
    return min(number, _ENDLESS)


def _either(several: Sequence[_Sets]) -> _Sets:
    """What may stand at the next places, if any of several comes."""
    found = []
    for sets in zip(*several, strict=False):
        both = 0
        for one in sets:
            both |= one
        found.append(both)
    return tuple(found)


def _apart(one: _Sets, other: _Sets) -> int | None:
    """The first place whose character tells two continuations apart, if there is one."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if not a & b:
            return place
    return None


def _is_end(op: Any, arg: Any) -> bool:
    return str(op) == "AT" and "END" in str(arg)


def _backwards(parsed: Any) -> Iterator[tuple[Any, Sequence[Any]]]:
    """The items of a sequence from its end on, each with those before it."""
    items = list(parsed)
    return ((items[at], items[:at]) for at in range(len(items) - 1, -1, -1))


def _rarely(follow: _Sets) -> int:
    """How far on its first character can come again, at the least, where a continuation comes."""
    again = (place for place, one in enumerate(follow) if place and one & follow[0])
    return next(again, max(1, len(follow)))


def _chained(costs: Sequence[_Cost]) -> _Cost:
    """What parts cost one after the other: what follows is tried for each way before it."""
    ways, walk, extra, near = 1, 0, 0, 0
    for one in costs:
        extra += ways * one.extra
        if one.walk <= _LONG:
            near = min(_LONG, near + one.walk)
        else:
            walk += ways * one.walk
        if one.ways > 1:
            walk, near = walk + ways * near, 0
            ways = _bounded(ways * one.ways)
    return _Cost(ways, _bounded(walk + ways * near), _bounded(extra))


def _ends(head: _Sets, width: tuple[int, int], most: int, follow: _Sets) -> tuple[int, int]:
    """After how many of its repetitions what follows can begin, and the place that decides it."""
    place = _apart(head, follow)
    if most == 1 or place is not None:
        return 1, place or 0
    if head and width == (1, 1):  # it goes on up to the first other character
        others = 0
        for place, one in enumerate(follow):
            others += bool(one & ~head[0])
            if not one & head[0]:
                return min(most, others), place
    return (-(-most // _rarely(follow)) if width == (1, 1) else most), 0


class _Analysis:
    """The walk through one pattern."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._flags: int = state.flags
        self._questions = 0
        self._left: list[tuple[Any, Any, int]] = []
        self._seen: dict[_Part, _Sets] = {}
        self._costs: dict[_Part, _Cost] = {}
        self._letters = Letters()
        self.most = STEPS_MAX  # steps that are taken

    def steps(self, parsed: Any) -> int:
        """The most steps that the pattern takes on a text."""
        first = next(iter(parsed), None)
        begins = first is not None and str(first[0]) == "AT" and "BEGINNING" in str(first[1])
        places = 1 if begins else -(-TEXT // _rarely(self._ahead(parsed, ())))
        costs = [self._sequence(self._needed(parsed), ())]
        for op, arg, flags in self._left:  # they are gone through, too, but once
            self._flags = flags
            costs.append(self._cost(op, arg, ()))
        if self._questions >= _QUESTIONS_MAX:
            return _ENDLESS
        return places * sum(one.walk + one.extra for one in costs)

    def _needed(self, parsed: Any) -> Any:
        """A pattern without that part of its end which cannot fail."""
        items = list(parsed)
        if len(items) > 1 and _is_end(*items[-1]) and self._takes_all(*items[-2]):
            items.pop()
        while items:
            op, arg = items.pop()
            name, rest = str(op), arg
            if name in _REPEATS:
                self._left.append((op, arg, self._flags))
                rest = (arg[0], arg[0], arg[2]) if arg[0] else None
            elif name == "SUBPATTERN":
                sub = self._flagged(arg, self._needed)
                rest = (*arg[:-1], sub) if len(sub) else None
            elif name == "BRANCH":
                rest = (None, [self._needed(sub) for sub in arg[1]])
            if rest is not None:
                items.append((op, rest))
                break
        return _parser.SubPattern(self._state, items)

    def _takes_all(self, op: Any, arg: Any) -> bool:
        """Say whether this goes on to the end of a text, whatever comes."""
        if str(op) != "MAX_REPEAT" or arg[1] < TEXT or len(arg[2]) != 1:
            return False
        op, inner = arg[2][0]
        return str(op) in _CHARACTERS and self._set(op, inner) == ANYTHING

    def _flagged(self, arg: Any, ask: Callable[[Any], _T]) -> _T:
        """Ask about a group with its own flags."""
        _group, added, removed, sub = arg
        before, self._flags = self._flags, (self._flags | added) & ~removed
        try:
            return ask(sub)
        finally:
            self._flags = before

    # -- what may come next ---------------------------------------------------------------

    def _ahead(self, parsed: Any, follow: _Sets) -> _Sets:
        """What may stand at the next places where these parts come, and then `follow`."""
        part = (id(parsed), follow, self._flags)
        if part not in self._seen:
            self._questions += 1
            if self._questions > _QUESTIONS_MAX:
                return ()
            for (op, arg), before in _backwards(parsed):
                follow = self._ahead_of(op, arg, follow, before)
            self._seen[part] = follow
        return self._seen[part]

    def _ahead_of(self, op: Any, arg: Any, follow: _Sets, before: Sequence[Any]) -> _Sets:
        name, found = str(op), _Sets()
        if name in _CHARACTERS:
            return (self._set(op, arg), *follow)[:_AHEAD]
        if name in _REPEATS:
            found = self._ahead_again(arg, follow)
        elif name == "SUBPATTERN":
            found = self._flagged(arg, lambda sub: self._ahead(sub, follow))
        elif name == "ATOMIC_GROUP":
            found = self._ahead(arg, follow)
        elif name == "BRANCH":
            found = _either([self._ahead(sub, follow) for sub in arg[1]])
        elif str(arg) == "AT_BOUNDARY":
            here = self._letters.across(self._last(before), self._flags)
            found = (here & follow[0], *follow[1:]) if follow else (here,)
        elif name in _WITHOUT_WIDTH:
            found = (END,) if _is_end(op, arg) else follow
        return found

    def _last(self, items: Sequence[Any]) -> int:
        """What these can end with; anything, where they may be empty."""
        found = 0
        for op, arg in reversed(items):
            name, empty = str(op), False
            if name in _CHARACTERS:
                found |= self._set(op, arg)
            elif name in _REPEATS:
                found |= self._last(list(arg[2]))
                empty = not arg[0]
            elif name == "SUBPATTERN":
                found |= self._flagged(arg, lambda sub: self._last(list(sub)))
            elif name == "BRANCH":
                found |= reduce(or_, (self._last(list(sub)) for sub in arg[1]))
            else:
                empty = name in _WITHOUT_WIDTH
                found |= 0 if empty else ANYTHING
            if not empty:
                return found
        return ANYTHING

    def _ahead_again(self, arg: Any, follow: _Sets) -> _Sets:
        low, high, sub = arg
        head = self._ahead(sub, ())
        after = follow if high <= max(low, 1) else _either([head, follow])
        if not low:
            return _either([self._ahead(sub, after), follow])
        if sub.getwidth() == (1, 1):
            sets: _Sets = (head * min(low, _AHEAD) + after)[:_AHEAD]
            return sets
        return self._ahead(sub, after if low == 1 else head)

    def _set(self, op: Any, arg: Any) -> int:
        return self._letters.set_of(op, arg, self._flags)

    # -- what it costs --------------------------------------------------------------------

    def _sequence(self, parsed: Any, follow: _Sets) -> _Cost:
        part = (id(parsed), follow, self._flags)
        if part not in self._costs:
            self._questions += 1
            if self._questions > _QUESTIONS_MAX:
                return _HOPELESS
            costs: list[_Cost] = []
            for (op, arg), before in _backwards(parsed):
                free = self._is_seen(op, before)
                free = free or (not (costs or follow) and self._is_sure(op, arg, before))
                costs.append(_Cost() if free else self._cost(op, arg, follow))
                follow = self._ahead_of(op, arg, follow, before)
            self._costs[part] = _chained(costs[::-1])
        return self._costs[part]

    def _is_seen(self, op: Any, before: Sequence[Any]) -> bool:
        """Whether a character is found by the repetition before it: `re` looks where it may end."""
        if str(op) != "LITERAL" or self._flags & re.IGNORECASE or not before:
            return False
        name, arg = str(before[-1][0]), before[-1][1]
        return name == "MAX_REPEAT" and len(arg[2]) == 1 and str(arg[2][0][0]) in _CHARACTERS

    def _is_sure(self, op: Any, arg: Any, before: Sequence[Any]) -> bool:
        """Whether what ends a pattern fails at most where a repetition before it ends, too."""
        if str(op) in _REPEATS and arg[:2] == (1, 1) and len(arg[2]) == 1:
            op, arg = arg[2][0]
        if (
            str(op) not in _CHARACTERS
            or not before
            or not self._is_seen(before[-1][0], before[:-1])
        ):
            return False
        return not self._set(*before[-2][1][2][0]) & ~self._set(op, arg)

    def _cost(self, op: Any, arg: Any, follow: _Sets) -> _Cost:
        name = str(op)
        if name in _CHARACTERS:
            return _Cost(walk=1)
        if name in _REPEATS:
            return self._repeat(name, arg, follow)
        if name == "SUBPATTERN":
            return self._flagged(arg, lambda sub: self._sequence(sub, follow))
        if name in _ASIDE or name == "ATOMIC_GROUP":  # left for good, once it fits
            inner = self._sequence(arg[1] if name in _ASIDE else arg, ())
            return _Cost(extra=_bounded(inner.walk + inner.extra))
        if name in ("BRANCH", "GROUPREF_EXISTS"):
            several = arg[1] if name == "BRANCH" else arg[1:]
            return self._branch([one for one in several if one is not None], follow)
        most = self._state.groupwidths[arg][1] if name == "GROUPREF" else 0
        return _Cost(walk=min(_LONG, most)) if name in _KNOWN else _HOPELESS

    def _repeat(self, name: str, arg: Any, follow: _Sets) -> _Cost:
        low, high, sub = arg
        width = sub.getwidth()
        if high > 1 and not width[0]:
            return _HOPELESS
        times = max(1, min(high, _LONG // max(1, width[0])))
        if times > 1 and (len(sub) != 1 or str(sub[0][0]) not in _CHARACTERS):
            self.most = GROUPS_MAX
        exits = max(1, times - low + 1)
        head = self._ahead(sub, ())
        inner = last = self._sequence(sub, _either([head, follow]) if high > 1 else follow)
        if inner.ways == 1:  # where each time ends, the text decides
            ends, place = _ends(head, width, exits, follow)
        else:
            inner, last = self._sequence(sub, head), self._sequence(sub, follow)
            ends, place = exits, 0
        before = _bounded(inner.ways ** min(times - 1, _AHEAD))
        if before == last.ways == 1 and max(inner.walk, last.walk) <= _LONG:
            walk = min(_LONG, times * max(inner.walk, last.walk))
        elif times == 1:
            walk = inner.walk
        else:
            walk = _bounded(before * times * (inner.walk + last.walk))
        extra = before * times * (max(inner.extra, last.extra) + place)
        if name == "POSSESSIVE_REPEAT":
            return _Cost(walk=walk, extra=_bounded(extra))
        return _Cost(_bounded(before * last.ways * ends), walk, _bounded(extra))

    def _branch(self, several: Sequence[Any], follow: _Sets) -> _Cost:
        """Branches of which the text allows one are no choice."""
        costs = [self._sequence(sub, follow) for sub in several]
        heads = [self._ahead(sub, follow) for sub in several]
        ways, walk, extra = 1, 0, len(several) - 1 + sum(one.extra for one in costs)
        for one in heads:
            places = [_apart(one, other) for other in heads]
            rivals = [cost for cost, place in zip(costs, places, strict=True) if place is None]
            ways = max(ways, sum(cost.ways for cost in rivals))
            walk = max(walk, sum(cost.walk for cost in rivals))
            extra += max((place for place in places if place is not None), default=0)
        return _Cost(_bounded(ways), _bounded(walk), _bounded(extra))
