r"""Patterns of a search (`re:`): vetted before they run, because nothing could stop them later.

In: the expression that a user typed. Out: a `Pattern`, or a ValueError with the reason. Python's
`re` cannot be interrupted and holds the interpreter's lock while it tries, so what might run
away is refused here: references back to a group, a repeat around anything that could itself fit
in several ways (`(a+)+`, `(a|aa)*`), and whatever might take more than WORK_MAX steps on a text
of WINDOW_MIN characters. The rest gets a window: the longest piece of text that is looked
through within WORK_MAX steps. Pieces overlap by half, so a match longer than half a window may
be missed in a text longer than the window.

The bound is computed on the tree of the standard library's own parser: a repeat multiplies the
ways to fit, unless what follows it cannot begin with a character that it takes (`\w+\s+x` has
one way, `.*x` has as many as there are characters). Case never counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import factorial
from re import _parser  # type: ignore[attr-defined]  # the only way to see what a pattern may do
from typing import Any, TypeAlias

PATTERN_MAX = 250  # characters
WORK_MAX = 30_000_000  # steps; an upper bound, from which real texts stay far
WINDOW_MIN = 128  # characters
WINDOW_MAX = 65_536

_Item: TypeAlias = tuple[str, Any]
_LETTERS, _DIGITS, _SPACES, _OTHERS = 1, 2, 4, 8  # every character is in exactly one of these
_ALL = 15
_CATEGORIES = {
    "CATEGORY_DIGIT": _DIGITS,
    "CATEGORY_NOT_DIGIT": _ALL - _DIGITS,
    "CATEGORY_WORD": _LETTERS | _DIGITS,
    "CATEGORY_NOT_WORD": _SPACES | _OTHERS,
    "CATEGORY_SPACE": _SPACES,
    "CATEGORY_NOT_SPACE": _ALL - _SPACES,
}
_ONE = {"LITERAL", "NOT_LITERAL", "ANY", "IN"}  # take exactly one character
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}
_ATOMIC = {"ASSERT", "ASSERT_NOT", "ATOMIC_GROUP"}
_POWER_MAX = 64  # two ways to this power are too many already


@dataclass(frozen=True, slots=True)
class Pattern:
    """A vetted pattern. `literal`, casefolded, is in every text that it fits."""

    regex: re.Pattern[str]
    window: int
    literal: str = ""

    def attempts(self, text: str) -> Iterator[tuple[int, int] | None]:
        """The first place that fits, after a None for each piece of the text without one.

        The caller may stop between two attempts. A place of no length counts as none.
        """
        if self.literal not in text.casefold():
            return
        for lo in range(0, len(text), self.window // 2):
            tries = self.regex.finditer(text, lo, lo + self.window)
            found = next((one.span() for one in tries if one.end() > one.start()), None)
            yield found
            if found or lo + self.window >= len(text):
                return


def escaped(text: str) -> Pattern:
    """A pattern that fits this very text, in upper or lower case."""
    text = text[:PATTERN_MAX]
    return Pattern(re.compile(re.escape(text), re.IGNORECASE), WINDOW_MAX, text.casefold())


def vetted(text: str) -> Pattern:
    """Compile a pattern; ValueError says why it is refused."""
    if not text or len(text) > PATTERN_MAX:
        raise ValueError(f"a pattern has 1 to {PATTERN_MAX} characters")
    try:
        tree = _parser.parse(text, re.IGNORECASE)
        if tree.state.flags & re.ASCII:
            raise ValueError("the flag `a` is not supported")
        window = _window(list(_flat(tree)))
        return Pattern(re.compile(text, re.IGNORECASE), window, _literal(tree))
    except re.error as bad:
        raise ValueError(f"not a regular expression: {bad.msg}") from None
    except (RecursionError, OverflowError, Warning):
        raise ValueError("not a regular expression") from None


def _window(items: Sequence[_Item]) -> int:
    window = WINDOW_MAX
    while window >= WINDOW_MIN:
        ways, size = _cost(items, window, ends=True)
        if window * ways * size <= WORK_MAX:
            return window
        window //= 2
    raise ValueError("the pattern could take too long: use fewer repeats and choices")


def _flat(tree: Any) -> Iterator[_Item]:
    """Items in order, groups opened: a group alone changes nothing."""
    for op, held in tree:
        if str(op) == "SUBPATTERN":
            if held[1] & re.ASCII:
                raise ValueError("the flag `a` is not supported")
            yield from _flat(held[-1])
        else:
            yield str(op), held


def _cost(items: Sequence[_Item], window: int, *, ends: bool) -> tuple[int, int]:
    """In how many ways items may fit at one place, and how many steps one way has.

    `ends`: nothing comes after them.
    """
    ways, size, free = 1, 1, 0
    for n, (op, held) in enumerate(items):
        more = longer = 1
        if op in _REPEATS:
            more, longer = _repeat(held, items[n + 1 :], window, ends=ends)
            free += more > 1 and held[1] > max(held[0], 1)
        elif op == "BRANCH":
            costs = [_cost(list(_flat(one)), window, ends=False) for one in held[1]]
            more, longer = sum(one for one, _ in costs), sum(one for _, one in costs)
        elif op in _ATOMIC:
            inner = held if op == "ATOMIC_GROUP" else held[1]
            tries, longer = _cost(list(_flat(inner)), window, ends=True)
            longer *= tries
        elif op not in _ONE and op != "AT":
            raise ValueError("references back to a group are not supported")
        ways, size = ways * more, size + longer
    # Where repeats end is in their order: of all ways to choose the ends, 1 in `free`! is one.
    return max(1, ways // factorial(free)), size


def _repeat(held: Any, after: Sequence[_Item], window: int, *, ends: bool) -> tuple[int, int]:
    low, high, body = int(held[0]), int(held[1]), list(_flat(held[2]))
    ways, size = _cost(body, window, ends=False)
    if low == high:
        return ways ** min(low, _POWER_MAX), size * max(low, 1)
    if high == 1:
        return ways + 1, size
    if ways > 1:
        raise ValueError("a repeat or a choice inside a repeat is not supported")
    span = min(high - low, window)
    if len(body) == 1 and body[0][0] in _ONE:
        starts = _starts(after, ends=ends)
        if starts is not None and all(_apart(body[0], one) for one in starts):
            return 1, span + low
    return span + 1, size * max(low, 1)


def _starts(items: Sequence[_Item], *, ends: bool) -> list[_Item] | None:
    """What may take the first character of `items`; None where that is not known."""
    found: list[_Item] = []
    for op, held in items:
        if op in _ONE:
            return [*found, (op, held)]
        if op in _REPEATS:
            body = list(_flat(held[2]))
            if not body or body[0][0] not in _ONE:
                return None
            found.append(body[0])
            if held[0] > 0:
                return found
        elif op != "AT":
            return None
    return found if ends else None


def _apart(one: _Item, other: _Item) -> bool:
    """Say whether surely no character fits both."""
    for this, that in ((one, other), (other, one)):
        if this[0] == "LITERAL" and not _may_take(that, this[1]):
            return True
    return not _classes(one) & _classes(other)


def _may_take(item: _Item, code: int) -> bool:
    op, held = item
    if op == "IN":
        subs = [(str(sub), arg) for sub, arg in held]
        if any(sub == "RANGE" and not chr(arg[1]).isascii() for sub, arg in subs):
            return True
        negated = subs[0][0] == "NEGATE"
        return negated != any(_may_take(one, code) for one in subs[negated:])
    if op in {"LITERAL", "NOT_LITERAL"}:
        return _cases(held).isdisjoint(_cases(code)) == (op == "NOT_LITERAL")
    if op == "RANGE":
        return any(held[0] <= ord(case[0]) <= held[1] for case in _cases(code))
    if op == "CATEGORY":
        return bool(_CATEGORIES[str(held)] & _class_of(code))
    return True


def _cases(code: int) -> set[str]:
    return {chr(code), chr(code).lower(), chr(code).upper()}


def _class_of(code: int) -> int:
    char = chr(code)
    if char.isdecimal():
        return _DIGITS
    if char.isalnum() or char == "_":
        return _LETTERS
    return _SPACES if char.isspace() else _OTHERS


def _classes(item: _Item) -> int:
    op, held = item
    if op == "LITERAL":
        return _class_of(held)
    if op == "CATEGORY":
        return _CATEGORIES[str(held)]
    if op == "RANGE":
        text = chr(held[0]) + chr(held[1])
        one_kind = text.isdigit() or text.isupper() or text.islower()
        return _class_of(held[0]) if text.isascii() and text.isalnum() and one_kind else _ALL
    if op == "IN" and str(held[0][0]) != "NEGATE":
        found = 0
        for sub, arg in held:
            found |= _classes((str(sub), arg))
        return found
    return _ALL


def _literal(tree: Any) -> str:
    """The longest run of plain characters that every match must hold, casefolded."""
    runs, run = [""], ""
    for op, held in tree:
        if str(op) == "LITERAL":
            run += chr(held)
            continue
        runs.append(run)
        run = ""
        if str(op) == "SUBPATTERN":
            runs.append(_literal(held[-1]))
    return max(*runs, run, key=len).casefold()
