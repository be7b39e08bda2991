"""Trees, branches, labels and contexts of real files equal pi's own answers."""

from pathlib import Path
from typing import Any

import pytest

from indexerd.entries import Kind
from indexerd.sessions.context import Context, context_of
from indexerd.sessions.facts import file_lists
from indexerd.sessions.state import ROOT, SessionState
from indexerd.sessions.tree_answers import tips
from indexerd.times import iso_of_ms
from tests.sessions.tree_sessions import all_nodes, answers, reader, state_of

CASES = [pytest.param(file, oracle, id=file.name[-44:]) for file, oracle in answers()]
CUT = 400  # length to which the oracle cuts texts


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
        stack += [(child, depth + 1) for child in reversed(node.get("children", []))]
    return found


def names(state: SessionState, oracle: dict[str, Any]) -> dict[str, str]:
    if oracle["versionOnDisk"] >= 2:
        return {entry_id: entry_id for entry_id in state.ids}
    leaves = {leaf["id"]: leaf["ordinal"] for leaf in oracle["leaves"]}
    rows = dict(zip(oracle["branch"], oracle["branchOrdinals"], strict=True)) | leaves
    return {entry_id: state.ids[row] for entry_id, row in rows.items()}


def needs(oracle: dict[str, Any], key: str) -> Any:
    if key not in oracle:
        pytest.skip("the shared fixtures are not beside this checkout")
    return oracle[key]


def view(context: Context) -> list[list[str]]:
    return [[message.role, cut(message.text)] for message in context.messages]


@pytest.mark.parametrize(("file", "oracle"), CASES)
def test_files_are_read_as_pi_reads_them(file: Path, oracle: dict[str, Any]) -> None:
    """S1.4, S1.5, S0.10, S1.14, S1.36: leaf, branch, users, labels, name, list row, every tip."""
    data = file.read_bytes()
    state, our_ids = state_of(data), names(state_of(data), oracle)
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
        assert oracle["labels"] == state.labels
    row = oracle["list"]
    assert row is None or row["messageCount"] == state.messages
    if row and row["messageCount"]:
        assert row["modified"] == iso_of_ms(state.activity_ms)

    read = reader(state, data)
    rows = [row for row in range(len(state)) if state.kind(row) is Kind.BRANCH_SUMMARY]
    found = tips(state, {row: read(row) for row in rows})
    expected = {
        (our_ids[leaf["id"]], leaf["pathLength"], leaf["userMessages"]) for leaf in oracle["leaves"]
    }
    assert expected == {(state.ids[tip.row], tip.entries, tip.users) for tip in found}
    points = {state.ids[tip.parting] for tip in found if tip.parting != ROOT}
    assert {our_ids[entry_id] for entry_id in oracle["branchPoints"]} >= points
    repeats = len({leaf["id"] for leaf in oracle["leaves"]}) < len(oracle["leaves"])  # no branch
    assert bool(points) == (bool(oracle["branchPoints"]) and not repeats)
    assert [tip.row for tip in found if state.row(state.ids[tip.row]) == state.leaf] == (
        [] if oracle["leafId"] is None else [state.leaf]
    )


@pytest.mark.shared
@pytest.mark.parametrize(("file", "oracle"), CASES)
def test_tree_context_compactions_and_file_lists_equal_pis(
    file: Path, oracle: dict[str, Any]
) -> None:
    """S1.6, S1.18 to S1.23, S1.30, S1.32, S1.33: of every node, leaf, and tool call."""
    data = file.read_bytes()
    state = state_of(data)
    read, our_ids = reader(state, data), names(state, oracle)
    expected = [
        (our_ids[entry_id], depth, label)
        for entry_id, depth, label in flat(needs(oracle, "tree"))
        if entry_id
    ]
    found = all_nodes(state, data)
    assert expected == [(node["id"], node["depth"], node.get("label")) for node in found]
    branch = {our_ids[entry_id] for entry_id in oracle["branch"]}
    assert branch == {node["id"] for node in found if node["active"]}
    ordinals = {our_ids[leaf["id"]]: leaf["ordinal"] for leaf in oracle["leaves"]}
    assert ordinals.items() <= {node["id"]: node["ordinal"] for node in found}.items()

    context, theirs = context_of(state, read, level="off"), needs(oracle, "context")
    assert [[message["role"], message["text"]] for message in theirs["messages"]] == view(context)
    assert (theirs["model"], theirs["thinkingLevel"]) == (context.model, context.thinking_level)
    for leaf, messages in oracle["contextPerLeaf"].items():
        row = state.row(our_ids[leaf])
        assert messages == view(context_of(state.snapshot(row), read)), leaf

    entries = [read(row) for row in state.path()]
    compactions = [entry for entry in entries if entry.kind is Kind.COMPACTION][::-1]
    newest = needs(oracle, "latestCompaction")
    assert bool(newest) == bool(compactions)
    if newest:
        compaction = compactions[0]
        assert (newest["id"], newest["firstKeptEntryId"]) == (
            compaction.id,
            compaction.compaction.kept,
        )
        assert newest["tokensBefore"] == compaction.compaction.tokens_before
        assert newest["details"] == compaction.stored
        assert newest["summary"] == cut("".join(compaction.texts))
    lists = file_lists(entry for entry in entries if entry.type == "message")
    assert oracle["fileListsOnBranch"]["readFiles"] == list(lists.read)
    assert oracle["fileListsOnBranch"]["modifiedFiles"] == list(lists.modified)
