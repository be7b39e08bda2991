"""Codex counts tokens in one sum, which a fork goes on with: what others spent is not its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from indexerd.agents import codex
from indexerd.core.session import SessionState

REAL = Path(__file__).parents[1] / "fixtures/real/codex/sessions/2026/11/21"
BASE = "01a1fff2-2539-7012-a904-8128a4396c8d"
FORKS = [  # thread, the last sum, and what the base had spent where the fork begins
    ("01a1fff2-465f-7662-b712-2ffc4f76fa7d", 106_879, 84_476),
    ("01a1fff2-481d-7e12-a1c2-8a3643bab550", 41_227, 30_728),
]


def held(thread: str) -> bytes:
    """A thread's file."""
    return next(REAL.glob(f"*{thread}.jsonl")).read_bytes()


def meta(thread: str) -> dict[str, Any]:
    """A session_meta line."""
    return {"type": "session_meta", "payload": {"id": thread, "cwd": "/w", "source": "cli"}}


def count(given: int, output: int = 1) -> dict[str, Any]:
    """A token_count line: the sum so far."""
    total = {"input_tokens": given, "cached_input_tokens": 0, "output_tokens": output}
    info = {"total_token_usage": total}
    return {"type": "event_msg", "payload": {"type": "token_count", "info": info}}


def taken(state: SessionState, *lines: dict[str, Any]) -> SessionState:
    """These lines taken in, each by a skim of its own, with the ledger in between."""
    for line in lines:
        codex.skim(state, json.dumps(line).encode() + b"\n", 0)
        state = SessionState.decode(state.encode(), state.file)
    return state


@pytest.mark.parametrize(("thread", "total", "before"), FORKS)
def test_a_real_fork_counts_from_where_its_base_ended(thread: str, total: int, before: int) -> None:
    """S3.11: as Codex wrote it; the parent's tokens are in the parent's row."""
    data = held(thread)
    base = codex.base(data.partition(b"\n")[0])
    assert base is not None
    state = SessionState(f"/rollout-{thread}.jsonl")
    codex.skim(state, held(BASE)[: base.end], 0)
    state.borrowed("/base.jsonl")
    codex.skim(state, data, 0)
    assert state.notes["tokens"]["input"] == total - before


def test_a_fork_of_a_fork_and_one_that_was_not_used_yet() -> None:
    """Each pays what was spent after it began, and nothing before it did anything."""
    state = taken(SessionState("/a"), meta("one"), count(100), count(150, 5))
    assert state.notes["tokens"] == {"input": 150, "cached": 0, "output": 5}
    state.borrowed("/one")
    state = taken(state, meta("two"))
    assert "tokens" not in state.notes
    state = taken(state, count(170, 6))
    assert state.notes["tokens"] == {"input": 20, "cached": 0, "output": 1}
    state.borrowed("/two")
    state = taken(state, meta("three"), count(171, 6), count(175, 9))
    assert state.notes["tokens"] == {"input": 5, "cached": 0, "output": 3}


def test_a_reverted_thread_keeps_its_own() -> None:
    """A second file of the same thread goes on: it is the same session that paid."""
    state = taken(SessionState("/a"), meta("one"), count(100))
    state.borrowed("/one")
    state = taken(state, meta("two"), count(110))
    state.borrowed("/two")
    state = taken(state, meta("two"), count(130))
    assert state.notes["tokens"]["input"] == 30


def test_a_fork_that_counts_from_nothing_loses_nothing() -> None:
    """A sum that is less than the base's does not hold it."""
    state = taken(SessionState("/a"), meta("one"), count(100))
    state.borrowed("/one")
    state = taken(state, meta("two"), count(10), count(120))
    assert state.notes["tokens"]["input"] == 120
