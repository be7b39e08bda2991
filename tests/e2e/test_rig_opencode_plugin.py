"""The real opencode with the plugin, the real daemon behind it, and the scripted model.

Only where `INDEXERD_RIG` names a directory in which the rig is installed (see rig.py).

What surprised us: where there is any plugin, opencode 1.18 does not serve before it has installed
its own package into its configuration's directory, for minutes where there is no network; so the
tests leave there what a first start online leaves.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import indexerd
from tests.e2e.rig import (
    FIVE,
    GROW,
    PICK,
    PORT,
    REDIS,
    RETRY,
    RIG,
    Isle,
    isle,
    needed,
    program,
    watched,
)
from tests.e2e.test_rig_opencode import Opencode
from tests.e2e.world import World, until

pytestmark = needed

PLUGIN = Path(indexerd.__file__).parent / "integrations/opencode/indexerd.js"
both = pytest.mark.parametrize("version", ["opencode", "opencode-12"])
CALLER = PORT + 1  # a scripted model that calls the tools of indexerd, too
TWO = FIVE[1:3]  # enough to be indexed here
NOTE = "Note what we work with."
QUESTION = "Ask the earlier session."
# The rig's model, and two prompts to which it answers by calling tools: argv is where the rig is,
# the port, and what to call them with.
MODEL = """
import json, sys
rig, port, noted, asked = sys.argv[1:]
sys.path.insert(0, rig)
import fake_server as model, scenarios as s
usual = model.map_call
def call(op, args, body):
    return (op, args, False) if op.startswith("indexerd_") else usual(op, args, body)
model.map_call = call
for prompt, tool, args in (
    ("Note what we work with.", "indexerd_set_relevant_context", noted),
    ("Ask the earlier session.", "indexerd_query_session", asked),
):
    twice = [(tool, json.loads(args))] * 2
    s.sc(prompt, *[s.T("", "", one) for one in twice], s.T("That is done."))
server = model.ThreadingHTTPServer(("127.0.0.1", int(port)), model.H)
server.daemon_threads = True
server.serve_forever()
"""


@pytest.fixture
def keen_world(bare_world: World) -> World:
    """A home in which two prompts are enough for an index."""
    bare_world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = "2"
    return bare_world


class Plugged:
    """An isle whose opencode has the plugin."""

    def __init__(self, isle: Isle, version: str) -> None:
        self._isle = isle
        self._version = version
        self._logs = isle.world.root / "calls"
        self.noted = str(isle.project / "src/cache.py")
        self._install(Path(isle.env["XDG_CONFIG_HOME"]) / "opencode")
        base = {"options": {"baseURL": f"http://127.0.0.1:{CALLER}/v1"}}
        own = {key: isle.world.env[key] for key in ("INDEXERD_SOCKET", "PYTHONPATH")}
        content = json.dumps({"provider": {"fake": base}})
        isle.env |= own | {"OPENCODE_CONFIG_CONTENT": content}

    def _install(self, config: Path) -> None:
        (config / "plugins").mkdir(parents=True)
        command = json.dumps([sys.executable, "-m", "indexerd"])
        source = PLUGIN.read_text().replace("__INDEXERD_COMMAND__", command)
        (config / "plugins/indexerd.js").write_text(source)
        (config / "node_modules").mkdir()
        told = json.loads(
            Path(program(self._version, "opencode-linux-x64/package.json")).read_text()
        )
        wanted = {"dependencies": {"@opencode-ai/plugin": told["version"]}}
        (config / "package.json").write_text(json.dumps(wanted))
        (config / "package-lock.json").write_text(json.dumps({"packages": {"": wanted}}))

    def model(self, past: str) -> None:
        """Start the model that calls tools; `past` is the session that it asks."""
        noted = json.dumps({"setName": "files", "items": [self.noted]})
        asked = json.dumps({"session": past, "question": "What is said about eviction?"})
        argv = (sys.executable, "-B", "-c", MODEL, str(RIG), str(CALLER), noted, asked)
        self._isle.start(*argv, FAKE_CWD=str(self._isle.project), FAKE_LOG=str(self._logs))
        until(lambda: self._isle.answers(CALLER, "/health"), "the model that calls tools")

    @contextmanager
    def opencode(self) -> Iterator[Opencode]:
        """A server for a block."""
        app = Opencode(self._isle, self._version)
        yield app
        app.close()

    def turns(self) -> list[list[dict[str, Any]]]:
        """The messages of each request so far that was made in a turn, but for the system's."""
        dumps = [json.loads(one.read_text()) for one in sorted(self._logs.glob("*.json"))]
        bodies = [one["body"] for one in dumps if one["body"].get("tools")]
        return [[one for one in body["messages"] if one["role"] != "system"] for body in bodies]


def _texts(message: dict[str, Any]) -> list[str]:
    content = message["content"]
    return [content] if isinstance(content, str) else [str(one["text"]) for one in content]


def _parts(app: Opencode, session: str, nth: int = 0) -> list[dict[str, Any]]:
    """The parts of a session's nth prompt, as opencode has kept them."""
    held = app.call("GET", f"/session/{session}/message")
    prompts = [one["parts"] for one in held if one["info"]["role"] == "user"]
    parts: list[dict[str, Any]] = prompts[nth]
    return parts


@both
def test_references_reach_opencodes_model(keen_world: World, version: str) -> None:
    """S0.53, S0.55, S1.38: behind the prompt, kept there, and the same in each later request."""
    with watched(keen_world, "opencode") as (made, eye):
        plugged = Plugged(made, version)
        with plugged.opencode() as app:
            plugged.model("nobody")
            past = app.session(title="Forecast cache design")
            app.say(past, *TWO)
            name = eye.indexed(past)["name"]
            session = app.session(title="Alerts")
            prompt = f'{PICK} As in @@"{name}".'
            app.say(session, prompt, REDIS)
        first, second = plugged.turns()[-2:]
        (asked,) = first
        own, added = _texts(asked)
        assert own == prompt
        assert added.startswith("Referenced session summaries:")
        assert past in added
        assert json.dumps(second[:1]) == json.dumps(first)
        eye.sees(session, userMessageCount=2, firstUserMessage=prompt)
        with plugged.opencode() as app:
            kept, hidden = _parts(app, session)
            assert (kept["text"], kept.get("synthetic")) == (prompt, None)
            assert (hidden["text"], hidden["synthetic"]) == (added, True)
            app.say(session, GROW)
        third = plugged.turns()[-1]
        assert json.dumps(third[: len(second)]) == json.dumps(second)
        assert _texts(third[-1])[0] == GROW
        eye.sees(session, userMessageCount=3)
        eye.rests()
        found = keen_world.call("search", query='"Referenced session summaries"')
        assert found["hits"] == [], "nobody's words"


@both
def test_opencode_calls_the_tools(keen_world: World, version: str) -> None:
    """S0.60, S0.64, S4.26: the tools are offered once, and answer; what was noted comes back."""
    with watched(keen_world, "opencode") as (made, eye):
        plugged = Plugged(made, version)
        with plugged.opencode() as app:
            past = app.session(title="Forecast cache design")
            plugged.model(past)
            app.say(past, *TWO)
            eye.indexed(past)
            session = app.session(title="Alerts")
            app.say(session, QUESTION)
            tools = [one["content"] for one in plugged.turns()[-1] if one["role"] == "tool"]
            assert "Least-recently-used" in tools[0]
            assert "CALL_LIMIT_EXCEEDED" in tools[1], "one question a turn"
            app.say(session, NOTE)
            assert plugged.turns()[-1][-1]["role"] == "tool"
        noted = keen_world.call("get_relevant_context", session=session)
        assert noted["context"] == {"files": [plugged.noted]}
        with plugged.opencode() as app:
            app.say(session, RETRY, GROW)
            assert [len(_parts(app, session, nth)) for nth in (2, 3)] == [2, 1]
        own, context = _texts(plugged.turns()[-2][-1])
        assert own == RETRY
        assert plugged.noted in context
        with plugged.opencode() as app:
            prompt = f"{PICK} @@{past}: what was said about eviction?"
            app.say(session, prompt)
        own, _, answer = _texts(plugged.turns()[-1][-1])
        assert own == prompt, "and the context is there already"
        assert "Least-recently-used" in answer


@both
def test_opencode_goes_on_without_a_daemon(bare_world: World, version: str) -> None:
    """S0.51: a prompt with a reference goes through as it is, and the session goes on."""
    with isle(bare_world) as made:
        plugged = Plugged(made, version)
        plugged.model("nobody")
        with plugged.opencode() as app:
            session = app.session(title="Alerts")
            app.say(session, f"{PICK} As in @@confirm-button.", REDIS)
            assert len(_parts(app, session)) == 1
        with plugged.opencode() as app:
            app.say(session, GROW)
            assert len(_parts(app, session, 2)) == 1
        assert [len(turn) for turn in plugged.turns()] == [1, 3, 5]
