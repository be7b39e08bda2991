"""protocol/params: one check for every caller, in words that name the field."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from indexerd.daemon.methods import LATE
from indexerd.errors import UsageError
from indexerd.protocol import params
from indexerd.protocol.methods import METHODS, asked

DOC = Path(__file__).parents[2] / "docs" / "PROTOCOL.md"


@pytest.mark.parametrize(
    ("method", "given", "problem"),
    [
        ("get", {}, "ref is required"),
        ("get", {"ref": ""}, "ref must not be empty"),
        ("get", {"ref": 3}, "ref must be a string, not a whole number"),
        ("get", {"ref": "a", "cwd": 3}, "cwd must be a string or null, not a whole number"),
        ("list", {"limit": 0}, "limit must be at least 1"),
        ("list", {"limit": 501}, "limit must be at most 500"),
        ("list", {"limit": True}, "limit must be a whole number, not true or false"),
        ("list", {"archived": None}, "archived must be true or false, not null"),
        (
            "tree",
            {"ref": "a", "filter": "some"},
            "filter must be one of default, no-tools, user-only, labeled-only, all",
        ),
        ("path", {"ref": "a", "leaf": ""}, "leaf must not be empty"),
        ("compact", {"ref": "a", "instructions": "x" * 4001}, "instructions must be at most 4000"),
        ("expand", {"text": "x", "maxBytes": 3}, "maxBytes must be at least 500"),
        ("subscribe", {"events": [1]}, "events[0] must be a string, not a whole number"),
        ("query_session", {"session": "a"}, "question is required"),
    ],
)
def test_what_is_wrong_is_said(method: str, given: dict[str, Any], problem: str) -> None:
    """S3.25: wrong params are a usage error that names the field."""
    with pytest.raises(UsageError, match=f"^{re.escape(problem)}") as caught:
        asked(method, given)
    assert caught.value.upstream == ("INVALID_ARGS" if method == "query_session" else None)


def test_unknown_fields_are_ignored_and_null_clears() -> None:
    """docs/PROTOCOL.md: fields may be added at any time; in `update`, absent is not null."""
    assert asked("list", {"new": 1}) == params.List()
    found = asked("update", {"ref": "a", "title": None, "later": {}})
    assert found == params.Update(ref="a", title=None)
    assert params.Update(ref="a").title is UNSET


def test_every_method_is_documented() -> None:
    """docs/PROTOCOL.md has a line for each method, and none for another."""
    told = set(re.findall(r"^\| `(\w+)`(?: / `(\w+)`)? \|", DOC.read_text(), re.MULTILINE))
    named = {name for pair in told for name in pair if name}
    assert set(METHODS) - named <= {"as_sent"}
    assert set(LATE) <= set(METHODS)
