"""A private key that lost its last line and its line ends: nothing of it is in any prompt."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from indexerd.errors import IndexerdError
from tests.e2e.privacy.secret_places import tool
from tests.e2e.world import World
from tests.fakes.openai_server import OpenAIServer
from tests.sessions.canaries import WORD, pem

pytestmark = pytest.mark.faults


JOINED = {
    "a space": " ",
    "spaces": "    ",
    "a tab": "\t",
    "a literal line end": "\\n",
    "a literal tab": "\\t",
    "CRLF": "\r\n",
    "CR": "\r",
    "an indent": "\n    ",
    "a quote": "\n> ",
    "a quote and a space": " > ",
    "a comment": "\n# ",
    "a page's line end": "<br>",
    "a page's escape": "&#10;",
    "an address's escape": "%0A",
    "an arrow": " ↵ ",
    "a colon": "\n: ",
    "a box": "\n│ ",
    "a full stop": ". ",
    "an underscore": "_",
    "a tag": "</line>",
}
ASKED = (
    ("digest", {}),
    ("query_session", {"question": "How is it deployed with a space?"}),
    ("compact", {"strategy": "codex"}),
    ("compact", {"strategy": "opencode"}),
    ("compact", {"handoff": True}),
)


def test_a_key_without_its_end_is_in_no_prompt(world: World) -> None:
    """S2.21, X5: said by the user, given by a tool and cut there, or going on in the answer."""
    lines = pem().split("\n")[:-1]
    session = world.session()
    for name, end in JOINED.items():
        session.turn(f"Deploy with {name}: {end.join(lines)} as I always do.")
        tool(
            session,
            f"$ cat key\n{end.join([*lines[:-1], lines[-1][:14]])}\n\nAnd {end.join(lines)}",
        )
        session.turn(f"The other one: {end.join(lines[:9])}", f"{end.join(lines[9:])} is its end.")
    session.talk(12)
    with OpenAIServer() as server:

        def told() -> list[bytes]:
            return [one.body for one in server.requests if b"as I always do." in one.body]

        world.env["INDEXERD_OPENAI_API_KEY"] = "sk-not-one"
        world.env["INDEXERD_MODEL_KEYS"] = json.dumps(["openai/gpt-test"])
        world.env["INDEXERD_PROVIDERS__OPENAI__BASE_URL"] = json.dumps(server.url)
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
