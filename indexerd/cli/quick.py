"""Plain command lines of every command, without click, which costs three starts of Python.

In: the words after the program's name. Out: an exit code, or None: then the full command line takes
over, and nothing has happened yet. Plain is what cannot be understood in two ways: a command of the
table, its own long and short options as they are spelled, each once and each with a sound value,
and as many words as it takes. Whatever is odd, wrong or asks for help is click's. The command that
runs is the same function in both cases.
"""

from __future__ import annotations

import os
import sys

from indexerd.cli.app import App
from indexerd.cli.declare import said_of
from indexerd.cli.fast import ended
from indexerd.cli.streams import INTERRUPTED
from indexerd.cli.table import COMMANDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from indexerd.cli.declare import Kind, Param

_DIGITS_MAX = 9
COMPLETING = "_INDEXERD_COMPLETE"  # in the environment: a shell asks what could come next


def attempt(argv: Sequence[str]) -> int | None:
    """Run a plain command line; None for any other."""
    words = [word for word in argv if word != "--json"]
    if not words or "--" in argv or words[0] not in COMMANDS or COMPLETING in os.environ:
        return None
    module, attribute, _ = COMMANDS[words[0]]
    work = getattr(__import__(f"indexerd.cli.{module}", fromlist=[attribute]), attribute)
    said = said_of(work)
    given = _given(said.params, words[1:]) if said else None
    if given is None:
        return None
    app = App(json=len(words) < len(argv))
    try:
        return ended(lambda: work(app, **given), as_json=app.json)
    except (EOFError, KeyboardInterrupt):
        sys.stderr.write("\n")
        return INTERRUPTED


def _given(params: Sequence[Param], words: Sequence[str]) -> dict[str, Any] | None:
    """The values of all parameters; None where something is not plain."""
    by_word = {word: one for one in params if one.is_option for word in one.words}
    found: dict[str, Any] = {}
    plain: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if not word.startswith("-") or word == "-":
            plain.append(word)
            continue
        one = by_word.get(word)
        value = _value(one, waiting) if one else None
        if one is None or value is None or one.name in found:
            return None
        found[one.name] = value
    placed = _placed([one for one in params if not one.is_option], plain)
    if placed is None:
        return None
    return {one.name: one.default for one in params} | placed | found


def _value(one: Param, waiting: Any) -> Any:
    """An option's value; None where it has none, or none that is plain."""
    if one.how.get("is_flag"):
        return True
    text = next(waiting, None)
    if text is None or text.startswith("-") or one.how.get("multiple"):
        return None
    return _sound(one.kind, text)


def _sound(kind: Kind, text: str) -> Any:
    """The value of a text; None where it is not of its kind."""
    if kind is None:
        return text
    if isinstance(kind, tuple):
        return text if text in kind else None
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MAX:
        return None
    number = int(text)
    return number if not isinstance(kind, range) or number in kind else None


def _placed(params: Sequence[Param], words: Sequence[str]) -> dict[str, Any] | None:
    """Words by their places; None where there are too few or too many."""
    found: dict[str, Any] = {}
    left = list(words)
    for one in params:
        if not left and one.is_needed:
            return None
        if one.takes_all:
            found[one.name], left = tuple(left), []
        elif left:
            found[one.name] = _sound(one.kind, left.pop(0))
    return None if left or None in found.values() else found
