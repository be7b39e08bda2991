"""The real opencode, with its database and with its older tree of files, while the daemon looks on.

Only where `INDEXERD_RIG` names a directory in which the rig is installed (see rig.py).

What surprised us: a fork has new ids throughout and names no parent; what is reverted stays in
the store until the next prompt, and comes back when that is asked for; deleting leaves no trace.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.e2e.rig import (
    FIVE,
    FIX,
    FIXED,
    GROW,
    HELPER,
    LINE,
    MODEL,
    MODES,
    PICK,
    REDIS,
    RETRY,
    SLOW,
    Isle,
    needed,
    program,
    watched,
)
from tests.e2e.world import World, until

pytestmark = needed

PORT = 4097
TITLE = "Weather CLI maintenance session"  # what the scripted model calls every session
WHO = {"providerID": "fake", "modelID": "fake-1"}
LIMITS = {"limit": {"context": 200000, "output": 8192}, "cost": {"input": 1, "output": 2}}
CONFIG = {
    "autoupdate": False,
    "share": "disabled",
    "model": "fake/fake-1",
    "small_model": "fake/fake-1",
    "enabled_providers": ["fake"],
    "permission": {"edit": "allow", "bash": "allow", "webfetch": "deny"},
    "provider": {
        "fake": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Fake",
            "options": {"baseURL": f"{MODEL}/v1", "apiKey": "x"},
            "models": {"fake-1": {"name": "Fake 1", "tool_call": True, **LIMITS}},
        }
    },
}
NO = ("MODELS_FETCH", "AUTOUPDATE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD", "SHARE", "EMBEDDED_WEB_UI")
ENV = {f"OPENCODE_DISABLE_{one}": "1" for one in NO}
both = pytest.mark.parametrize("version", ["opencode", "opencode-12"])


class Opencode:
    """A server of the installed opencode."""

    def __init__(self, isle: Isle, version: str) -> None:
        config = Path(isle.env["XDG_CONFIG_HOME"]) / "opencode"
        config.mkdir(parents=True, exist_ok=True)
        (config / "opencode.json").write_text(json.dumps(CONFIG))
        self._isle = isle
        binary = program(version, "opencode-linux-x64/bin/opencode")
        where = ("--port", str(PORT), "--hostname", "127.0.0.1")
        self._process = isle.start(binary, "serve", *where, "--print-logs", **ENV)
        until(lambda: isle.answers(PORT, "/config"), "opencode's start", 40)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One request about the project."""
        whole = f"{path}?directory={quote(str(self._isle.project))}"
        return self._isle.ask(method, PORT, whole, body)

    def session(self, **fields: Any) -> str:
        """A new session: its id."""
        return str(self.call("POST", "/session", fields)["id"])

    def say(self, session: str, *texts: str) -> list[str]:
        """Send prompts, and wait for each one's answer: the ids of the prompts."""
        path = f"/session/{session}/message"
        answers = [self.call("POST", path, _prompt(text)) for text in texts]
        return [str(answer["info"]["parentID"]) for answer in answers]

    def begin(self, session: str, text: str) -> None:
        """Send a prompt that is not waited for."""
        self.call("POST", f"/session/{session}/prompt_async", _prompt(text))

    def do(self, session: str, what: str, **fields: Any) -> Any:
        """One of the things that can be done with a session."""
        return self.call("POST", f"/session/{session}/{what}", fields)

    def change(self, session: str, **fields: Any) -> None:
        """Change what the session says of itself."""
        self.call("PATCH", f"/session/{session}", fields)

    def close(self) -> None:
        """End it, as a service manager does."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(20)


def _prompt(text: str) -> dict[str, Any]:
    return {"model": WHO, "parts": [{"type": "text", "text": text}]}


@contextmanager
def opencode(isle: Isle, version: str) -> Iterator[Opencode]:
    """A server for a block."""
    served = Opencode(isle, version)
    yield served
    served.close()


@both
def test_turns_of_the_real_opencode(bare_world: World, version: str) -> None:
    """S0.1, S0.7, S1.45, S3.9: each turn shows; due ones are sent once; a session goes on."""
    with watched(bare_world, "opencode") as (isle, eye):
        with opencode(isle, version) as app:
            session = app.session()
            for count, prompt in enumerate(FIVE, 1):
                app.say(session, prompt)
                eye.sees(session, userMessageCount=count, cwd=str(isle.project))
            eye.sees(session, agentTitle=TITLE, firstUserMessage=FIVE[0])
            eye.indexed(session)
            app.say(session, FIX)
            changed = [str(isle.project / path) for path in FIXED]
            eye.sees(session, userMessageCount=6, newUserMessages=1)
            until(lambda: sorted(eye.sees(session)["filesModified"]) == changed, "changed files")
            app.change(session, title="Forecast cache design")
            eye.sees(session, agentTitle="Forecast cache design")
        with opencode(isle, version) as app:
            app.say(session, MODES)
            eye.sees(session, userMessageCount=7, agentTitle="Forecast cache design")
        events = ("session.created", "session.updated", "session.renamed", "index.succeeded")
        eye.hears(session, *events)
        told = bare_world.run("list", "--json", cwd=isle.project)["sessions"]
        assert [one["sessionId"] for one in told] == [session]
        eye.lists(session, archived=True, subagents=True)
        eye.paid(**{session: 1})
    with bare_world.daemon():
        assert bare_world.row(session)["userMessageCount"] == 7
        assert len(bare_world.telemetry()) == 1


@both
def test_opencode_forks_and_goes_back(bare_world: World, version: str) -> None:
    """S0.7, S1.13, S3.10: what is reverted does not count, unless it is wanted back after all."""
    with watched(bare_world, "opencode") as (isle, eye), opencode(isle, version) as app:
        session = app.session(title="Alerts")
        prompts = app.say(session, PICK, REDIS, GROW)
        eye.sees(session, userMessageCount=3, agentTitle="Alerts")
        fork = str(app.do(session, "fork", messageID=prompts[2])["id"])
        app.say(fork, RETRY)
        eye.sees(fork, userMessageCount=3, firstUserMessage=PICK, agentTitle="Alerts (fork #1)")
        app.do(session, "revert", messageID=prompts[1])
        eye.sees(session, userMessageCount=1, newUserMessages=1)
        app.do(session, "unrevert")
        eye.sees(session, userMessageCount=3, newUserMessages=3)
        app.do(session, "revert", messageID=prompts[1])
        app.say(session, RETRY)
        eye.sees(session, userMessageCount=2, newUserMessages=2, firstUserMessage=PICK)
        eye.hears(session, "session.branched")
        eye.sees(fork, userMessageCount=3)
        eye.lists(session, fork, archived=True, subagents=True)
        eye.paid()


@both
def test_opencode_archives_and_deletes(bare_world: World, version: str) -> None:
    """S0.41, S1.16, S1.45, S3.10: archived sessions and helpers hide; a deleted one is told of."""
    with watched(bare_world, "opencode") as (isle, eye), opencode(isle, version) as app:
        kept, gone, master = app.session(), app.session(), app.session()
        app.say(kept, *FIVE)
        app.say(gone, MODES)
        app.say(master, HELPER)
        (helper,) = (one["id"] for one in app.call("GET", f"/session/{master}/children"))
        eye.sees(helper, parentSessionId=master, subagent=True, userMessageCount=0)
        eye.sees(master, userMessageCount=1, subagent=False, parentSessionId=None)
        eye.lists(kept, gone, master)
        eye.indexed(kept)
        app.change(kept, time={"archived": int(time.time() * 1000)})
        eye.sees(kept, archived=True, gone=False, state="archived", userMessageCount=5)
        eye.lists(gone, master)
        app.call("DELETE", f"/session/{gone}")
        eye.hears(gone, "session.removed")
        eye.lists(master)
        eye.lists(kept, gone, master, helper, archived=True, subagents=True)
        eye.paid(**{kept: 1})


@both
def test_opencode_compacts_and_is_interrupted(bare_world: World, version: str) -> None:
    """S0.1, S1.13, S3.10: what was compacted still counts; an aborted turn has ended."""
    with watched(bare_world, "opencode") as (isle, eye), opencode(isle, version) as app:
        session = app.session()
        app.say(session, PICK, REDIS)
        eye.sees(session, userMessageCount=2)
        app.do(session, "summarize", **WHO)
        app.say(session, LINE)
        eye.sees(session, userMessageCount=3, compactions=1, firstUserMessage=PICK)
        eye.hears(session, "session.compacted")
        app.begin(session, SLOW)
        eye.sees(session, state="active", userMessageCount=4)
        app.do(session, "abort")
        eye.sees(session, state="idle", userMessageCount=4)
        eye.lists(session, archived=True, subagents=True)
        eye.paid()
