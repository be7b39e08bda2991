"""The mutants of a file: every change there should be, and no change of what nobody tests."""

from __future__ import annotations

import pytest

pytest.importorskip("mutmut", reason="mutmut is not installed")

from tests.mutants.making import Mutants

SOURCE = '''"""A docstring."""

from typing import Any, Literal

__all__ = ["LIMIT", "told"]
LIMIT = 7
Word = Literal["a", "b"]


def told(text: str, *more: Any) -> str:
    """Another."""
    if len(text) > LIMIT:
        raise ValueError(f"{text} is too long: {LIMIT}", "a message of ours")
    note(text, "never seen")
    return text[1:] if more else "-"
'''


def changes(source: str) -> set[str]:
    """The changed lines of every mutant."""
    made = Mutants("indexerd/core/x.py", source)
    before = source.splitlines()
    found = set[str]()
    for mutant in made.found:
        after = made.source(mutant).splitlines()
        (line,) = [one for one in after if one not in before] or [""]
        found.add(line.strip())
    return found


def test_every_change_is_made() -> None:
    """Numbers, comparisons, arguments, results, conditions, statements, slices and strings."""
    assert changes(SOURCE) >= {
        "LIMIT = 8",
        "LIMIT = None",
        "if len(text) >= LIMIT:",
        "if not (len(text) > LIMIT):",
        "pass",
        'note(None, "never seen")',
        'note("never seen")',
        "return None",
        'return text[2:] if more else "-"',
        'return text[:] if more else "-"',
        'return text[1:] if more else "XX-XX"',
        'return text[1:] if (more) or True else "-"',
    }


def test_nothing_else_is_changed() -> None:
    """No docstring, type, `__all__`, message or word of a sentence."""
    words = " ".join(changes(SOURCE))
    for untouched in (
        "docstring",
        "Another",
        "Literal",
        "__all__",
        "too long",
        "SEEN",
        "Any",
        "->",
    ):
        assert untouched not in words


def test_a_mutant_says_where_it_is() -> None:
    """Its statement's lines, and whether a module does it when it is loaded."""
    found = Mutants("indexerd/core/x.py", SOURCE).found
    assert {(one.line, one.loading) for one in found if one.operator == "number"} == {
        (6, True),
        (15, False),
    }
    assert all(one.lines[0] <= one.line <= one.lines[1] for one in found)
