"""One pass against a faithful fake of Gemini, with the real SDK over a socket."""

from __future__ import annotations

import json

import pytest

from tests.e2e.world import GOOGLE_KEY, World
from tests.fakes.gemini_server import CANARY, METADATA, GeminiServer

pytestmark = pytest.mark.faults


@pytest.mark.parametrize(
    ("script", "requests", "kind"),
    [
        (["valid"], 1, None),
        (["fenced"], 1, None),
        (["malformed", "valid"], 2, None),
        (["malformed"] * 3, 3, "model_output_invalid"),
        (["max_tokens_empty"] * 3, 3, "model_output_invalid"),
        (["429_seconds"], 1, "provider_unavailable"),
        (["500_json"], 1, "provider_unavailable"),
        (["hang"], 1, "timeout"),
        (["redirect_307"], 1, "model_unavailable"),
        (["huge"], 1, "provider_unavailable"),
        (["safety"], 1, "model_unavailable"),
        (["401"], 1, "model_unavailable"),
        (["spend_limit_prose"], 1, "provider_unavailable"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_answers_and_faults(
    world: World, script: list[str], requests: int, kind: str | None
) -> None:
    """What each answer leads to, with the requests counted (S0.21, S0.22, S0.23, S0.24).

    M2, M3, M4, M5, M7, M8, M10, M11, M12, M13, M14; X11: neither key nor text is kept.
    """
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
        # A failure waits for its time, a success is not repeated; a restart asks again whoever
        # refused us, once.
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


def test_what_is_declined_or_unaffordable_is_named_here(world: World) -> None:
    """M11, M16: content declined, or no budget: the built-in model, where it is configured."""
    with GeminiServer() as server:
        world.google(server, "local/extractive")
        server.script("safety")
        first = world.session(turns=5)
        world.run("run", "--once")
        assert (world.meta(first.id) or {})["model"] == "local/extractive"
        assert server.hits == 1
        world.env["INDEXERD_BUDGET__DAILY_CALLS"] = "1"
        second = world.session(turns=5)
        world.run("run", "--once")
        assert (world.meta(second.id) or {})["model"] == "local/extractive"
        assert server.hits == 1


def test_the_daily_caps_survive_everything(world: World) -> None:
    """M15, M16: no call is made beyond the cap, in this process, the next, or without caches."""
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
        assert {"budget_exhausted"} == {one["kind"] for one in report["failed"]}
        assert server.hits == 2


def test_without_a_key_nothing_leaves(world: World) -> None:
    """M21, C1: the default configuration without a key opens no connection, and names sessions."""
    session = world.session(turns=5)
    with GeminiServer() as server:
        world.google(server, "local/extractive")
        del world.env["INDEXERD_GOOGLE_API_KEY"]
        world.env["GEMINI_API_KEY"] = world.env["GOOGLE_API_KEY"] = GOOGLE_KEY
        world.run("run", "--once")
        assert server.hits == 0
    assert (world.meta(session.id) or {})["model"] == "local/extractive"


def test_what_is_sent_is_what_was_shown(world: World) -> None:
    """X5, S0.18: the body sent holds the transcript, redacted, and the schema."""
    secret = "ghp_" + "a1B2c3D4e5" * 4
    session = world.session()
    session.turn(f"Deploy with {secret} please.")
    session.talk(4)
    with GeminiServer() as server:
        world.google(server)
        world.run("run", "--once")
        (request,) = server.requests
    assert secret.encode() not in request.body
    sent = request.json["contents"][0]["parts"][0]["text"]
    assert "<conversation>" in sent
    assert "Assistant: Done." in sent
    assert "[redacted:" in sent
    assert "responseJsonSchema" in json.dumps(request.json)
    assert {"[redacted"} == {part[:9] for part in sent.split() if part.startswith("[red")}
    assert (world.meta(session.id) or {})["redactions"]
