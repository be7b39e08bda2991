"""Real pi files, and published ones, are read as pi reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from indexerd.entries import Kind
from indexerd.times import iso_of_ms
from tests.agents.feeding import fed

REAL = Path(__file__).parent.parent / "fixtures" / "real"


def oracle_files() -> list[Any]:
    return [
        pytest.param(path, id=path.name[:60])
        for path in sorted((REAL / "pi-oracle").glob("*.json"))
    ]


@pytest.mark.parametrize("answer", oracle_files())
def test_real_files_read_as_pi_reads_them(answer: Path) -> None:
    """S1.4, S1.5, S0.10: leaf, branch, users, labels, name and list row equal pi's own answers."""
    oracle = json.loads(answer.read_text())
    if oracle.get("error"):
        pytest.skip("pi itself refuses this file")
    file = REAL / oracle["file"]
    if not file.is_file():
        pytest.skip(f"{oracle['file']} is not in the committed subset")

    state = fed("pi", file.read_bytes())

    assert state.header is not None
    assert oracle["header"]["id"] == state.header.session_id
    assert oracle["header"]["cwd"] == state.header.cwd
    assert (-1 if oracle["leafOrdinal"] is None else oracle["leafOrdinal"]) == state.leaf
    assert oracle["branchOrdinals"] == list(state.path())
    assert oracle["entryCount"] == len(state)
    assert oracle["userMessagesOnBranch"] == state.user_messages()
    kinds = [state.kind(row) for row in range(len(state))]
    assert oracle["userMessagesTotal"] == kinds.count(Kind.USER)
    assert oracle["sessionName"] == state.name
    if oracle["versionOnDisk"] == 3:
        assert oracle["leafId"] == state.leaf_id
        assert oracle["branch"] == [state.id(row) for row in state.path()]
        assert oracle["labels"] == state.labels
    row = oracle["list"]
    assert row is None or row["messageCount"] == state.messages
    if row and row["messageCount"]:
        assert row["modified"] == iso_of_ms(state.activity_ms)
    leaves = {leaf["ordinal"]: leaf["userMessages"] for leaf in oracle["leaves"]}
    assert leaves == {tip: state.snapshot(tip).user_messages() for tip in state.tips()}
