"""protocol/params: one check for every caller, in words that name the field."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from indexerd.daemon.methods import READ_FILE
from indexerd.errors import UsageError
from indexerd.protocol import params
from indexerd.protocol.methods import METHODS, asked

DOC = Path(__file__).parents[2] / "docs" / "PROTOCOL.md"


@pytest.mark.parametrize(
    ("method", "given", "problem"),
    [
        ("get", {}, "ref: is required"),
        ("get", {"ref": ""}, "ref: Expected `str` of length >= 1"),
        ("get", {"ref": "a", "cwd": 3}, "cwd: Expected `str | null`, got `int`"),
        ("list", {"limit": 501}, "limit: Expected `int` <= 500"),
        ("list", {"limit": True}, "limit: Expected `int`, got `bool`"),
        ("tree", {"ref": "a", "filter": "some"}, "filter: Invalid enum value"),
        ("compact", {"ref": "a", "instructions": "x" * 4001}, "instructions: Expected"),
        ("expand", {"text": "x", "maxBytes": 3}, "maxBytes: Expected"),
        ("subscribe", {"events": [1]}, "events[0]: Expected `str`, got `int`"),
        ("query_session", {"session": "a"}, "question: is required"),
    ],
)
def test_what_is_wrong_is_said(method: str, given: dict[str, Any], problem: str) -> None:
    """S3.25: wrong params are a usage error that names the field."""
    with pytest.raises(UsageError, match=f"^{re.escape(problem)}") as caught:
        asked(method, given)
    assert caught.value.upstream == ("INVALID_ARGS" if method == "query_session" else None)


def test_unknown_fields_are_ignored_and_null_clears() -> None:
    assert asked("list", {"new": 1}) == params.List()
    found = asked("update", {"ref": "a", "title": None, "later": {}})
    assert found == params.Update(ref="a", title=None)
    assert params.Update(ref="a").title is UNSET


def test_every_method_is_documented() -> None:
    told = set(re.findall(r"^\| `(\w+)`(?: / `(\w+)`)? \|", DOC.read_text(), re.MULTILINE))
    named = {name for pair in told for name in pair if name}
    assert set(METHODS) <= named
    assert set(METHODS) >= READ_FILE
