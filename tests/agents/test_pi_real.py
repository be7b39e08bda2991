"""pi's own files, and those that others published, as pi itself reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from indexerd.events import Kind
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
    said = json.loads(answer.read_text())
    if said.get("error"):
        pytest.skip("pi itself refuses this file")
    file = REAL / said["file"]
    if not file.is_file():
        pytest.skip(f"{said['file']} is not in the committed subset")

    state = fed("pi", file.read_bytes())

    assert state.header is not None
    assert said["header"]["id"] == state.header.session_id
    assert said["header"]["cwd"] == state.header.cwd
    assert (-1 if said["leafOrdinal"] is None else said["leafOrdinal"]) == state.leaf
    assert said["branchOrdinals"] == list(state.path())
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
