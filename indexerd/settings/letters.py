"""Sets of characters as numbers: what one item of a parsed pattern that stands for itself can be.

In: an item, and the flags that hold there. Out: a bit for each character, asked of `re` itself.

Sets are exact for the first 256 characters, and for what is like one of them but for its case;
four bits stand for all others, by their kind: two may seem to overlap that do not, but never to be
apart. No line break is ever among them; that nothing comes any more has a bit of its own.
"""

from __future__ import annotations

import re
from functools import reduce
from importlib import import_module
from operator import or_
from typing import Any

_parser: Any = import_module("re._parser")  # private to Python, and the one that `re` uses
_compiler: Any = import_module("re._compiler")

_LATIN = 256
_LIKE_LATIN = "\u0130\u0131\u017f\u212a\u212b\u0178\u039c\u03bc\u1e9e"  # but for their case
_EXACT = "".join(map(chr, range(_LATIN))) + _LIKE_LATIN
_SPACES, _DIGITS, _LETTERS, _REST, END = (1 << len(_EXACT) + kind for kind in range(5))
_NO_BREAK = ~(1 << ord("\n"))
_OTHERS = _SPACES | _DIGITS | _LETTERS | _REST
ANYTHING = (END - 1) & _NO_BREAK
_KINDS = {"SPACE": _SPACES, "DIGIT": _DIGITS, "WORD": _DIGITS | _LETTERS}
_WORD = _parser.parse(r"[\w]")[0]


class Letters:
    """The sets of one pattern's items; each is asked for once."""

    def __init__(self) -> None:
        self._sets: dict[str, int] = {}

    def set_of(self, op: Any, arg: Any, flags: int) -> int:
        """Which characters an item can be."""
        key = f"{op} {arg} {flags}"
        if key not in self._sets:
            state = _parser.State()
            state.flags = flags
            one = _compiler.compile(_parser.SubPattern(state, [(op, arg)]), flags)
            bits = sum(1 << place for place, char in enumerate(_EXACT) if one.fullmatch(char))
            self._sets[key] = (bits | _beyond(str(op), arg, flags)) & _NO_BREAK
        return self._sets[key]

    def across(self, last: int, flags: int) -> int:
        r"""What may stand behind `\b` where `last` may stand before it."""
        op, arg = _WORD
        word = self.set_of(op, arg, flags)
        if not last & ~word:
            return END | ANYTHING & ~word
        return ANYTHING | END if last & word else word


def _beyond(name: str, arg: Any, flags: int) -> int:
    """Which others than the exact ones may be among them."""
    if name == "LITERAL":
        return _OTHERS if arg >= _LATIN else 0
    if name == "RANGE":
        return _OTHERS if arg[1] >= _LATIN else 0
    if name == "CATEGORY":
        named = str(arg).rpartition("_")[2]
        kinds = 0 if flags & re.ASCII else _KINDS[named]
        return _OTHERS & ~kinds if "_NOT_" in str(arg) else kinds
    if name != "IN":
        return _OTHERS
    parts = [(str(op), one) for op, one in arg]
    if parts[0][0] != "NEGATE":
        return reduce(or_, (_beyond(*one, flags) for one in parts))
    whole = (_beyond(*one, flags) for one in parts if one[0] == "CATEGORY")
    return _OTHERS & ~reduce(or_, whole, 0)
