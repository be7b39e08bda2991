"""pi's own files, and those that others published, as pi itself reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from indexerd.agents.pi import read
from indexerd.events import Kind
from indexerd.times import iso_of_ms
from tests.agents.pi_files import state_of

REAL = Path(__file__).parent.parent / "fixtures" / "real"
PUBLIC = Path(__file__).parents[3] / "shared" / "fixtures" / "public" / "pi"


def oracle_files() -> list[Any]:
    """What pi itself says of each file."""
    return [
        pytest.param(path, id=path.name[:60])
        for path in sorted((REAL / "pi-oracle").glob("*.json"))
    ]


@pytest.mark.parametrize("answer", oracle_files())
def test_real_files_read_as_pi_reads_them(answer: Path) -> None:
    """S1.4, S1.5, S0.10: leaf, branch, users, labels, name and list row equal pi's own answers."""
    said = json.loads(answer.read_text())
    if said.get("error"):
        pytest.skip("pi itself refuses this file")
    file = REAL / said["file"]
    if not file.is_file():
        pytest.skip(f"{said['file']} is not in the committed subset")

    state = state_of(file.read_bytes())

    assert state.header is not None
    assert said["header"]["id"] == state.header.session_id
    assert said["header"]["cwd"] == state.header.cwd
    assert (-1 if said["leafOrdinal"] is None else said["leafOrdinal"]) == state.leaf
    assert said["branchOrdinals"] == state.path()
    assert said["entryCount"] == len(state)
    assert said["userMessagesOnBranch"] == state.user_messages()
    kinds = [state.kind(row) for row in range(len(state))]
    assert said["userMessagesTotal"] == kinds.count(Kind.USER)
    assert said["sessionName"] == state.name
    if said["versionOnDisk"] == 3:
        assert said["leafId"] == state.leaf_id
        assert said["branch"] == [state.id(row) for row in state.path()]
        assert said["labels"] == state.labels
    row = said["list"]
    assert row is None or row["messageCount"] == state.messages
    if row and row["messageCount"]:
        assert row["modified"] == iso_of_ms(state.activity_ms)
    leaves = {leaf["ordinal"]: leaf["userMessages"] for leaf in said["leaves"]}
    assert leaves == {tip: state.user_messages(tip) for tip in state.tips()}


def truth() -> list[Any]:
    """What the driver sent to pi."""
    rows = json.loads((REAL / "truth-pi.json").read_text())
    return [pytest.param(row, id=f"{row['agent']}-{row['label']}") for row in rows]


@pytest.mark.parametrize("row", truth())
def test_counts_names_and_parents_equal_what_was_sent(row: dict[str, Any]) -> None:
    """Counts, names, texts and parents equal what the driver sent to pi."""
    file = REAL / row["file"]
    data = file.read_bytes()
    state = state_of(data)

    assert row["n_user"] == state.user_messages()
    assert row.get("name") == state.name
    texts = [
        read(data[state.offsets[r] : state.offsets[r] + state.lengths[r]], state.id(r)).text
        for r in state.path()
        if state.kind(r) is Kind.USER
    ]
    assert [text.strip() for text in row["user_messages"]] == texts
    assert (row.get("parent") is not None) == (
        state.header is not None and state.header.parent is not None
    )


@pytest.mark.shared
def test_public_files_read_as_pi_reads_them() -> None:
    """The public collection: leaf, branch, users and names equal what pi 0.81 itself answers."""
    if not PUBLIC.is_dir():
        pytest.skip("the shared fixtures are not beside this checkout")
    said = json.loads((PUBLIC / "EXPECTED.json").read_text())
    compared = 0
    for name, answers in said.items():
        answer = answers.get("v0.81") if isinstance(answers, dict) else None
        if not answer or "leafIndex" not in answer:
            continue
        state = state_of((PUBLIC / name).read_bytes())
        harness = name == "synthetic/harness_leaf.jsonl"  # its `leaf` entries: we follow them
        assert answer["entries"] == len(state), name
        assert answer["userOnBranch"] == state.user_messages(), name
        assert answer["name"] == state.name, name
        if not harness:
            assert answer["leafIndex"] == state.leaf, name
            if "branchIndices" in answer:
                assert answer["branchIndices"] == state.path(), name
        if answer.get("list"):
            assert answer["list"]["messageCount"] == state.messages, name
        compared += 1
    assert compared >= 12
