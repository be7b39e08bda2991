"""A running daemon indexes a session while it grows."""

import pytest

from indexerd.client import Client
from tests.e2e.references.expanding import add
from tests.e2e.world import World, until, wait


@pytest.mark.parametrize("mode", ["auto", "poll"])
def test_each_due_turn_causes_one_call(world: World, mode: str) -> None:
    """S0.1, S0.8: each due turn is indexed once, with file events or polling."""
    world.scripted()
    world.env["INDEXERD_WATCH__MODE"] = mode
    with world.daemon():
        session = world.session(turns=4)
        until(lambda: world.call("list")["sessions"], "the session in the list")
        assert world.calls() == []
        session.turn()
        first = world.wait_meta(session.id)
        assert session.last == first["lastIndexedLeafId"]
        session.talk(5)
        leaf = session.last
        second = world.wait_meta(session.id, lambda meta: meta["lastIndexedLeafId"] == leaf)
        assert first["createdAt"] == second["createdAt"]
        assert first["updatedAt"] < second["updatedAt"]
        until(lambda: world.row(session.id)["name"] == second["name"], "the name in the row")
        assert session.id == world.call("resolve", ref=second["name"])["sessionId"]
    assert len(world.calls()) == 2


def test_a_tool_loop_or_an_error_starts_no_run_before_its_turn_has_ended(world: World) -> None:
    """S0.1, S0.2: one run for a turn with tools, and one for an error and its retry."""
    world.scripted()
    with world.daemon():
        looping, failing = world.session(turns=4), world.session(turns=4)
        failing.turn(answer="", stop="error")
        world.seen(failing)
        failing.answer("Now it worked.")
        looping.say("user", f"Do it. Session: {looping.id}")
        for _ in range(5):
            looping.say("assistant", "Looking.", stopReason="toolUse")
            looping.say("toolResult", "result")
        assert world.wait_meta(failing.id)["lastIndexedLeafId"] == failing.last
        world.seen(looping)
        wait(world, looping.id, state="active")
        until(lambda: world.call("status")["queued"] == 0, "an empty queue")
        assert [call["session"] for call in world.calls()] == [failing.id]
        looping.answer()
        world.wait_meta(looping.id)
    assert [call["session"] for call in world.calls()] == [failing.id, looping.id]


def test_messages_during_a_call_wait_for_the_next_run(world: World) -> None:
    """S0.35: the meta file names the leaf that was sent; later messages get a run of their own."""
    world.scripted({"delay": 1.0, "times": 1}, {"delay": 3.0})
    with world.daemon():
        session = world.session(turns=5)
        leaf = session.last
        until(world.calls, "the first call")
        session.talk(5)
        first = world.wait_meta(session.id)
        assert leaf == first["lastIndexedLeafId"]
        second = world.wait_meta(session.id, lambda meta: meta["lastIndexedLeafId"] == session.last)
        assert second["userMessageCount"] == 10
    assert len(world.calls()) == 2


def test_forced_runs(world: World) -> None:
    """S0.3, S0.11, S0.30, S0.42: a forced run ignores the threshold; only one runs at a time."""
    world.scripted({"delay": 3.0, "times": 1}, {})
    with world.daemon():
        session = world.session(turns=2)
        until(lambda: world.call("list")["sessions"], "the session")
        assert world.call("index", ref=session.id) == {"status": "below_threshold"}
        assert world.call("index", ref=session.id, force=True) == {"status": "queued"}
        until(world.calls, "the call")
        refusal = world.run("index", session.id, "--force", "--json", code=75)
        assert refusal["error"]["code"] == "already_running"
        assert refusal["error"]["message"] == "Session indexing already in progress"
        world.wait_meta(session.id)
        done = world.run("index", session.id, "--force", "--wait", "--json")
        assert done["status"] == "indexed"
        world.run("index-session", session.id, "--wait")  # the default of `command_name`
        status = world.call("get", ref=session.id)["indexing"]
        assert (status["state"], status["key"]) == ("succeeded", "index-session")
        assert status["text"].startswith("✅ session indexed (")
    assert len(world.calls()) == 3


def test_events_reach_subscribers(world: World) -> None:
    """S0.42, S1.45: subscribers receive creation, retries and the end of a run."""
    world.scripted({"text": "not json", "times": 1}, {})
    seen: list[str] = []
    with world.daemon(), Client(world.socket, timeout=20) as client:
        stream = client.events()
        until(lambda: world.call("status")["lastScanAt"], "the first scan")
        session = world.session(turns=5)
        for event in stream:
            if event.get("sessionId") == session.id:
                seen.append(event["event"])
            if "index.succeeded" in seen:
                break
    assert seen[0] == "session.created"
    runs = [name for name in seen if name.startswith("index.")]
    assert runs == ["index.started", "index.retry", "index.succeeded"]


def test_foreign_and_broken_meta_files(world: World) -> None:
    """S0.38, S0.39: another program's meta file is used; a broken one is replaced by a run."""
    world.scripted()
    session_id = add(world, "Named by the extension", turns=6)
    path = world.meta_path(session_id)
    leaf = (world.meta(session_id) or {})["lastIndexedLeafId"]
    with world.daemon():
        wait(world, session_id, name="Named by the extension", newUserMessages=0)
        assert world.calls() == []
        path.write_text("{broken")
        meta = world.wait_meta(session_id, lambda found: found["model"] == "scripted/test")
        assert leaf == meta["lastIndexedLeafId"]
    log = (world.state / "log.jsonl").read_text()
    assert log.count("meta.invalid") == 1
    assert "Invalid JSON in meta file" in log
