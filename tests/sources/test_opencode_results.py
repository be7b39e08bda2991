"""What tools gave in opencode's sessions: as much of it as pruning and summaries need, not more."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.agents.opencode import read, scan
from indexerd.digests.compact_opencode import Pruned, prune, pruned
from indexerd.events import Entry, ToolResult
from indexerd.sessions.context import CLEARED, ContextMessage, context_entries
from indexerd.sessions.state import SessionState
from indexerd.sources.lines import Block
from indexerd.sources.opencode_db import Database, lines, tail
from indexerd.sources.opencode_parts import (
    ATTACHED,
    ERROR,
    MIME,
    OUTPUT,
    OUTPUTS,
    Room,
    object_of,
    part_of,
)
from indexerd.sources.session_lines import SessionLines
from tests.sessions.opencode_rows import SCHEMA_2, Rows

REAL = Path(__file__).parents[3] / "shared" / "fixtures" / "real" / "opencode-checkpointed"
LONGEST = 51_200  # bytes of an output that opencode keeps
PICTURE = {"type": "file", "mime": "image/png", "url": "data:image/png;base64," + "Z" * 9000}


def tool(status: str = "completed", *, call: str = "c1", **state: Any) -> dict[str, Any]:
    """A tool's part of version 1."""
    held = {"status": status, "input": {"command": "ls"}, **state}
    return {"type": "tool", "tool": "bash", "callID": call, "state": held}


def answered(path: Path, *parts: dict[str, Any]) -> str:
    """A session with a prompt, and an answer of these parts."""
    rows = Rows(path)
    place = rows.session("ses_a")
    rows.said("ses_a", "msg_1", "user", "hello")
    rows.message("ses_a", "msg_2", "assistant", finish="stop")
    for n, one in enumerate(parts):
        rows.part("ses_a", "msg_2", f"prt_{n:04}", **one)
    return place


def taken(path: str) -> tuple[SessionState, Callable[[int], Entry]]:
    """A session's state out of its database, and its entries by row."""
    state = SessionState(path)
    for one in tail().read(path).lines:
        assert isinstance(one, Block)
        scan(state, one.data, one.offset)
    return state, lambda row: read(line_at(path, state, row), state.id(row))


def line_at(path: str, state: SessionState, row: int) -> bytes:
    """A row's line in full."""
    with lines(path) as held:
        return held.at(state.offsets[row], state.lengths[row])


def answer(path: str) -> tuple[bytes, Entry]:
    """The newest message in full: its line, and what is read of it."""
    state, entry_of = taken(path)
    return line_at(path, state, len(state) - 1), entry_of(len(state) - 1)


def context(path: str) -> list[ContextMessage]:
    """What is said in a session's context."""
    state, entry_of = taken(path)
    return [speech for step in context_entries(state, entry_of) for speech in step.speeches]


# -- one message ---------------------------------------------------------------------------------


def test_an_output_is_as_long_as_opencode_keeps_it(tmp_path: Path) -> None:
    """formats.md 4.6: tokens of outputs are counted, so none that opencode keeps is cut."""
    whole, more, wrong = "o" * LONGEST, "m" * (OUTPUT + 1), "e" * (ERROR + 1)
    path = answered(
        tmp_path / "opencode.db",
        tool(output=whole),
        tool(output=more),
        tool("error", error=wrong),
    )
    line, entry = answer(path)
    assert [one.text for one in entry.results] == [whole, more[:-1], wrong[:-1]]
    assert len(line) < len(whole) + len(more) + len(wrong) + 2000


def test_a_result_that_was_cleared_says_so(tmp_path: Path) -> None:
    """formats.md 4.6: `time.compacted` is set later, in place; the output stays in the database."""
    path = answered(tmp_path / "opencode.db", tool(output="old", time={"start": 1, "end": 2}))
    position = tail()
    position.read(path)
    assert answer(path)[1].results == (ToolResult("c1", "bash", "old"),)
    Rows(tmp_path / "opencode.db", "").run(
        "UPDATE part SET time_updated = time_updated + 1,"
        " data = json_set(data, '$.state.time.compacted', 1795000000000) WHERE id = 'prt_0000'",
    )
    assert position.read(path).whole
    line, entry = answer(path)
    assert entry.results == (ToolResult("c1", "bash", "old", cleared=True),)
    assert json.loads(line)["parts"][0]["state"]["time"] == {"compacted": 1_795_000_000_000}
    assert [one.texts for one in context(path) if one.result] == [(CLEARED,)]


def test_of_files_only_their_kind_is_kept(tmp_path: Path) -> None:
    """formats.md 4.6: a picture counts for a summary, and its data never leave the database."""
    files = [PICTURE, {"mime": "text/plain", "url": "file:///a"}, {"mime": 7}, None, "x"]
    gone = tool(output="b", attachments=[PICTURE], time={"compacted": 9})
    many = tool(output="c", attachments=[{"mime": "i" * 999}] * 999)
    path = answered(tmp_path / "opencode.db", tool(output="a", attachments=files), gone, many)
    line, entry = answer(path)
    kept = [one["state"]["attachments"] for one in json.loads(line)["parts"]]
    assert kept[0] == [{"mime": "image/png"}, {"mime": "text/plain"}, {}, {}, {}]
    assert kept[1:] == [[{"mime": "image/png"}], [{"mime": "i" * MIME}] * ATTACHED]
    assert entry.images == 1
    assert b"ZZZ" not in line


def test_an_aborted_call_has_what_it_gave_by_then(tmp_path: Path) -> None:
    """formats.md 4.6: the model is shown the output that was kept beside the error, if any."""
    told = {"interrupted": True, "output": "h" * (OUTPUT + 1), "exit": None}
    error = "Tool execution aborted"
    path = answered(
        tmp_path / "opencode.db",
        tool("error", call="c1", error=error, metadata=told),
        tool("error", call="c2", error=error, metadata=told | {"output": ""}),
        tool("error", call="c3", error=error, metadata=told | {"interrupted": False}),
        tool("completed", call="c4", output="done", metadata=told),
    )
    line, entry = answer(path)
    assert [one.text for one in entry.results] == ["h" * OUTPUT, error, error, "done"]
    assert entry.failed == ("c1", "c2", "c3")
    told_of = [one["state"]["metadata"] for one in json.loads(line)["parts"]]
    assert [set(one) for one in told_of] == [
        {"exit", "interrupted", "output"},
        {"exit", "interrupted", "output"},
        {"exit"},
        {"exit"},
    ]


def test_results_of_version_2(tmp_path: Path) -> None:
    """formats.md 4.8: a result in pieces, an error that is an object, `pruned` beside the state."""

    def call(status: str, name: str, pruned: Any = None, **state: Any) -> dict[str, Any]:
        when = {"created": 1} | ({} if pruned is None else {"pruned": pruned})
        held = {"status": status, "input": {}, **state}
        return {"type": "tool", "id": name, "name": "read", "time": when, "state": held}

    pieces = [{"type": "text", "text": "one"}, PICTURE, None, {"type": "text", "text": "two"}]
    long = [{"type": "text", "text": "l" * 40_000}] * 3
    rows = Rows(tmp_path / "opencode.db", SCHEMA_2)
    path = rows.session_2("ses_a")
    content = [
        call("completed", "c1", content=pieces, structured={"diff": "d" * 9000}),
        call("completed", "c2", pruned=1_795_000_000_000, content=pieces),
        call("error", "c3", content=pieces, error={"type": "unknown", "message": "no"}),
        call("completed", "c4", content=long),
        call("running", "c5", content=pieces),
    ]
    rows.row_2("ses_a", "msg_1", "assistant", 1, content=content, finish="stop")
    line, entry = answer(path)
    assert entry.results == (
        ToolResult("c1", "read", "one\ntwo"),
        ToolResult("c2", "read", "one\ntwo", cleared=True),
        ToolResult("c3", "read", "no"),
        ToolResult("c4", "read", "l" * 40_000 + "\n" + "l" * (OUTPUT - 40_000)),
    )
    assert entry.images == 3  # of c1, c3 and c5: the model sees no more of c2
    assert b"ZZZ" not in line
    assert b"ddd" not in line


def test_all_outputs_of_a_message_have_one_bound(tmp_path: Path) -> None:
    """A: one message may hold many outputs; beyond the bound calls stay, without their output."""
    count = OUTPUTS // OUTPUT + 20
    rows = Rows(tmp_path / "opencode.db")
    path = rows.session("ses_a")
    rows.message("ses_a", "msg_2", "assistant", finish="stop")
    data = json.dumps(tool(output="o" * OUTPUT))
    with rows.writing() as db:
        made = [(f"prt_{n:04}", data) for n in range(count)]
        db.executemany("INSERT INTO part VALUES (?, 'msg_2', 'ses_a', 1, 1, ?)", made)
    line, entry = answer(path)
    assert len(entry.results) == len(entry.tools) == count
    assert sum(len(one.text) for one in entry.results) == OUTPUTS
    assert entry.results[0].text == "o" * OUTPUT
    assert entry.results[-1].text == ""
    assert len(line) < OUTPUTS + 300 * count


TEXTS = st.text(st.characters(exclude_categories=()), max_size=12)
ODD = st.none() | st.booleans() | st.integers() | TEXTS | st.lists(TEXTS, max_size=2)
PIECES = st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS | ODD}) | ODD, max_size=4
)
STATES = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["completed", "error", "running"]) | ODD,
        "output": TEXTS | ODD,
        "error": TEXTS | ODD | st.fixed_dictionaries({"message": ODD}),
        "content": PIECES | ODD,
        "attachments": st.lists(ODD | st.fixed_dictionaries({"mime": ODD}), max_size=3) | ODD,
        "time": st.fixed_dictionaries({"compacted": ODD}) | ODD,
        "metadata": st.fixed_dictionaries({"interrupted": ODD, "output": TEXTS | ODD}) | ODD,
    },
)


@given(st.lists(STATES | ODD, max_size=6), st.integers(0, 40), ODD)
def test_whatever_a_state_holds_room_is_kept(states: list[Any], size: int, when: Any) -> None:
    """F4: wrong types read as absent; all that is kept is a beginning, and has room together."""
    room, kept = Room(size), 0
    for state in states:
        part = {
            "type": "tool",
            "tool": "t",
            "callID": "c",
            "state": state,
            "time": {"pruned": when},
        }
        found = part_of(part, room)["state"]
        for text, source in (
            (found.get("output"), state),
            (found["metadata"].get("output"), object_of(state).get("metadata")),
        ):
            if text is not None:
                assert object_of(source)["output"].startswith(text)
                kept += len(text)
        kept += sum(len(one.get("text", "")) for one in found.get("content", ()))
    assert kept <= size


# -- what stands in the ledger -------------------------------------------------------------------


def test_places_that_an_older_build_stored_are_good(tmp_path: Path) -> None:
    """M: a place is a message's rowid; how long its line is depends on the build, and is not asked.

    So a state in the ledger needs no reading anew when the full form of a message changes.
    """
    path = answered(tmp_path / "opencode.db", tool(output="o" * LONGEST))
    state, entry_of = taken(path)
    stored = SessionState.decode(state.encode(), path)
    for row in range(len(stored)):
        stored.lengths[row] = 1 + row
    with ExitStack() as stack:
        held = SessionLines("opencode", stored, lambda place: place, stack)
        for row in range(len(stored)):
            assert read(held.row(row), stored.id(row)) == entry_of(row)


# -- pruning -------------------------------------------------------------------------------------


def turns(rows: Rows, *sizes: int) -> str:
    """A session of as many turns, each with an output of this size, and two short ones more."""
    path = rows.session("ses_a")
    for n, size in enumerate((*sizes, 0, 0)):
        rows.said("ses_a", f"msg_{n}a", "user", f"prompt {n}")
        rows.said("ses_a", f"msg_{n}b", "assistant", f"answer {n}")
        if size:
            held = tool(call=f"call_{n}", output="x" * size, time={"start": 1, "end": 2})
            rows.part("ses_a", f"msg_{n}b", f"prt_{n}", **held)
    return path


def test_a_session_of_long_outputs_is_pruned(tmp_path: Path) -> None:
    """S3.22: more than 60,000 tokens of outputs; the newest 40,000 of them stay."""
    rows = Rows(tmp_path / "opencode.db")
    path = turns(rows, *[LONGEST] * 6)
    said = context(path)
    places = {one.result.call: at for at, one in enumerate(said) if one.result}
    tokens = LONGEST // 4
    # 12,800 each: three of them are 38,400, and the fourth exceeds what stays.
    assert prune(said) == Pruned(tuple(places[f"call_{n}"] for n in range(3)), 3 * tokens)
    texts = [one.texts[0] for one in pruned(said) if one.result]
    assert texts == [CLEARED] * 3 + ["x" * LONGEST] * 3

    # opencode itself did so: nothing is older than that which it cleared.
    mark = "UPDATE part SET data = json_set(data, '$.state.time.compacted', 1) WHERE id < 'prt_3'"
    rows.run(mark)
    assert prune(context(path)) == Pruned((), 0)


@pytest.mark.shared
def test_a_real_session_of_long_outputs_is_pruned(tmp_path: Path) -> None:
    """S3.22: as the client left it, but that its outputs are as long as they can be."""
    if not REAL.is_dir():
        pytest.skip("the shared fixtures are not beside this checkout")
    path = Path(shutil.copy(REAL / "opencode.db", tmp_path))
    rows = Rows(path, "")
    rows.run(
        "UPDATE part SET data = json_set(data, '$.state.output', ?)"
        " WHERE data ->> '$.type' = 'tool' AND data ->> '$.state.status' = 'completed'",
        "x" * LONGEST,
    )
    found = [prune(context(one.path)) for one in Database(str(path)).sessions()]
    assert len(found) == 13
    saved = [one.tokens for one in found if one.places]
    # Five outputs are older than the last two turns, in the one session that has so many. Of them
    # the newest three are 38,400 tokens, and stay; a call that failed stays whatever it holds.
    assert saved == [2 * LONGEST // 4]
