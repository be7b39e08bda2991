"""What was begun and could not be stored is done again, whole; trees in memory stay few."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from indexerd.events import Kind
from indexerd.sessions.state import SessionState
from indexerd.sources import memory
from indexerd.sources.cursor import Cursor
from indexerd.sources.memory import Memory, Tracked
from indexerd.store.store import StateStore
from tests.store.grown_desk import Desk, fails_once


def test_deeds_are_told_although_a_transaction_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A3: what a session did is in its row, where that could not be stored at the first try."""
    desk = Desk(tmp_path)
    for session in desk.sessions:
        session.say("assistant", "I ran it.", stopReason="stop", model="some-model")
    desk.look()
    library = desk.library
    fails_once(library, monkeypatch, 3)
    while library.texts.some():
        pass
    for session in desk.sessions:
        row = library.store.get(session.id)
        assert row is not None
        assert row["models"] == ["some-model"]
    library.close()


def _long(path: str, rows: int) -> SessionState:
    state = SessionState(path)
    for number in range(rows):
        state.add(f"{number:08x}", None, int(Kind.USER), 10 * number, 10)
    return state


def test_who_wakes_long_sessions_keeps_fewer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S0.40: of trees that were woken, not more entries stay in memory than a few sessions have."""
    monkeypatch.setattr(memory, "WOKEN_ROWS", 250)
    ledger = StateStore(tmp_path / "store.sqlite")
    cursor = Cursor(1, 2, 3, 4, 0, 0, b"", b"")
    paths = [f"/h/{number}.jsonl" for number in range(6)]
    ledger.put_files((path, cursor, b"", _long(path, 100).encode()) for path in paths)
    held = Memory(ledger)
    files = [Tracked(path, "pi", cursor) for path in paths]
    assert all(held.wake(file) for file in files)
    assert [file.state is not None for file in files] == [False] * 4 + [True] * 2
    assert held.wake(files[0])
    assert files[0].state is not None
    assert len(files[0].state) == 100
    ledger.close()


def test_an_unfinished_line_keeps_no_tree_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S0.40: who ends in the middle of a line sleeps as others do, and that line is not lost."""
    monkeypatch.setattr(memory, "STATES_KEPT", 1)
    monkeypatch.setattr(memory, "SOME_MORE", 0)
    desk = Desk(tmp_path)
    ends = {}
    for session in desk.sessions:
        line = {"type": "session_info", "id": "00000001", "parentId": session.last, "name": "Ends"}
        text = json.dumps(line | {"timestamp": "2026-11-21T10:00:00.000Z"}, separators=(",", ":"))
        ends[session.path] = text[40:] + "\n"
        _append(session.path, text[:40])
        desk.look()
    files = desk.library.files
    awake = [one for one in files._files.values() if one.state is not None]
    assert len(awake) == 1
    for path, end in ends.items():
        _append(path, end)
    desk.look()
    for session in desk.sessions:
        card = files.card(session.id)
        assert card is not None
        assert card.agent_title == "Ends"
        assert card.bad_lines == 0
    desk.library.close()


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)
