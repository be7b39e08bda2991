"""Claude Code's files, as the client wrote them and as others published them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.agents.claude import read
from indexerd.events import Kind, Turn
from tests.agents.claude_files import answers, entries, prompts, state_of

SHARED = Path(__file__).parents[3] / "shared" / "fixtures"
REAL, PUBLIC = SHARED / "real", SHARED / "public"


# Requests by slash commands, which the manifest does not count.
COMMANDS = {"5c0375b4-57a5-4f26-b12d-d022ee4e51b7": 1}
NONE = ("/ctx/", "sample_session.json$", "/ccusage/projects/", "medium-conversation")  # no sessions


def truth() -> list[Any]:
    """What the driver sent to Claude Code."""
    held = REAL / "truth.json"
    rows = json.loads(held.read_text()) if held.is_file() else []
    return [pytest.param(row, id=row["label"]) for row in rows if row["agent"] == "claude"]


def listed() -> list[tuple[str, str]]:
    """The public Claude files, and how many human messages are on their current path."""
    held = PUBLIC / "MANIFEST.md"
    rows = [row.split("|") for row in held.read_text().splitlines()] if held.is_file() else []
    cells = [[cell.strip() for cell in row] for row in rows if len(row) > 6]
    return [
        (row[1], row[5])
        for row in cells
        if row[1].startswith("claude/") and not row[1].endswith(".meta.json")
    ]


@cache
def held(path: Path) -> bytes:
    """A fixture's bytes; an unfinished last line is finished, as the next write would."""
    data = path.read_bytes()
    return data if data.endswith(b"\n") else data + b"\n"


# -- files that Claude Code wrote ----------------------------------------------------------------


@pytest.mark.shared
@pytest.mark.parametrize("row", truth())
def test_what_was_sent_is_what_is_read(row: dict[str, Any]) -> None:
    """Messages in order, counts, names, answers and edited files equal what the driver sent."""
    path = REAL / row["file"]
    data = held(path)
    state = state_of(data, file=str(path))

    assert state.header is not None
    assert state.header.session_id == row["session_id"]
    assert state.header.cwd.startswith("/srv/rig/work/claude/")
    assert prompts(data, state) == row["user_messages"]
    assert state.user_messages() == row["n_user"]
    assert state.name == row.get("name")
    assert state.compactions == row.get("compactions", 0)
    assert state.git_branch == "main"
    assert not state.cycles()
    killed = row["label"] == "interrupted"  # in the middle of a call, which was not answered
    assert state.turn is (Turn.OPEN if killed else Turn.ENDED)
    assert (
        killed or [text for text in row["final_answers"] if text not in answers(data, state)] == []
    )
    calls = [use for entry in entries(data, state) for use in entry.tools if use.name]
    assert len(calls) == row["n_tool_calls"]
    written = {path for use in calls for path in use.writes}
    assert [path.removeprefix(state.header.cwd + "/") for path in written] == row["files_edited"]


@pytest.mark.shared
def test_a_fork_and_its_origin_share_their_first_entry_and_the_origin_is_older() -> None:
    """S1.16: copies of ids and times tell nothing, lines that are not copied do."""
    rows = {row.values[0]["label"]: REAL / row.values[0]["file"] for row in truth()}
    if not rows:
        pytest.skip("the shared fixtures are not beside this checkout")
    demo = PUBLIC / "claude/synthetic/projects/-work-demo"
    background = [demo / f"11111111-0000-4000-8000-00000000000{n}.jsonl" for n in (1, 2)]
    for files in ([rows["multi"], rows["fork"]], background):
        origin, fork = (state_of(held(path), file=str(path)) for path in files)
        assert origin.first == fork.first
        assert 0 < origin.born_ms < fork.born_ms


@pytest.mark.shared
def test_public_files_count_as_their_manifest_says() -> None:
    """Every number that is given for a current path; what is no session counts nothing."""
    rows = listed()
    if not rows:
        pytest.skip("the shared fixtures are not beside this checkout")
    assert sum(count.isdigit() for _, count in rows) >= 24
    for name, count in rows:
        path = PUBLIC / name
        state = state_of(held(path), file=str(path))
        found = state.user_messages() - COMMANDS.get(path.stem, 0)
        assert not count.isdigit() or found == int(count), name
        assert not state.cycles(), name
        assert (state.header is None) == any(one in f"{name}$" for one in NONE), name
        assert state.header is None or state.header.subagent == ("agent-" in path.name), name


@pytest.mark.shared
def test_a_long_real_session_keeps_every_prompt_on_its_path() -> None:
    """The one of 1.4 MB: 21 prompts, read by hand; interruptions and summaries are none."""
    path = PUBLIC / "claude/episodic-memory/large-conversation.jsonl"
    if not path.is_file():
        pytest.skip("the shared fixtures are not beside this checkout")
    data = held(path)
    state = state_of(data, file=str(path))
    kinds = [state.kind(row) for row in range(len(state))]
    assert state.user_messages() == kinds.count(Kind.USER) == 21
    assert state.name is None  # both summaries are another session's
    assert not [text for text in prompts(data, state) if text.startswith("[Request interrupted")]


# -- splits --------------------------------------------------------------------------------------


def split_files() -> list[Path]:
    """Files of several kinds, small enough to be skimmed many times."""
    demo = PUBLIC / "claude/synthetic/projects/-work-demo"
    viewer = PUBLIC / "claude/claude-code-viewer/projects/sample-project"
    found = [
        *sorted(demo.glob("*.jsonl")),
        *sorted(viewer.glob("*.jsonl")),
        *sorted((PUBLIC / "claude/claude-code-log").glob("*.jsonl")),
        *sorted((PUBLIC / "claude/agent-sessions").rglob("*.jsonl")),
        *sorted((REAL / "claude").rglob("2894b4c2*.jsonl")),
        *sorted((REAL / "claude").rglob("ad8df587*.jsonl")),
    ]
    return [path for path in found if path.is_file()]


@pytest.mark.shared
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_split_of_a_real_file_gives_the_same_state(draw: st.DataObject) -> None:
    """F1: however the bytes arrive, and though the state sleeps between, it comes out the same."""
    files = split_files()
    if not files:
        pytest.skip("the shared fixtures are not beside this checkout")
    path = draw.draw(st.sampled_from(files))
    data = held(path)
    cuts = draw.draw(st.lists(st.integers(0, len(data)), max_size=12))
    whole = state_of(data, file=str(path))
    assert state_of(data, file=str(path), cuts=cuts, asleep=True).encode() == whole.encode()


@pytest.mark.shared
def test_a_row_is_read_as_what_it_was_skimmed_for() -> None:
    """Both readings of a line say the same of it, but for sub-agents' lines and second copies."""
    for path in split_files():
        data = held(path)
        state = state_of(data, file=str(path))
        for row in range(len(state)):
            start = state.offsets[row]
            entry = read(data[start : start + state.lengths[row]], state.id(row))
            assert entry.kind is state.kind(row) or state.kind(row) is Kind.OTHER, path
