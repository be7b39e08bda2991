"""A private key that lost its last line and its line ends: nothing of it is in any prompt."""

from __future__ import annotations

from contextlib import suppress

import pytest

from indexerd.errors import IndexerdError
from tests.e2e.world import World
from tests.fakes.openai_server import OpenAIServer
from tests.sessions.canaries import WORD, pem

pytestmark = pytest.mark.faults


JOINED = [
    *(" ", "    ", "\t", "\\n", "\\t", "\r\n", "\r", "\n    ", "\n> ", " > ", "\n# "),
    *("<br>", "&#10;", "%0A", " ↵ ", "\n: ", "\n│ ", ". ", "_", "</line>"),
]
ASKED = (
    ("digest", {}),
    ("query_session", {"question": "How is it deployed with way 0?"}),
    ("compact", {"strategy": "codex"}),
    ("compact", {"strategy": "opencode"}),
    ("compact", {"handoff": True}),
)


def test_a_key_without_its_end_is_in_no_prompt(world: World) -> None:
    """S2.21, X5: said by the user, given by a tool and cut there, or going on in the answer."""
    lines = pem().split("\n")[:-1]
    session = world.session()
    for name, end in enumerate(JOINED):
        session.turn(f"Deploy with way {name}: {end.join(lines)} as I always do.")
        cut = end.join([*lines[:-1], lines[-1][:14]])
        session.tool("bash", f"$ cat key\n{cut}\n\nAnd {end.join(lines)}", command="cat key")
        session.turn(f"The other one: {end.join(lines[:9])}", f"{end.join(lines[9:])} is its end.")
    session.talk(12)
    with OpenAIServer() as server:

        def told() -> list[bytes]:
            return [one.body for one in server.requests if b"as I always do." in one.body]

        world.openai(server)
        with world.daemon():
            world.wait_meta(session.id)
            for method, more in ASKED:
                before = len(told())
                ref = {"session" if method == "query_session" else "ref": session.id}
                with suppress(IndexerdError):  # the fake answers as if to an index prompt
                    world.call(method, **ref, **more)
                assert len(told()) > before, method
        leaked = [one.body for one in server.requests if WORD.encode() in one.body]
    assert leaked == []


LOGS = (
    "2024-01-01 12:00:{n:02} INFO  {line}",
    "2024-01-01 12:00:00,{n:03} info {line}",
    "web-1  | {line}",
    "Jan 01 12:00:00 host app[{n}]: {line}",
)


@pytest.mark.parametrize("lost", ["the first", "the last", "neither"])
def test_a_logged_key_goes_with_its_short_last_line(world: World, lost: str) -> None:
    """S2.21: whether its first or its last line was lost; what was logged after it stays."""
    first, *data, last = pem().split("\n")
    short = "Zq8kXf5uW4A=="
    lines = [*data, short] if lost == "the first" else [first, *data, short]
    lines += [] if lost == "the last" else [last]
    session = world.session()
    for log in LOGS:
        shown = [log.format(n=n, line=one) for n, one in enumerate([*lines, "It is ready."])]
        session.turn("\n".join(["What does it log?", "", *shown]))
    with world.daemon():
        world.seen(session)
        sent = world.call("as_sent", ref=session.id)["user"]
    assert sent.count("It is ready.") == len(LOGS)
    assert sent.count("[redacted:private-key]") == len(LOGS)
    assert WORD not in sent
    assert short not in sent
