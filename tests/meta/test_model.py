"""meta: the on-disk contract, and that docs/META.md tells it as it is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import types
import typing
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from indexerd.errors import InvalidMetaError
from indexerd.meta import model as module
from indexerd.meta.model import (
    CONTRACT,
    NESTING_MAX,
    Metadata,
    MetaFile,
    Usage,
    UserFile,
    parse_meta,
)
from indexerd.protocol import limits

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


def test_bytes_on_disk() -> None:
    """interfaces.md 3: two-space JSON, UTF-8 as it is, one newline at the end."""
    data = parsed(name="caf\u00e9 \U0001f511").to_json()
    assert data.startswith(b'{\n  "sessionId": "x",\n')
    assert data.endswith(b"\n}\n")
    assert "caf\u00e9 \U0001f511".encode() in data


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


def word(kind: Any) -> str:
    """Say a field's type as the document does."""
    arguments = [one for one in typing.get_args(kind) if one is not types.NoneType]
    origin = typing.get_origin(kind)
    if origin in {typing.Union, types.UnionType}:
        return word(arguments[0])
    if origin is list:
        return f"list of {word(arguments[0])}s"
    if origin is dict:
        inner = arguments[1]
        return f"object of {word(inner)}s" if inner in WORDS else f"object of {word(inner)}"
    return WORDS.get(kind, "object")


def told(heading: str) -> dict[str, list[str]]:
    """Read the first table below a heading: field -> its other cells."""
    section = DOC.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [
        line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")
    ]
    return {row[0].strip("`"): row[1:] for row in rows}


def expected(model: type[BaseModel], *, always: set[str]) -> dict[str, tuple[str, str]]:
    """Say what the document must tell of a model: field -> type, presence."""
    return {
        str(field.alias): (word(field.annotation), "yes" if field.alias in always else "no")
        for field in model.model_fields.values()
    }


@pytest.mark.parametrize(
    ("heading", "model", "always"),
    [
        ("The meta file", MetaFile, (CONTRACT - {"parentSessionFile"}) | {"schemaVersion"}),
        ("`usage`", Usage, {"inputTokens", "outputTokens", "costUsd", "calls"}),
        ("The user's sidecar", UserFile, {"labels", "context"}),
    ],
)
def test_document_tells_each_field(heading: str, model: type[BaseModel], always: set[str]) -> None:
    """docs/META.md lists the fields in the file's order, with type and presence, and no others."""
    found = told(heading)
    wanted = expected(model, always=always)
    assert list(found) == list(wanted)
    assert {name: (cells[0], cells[1]) for name, cells in found.items()} == wanted
    assert all(len(cells[2]) > 10 for cells in found.values())


def test_fields_told_as_always_there_are_always_written() -> None:
    """What the document promises to be in every file of ours is in the barest one."""
    always = {name for name, cells in told("The meta file").items() if cells[1] == "yes"}
    assert always == set(json.loads(parsed(parentSessionFile=...).to_json()))
    user = {name for name, cells in told("The user's sidecar").items() if cells[1] == "yes"}
    assert user == set(json.loads(UserFile().to_json()))


def test_document_tells_the_limits() -> None:
    """Each limit of S0.19 is told with the number that binds."""
    rows = told("The meta file")
    for name, numbers in {
        "name": (limits.NAME_MAX,),
        "description": (limits.DESCRIPTION_MAX,),
        "summary": (limits.SUMMARY_MAX,),
        "tags": (limits.TAGS_MIN, limits.TAGS_MAX, limits.TAG_MAX),
        "firstUserMessage": (limits.FIRST_MESSAGE_MAX,),
        "schemaVersion": (module.SCHEMA_VERSION,),
    }.items():
        said = [int(one.replace(",", "")) for one in re.findall(r"[0-9][0-9,]*", rows[name][2])]
        assert set(numbers) <= set(said), name


def test_examples_of_the_document_run(tmp_path: Path) -> None:
    """Every jq line of the document runs on files of ours and prints something."""
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    full = fields(
        schemaVersion=1,
        agent="pi",
        usage={"inputTokens": 9000, "outputTokens": 300, "costUsd": 0.003, "calls": 1},
        filesModified=["src/lock.py"],
        updatedAt="2026-11-21T10:00:00Z",
        tags=["ticket:ABC-123", "lock", "oil"],
    )
    held = parse_meta(json.dumps(full).encode(), "p")
    (tmp_path / "a.meta.json").write_bytes(held.to_json())
    user = UserFile(title="Mine", labels={"e1": "here"})
    (tmp_path / "a.user.json").write_bytes(user.to_json())
    (tmp_path / "a.digest.jsonl").write_text('{"id": "d1", "covering_messages": [0, 9]}\n')
    blocks = re.findall(r"```sh\n(.*?)```", DOC.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 4
    for block in blocks:
        done = subprocess.run(
            ["sh", "-euc", block], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), block
        assert done.stdout.strip(), block
