"""Patterns that are compiled at their first use do what compiled ones do."""

from __future__ import annotations

import re

import pytest

from indexerd.privacy.late import late


def test_a_late_pattern_is_the_pattern() -> None:
    """Every method answers as the compiled pattern does, the first time and later."""
    text, shape = "one two  three", r"\b(t\w+)"
    for _ in range(2):
        mine, plain = late(shape, re.ASCII), re.compile(shape, re.ASCII)
        assert mine.findall(text) == plain.findall(text)
        assert mine.sub("x", text) == plain.sub("x", text)
        assert mine.split(text) == plain.split(text)
        assert [one.span() for one in mine.finditer(text)] == [(4, 7), (9, 14)]
        assert mine.search(text, 5) is not None
        assert mine.match(text) is None
        assert mine.pattern == shape
        assert mine.flags == plain.flags


def test_nothing_is_compiled_before() -> None:
    """A wrong shape is told at the first use, not when the module is loaded."""
    wrong = late("(")
    with pytest.raises(re.error):
        wrong.search("x")
