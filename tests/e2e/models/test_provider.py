"""A failing provider and the whole daemon: number of requests, log lines, errors and retries."""

import signal

import pytest

from tests.e2e.world import GOOGLE_KEY, World, index_state, logged, problems, scanned, until
from tests.fakes.gemini_server import CANARY, METADATA, GeminiServer

pytestmark = pytest.mark.faults


@pytest.fixture(autouse=True)
def scan_often(world: World) -> None:
    world.env["INDEXERD_WATCH__RESCAN_SECONDS"] = "0.3"


def test_a_long_retry_delay_stops_all_requests(world: World) -> None:
    """After a 429 with a long delay no session sends a request before it is over."""
    with GeminiServer() as server:
        world.google(server)
        server.default = "429_huge"
        first = world.session(turns=5)
        with world.daemon():
            until(lambda: index_state(world, first.id) == "failed", "the end of the one request")
            for session in [world.session(turns=5) for _ in range(2)]:
                until(lambda key=session.id: index_state(world, key) == "failed", "the refusal")
            scanned(world, 2)
            assert "provider_unavailable" in problems(world)
        assert server.hits == 1
    assert len(logged(world, "model.breaker_open")) == 1
    assert len(logged(world, "index.failed")) == 1
    assert len(logged(world, "index.skipped")) == 2


def test_a_bad_key_is_tried_again_after_a_reload(world: World) -> None:
    """Many due sessions cause few requests and log lines; lookups work, and SIGHUP tries again."""
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
            assert 1 <= hits <= 2  # at most as many as run at once
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
            assert len(logged(world, "model.breaker_closed")) == 1
            assert world.call("status")["state"] == "ok"


@pytest.mark.parametrize(
    ("script", "requests", "kind"),
    [
        (["valid"], 1, None),
        (["fenced"], 1, None),
        (["malformed", "valid"], 2, None),
        (["malformed"] * 3, 3, "model_output_invalid"),
        (["max_tokens_empty"] * 3, 3, "model_output_invalid"),
        (["500_json"], 1, "provider_unavailable"),
        (["hang"], 1, "timeout"),
        (["redirect_307"], 1, "model_unavailable"),
        (["huge"], 1, "provider_unavailable"),
        (["safety"], 1, "model_unavailable"),
        (["401"], 1, "model_unavailable"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_answers_and_faults(
    world: World, script: list[str], requests: int, kind: str | None
) -> None:
    """Each kind of answer has its number of requests and error (S0.21, S0.22, S0.23, S0.24)."""
    session = world.session(turns=5)
    with GeminiServer() as server:
        world.google(server)
        if script == ["hang"]:
            world.env["INDEXERD_MODEL__TIMEOUT_SECONDS"] = "6"
        server.script(*script)
        report = world.run("run", "--once", "--json", code=None)
        assert requests == server.hits
        again = world.run("run", "--once", "--json", code=None)
        denied = kind == "model_unavailable" and script != ["safety"]
        # Neither a success nor a failure in its back-off is repeated. A new process asks a
        # provider that denied access once more.
        assert server.hits == requests + denied
        requests += denied
        if denied:
            assert [session.id] == again["indexed"]
    if kind is None:
        assert [session.id] == report["indexed"]
        meta = world.meta(session.id)
        assert meta is not None
        assert METADATA["name"] == meta["name"]
        assert meta["model"] == "google/gemini-3.5-flash-lite"
        assert requests == meta["usage"]["calls"]
        assert meta["usage"]["costUsd"] > 0
    else:
        assert [{"sessionId": session.id, "kind": kind}] == report["failed"]
        assert denied or world.meta(session.id) is None
        assert again["failed"] in ([], report["failed"])
    rows = world.telemetry()
    assert requests == len(rows)
    assert all(row["customType"] == "session-index:index" for row in rows)
    booked = (world.state / "budget.jsonl").read_text()
    assert requests == booked.count('"reserve"')
    kept = "".join(path.read_text(errors="replace") for path in world.state.glob("*.jsonl*"))
    for word in (GOOGLE_KEY, CANARY, "widget number"):
        assert word not in kept


def test_the_daily_limit_survives_restarts_and_lost_caches(world: World) -> None:
    """No call exceeds the limit in this process, the next one, or without caches."""
    with GeminiServer() as server:
        world.google(server)
        world.env["INDEXERD_BUDGET__DAILY_CALLS"] = "2"
        for _ in range(4):
            world.session(turns=5)
        report = world.run("run", "--once", "--json", code=75)
        assert (len(report["indexed"]), len(report["failed"])) == (2, 2)
        for path in world.state.glob("*.sqlite*"):
            path.unlink()
        report = world.run("run", "--once", "--json", code=75)
        assert {"budget_exhausted"} == {failure["kind"] for failure in report["failed"]}
        assert server.hits == 2


def test_without_a_key_nothing_is_sent(world: World) -> None:
    """The default configuration without a key opens no connection and still names sessions."""
    session = world.session(turns=5)
    with GeminiServer() as server:
        world.google(server, "local/extractive")
        del world.env["INDEXERD_GOOGLE_API_KEY"]
        world.env["GEMINI_API_KEY"] = world.env["GOOGLE_API_KEY"] = GOOGLE_KEY
        world.run("run", "--once")
        assert server.hits == 0
    assert (world.meta(session.id) or {})["model"] == "local/extractive"
