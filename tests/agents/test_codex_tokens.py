"""Codex counts tokens in one sum, which a fork goes on with: what others spent is not its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from indexerd.agents import codex
from indexerd.sessions.state import SessionState

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


# -- what was copied into a file -----------------------------------------------------------------

OLD, NEW = "019d6730-0000-7000-8000-00000000000a", "019d6731-0000-7000-8000-00000000000b"
CHILD = "019d6730-8000-7000-8000-00000000000c"


def at(second: float, held: dict[str, Any]) -> dict[str, Any]:
    """A line of this time."""
    return held | {"timestamp": f"2026-04-07T09:00:{second:06.3f}Z"}


def begins(turn: str) -> dict[str, Any]:
    """A turn's first line."""
    return {"type": "event_msg", "payload": {"type": "task_started", "turn_id": turn}}


def forked(**more: Any) -> dict[str, Any]:
    """The header of a fork."""
    held = meta(CHILD)
    return held | {"payload": held["payload"] | {"forked_from_id": "parent"} | more}


def own(*lines: dict[str, Any]) -> tuple[int, int | None]:
    """How many rows were copied, and the tokens that were not."""
    state = taken(SessionState("/a"), *lines)
    return state.copied, state.notes.get("tokens", {}).get("input")


def test_where_ids_do_not_tell_a_copy_is_all_of_the_first_second() -> None:
    """formats.md 3.9: also lines that kept their older times; a line without one is no copy."""
    for times in ((0.0, 0.1, 0.9, 5.0, 6.0), (30.0, 1.0, 2.0, 31.1, 31.2)):
        lines = (forked(), begins("t1"), count(100), begins("t2"), count(130))
        assert own(*map(at, times, lines)) == (1, 30)
    assert own(forked(), begins("t1"), count(100)) == (0, 100)


def test_a_turn_that_is_older_than_its_thread_was_copied_whatever_the_time() -> None:
    """A large history takes longer than a second; work can begin sooner than that."""
    lines = (begins(OLD), count(100), begins(NEW), count(130))
    for times in ((0.1, 9.0, 9.1, 9.2), (0.1, 0.2, 0.3, 0.4)):
        timed = tuple(map(at, times, lines))
        assert own(at(0, forked()), *timed) == (1, 30)
        spawn = {"subagent": {"thread_spawn": {"parent_thread_id": "parent"}}}
        assert own(at(0, forked(forked_from_id=None, source=spawn)), *timed) == (1, 30)
        assert own(at(0, meta(CHILD)), *timed) == (0, 130), "it came from nobody"


def test_a_header_alone_is_no_copied_history() -> None:
    """0.145: a sub-agent's file names its parent twice, and begins with its own work."""
    lines = (forked(), meta("parent"), begins(NEW), count(30))
    assert own(*(at(n / 10, one) for n, one in enumerate(lines))) == (0, 30)
