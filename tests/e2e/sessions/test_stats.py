"""A full context: how it is counted, when it is warned of, what it sets off."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.world import ROOT, Session, World, until

DOCUMENT = ROOT / "docs/CLI.md"


def stats(world: World, session: Session) -> dict[str, Any]:
    until(lambda: world.row(session.id).get("leafId") == session.last, "its end")
    found: dict[str, Any] = world.call("stats", ref=session.id)
    return found


@pytest.mark.parametrize(
    ("counted", "level", "percent"),
    [
        (146_000, "ok", None),
        (147_000, "warning", 80),
        (165_300, "fold", 90),
        (190_000, "fold", 103),
    ],
)
def test_a_full_context_is_warned_of(
    running: World, counted: int, level: str, percent: int | None
) -> None:
    """At 80 % of the usable tokens a warning, at 90 % the advice to fold (S2.26, S3.16)."""
    session = running.session()
    session.say("user", "Where?")
    usage = {"input": counted - 10, "output": 10, "totalTokens": counted}
    model = {"provider": "anthropic", "model": "claude-opus-4-5"}
    session.say("assistant", "There.", stopReason="stop", usage=usage, **model)
    found = stats(running, session)
    assert (found["window"], found["reserve"], found["usable"]) == (200_000, 16_384, 183_616)
    assert (found["contextTokens"], found["level"]) == (counted, level)
    assert [one.partition(" ")[0] for one in found["warnings"]] == [f"{percent}%"] * bool(percent)
    assert found["shouldCompact"]["pi"] is (counted > 183_616)


def test_tokens_are_counted_by_the_provider_or_else_estimated(running: World) -> None:
    """A real count wins; without one a token is four characters, as documented (S3.23, S2.26)."""
    session = running.session()
    session.say("user", "x" * 41)
    session.say("assistant", "y" * 8, stopReason="stop")
    found = stats(running, session)
    assert (found["contextTokens"], found["estimated"]) == (11 + 2, True)
    assert (found["level"], found["warnings"], "window" in found) == (None, [], False)
    usage = {"input": 4990, "output": 10, "totalTokens": 5000}
    session.say("user", "And?")
    session.say("assistant", "z" * 400, stopReason="stop", usage=usage)
    found = stats(running, session)
    assert (found["contextTokens"], found["estimated"]) == (5000, False)
    assert "a fourth of the characters" in " ".join(DOCUMENT.read_text().split())


def test_an_outgrown_context_makes_a_digest_where_that_is_wanted(world: World) -> None:
    """A context beyond window less reserve is a reason only where it is switched on (S3.16)."""
    world.env |= {
        "INDEXERD_DIGEST__CONTEXT_WINDOW": "30000",
        "INDEXERD_DIGEST__RESERVE_TOKENS": "20000",
        "INDEXERD_INDEX__QUIET_SECONDS": "0",
    }
    sessions = {counted: world.session(turns=12) for counted in (9_990, 10_010)}
    world.run("run", "--once")
    for wanted in ("false", "true"):
        world.env["INDEXERD_DIGEST__TOKEN_TRIGGER"] = wanted
        for counted, session in sessions.items():
            usage = {"input": counted - 10, "output": 10, "totalTokens": counted}
            session.say("user", "Go on.")
            session.say("assistant", "Gone.", stopReason="stop", usage=usage)
        made = world.run("run", "--once", "--json")["digested"]
        assert made == ([sessions[10_010].id] if wanted == "true" else [])
