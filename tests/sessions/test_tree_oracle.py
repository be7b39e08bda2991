"""Trees, branches, labels and contexts of real files, as pi itself answers for each of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from indexerd.events import Kind
from indexerd.sessions.context import Context, context_of
from indexerd.sessions.facts import file_lists
from indexerd.sessions.state import ROOT, SessionState
from indexerd.sessions.tree_answers import tips
from tests.sessions.tree_sessions import PUBLIC, all_nodes, answers, reader, state_of

CASES = [pytest.param(file, said, id=file.name[-44:]) for file, said in answers()]
CUT = 400  # characters of a text that the oracle keeps


def cut(text: str) -> str:
    units = text.encode("utf-16-le")
    if len(units) <= 2 * CUT:
        return text
    head = units[: 2 * CUT].decode("utf-16-le", "surrogatepass")
    return f"{head}…[{len(units) // 2}]"


def flat(roots: list[dict[str, Any]]) -> list[tuple[str | None, int, str | None]]:
    found: list[tuple[str | None, int, str | None]] = []
    stack = [(root, 0) for root in reversed(roots)]
    while stack:
        node, depth = stack.pop()
        found.append((node.get("id"), depth, node.get("label")))
        stack += [(one, depth + 1) for one in reversed(node.get("children", []))]
    return found


def names(state: SessionState, said: dict[str, Any]) -> dict[str, str]:
    if said["versionOnDisk"] >= 2:
        return {one: one for one in (state.id(row) for row in range(len(state)))}
    leaves = {leaf["id"]: leaf["ordinal"] for leaf in said["leaves"]}
    rows = dict(zip(said["branch"], said["branchOrdinals"], strict=True)) | leaves
    return {entry_id: state.id(row) for entry_id, row in rows.items()}


def needs(said: dict[str, Any], key: str) -> Any:
    if key not in said:
        pytest.skip("the shared fixtures are not beside this checkout")
    return said[key]


def view(context: Context) -> list[list[str]]:
    return [[one.role, cut(one.text)] for one in context.messages]


@pytest.mark.shared
@pytest.mark.parametrize(("file", "said"), CASES)
def test_the_tree_is_pis_tree(file: Path, said: dict[str, Any]) -> None:
    """S1.6, S1.30: order, depth, labels and the active path of every node are pi's own."""
    data = file.read_bytes()
    state = state_of(data)
    ours = names(state, said)

    found = all_nodes(state, data)

    expected = [(ours[one], depth, label) for one, depth, label in flat(needs(said, "tree")) if one]
    assert expected == [(one["id"], one["depth"], one.get("label")) for one in found]
    branch = {ours[one] for one in said["branch"]}
    assert branch == {one["id"] for one in found if one["active"]}
    ordinals = {ours[leaf["id"]]: leaf["ordinal"] for leaf in said["leaves"]}
    assert ordinals.items() <= {one["id"]: one["ordinal"] for one in found}.items()


@pytest.mark.parametrize(("file", "said"), CASES)
def test_tips_and_branch_points_are_pis(file: Path, said: dict[str, Any]) -> None:
    """S1.14, S1.36: every leaf with its counts, and the points where branches part."""
    data = file.read_bytes()
    state, read = state_of(data), reader(state_of(data), data)
    ours = names(state, said)

    rows = [row for row in state.entries() if state.kind(row) is Kind.BRANCH_SUMMARY]
    found = tips(state, {row: read(row) for row in rows})

    expected = {(ours[one["id"]], one["pathLength"], one["userMessages"]) for one in said["leaves"]}
    assert expected == {(state.id(tip.row), tip.entries, tip.users) for tip in found}
    points = {state.id(tip.parting) for tip in found if tip.parting != ROOT}
    assert {ours[one] for one in said["branchPoints"]} >= points
    assert bool(points) == bool(said["branchPoints"])
    assert [tip.row for tip in found if state.row(state.id(tip.row)) == state.leaf] == (
        [] if said["leafId"] is None else [state.leaf]
    )


@pytest.mark.shared
@pytest.mark.parametrize(("file", "said"), CASES)
def test_the_context_is_pis_context(file: Path, said: dict[str, Any]) -> None:
    """S1.18 to S1.20, S1.32, S1.33: roles, texts, model and thinking level, from every leaf."""
    data = file.read_bytes()
    state = state_of(data)
    read, ours = reader(state, data), names(state, said)

    found = context_of(state, read, level="off")

    expected = needs(said, "context")
    assert [[one["role"], one["text"]] for one in expected["messages"]] == view(found)
    assert (expected["model"], expected["thinkingLevel"]) == (found.model, found.thinking_level)
    for leaf, messages in said["contextPerLeaf"].items():
        row = state.row(ours[leaf])
        assert messages == view(context_of(state.still(row), read)), leaf


@pytest.mark.shared
@pytest.mark.parametrize(("file", "said"), CASES)
def test_compactions_and_file_lists_are_pis(file: Path, said: dict[str, Any]) -> None:
    """S1.21 to S1.23: the newest compaction as it was stored; files of the branch's own calls."""
    data = file.read_bytes()
    state = state_of(data)
    read = reader(state, data)
    entries = [read(row) for row in state.path()]

    found = [one for one in entries if one.kind is Kind.COMPACTION][::-1]

    newest = needs(said, "latestCompaction")
    assert bool(newest) == bool(found)
    if newest:
        told = found[0]
        assert (newest["id"], newest["firstKeptEntryId"]) == (told.id, told.compaction.kept)
        assert newest["tokensBefore"] == told.compaction.tokens_before
        assert newest["details"] == told.stored
        assert newest["summary"] == cut("".join(told.texts))
    lists = file_lists(one for one in entries if one.type == "message")
    assert said["fileListsOnBranch"]["readFiles"] == list(lists.read)
    assert said["fileListsOnBranch"]["modifiedFiles"] == list(lists.modified)


@pytest.mark.shared
def test_public_files_are_read_as_pi_reads_them() -> None:
    """Paths, roots and contexts of public files equal the answers of pi 0.81."""
    if not PUBLIC.is_dir():
        pytest.skip("the shared fixtures are not beside this checkout")
    told = json.loads((PUBLIC / "EXPECTED.json").read_text())
    compared = []
    for name, versions in told.items():
        said = versions.get("v0.81") if isinstance(versions, dict) else None
        if not said or "context" not in said:
            continue
        data = (PUBLIC / name).read_bytes()
        state = state_of(data)
        leaf = state if "harness" not in name else state.still(said["leafIndex"])
        found = context_of(leaf, reader(state, data), level="off")
        expected = said["context"]
        if "harness" in name:  # the tail that a harness keeps is unknown to the agent itself
            found = Context(found.messages[:1], found.model, found.thinking_level)
        assert expected["n"] == len(found.messages), name
        assert expected.get("roles") in (None, [one.role for one in found.messages]), name
        assert (expected["model"], expected["thinkingLevel"]) == (
            found.model,
            found.thinking_level,
        ), name
        if "roots" in said:
            tops = [node["ordinal"] for node in all_nodes(state, data) if not node["depth"]]
            assert said["roots"] == len(tops), name
            assert said.get("rootIndices") in (None, tops), name
        compared.append(name)
    assert len(compared) >= 12
