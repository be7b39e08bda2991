"""The real Codex, two generations of it, talks to a scripted model while the daemon looks on.

Only where `INDEXERD_RIG` names a directory in which the rig is installed (see rig.py).

What surprised us: a thread's file is announced before it exists; 0.169 goes back in a thread by
beginning a second file, and forks without copying anything; 0.120 does both in copies of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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

VENDOR = "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl"
PROGRAMS = {"codex": f"{VENDOR}/bin/codex", "codex-120": f"{VENDOR}/codex/codex"}
CONFIG = f"""
model = "gpt-5.5"
model_provider = "fake"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[model_providers.fake]
name = "Fake"
base_url = "{MODEL}/v1"
wire_api = "responses"
env_key = "FAKE_API_KEY"
request_max_retries = 1
stream_max_retries = 1
[analytics]
enabled = false
[otel]
exporter = "none"
"""
both = pytest.mark.parametrize("version", sorted(PROGRAMS))


class Codex:
    """An app-server of the installed Codex: JSON-RPC over its standard streams."""

    def __init__(self, isle: Isle, version: str) -> None:
        home = Path(isle.env["HOME"]) / ".codex"
        home.mkdir(exist_ok=True)
        trust = f'[projects."{isle.project}"]\ntrust_level = "trusted"\n'
        (home / "config.toml").write_text(CONFIG + trust)
        self.cwd = str(isle.project)
        self._calls = 0
        argv = (program(version, PROGRAMS[version]), "app-server")
        self._process: Any = isle.start(*argv, FAKE_API_KEY="x", RUST_LOG="error")
        who = {"name": "rig", "title": "rig", "version": "1"}
        self.call("initialize", clientInfo=who, capabilities={"experimentalApi": True})
        self._send({"method": "initialized"})

    def call(self, method: str, **params: Any) -> Any:
        """One request's result."""
        self._calls += 1
        self._send({"id": self._calls, "method": method, "params": params})
        told = self._until(lambda one: one.get("id") == self._calls and "method" not in one)
        assert "error" not in told, (method, told["error"])
        return told["result"]

    def thread(self, method: str = "thread/start", **params: Any) -> str:
        """Begin, fork or resume a thread: its id."""
        return str(self.call(method, cwd=self.cwd, **params)["thread"]["id"])

    def begin(self, thread: str, text: str) -> str:
        """Send a prompt: the turn's id."""
        given = [{"type": "text", "text": text, "text_elements": []}]
        return str(self.call("turn/start", threadId=thread, input=given)["turn"]["id"])

    def say(self, thread: str, *texts: str) -> None:
        """Send prompts, and wait for the end of each one's turn."""
        for text in texts:
            self.begin(thread, text)
            self.ends("turn/completed", thread)

    def ends(self, method: str, thread: str) -> None:
        """Wait for a notification about a thread."""
        self._until(lambda one: one.get("method") == method and _about(one) == thread)

    def file(self, thread: str) -> Path:
        """The file that Codex itself names for a thread."""
        return Path(self.call("thread/read", threadId=thread)["thread"]["path"])

    def close(self) -> None:
        """Let it end by itself."""
        self._process.stdin.close()
        assert self._process.wait(20) == 0

    def _send(self, message: dict[str, Any]) -> None:
        print(json.dumps(message), file=self._process.stdin, flush=True)

    def _until(self, wanted: Any) -> dict[str, Any]:
        for line in self._process.stdout:
            told: dict[str, Any] = json.loads(line)
            if wanted(told):
                return told
            if "id" in told and "method" in told:  # it asks whether it may
                self._send({"id": told["id"], "result": {"decision": "accept"}})
        raise AssertionError("Codex hung up")


def _about(told: dict[str, Any]) -> Any:
    return told["params"].get("threadId")


@contextmanager
def codex(isle: Isle, version: str) -> Iterator[Codex]:
    """An app-server for a block; it has ended by itself when the block has."""
    served = Codex(isle, version)
    yield served
    served.close()


@both
def test_turns_of_the_real_codex(bare_world: World, version: str) -> None:
    """S0.1, S0.7, S1.45: each turn shows; due ones are sent once; a resumed thread goes on."""
    with watched(bare_world, "codex") as (isle, eye):
        with codex(isle, version) as app:
            thread = app.thread()
            for count, prompt in enumerate(FIVE, 1):
                app.say(thread, prompt)
                eye.sees(thread, userMessageCount=count, cwd=app.cwd)
            eye.indexed(thread)
            app.say(thread, FIX)
            row = eye.sees(thread, userMessageCount=6, newUserMessages=1, gitBranch="main")
            assert row["sessionFile"] == str(app.file(thread))
            app.call("thread/name/set", threadId=thread, name="Forecast cache design")
            eye.sees(thread, agentTitle="Forecast cache design", firstUserMessage=FIVE[0])
        if version == "codex":  # the other one edits with shell commands
            changed = [str(isle.project / path) for path in FIXED]
            until(lambda: sorted(eye.sees(thread)["filesModified"]) == changed, "changed files")
        with codex(isle, version) as app:
            assert app.thread("thread/resume", threadId=thread) == thread
            app.say(thread, MODES)
        eye.sees(thread, userMessageCount=7, agentTitle="Forecast cache design")
        events = ("session.created", "session.updated", "session.renamed", "index.succeeded")
        eye.hears(thread, *events)
        told = bare_world.run("list", "--json", cwd=isle.project)["sessions"]
        assert [one["sessionId"] for one in told] == [thread]
        eye.lists(thread, archived=True, subagents=True)
        eye.paid(**{thread: 1})
    with bare_world.daemon():
        assert bare_world.row(thread)["userMessageCount"] == 7
        assert len(bare_world.telemetry()) == 1


def _back(app: Codex, version: str, thread: str) -> None:
    """Have Codex take all but a thread's first turn back."""
    if version == "codex-120":
        app.call("thread/rollback", threadId=thread, numTurns=2)
        return
    turns = app.call("thread/turns/list", threadId=thread, limit=9, sortDirection="asc")["data"]
    app.call("thread/revert", threadId=thread, beforeTurnId=turns[1]["id"])


@both
def test_codex_forks_and_goes_back(bare_world: World, version: str) -> None:
    """S0.7, S1.13, S1.16: forks carry their history; what is taken back counts no more."""
    with watched(bare_world, "codex") as (isle, eye), codex(isle, version) as app:
        thread = app.thread()
        app.say(thread, PICK, REDIS, GROW)
        eye.sees(thread, userMessageCount=3)
        fork = app.thread("thread/fork", threadId=thread)
        app.say(fork, RETRY)
        eye.sees(fork, userMessageCount=4, parentSessionId=thread, firstUserMessage=PICK)
        twice = app.thread("thread/fork", threadId=fork)
        app.say(twice, MODES)
        eye.sees(twice, userMessageCount=5, parentSessionId=fork, firstUserMessage=PICK)
        eye.indexed(twice)
        _back(app, version, thread)
        eye.sees(thread, userMessageCount=1, newUserMessages=1, parentSessionId=None)
        app.say(thread, RETRY)
        row = eye.sees(thread, userMessageCount=2, firstUserMessage=PICK)
        assert row["sessionFile"] == str(app.file(thread))
        eye.hears(thread, "session.branched")
        eye.sees(fork, userMessageCount=4)
        eye.lists(thread, fork, twice, archived=True, subagents=True)
        eye.paid(**{twice: 1})


@both
def test_codex_archives_and_deletes(bare_world: World, version: str) -> None:
    """S0.41, S1.45: an archived thread is hidden and comes back; a deleted one is told of."""
    with watched(bare_world, "codex") as (isle, eye), codex(isle, version) as app:
        kept, gone = app.thread(), app.thread()
        app.say(kept, *FIVE)
        app.say(gone, MODES)
        eye.lists(kept, gone)
        eye.indexed(kept)
        app.call("thread/archive", threadId=kept)
        eye.sees(kept, archived=True, gone=False, state="archived", userMessageCount=5)
        eye.lists(gone)
        app.call("thread/unarchive", threadId=kept)
        eye.sees(kept, archived=False, gone=False, userMessageCount=5)
        _delete(app, version, gone)
        eye.hears(gone, "session.removed")
        eye.lists(kept)
        eye.paid(**{kept: 1})


def _delete(app: Codex, version: str, thread: str) -> None:
    if version == "codex":
        app.call("thread/delete", threadId=thread)
    else:  # it has no such request yet
        app.file(thread).unlink()


@both
def test_codex_compacts_and_is_interrupted(bare_world: World, version: str) -> None:
    """S0.1, S1.13, S3.5: what was compacted still counts; an interrupted turn has ended."""
    with watched(bare_world, "codex") as (isle, eye), codex(isle, version) as app:
        thread = app.thread()
        app.say(thread, PICK, REDIS)
        eye.sees(thread, userMessageCount=2)
        app.call("thread/compact/start", threadId=thread)
        app.ends("turn/completed", thread)
        app.say(thread, LINE)
        eye.sees(thread, userMessageCount=3, compactions=1, firstUserMessage=PICK)
        eye.hears(thread, "session.compacted")
        turn = app.begin(thread, SLOW)
        eye.sees(thread, state="active", userMessageCount=4)
        app.call("turn/interrupt", threadId=thread, turnId=turn)
        app.ends("turn/completed", thread)
        eye.sees(thread, state="idle", userMessageCount=4)
        eye.lists(thread, archived=True, subagents=True)
        eye.paid()


def test_helpers_of_codex(bare_world: World) -> None:
    """S1.16: a helper's session hides, and names the one that started it."""
    with watched(bare_world, "codex") as (isle, eye), codex(isle, "codex") as app:
        master = app.thread(model="fake-1")
        app.say(master, HELPER)
        (helper,) = until(lambda: _helpers(bare_world, master), "the helper's session")
        eye.sees(helper, parentSessionId=master, subagent=True, userMessageCount=0)
        eye.sees(master, userMessageCount=1, subagent=False)
        eye.lists(master, archived=True)
        eye.lists(master, helper, archived=True, subagents=True)
        eye.paid()


def _helpers(world: World, master: str) -> list[str]:
    rows = world.call("list", agent="codex", subagents=True)["sessions"]
    return [row["sessionId"] for row in rows if row.get("parentSessionId") == master]
