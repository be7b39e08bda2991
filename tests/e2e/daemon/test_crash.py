"""After kill -9 or SIGTERM at any moment no file is torn, lost or paid for twice."""

import json
import random
import signal
from collections import Counter

import pytest

from tests.e2e.world import Session, World, let_pass, until, wait

pytestmark = pytest.mark.faults


def test_kill_in_a_loop_loses_nothing_and_repeats_nothing_stored(world: World) -> None:
    """S0.36: kill -9 at random moments loses no session and repeats no stored result."""
    world.scripted({"delay": 0.15})
    world.env["INDEXERD_INDEX__QUIET_SECONDS"] = "0"
    world.env["INDEXERD_BUDGET__REQUESTS_PER_MINUTE"] = "1000"
    world.env["INDEXERD_BUDGET__DAILY_USD"] = "100"
    sessions = [world.session(turns=5) for _ in range(12)]
    before = world.fingerprint()
    dice = random.Random(7)
    stored: set[str] = set()
    for _ in range(10):
        asked = len(world.calls())
        with world.daemon() as process:
            until(lambda asked=asked: len(world.calls()) > asked or _all(world, sessions), "a call")
            let_pass(dice.random() * 0.4)
            process.send_signal(signal.SIGKILL)
            process.wait()
        repeated = {call["session"] for call in world.calls()[asked:]} & stored
        assert not repeated
        stored |= {session.id for session in sessions if world.meta(session.id)}
        for path in world.metas.glob("*.meta.json") if world.metas.exists() else ():
            json.loads(path.read_bytes())
    world.env["INDEXERD_INDEX__QUIET_SECONDS"] = "0.1"
    report = world.run("run", "--once", "--json")
    assert report["failed"] == []
    assert _all(world, sessions)
    assert not list(world.metas.glob("*.tmp")) + list(world.metas.glob(".*.tmp"))
    rows = [json.loads(line) for line in (world.state / "budget.jsonl").read_text().splitlines()]
    operations = Counter(row["op"] for row in rows)
    assert operations["reserve"] >= len(world.calls())
    assert before == world.fingerprint()


def _all(world: World, sessions: list[Session]) -> bool:
    return all(world.meta(session.id) for session in sessions)


ANSWER = "The importer reads a feed, checks each amount, and keeps what it cannot read. " * 40


def test_a_long_session_delays_no_other(world: World) -> None:
    """M17: nor the end of the daemon, which then writes no meta file for it."""
    small, large = world.session(turns=3), world.session(turns=5)
    for _ in range(15_000):
        large.answer(ANSWER)
    with world.daemon() as process:
        log = world.state / "log.jsonl"
        until(lambda: "index.started" in log.read_text(), "the run")
        small.turn()
        wait(world, small.id, userMessageCount=4)
        assert world.call("tree", ref=small.id)["nodes"]
        assert "index.succeeded" not in log.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0
    assert world.meta(large.id) is None
    assert not [*world.metas.glob(".*")]
