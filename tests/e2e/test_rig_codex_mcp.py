"""The real Codex with the MCP server and the hooks that `indexerd integrate codex` gives it.

Only where `INDEXERD_RIG` names a directory in which the rig is installed (see rig.py).

What surprised us: Codex hands an MCP server no variable that is not named to it, and shows a
model it knows the tools of such a server only once that has searched for them; hooks wait until
their user has trusted them, which the tests write down as Codex does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e import test_rig_codex as plain
from tests.e2e.rig import FIVE, LINE, PICK, PORT, RIG, Beholder, Isle, isle, needed, watched
from tests.e2e.test_rig_codex import Codex
from tests.e2e.world import World, until

pytestmark = needed

VERSION = "codex"
UNKNOWN = "fake-1"  # of a model that it does not know, Codex hides no tools
CALLER = PORT + 1  # a scripted model that calls a tool of ours, too
SEARCH = "Look for what we decided about eviction."
TOOLS = {"search_sessions", "query_session", "expand_references", "get_relevant_context"}
# The rig's model, and one prompt to which it answers by calling our tool: argv is where the rig
# is, the port, the prompt.
MODEL = """
import sys
rig, port, prompt = sys.argv[1:]
sys.path.insert(0, rig)
import fake_server as model, scenarios as s
usual = model.map_call
def call(op, args, body):
    return (op, args, False) if op == "search_sessions" else usual(op, args, body)
model.map_call = call
s.sc(prompt, s.T("", "", ("search_sessions", {"query": "eviction"})), s.T("That is done."))
server = model.ThreadingHTTPServer(("127.0.0.1", int(port)), model.H)
server.daemon_threads = True
server.serve_forever()
"""


class Integrated:
    """An isle whose Codex has our server and our hooks."""

    def __init__(self, isle: Isle) -> None:
        self.isle = isle
        self.world = isle.world
        self.config = Path(isle.env["HOME"]) / ".codex/config.toml"
        self.logs = self.world.root / "calls"
        isle.env |= {key: self.world.env[key] for key in ("INDEXERD_SOCKET", "PYTHONPATH")}
        argv = (sys.executable, "-B", "-c", MODEL, str(RIG), str(CALLER), SEARCH)
        isle.start(*argv, FAKE_CWD=str(isle.project), FAKE_LOG=str(self.logs))
        until(lambda: isle.answers(CALLER, "/health"), "the model that calls tools")

    def integrate(self) -> None:
        """Install; then let Codex, which writes its configuration anew in these tests, keep it."""
        before = self.config.read_text()
        done = self.world.run("integrate", "codex", "--json")["changes"]
        assert [one["did"] for one in done] == ["created", "updated", "created"]
        ours = self.config.read_text().removeprefix(before)
        model = plain.CONFIG.replace(f":{PORT}/", f":{CALLER}/")
        # A server in Codex gets the variables of its user, and these of the tests' besides.
        self.kept = model, ours.replace("env_vars = [", 'env_vars = ["PYTHONPATH", ')

    @contextmanager
    def codex(self, *trusted: dict[str, Any]) -> Iterator[Codex]:
        """An app-server for a block, with what we installed, and with hooks that are trusted."""
        model, ours = self.kept
        lines = [
            f'[hooks.state."{one["key"]}"]\ntrusted_hash = "{one["currentHash"]}"\n'
            for one in trusted
        ]
        config, plain.CONFIG = plain.CONFIG, "\n".join((model, ours, *lines))
        try:
            app = Codex(self.isle, VERSION)
        finally:
            plain.CONFIG = config
        yield app
        app.close()

    def hooks(self) -> list[dict[str, Any]]:
        """Our hooks, as Codex has read them."""
        with self.codex() as app:
            (found,) = app.call("hooks/list", cwds=[app.cwd])["data"]
        assert (found["warnings"], found["errors"]) == ([], [])
        return list(found["hooks"])

    def turns(self) -> list[dict[str, Any]]:
        """The body of each request so far."""
        dumps = [json.loads(one.read_text()) for one in sorted(self.logs.glob("*.json"))]
        return [one["body"] for one in dumps if one["path"].endswith("/responses")]


def _past(eye: Beholder, isle: Isle) -> tuple[str, str]:
    """A session that is indexed: its id and its name."""
    with plain.codex(isle, VERSION) as app:
        thread = app.thread()
        app.say(thread, *FIVE)
    eye.sees(thread, userMessageCount=len(FIVE))
    return thread, str(eye.indexed(thread)["name"])


def _tools(body: dict[str, Any]) -> set[str]:
    below = [one for tool in body["tools"] for one in tool.get("tools", ())]
    return {str(one.get("name")) for one in (*body["tools"], *below)}


def _texts(body: dict[str, Any]) -> list[str]:
    """Each item of a request as text, without the ids that Codex gives anew."""
    return [
        json.dumps({key: value for key, value in one.items() if key != "id"}, ensure_ascii=False)
        for one in body["input"]
    ]


def test_codex_calls_a_tool(bare_world: World) -> None:
    """The model is offered our tools; a call of one is answered with the session it is about."""
    with watched(bare_world, "codex") as (isle, eye):
        put_in = Integrated(isle)
        past, name = _past(eye, isle)
        put_in.integrate()
        with put_in.codex() as app:
            thread = app.thread(model=UNKNOWN)
            app._until(_ready)
            app.say(thread, SEARCH)
        asked, answered = put_in.turns()[-2:]
        assert _tools(asked) >= TOOLS
        (output,) = [one for one in answered["input"] if one["type"] == "function_call_output"]
        assert past in json.dumps(output)
        assert name in json.dumps(output)


def _ready(told: dict[str, Any]) -> bool:
    """Whether Codex says that our server has started; it must not say that it has failed."""
    if told.get("method") != "mcpServer/startupStatus/updated":
        return False
    assert told["params"]["status"] in ("starting", "ready"), told
    return (told["params"]["name"], told["params"]["status"]) == ("indexerd", "ready")


def test_a_reference_in_codex(bare_world: World) -> None:
    """S0.53: with trusted hooks the block is behind the user's text; no byte changes later."""
    with watched(bare_world, "codex") as (isle, eye):
        put_in = Integrated(isle)
        past, name = _past(eye, isle)
        put_in.integrate()
        hooks = put_in.hooks()
        assert sorted(one["eventName"] for one in hooks) == ["sessionStart", "userPromptSubmit"]
        assert {one["trustStatus"] for one in hooks} == {"untrusted"}
        asked = f'{PICK} As in @@"{name}".'
        with put_in.codex(*hooks) as app:
            thread = app.thread()
            app.say(thread, asked, LINE)
        first, last = map(_texts, put_in.turns()[-2:])
        (at,) = [n for n, text in enumerate(first) if PICK in text]
        assert [f"({past})" in text for text in first] == [n == at + 1 for n in range(len(first))]
        meta = bare_world.meta(past)
        assert meta is not None
        assert json.dumps(meta["summary"].splitlines()[-1])[1:-1] in first[at + 1]
        assert last[: len(first)] == first
        assert LINE in last[-1]


def test_without_a_daemon_codex_goes_on(bare_world: World) -> None:
    """Nobody listens: the prompt goes through as it is, although a hook was asked."""
    with isle(bare_world) as made:
        put_in = Integrated(made)
        with plain.codex(made, VERSION) as app:
            app.say(app.thread(), LINE)
        put_in.integrate()
        with put_in.codex(*put_in.hooks()) as app:
            app.say(app.thread(), f"{PICK} As in @@cache.")
        texts = _texts(put_in.turns()[-1])
        assert f"{PICK} As in @@cache." in texts[-1]
        assert not any("hook" in text for text in texts[2:])
