"""meta: the on-disk contract, and that docs/META.md tells it as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from indexerd.errors import InvalidMetaError
from indexerd.meta.model import CONTRACT, NESTING_MAX, Metadata, MetaFile, parse_meta

DOC = Path(__file__).parents[2] / "docs" / "META.md"
TWELVE = [
    "sessionId",
    "sessionFile",
    "parentSessionFile",
    "name",
    "description",
    "summary",
    "tags",
    "cwd",
    "createdAt",
    "updatedAt",
    "model",
    "lastIndexedLeafId",
]


def fields(**changed: Any) -> dict[str, Any]:
    """Make the fields of a valid file; None takes one away."""
    held: dict[str, Any] = dict.fromkeys(TWELVE, "x") | {"tags": ["x"]} | changed
    return {key: value for key, value in held.items() if value is not ...}


def parsed(**changed: Any) -> MetaFile:
    """Read a file of these fields."""
    return parse_meta(json.dumps(fields(**changed)).encode(), "p")


# What a reader demands


def test_contract_is_the_missions_twelve_fields() -> None:
    """S0.32: these names, camelCase, in this order, at the head of every file."""
    assert frozenset(TWELVE) == CONTRACT
    assert list(json.loads(parsed().to_json()))[:12] == TWELVE


@pytest.mark.parametrize("name", TWELVE)
def test_each_contract_field_is_demanded(name: str) -> None:
    """S0.38: a file without it, or with a number there, is invalid; the parent may be absent."""
    if name == "parentSessionFile":
        assert parsed(parentSessionFile=...).parent_session_file is None
    else:
        with pytest.raises(InvalidMetaError, match="Invalid meta shape in p"):
            parsed(**{name: ...})
    with pytest.raises(InvalidMetaError, match="Invalid meta shape in p"):
        parsed(**{name: 3})


@pytest.mark.parametrize("name", sorted(set(MetaFile.model_fields)))
def test_optional_field_of_another_type_counts_as_absent(name: str) -> None:
    """A10: a slip in an optional field does not make a paid-for file invalid."""
    alias = MetaFile.model_fields[name].alias or name
    if alias in CONTRACT:
        return
    held = parsed(**{alias: [{"what": None}]})
    assert getattr(held, name) == MetaFile.model_fields[name].default


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_what_python_takes_for_json_is_refused(word: str) -> None:
    """F7, S0.38: NaN and Infinity are no JSON, as upstream's reader has it too."""
    data = json.dumps(fields(extra="@")).replace('"@"', word).encode()
    with pytest.raises(InvalidMetaError, match="Invalid JSON in meta file: p"):
        parse_meta(data, "p")


def test_whatever_is_read_can_be_written() -> None:
    """F7, X12: overflowing numbers, lone surrogates, nulls and nesting survive or are refused."""
    data = json.dumps(fields(a="@", b="\ud800", c=None)).replace('"@"', "-1e999").encode()
    written = json.loads(parse_meta(data, "p").to_json())
    assert (written["a"], written["b"], written["c"]) == (None, "\ufffd", None)
    for depth, fine in ((NESTING_MAX - 2, True), (NESTING_MAX + 1, False), (5000, False)):
        nested = json.dumps(fields(extra="@")).replace('"@"', "[" * depth + "]" * depth)
        if fine:
            assert parse_meta(nested.encode(), "p").to_json()
        else:
            with pytest.raises(InvalidMetaError):
                parse_meta(nested.encode(), "p")


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ({"name": "n" * 120}, {"name": "n" * 121}),
        ({"name": "n"}, {"name": ""}),
        ({"description": "d" * 1200}, {"description": "d" * 1201}),
        ({"summary": "s" * 8000}, {"summary": "s" * 8001}),
        ({"tags": ["t"] * 3}, {"tags": ["t"] * 2}),
        ({"tags": ["t"] * 12}, {"tags": ["t"] * 13}),
        ({"tags": ["t" * 80] * 3}, {"tags": ["t" * 81] * 3}),
        ({"tags": ["t"] * 3}, {"tags": ["t", "t", ""]}),
        ({"extra": 1}, {"name": 1}),
    ],
)
def test_limits_of_what_we_write(good: dict[str, Any], bad: dict[str, Any]) -> None:
    """S0.19: each limit, on both of its sides; unknown keys are dropped."""
    answer = {"name": "n", "description": "d", "summary": "s", "tags": ["a", "b", "c"]}
    held = Metadata.model_validate(answer | good)
    assert set(held.model_dump()) == set(answer)
    with pytest.raises(ValidationError):
        Metadata.model_validate(answer | bad)


# What docs/META.md says

WORDS = {str: "string", int: "integer", float: "number"}
