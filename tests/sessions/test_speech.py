"""A conversation as a summariser gets it, of every agent: its texts are those of the context."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from indexerd.agents import ADAPTERS
from indexerd.errors import ContextTooLargeError
from indexerd.events import Entry, Kind, ToolCall, ToolResult, code
from indexerd.sessions import speech as speech_module
from indexerd.sessions.context import (
    CLEARED,
    ContextMessage,
    Read,
    context_entries,
    context_messages,
    context_of,
    entries_of,
    role_of,
)
from indexerd.sessions.state import SessionState
from indexerd.sessions.tree import still
from indexerd.sources import opencode_db
from tests.agents.codex_files import Home
from tests.sessions.tree_sessions import REAL, SHARED, entry, reader, said, session, state_of

ROOT = SHARED / "real" if (SHARED / "real").is_dir() else REAL


def as_state_shows(agent: str, state: SessionState, line: Callable[[int], bytes]) -> Read:
    """A way to read rows as the service does: what a row is, the state knows better."""

    def read(row: int) -> Entry:
        found, kind = ADAPTERS[agent].read(line(row), state.id(row)), state.kind(row)
        if found.kind in (kind, Kind.OTHER):
            return found
        unseen = {"unseen": True} if kind is Kind.OTHER else {}
        return replace(found, kind=kind, details=found.details | unseen)

    return read


def from_files(agent: str, folder: Path) -> Iterator[tuple[SessionState, Read]]:
    """Sessions of an agent that keeps them in files."""
    home = Home(folder)
    for path in sorted(folder.rglob("*.jsonl")):
        if agent == "codex":
            if path not in home.files:
                continue
            state = home.load(path)
        else:
            state = SessionState(str(path))
            ADAPTERS[agent].skim(state, path.read_bytes().rstrip(b"\n") + b"\n", 0)
        files: dict[str, bytes] = {}

        def line(row: int, state: SessionState = state, files: Any = files) -> bytes:
            file, start = state.file_of(row), state.offsets[row]
            data = files.setdefault(file, Path(file).read_bytes())
            return bytes(data[start : start + state.lengths[row]])

        if state.header is not None:
            yield state, as_state_shows(agent, state, line)


def from_database(folder: Path, copy: Path) -> Iterator[tuple[SessionState, Read]]:
    """The sessions of opencode."""
    for one in folder.glob("opencode.db*"):
        shutil.copy(one, copy)
    with closing(sqlite3.connect(copy / "opencode.db")) as db:
        names = [name for (name,) in db.execute("SELECT id FROM session ORDER BY id")]
    for name in names:
        path = f"{copy / 'opencode.db'}/{name}"
        state = SessionState(path)
        for found in opencode_db.tail().read(path).lines:
            ADAPTERS["opencode"].skim(state, getattr(found, "data", b""), found.offset)
        with opencode_db.lines(path) as held:

            def line(row: int, state: SessionState = state, held: Any = held) -> bytes:
                return bytes(held.at(state.offsets[row], state.lengths[row]))

            yield state, as_state_shows("opencode", state, line)


def flat(state: SessionState, read: Read) -> list[tuple[str, str]]:
    """What all steps say in the context's words: an entry's speeches in one role are one message.

    Of what the context does not have, calls and thoughts on lines of their own and the results
    that an answer brings, nothing is left.
    """
    found: list[tuple[str, str]] = []
    for step in context_entries(state, read):
        kind = step.entry.kind
        if kind is Kind.COMPACTION:
            found += [(one.role, "".join(one.texts)) for one in step.speeches]
            continue
        if role_of(step.entry) is None or kind is Kind.CALL:
            assert all(one.calls or one.thinking for one in step.speeches)
            continue
        for role, several in groupby(step.speeches, key=lambda one: one.role):
            if not (kind is Kind.ASSISTANT and role == "toolResult"):
                found.append((role, "".join(text for one in several for text in one.texts)))
    return found


def messages(state: SessionState, read: Read) -> list[tuple[str, str]]:
    """The context's messages."""
    return [(one.role, one.text) for one in context_of(state, read).messages]


@pytest.mark.parametrize("agent", sorted(ADAPTERS))
def test_the_texts_of_all_steps_are_those_of_the_context(agent: str, tmp_path: Path) -> None:
    """S1.19, S1.24: at the leaf and at every compaction, for every agent's own files."""
    checked = 0
    for folder in sorted(ROOT.glob(f"{agent}*")):
        if not folder.is_dir() or folder.name.endswith("oracle"):
            continue
        found = (
            from_database(folder, tmp_path) if agent == "opencode" else from_files(agent, folder)
        )
        for state, read in found:
            rows = [row for row in range(len(state)) if state.kind(row) is Kind.COMPACTION]
            for leaf in [state.leaf, *rows]:
                at = still(state, leaf)
                assert flat(at, read) == messages(at, read), state.file
                checked += 1
    assert checked >= 2


TAIL = [{"role": "user", "content": "kept"}, {"role": "assistant", "content": [{"type": "text"}]}]
KINDS = ["user", "assistant", "toolResult", "system", "compaction", "tail", "edit", "summary"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 20), st.booleans()), max_size=15))
def test_the_texts_of_all_steps_are_those_of_the_context_of_any_session(
    made: list[tuple[str, int, bool]],
) -> None:
    """S1.19: with compactions that keep anything, tails, edits and summaries of branches."""
    lines: list[bytes] = []
    for at, (kind, other, flag) in enumerate(made):
        name, above, target = f"e{at}", f"e{at - 1}" if at else None, f"e{other % (at + 1)}"
        if kind in ("compaction", "tail"):
            more: dict[str, Any] = {"retainedTail": TAIL} if kind == "tail" else {}
            more |= {"systemMessage": {"role": "system", "content": "s"}} if flag else {}
            lines.append(
                entry("compaction", name, above, summary="S", firstKeptEntryId=target, **more)
            )
        elif kind == "edit":
            new = {"content": "new"} if flag else None
            lines.append(entry("context_edit", name, above, targetId=target, replacement=new))
        elif kind == "summary":
            lines.append(entry("branch_summary", name, above, summary="left" if flag else ""))
        else:
            lines.append(said(name, above, kind, f"t{at}" if flag else ""))
    data = session(*lines)
    state = state_of(data)
    read = reader(state, data)

    assert flat(state, read) == messages(state, read)
    places = [step.place for step in context_entries(state, read)]
    path = state.path()
    assert [path[place] for place in places] == [step.row for step in context_entries(state, read)]


def spoken(*lines: bytes) -> list[ContextMessage]:
    """What is said on all rows of a small session."""
    data = session(*lines)
    state = state_of(data)
    return context_messages(state, reader(state, data), state.path())


THOUGHT: dict[str, Any] = {"type": "thinking", "thinking": "hm"}
CALL: dict[str, Any] = {"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": "a"}}
IMAGE: dict[str, Any] = {"type": "image", "data": "", "mimeType": "image/png"}


def test_an_answer_is_its_words_thoughts_and_calls() -> None:
    """S1.24: as they were stored; a result and the pictures beside it follow."""
    answer = {"role": "assistant", "content": [CALL, {"type": "text", "text": "w"}, THOUGHT]}
    result = {"role": "toolResult", "toolCallId": "c", "toolName": "read", "content": [IMAGE]}
    one, two = spoken(
        entry("message", "a", None, message=answer), entry("message", "b", "a", message=result)
    )
    assert (one.role, one.texts, one.thinking) == ("assistant", ("w",), ("hm",))
    assert [(call.name, call.arguments) for call in one.calls] == [("read", {"path": "a"})]
    assert (two.role, two.images, two.result) == ("toolResult", 1, ToolResult("c", "read"))


def test_an_edit_replaces_all_that_an_answer_says() -> None:
    """Pi 0.87: thoughts and calls go with the words, and those of the edit come."""
    answer = {"role": "assistant", "content": [CALL, THOUGHT, {"type": "text", "text": "w"}]}
    lines = [entry("message", "a", None, message=answer)]
    for name, content in (("b", "new"), ("c", [THOUGHT, CALL, IMAGE])):
        edit = entry("context_edit", name, "a", targetId="a", replacement={"content": content})
        (found,) = spoken(*lines, edit)
        assert found.texts == (("new",) if name == "b" else ())
        assert (len(found.thinking), len(found.calls), found.images) == (
            (0, 0, 0) if name == "b" else (1, 1, 1)
        )
    data = session(*lines, entry("context_edit", "b", "a", targetId="a", replacement=None))
    state = state_of(data)
    read = reader(state, data)
    assert [len(one.speeches) for one in entries_of(state, read, state.path())] == [0, 0]
    kept = entries_of(state, read, state.path(), edits=False)
    assert [len(one.speeches) for one in kept] == [1, 0]


def of(*entries: Entry) -> list[ContextMessage]:
    """What entries of any agent say, one below the other."""
    state = SessionState()
    for row, one in enumerate(entries):
        above = str(row - 1).encode() if row else None
        state.add(str(row).encode(), above, code(one.kind), row, 1)
    return context_messages(state, lambda row: entries[row], range(len(entries)))


def test_calls_and_thoughts_on_lines_of_their_own_are_the_assistants() -> None:
    """Codex: a record of what a call did says nothing; nor does what is no part of the talk."""
    call, record = ToolCall("run", arguments="{}"), ToolCall("", writes=("a",))
    thought = Entry("2", Kind.OTHER, "reasoning", "assistant", "", thinking=("hm",))
    found = of(
        Entry("0", Kind.CALL, "function_call", None, "", tools=(call,)),
        Entry("1", Kind.CALL, "patch_apply_end", None, "", tools=(record,)),
        thought,
        replace(thought, details={"unseen": True}),
    )
    assert [(one.role, one.calls, one.thinking) for one in found] == [
        ("assistant", (call,), ()),
        ("assistant", (), ("hm",)),
    ]


def test_results_within_an_answer_follow_it() -> None:
    """opencode: one by one; of those that it took away its model gets a note. Pictures once."""
    results = (ToolResult("c", "read", "long"), ToolResult("d", "read", "gone", cleared=True))
    answer = Entry(
        "0", Kind.ASSISTANT, "message", "assistant", "", ("w",), images=2, results=results
    )
    found = of(answer)
    assert [(one.role, one.texts, one.images) for one in found] == [
        ("assistant", ("w",), 0),
        ("toolResult", ("long",), 2),
        ("toolResult", (CLEARED,), 0),
    ]
    assert [one.result for one in found] == [None, *results]


def test_results_on_one_line_are_told_apart() -> None:
    """Claude Code: what else is said on their line comes first, and nothing is lost."""
    results = (ToolResult("c", text="one"), ToolResult("d", text="two"))
    line = Entry("0", Kind.TOOL, "user", "user", "", ("note", "one", "two"), results=results)
    assert [(one.texts, one.result) for one in of(line)] == [
        (("note",), None),
        (("one",), results[0]),
        (("two",), results[1]),
    ]
    odd = replace(line, texts=("one", "two", "after"))
    assert [one.texts for one in of(odd)] == [("one", "two", "after")]


def test_summaries_among_raw_rows_replace_nothing() -> None:
    """A digest sums up what was said, whatever was compacted in between."""
    found = spoken(
        said("a", None, "user", "one"),
        entry("compaction", "b", "a", summary="S", firstKeptEntryId="b"),
        entry("branch_summary", "c", "b", summary="left", fromId="x"),
        said("d", "c", "user", "two"),
    )
    assert [(one.role, one.texts[0], one.entry.id) for one in found] == [
        ("user", "one", "a"),
        ("compactionSummary", "S", "b"),
        ("branchSummary", "left", "c"),
        ("user", "two", "d"),
    ]


def test_what_a_compaction_leaves_of_humans_is_said_before_its_summary() -> None:
    """Codex, old releases: each message with the entry that it comes from."""
    kinds = [Kind.USER, Kind.ASSISTANT, Kind.COMPACTION, Kind.USER]
    details = {"keeps": "users", "summaryRole": "user", "sent": ("the sum",)}
    entries = [
        Entry(str(row), kind, "x", "user", "", (f"t{row}",)) for row, kind in enumerate(kinds)
    ]
    entries[2] = replace(entries[2], details=details)
    state = SessionState()
    for row, kind in enumerate(kinds):
        state.add(str(row).encode(), str(row - 1).encode() if row else None, code(kind), row, 1)
    first, second = context_entries(state, lambda row: entries[row])
    said_of = [(one.role, one.texts, one.entry.id) for one in first.speeches]
    assert said_of == [("user", ("t0",), "0"), ("user", ("the sum",), "2")]
    assert (first.place, second.place) == (2, 3)


def test_texts_beyond_all_bounds_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts that are held at once are bounded, and none is silently left out."""
    monkeypatch.setattr(speech_module, "TEXT_MAX", 5)
    assert len(spoken(said("a", None, "user", "12345"))) == 1
    with pytest.raises(ContextTooLargeError):
        spoken(said("a", None, "user", "12345"), said("b", "a", "user", "6"))
