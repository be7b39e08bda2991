"""What a command takes: said once, beside the command, and without click.

In: decorators in click's words. Out: the function itself, and what was said of it. Two read that:
`quick` takes plain command lines by it, and `clicked` makes click's command of it, which knows
help, completion, complaints and every other form; but to load click costs more than three starts
of Python. A command's first parameter is the `App`; the others come by their names.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    Work = Callable[..., int | None]
    Kind = tuple[str, ...] | range | type[int] | None  # words to choose from; numbers; any number
    F = TypeVar("F", bound=Work)


class Param:
    """An argument, or an option: click's words for it, what it may be, and the rest for click."""

    __slots__ = ("how", "is_option", "kind", "words")

    def __init__(self, words: tuple[str, ...], kind: Kind, how: dict[str, Any]) -> None:
        self.words = words
        self.kind = kind
        self.how = how
        self.is_option = words[0].startswith("-")

    @property
    def name(self) -> str:
        """The parameter's name: the word that is no option, or the long one without its dashes."""
        plain = [word for word in self.words if not word.startswith("-")]
        long = [word for word in self.words if word.startswith("--")]
        return (plain or long)[0].lstrip("-").replace("-", "_")

    @property
    def takes_all(self) -> bool:
        """Whether it takes all words that are left."""
        return self.how.get("nargs") == -1

    @property
    def is_needed(self) -> bool:
        """Whether an argument must be there."""
        needed: bool = self.how.get("required", "default" not in self.how and not self.takes_all)
        return needed

    @property
    def default(self) -> Any:
        """What it is where it was not given."""
        many = self.takes_all or self.how.get("multiple")
        nothing = () if many else False if self.how.get("is_flag") else None
        return self.how.get("default", nothing)


class Said:
    """What was said of a command: its name, unless it is the function's, and what it takes."""

    __slots__ = ("name", "params")

    def __init__(self) -> None:
        self.name: str | None = None
        self.params: list[Param] = []


_SAID: dict[Work, Said] = {}


def said_of(work: object) -> Said | None:
    """What was said of a function; None for anything that is no command of ours."""
    return _SAID.get(work) if callable(work) else None


def command(name: str | None = None) -> Callable[[F], F]:
    """A command. Its help is the docstring; its name the function's, unless it has another."""

    def told(work: F) -> F:
        _SAID.setdefault(work, Said()).name = name
        return work

    return told


def argument(name: str, of: Kind = None, **how: Any) -> Callable[[F], F]:
    """A word by its place; `nargs=-1` takes all that are left."""
    return _taking((name,), of, how)


def option(*words: str, of: Kind = None, **how: Any) -> Callable[[F], F]:
    """An option with a value, or with `is_flag` without one; `of` says what it may be."""
    return _taking(words, of, how)


def _taking(words: tuple[str, ...], kind: Kind, how: dict[str, Any]) -> Callable[[F], F]:
    def told(work: F) -> F:  # the one nearest to the function is the last, and is told of first
        _SAID.setdefault(work, Said()).params.insert(0, Param(words, kind, how))
        return work

    return told
