"""Large sessions: everybody else is served while they are read and described."""

from __future__ import annotations

import json
import signal

import pytest

from tests.e2e.world import Session, World, until

pytestmark = pytest.mark.faults

ANSWER = "The importer reads a feed, checks each amount, and keeps what it cannot read. " * 40


def lengthen(session: Session, answers: int) -> None:
    """Add so many answers of some kilobytes, at once."""
    lines = []
    for number in range(answers):
        content = [{"type": "text", "text": ANSWER}]
        entry: dict[str, object] = {"type": "message", "parentId": session.last}
        entry["timestamp"] = "2026-11-21T10:00:00Z"
        entry["message"] = {"role": "assistant", "content": content, "stopReason": "stop"}
        session.last = entry["id"] = f"{number:08x}"
        lines.append(json.dumps(entry) + "\n")
    with session.path.open("a") as file:
        file.writelines(lines)


def test_a_long_session_holds_up_nobody(world: World) -> None:
    """F9, S11, V2: while one is described for the first time, all others are served.

    M17: SIGTERM is obeyed, and half a run writes nothing.
    """
    small, large = world.session(turns=3), world.session(turns=5)
    lengthen(large, 15_000)
    with world.daemon() as process:
        log = world.state / "log.jsonl"
        until(lambda: "index.started" in log.read_text(), "the run")
        small.turn()
        until(lambda: world.row(small.id)["userMessageCount"] == 4, "the turn")
        assert world.call("tree", ref=small.id)["nodes"]
        assert "index.succeeded" not in log.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0
    assert world.meta(large.id) is None
    assert not [*world.metas.glob(".*")]


def test_a_call_under_way_is_dropped(world: World) -> None:
    """M17: SIGTERM does not wait for a model; no meta file, no temp, and one call more later."""
    world.scripted({"delay": 60})
    session = world.session(turns=5)
    with world.daemon() as process:
        until(world.calls, "the call")
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0
    assert world.meta(session.id) is None
    assert not [*world.metas.glob(".*")]
    world.scripted()
    with world.daemon():
        world.wait_meta(session.id)
    assert [call["session"] for call in world.calls()] == [session.id] * 2
