"""opencode's sessions as its client wrote them, and as others published theirs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from indexerd.agents.opencode import read, scan
from indexerd.events import Entry, Kind, Turn
from indexerd.sessions.facts import ActivityStats
from indexerd.sessions.state import SessionState
from indexerd.sources import opencode_db, opencode_tree
from indexerd.sources.lines import Block
from indexerd.sources.source import Source

SHARED = Path(__file__).parents[3] / "shared" / "fixtures"
REAL = SHARED / "real" / "opencode"
PUBLIC = SHARED / "public" / "opencode"


def taken(source: Source, path: str) -> tuple[SessionState, Callable[[int], Entry]]:
    """A session's state out of its store, and its entries by row."""
    state = SessionState(path)
    for one in source.tail().read(path).lines:
        assert isinstance(one, Block)
        scan(state, one.data, one.offset)

    def of_row(row: int) -> Entry:
        with source.lines(path) as lines:
            return read(lines.at(state.offsets[row], state.lengths[row]), state.id(row))

    return state, of_row


@pytest.mark.shared
def test_real_sessions_are_what_was_sent(tmp_path: Path) -> None:
    """S3.9: prompts on the path, names, parents and files equal what the driver sent."""
    if not REAL.is_dir():
        pytest.skip("the shared fixtures are not beside this checkout")
    for file in REAL.glob("opencode.db*"):
        shutil.copy(file, tmp_path)
    rows = json.loads((REAL.parent / "truth.json").read_text())
    truth = {row["session_id"]: row for row in rows if row["agent"] == "opencode"}
    compared = 0
    for found in opencode_db.Database(str(tmp_path / "opencode.db")).sessions():
        state, entry_of = taken(opencode_db, found.path)
        assert state.header is not None
        row = truth.pop(state.header.session_id, None)
        path = [(at, entry_of(at)) for at in state.path()]
        assert all(one.kind is state.kind(at) or state.kind(at) is Kind.TOOL for at, one in path)
        if row is None:
            assert (state.header.subagent, state.user_messages()) == (True, 0)
            continue
        prompts = [one.text for at, one in path if state.kind(at) is Kind.USER]
        assert [one.strip('"') for one in prompts] == row["user_messages"]
        assert row["n_user"] == state.user_messages()
        assert row.get("name") in (None, state.name)
        assert state.archived == (row["label"] == "archived")
        assert state.compactions == row.get("compactions", 0)
        assert state.turn is (Turn.FAILED if row["label"] == "interrupted" else Turn.ENDED)
        assert state.unsettled == 0
        deeds = ActivityStats()
        for at, one in path:
            if state.kind(at) in (Kind.USER, Kind.ASSISTANT):
                deeds.add(one, state.header.cwd)
        facts = deeds.facts()
        written = [*row["files_edited"], *row["files_written"]]
        changed = {f"{state.header.cwd}/{name}" for name in written}
        assert set(facts.files_modified) == changed
        assert sum(dict(facts.tools_used).values()) == row["n_tool_calls"]
        seen = {f"{state.header.cwd}/{name}" for name in row["files_read"]} - changed
        assert set(facts.files_read) == {name for name in seen if "NOPE" not in name}
        if row["label"] == "fork_before_user5":
            assert (state.fork_of, state.header.parent_id) == (
                "Forecast cache design",
                None,
            )
        compared += 1
    assert compared == 12
    assert [row["label"] for row in truth.values()] == ["deleted"]


@pytest.mark.shared
def test_public_sessions_have_as_many_humans(tmp_path: Path) -> None:
    """The public collection: human messages on the current path, by its own manifest."""
    if not PUBLIC.is_dir():
        pytest.skip("the shared fixtures are not beside this checkout")
    counted: dict[str, int] = {}
    for version in ("v1", "v2"):
        copy = shutil.copytree(PUBLIC / "synthetic" / version, tmp_path / version)
        for found in opencode_db.Database(f"{copy}/opencode.db").sessions():
            state, _ = taken(opencode_db, found.path)
            counted[f"{version} {found.path[-2:]}"] = state.user_messages()
    for name in ("storage_v2", "storage_legacy"):
        copy = shutil.copytree(PUBLIC / "agent-sessions" / name, tmp_path / name)
        for found in opencode_tree.Tree(str(copy)).sessions():
            state, _ = taken(opencode_tree, found.path)
            assert state.header is not None
            counted[state.header.session_id] = state.user_messages()
    assert counted == {
        **{f"v1 0{n}": count for n, count in enumerate((2, 0, 1, 1, 2), 1)},
        "v2 AA": 2,
        "ses_s_stage0_small": 1,
        "ses_s_stage0_large": 2,
        "ses_s_stage0_drift": 1,
    }
