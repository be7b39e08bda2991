"""Codex's own files, and other people's, read as they were meant."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexerd.events import Kind, Turn
from indexerd.sessions.facts import ActivityStats
from tests.agents.codex_files import FILE, SHARED, Home, entries, state_of, texts, undone

REAL, PUBLIC = SHARED / "real", SHARED / "public"
pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(
        not REAL.is_dir(), reason="the shared fixtures are not beside this checkout"
    ),
]


@cache
def home(agent: str) -> Home:
    """The files of one release."""
    return Home(REAL / agent)


def sent() -> list[dict[str, Any]]:
    """What the driver sent to codex."""
    known = REAL / "truth.json"
    rows = json.loads(known.read_text()) if known.is_file() else []
    return [row for row in rows if row["agent"].startswith("codex") and row.get("exists", True)]


def truth() -> list[Any]:
    """The same, for a test of each."""
    return [pytest.param(row, id=f"{row['agent']}-{row['label']}") for row in sent()]


def path_of(row: dict[str, Any]) -> Path:
    """The file of a session; of a reverted one the second, which goes on from the first."""
    if "file" in row:
        return REAL / str(row["file"])
    thread = row["files"][0][-42:].removesuffix(".jsonl")
    return max(one for one in home(row["agent"]).files if thread in one.name)


@pytest.mark.parametrize("row", truth())
def test_real_sessions_are_what_was_sent(row: dict[str, Any]) -> None:
    """S3.3 to S3.6: human messages, answers, parents, turns and files equal what was sent."""
    state = home(row["agent"]).load(path_of(row))

    assert state.header is not None
    assert row["user_messages"] == texts(state)
    assert row["n_user"] == state.user_messages()
    answers = texts(state, kind=Kind.ASSISTANT)
    assert len(answers) == len(set(answers))
    missing = {one for one in row["final_answers"] if one not in answers}
    assert missing == ({"The upstream answered."} if row["label"] == "interrupted" else set())
    assert state.turn is Turn.ENDED
    assert state.compactions == row.get("compactions", 0)
    parent = next((one for one in sent() if _is_parent(one, row)), None)
    held = state.header.parent_id
    assert held == (path_of(parent).stem[28:64] if parent else None)
    assert state.git_branch == "main"
    assert not state.bad_lines
    if row["agent"] == "codex-0.120.0":
        assert state.name == row.get("name")
    if row.get("files_visible") is not False:
        changed = set(row["files_edited"]) | set(row["files_written"])
        assert _modified(state) == changed


def _is_parent(one: dict[str, Any], row: dict[str, Any]) -> bool:
    return (one["agent"], one["label"]) == (row["agent"], row.get("parent"))


def _modified(state: Any) -> set[str]:
    deeds = ActivityStats()
    for row, entry in zip(state.path(), entries(state), strict=True):
        if state.kind(row) is not Kind.TOOL or undone(state, row):
            deeds.add(entry, state.header.cwd)
    return {path.removeprefix(state.header.cwd + "/") for path in deeds.facts().files_modified}


@pytest.mark.parametrize("agent", ["codex", "codex-0.120.0"])
def test_a_helper_of_the_agent_has_no_human_messages(agent: str) -> None:
    """S3.18: a sub-agent's rollout names its parent; the prompt that names it is no human's."""
    children = [home(agent).load(path) for path in home(agent).files]
    headers = [(one, one.header) for one in children if one.header and one.header.subagent]
    assert len(headers) == 1
    child, header = headers[0]
    parents = {one.header.session_id: one for one in children if one.header}
    assert parents[str(header.parent_id)].user_messages() == 1
    assert header.session_id != header.parent_id
    assert child.user_messages() == 0
    assert child.first_user == "Helper job: review src/cache.py and report."
    assert texts(child, kind=Kind.CUSTOM) == [child.first_user]


def test_leaves_are_turns() -> None:
    """S3.6: the leaf is the last turn's id; only later turns count as new, also under way."""
    path = path_of(sent()[1])  # three turns
    data = path.read_bytes()
    started = [one for one in data.split(b"\n") if b'"type":"task_started"' in one]
    names = [json.loads(one)["payload"]["turn_id"] for one in started]
    state = state_of(data, file=str(path))
    assert state.leaf_id == names[2]
    assert [state.new_user_messages(name) for name in names] == [2, 1, 0]
    under_way = data[: data.index(b'"type":"function_call"')].rpartition(b"\n")[0] + b"\n"
    partly = state_of(under_way, file=str(path))
    assert (partly.leaf_id, partly.turn) == (names[2], Turn.OPEN)
    assert partly.new_user_messages(names[1]) == 1


def test_a_rolled_back_session_goes_on_from_before() -> None:
    """formats.md 3.8: right after a rollback the leaf is the turn before the removed ones."""
    row = next(one for one in sent() if one["label"] == "reverted" and "file" in one)
    data = (REAL / row["file"]).read_bytes()
    mark = data.index(b'"type":"thread_rolled_back"')
    before = data[: data.rindex(b"\n", 0, mark) + 1]
    after = data[: data.index(b"\n", mark) + 1]
    turns = list(state_of(before).marks)
    assert (state_of(before).user_messages(), state_of(after).user_messages()) == (3, 1)
    assert state_of(after).leaf_id == turns[0]
    assert state_of(after).turn is Turn.ENDED
    assert state_of(after).left(turns[2])


SPLIT = ["codex/sessions/**/*2cf5*", "codex/sessions/**/*3b5b*", "codex-0.120.0/sessions/**/*2b13*"]


@pytest.mark.parametrize("pattern", SPLIT)
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_split_of_a_real_file_gives_the_same_state(pattern: str, data: st.DataObject) -> None:
    """F1: however a file's lines arrive, and through the ledger in between, the state is one."""
    path = next(REAL.glob(pattern))
    size = path.stat().st_size
    cuts = data.draw(st.lists(st.integers(0, size), max_size=12))
    agent = home(pattern.partition("/")[0])
    assert _whole(pattern) == agent.load(path, cuts, stored=True).encode()


@cache
def _whole(pattern: str) -> bytes:
    return home(pattern.partition("/")[0]).load(next(REAL.glob(pattern))).encode()


def test_a_forked_session_is_the_same_however_it_arrives() -> None:
    """F1: history in another file comes first, and line by line nothing is different."""
    path = next(REAL.glob("codex/sessions/**/*481d*"))
    cuts = [n + 1 for n, byte in enumerate(path.read_bytes()) if byte == ord("\n")]
    state = home("codex").load(path)
    assert state.encode() == home("codex").load(path, cuts[:-1], stored=True).encode()
    assert [Path(file).stem[28:] for _, file in state.borrowed_files] == [
        "01a1fff2-2539-7012-a904-8128a4396c8d"
    ]


def public() -> list[Any]:
    """The public files whose human messages on the current path were counted by hand."""
    manifest = PUBLIC / "MANIFEST.md"
    rows = manifest.read_text().splitlines() if manifest.is_file() else []
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    return [
        pytest.param(row[1], row[5], id=row[1].rpartition("/")[2])
        for row in cells
        if len(row) > 6 and row[1].startswith("codex/") and row[1].endswith(".jsonl")
    ]


@pytest.mark.parametrize(("name", "count"), public())
def test_public_files_have_as_many_human_messages(name: str, count: str) -> None:
    """S3.1, S3.4: every dialect and every kind of damage, counted as a reader counts."""
    data = (PUBLIC / name).read_bytes()
    data = data[: data.rindex(b"\n") + 1]
    file = FILE if "/rollout-" not in name else name
    state = state_of(data, file=file)
    assert state.encode() == state_of(data, cuts=range(0, len(data), 97), file=file).encode()
    if count.isdigit():
        assert state.user_messages() == int(count)
        assert len(texts(state, data)) == int(count)
