"""Short forms: put something into sets, and the block that is made of them."""

from __future__ import annotations

from collections.abc import Callable

from indexerd.meta import context_sets as sets


def numbered(count: int, start: int = 0) -> list[str]:
    """So many different items."""
    return [f"item {number}" for number in range(start, start + count)]


def everywhere(_path: str) -> bool:
    """A world in which nothing is missing."""
    return True


def told(context: dict[str, list[str]], exists: Callable[[str], bool] = everywhere) -> str:
    """The sets of a block alone."""
    return sets.told_context(context, exists)[0]
