"""A provider that fails, seen by a whole daemon: who is asked, how often, and what is said of it.

The requests are counted where they arrive, at a fake Gemini; kill -9 is a real one.
"""

from __future__ import annotations

import json
import signal

import pytest

from indexerd.errors import NotFoundError
from tests.e2e.world import World, logged, scanned, until
from tests.fakes.gemini_server import GeminiServer

pytestmark = pytest.mark.faults


def state(world: World, session_id: str) -> str | None:
    try:
        told = world.call("get", ref=session_id).get("indexing")
    except NotFoundError:
        return None
    return told and str(told["state"])


@pytest.fixture(autouse=True)
def often(world: World) -> None:
    world.env["INDEXERD_WATCH__RESCAN_SECONDS"] = "0.3"


def test_a_provider_that_wants_peace_has_it_over_kill_9(world: World) -> None:
    """M3, M16: a 429 with a long wish: after SIGKILL, too, no session asks before it is over."""
    with GeminiServer() as server:
        world.google(server)
        server.default = "429_huge"
        first = world.session(turns=5)
        with world.daemon() as process:
            until(lambda: server.hits, "the one request")
            until(lambda: state(world, first.id) == "failed", "its end")
            second = world.session(turns=5)
            until(lambda: state(world, second.id) == "failed", "no")
            process.kill()
            process.wait(10)
        server.default = "valid"
        with world.daemon():
            third = world.session(turns=5)
            until(lambda: state(world, third.id) == "failed", "no")
            scanned(world, 2)
            problems = {one["code"]: one["cause"] for one in world.call("status")["problems"]}
        assert server.hits == 1
    assert "3 sessions wait for it" in problems["provider_unavailable"]
    # One line for the outage, and one again for who starts anew; the rest is no warning.
    assert len(logged(world, "model.breaker_open")) == 2
    assert len(logged(world, "index.failed")) == 2
    assert len(logged(world, "index.skipped")) >= 1


def test_a_bad_key_is_asked_with_again_after_a_reload(world: World) -> None:
    """M5: many due sessions, few requests, few lines; lookups are served, and SIGHUP mends it."""
    with GeminiServer() as server:
        world.google(server)
        server.default = "401"
        sessions = [world.session(turns=5) for _ in range(6)]
        with world.daemon() as process:
            until(
                lambda: len(logged(world, "index.failed") + logged(world, "index.skipped")) >= 6,
                "every session's turn",
            )
            scanned(world, 2)
            hits = server.hits
            assert 1 <= hits <= 2  # as many as there are at once
            assert world.call("resolve", ref=sessions[0].id)["sessionId"] == sessions[0].id
            assert world.call("status")["state"] == "degraded"
            assert len(logged(world, "model.breaker_open")) == 1
            assert len(logged(world, "index.failed")) == 1
            server.default = "valid"
            world.configure("")
            process.send_signal(signal.SIGHUP)
            for session in sessions:
                world.wait_meta(session.id)
            assert server.hits == hits + 6
            (closed,) = logged(world, "model.breaker_closed")
            assert closed["count"] == 6
            assert world.call("status")["state"] == "ok"


def test_what_is_of_no_use_and_what_is_late_change_no_meta_file(world: World) -> None:
    """M13: after three bad answers the old file stands, and no scan asks again for a minute.

    M19, S0.36: what another hand wrote while a slow answer was under way stands, to the byte.
    """
    bad, slow = world.session(turns=5), world.session(turns=5)
    once = [{"match": one.id, "times": 1} for one in (bad, slow)]
    world.scripted(*once, {"match": bad.id, "text": "not json"}, {"delay": 0.7})
    with world.daemon():
        for session in (bad, slow):
            world.wait_meta(session.id)
        kept = world.meta_path(bad.id)
        before = kept.read_bytes()
        slow.talk(5)
        until(lambda: len(world.calls()) == 3, "the slow call")
        path = world.meta_path(slow.id)
        meta = json.loads(path.read_bytes())
        theirs = json.dumps(meta | {"name": "Theirs", "lastIndexedLeafId": slow.last})
        path.write_text(theirs)
        bad.talk(5)
        until(lambda: state(world, bad.id) == "failed", "the end of one")
        (skipped,) = until(lambda: logged(world, "index.skipped"), "the end of the other")
        scanned(world)
        assert len(world.calls()) == 6
        assert world.row(slow.id)["name"] == "Theirs"
        assert state(world, slow.id) is None
    assert kept.read_bytes() == before
    assert path.read_text() == theirs
    assert (skipped["session"], skipped["reason"]) == (slow.id, "written elsewhere")
    assert [line["session"] for line in logged(world, "index.failed")] == [bad.id]
