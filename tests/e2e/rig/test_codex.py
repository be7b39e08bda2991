"""The real Codex, two generations of it, beside the daemon: plain, and with our server and hooks.

What surprised us: a thread's file is announced before it exists; 0.169 goes back in a thread by
beginning a second file, and forks without copying anything; 0.120 does both in copies of its own.
Codex hands an MCP server no variable that is not named to it, shows a model it knows such tools
only once that has searched for them, and lets hooks wait until their user has trusted them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.rig import codex as plain
from tests.e2e.rig import isle as rig
from tests.e2e.rig.codex import Codex, both, codex
from tests.e2e.rig.isle import Beholder, Isle, needed, resumed, watched
from tests.e2e.world import World, until

pytestmark = needed

SEARCH = "Look for what we decided about eviction."
TOOLS = {"search_sessions", "query_session", "expand_references", "get_relevant_context"}


@both
def test_turns_of_the_real_codex(bare_world: World, version: str) -> None:
    """S0.1, S0.7, S1.45: each turn shows; due ones are sent once; a resumed thread goes on."""
    with watched(bare_world, "codex") as (isle, eye):
        with codex(isle, version) as app:
            thread = app.thread()
            for count, prompt in enumerate(rig.FIVE, 1):
                app.say(thread, prompt)
                eye.sees(thread, userMessageCount=count, cwd=app.cwd)
            eye.indexed(thread)
            app.say(thread, rig.FIX)
            row = eye.sees(thread, userMessageCount=6, newUserMessages=1, gitBranch="main")
            assert row["sessionFile"] == str(app.file(thread))
            app.call("thread/name/set", threadId=thread, name="Forecast cache design")
        if version == "codex":  # the other one edits with shell commands
            changed = [str(isle.project / path) for path in rig.FIXED]
            until(lambda: sorted(eye.sees(thread)["filesModified"]) == changed, "changed files")
        with codex(isle, version) as app:
            assert app.thread("thread/resume", threadId=thread) == thread
            app.say(thread, rig.MODES)
        eye.sees(thread, userMessageCount=7, agentTitle="Forecast cache design")
        events = ("session.created", "session.updated", "session.renamed", "index.succeeded")
        eye.hears(thread, *events)
        eye.lists(thread, archived=True, subagents=True)
        eye.paid(**{thread: 1})


@both
def test_codex_forks_goes_back_and_archives(bare_world: World, version: str) -> None:
    """S0.7, S1.13, S1.16, S1.45: forks carry their history; what is taken back counts no more."""
    with watched(bare_world, "codex") as (isle, eye), codex(isle, version) as app:
        thread = app.thread()
        app.say(thread, rig.PICK, rig.REDIS, rig.GROW)
        eye.sees(thread, userMessageCount=3)
        fork = app.thread("thread/fork", threadId=thread)
        app.say(fork, rig.RETRY)
        eye.sees(fork, userMessageCount=4, parentSessionId=thread, firstUserMessage=rig.PICK)
        twice = app.thread("thread/fork", threadId=fork)
        app.say(twice, rig.MODES)
        eye.sees(twice, userMessageCount=5, parentSessionId=fork, firstUserMessage=rig.PICK)
        eye.indexed(twice)
        app.back(thread)
        eye.sees(thread, userMessageCount=1, newUserMessages=1, parentSessionId=None)
        app.say(thread, rig.RETRY)
        row = eye.sees(thread, userMessageCount=2, firstUserMessage=rig.PICK)
        assert row["sessionFile"] == str(app.file(thread))
        eye.hears(thread, "session.branched")
        app.call("thread/archive", threadId=thread)
        eye.sees(thread, archived=True, gone=False, state="archived")
        eye.lists(fork, twice)
        app.call("thread/unarchive", threadId=thread)
        eye.sees(thread, archived=False, userMessageCount=2)
        app.delete(twice)
        eye.hears(twice, "session.removed")
        eye.lists(thread, fork)
        eye.paid(**{twice: 1})


@both
def test_codex_compacts_and_is_interrupted(bare_world: World, version: str) -> None:
    """S0.1, S1.13, S3.5: what was compacted still counts; an interrupted turn has ended."""
    with watched(bare_world, "codex") as (isle, eye), codex(isle, version) as app:
        thread = app.thread()
        app.say(thread, rig.PICK, rig.REDIS)
        eye.sees(thread, userMessageCount=2)
        app.call("thread/compact/start", threadId=thread)
        app.ends("turn/completed", thread)
        app.say(thread, rig.LINE)
        eye.sees(thread, userMessageCount=3, compactions=1, firstUserMessage=rig.PICK)
        eye.hears(thread, "session.compacted")
        turn = app.begin(thread, rig.SLOW)
        eye.sees(thread, state="active", userMessageCount=4)
        app.call("turn/interrupt", threadId=thread, turnId=turn)
        app.ends("turn/completed", thread)
        eye.sees(thread, state="idle", userMessageCount=4)
        eye.paid()


def test_helpers_of_codex(bare_world: World) -> None:
    """S1.16: a helper's session hides, and names the one that started it."""
    with watched(bare_world, "codex") as (isle, eye), codex(isle, "codex") as app:
        master = app.thread(model="fake-1")
        app.say(master, rig.HELPER)
        helper = eye.helper(master)
        eye.sees(helper, parentSessionId=master, subagent=True, userMessageCount=0)
        eye.lists(master, archived=True)
        eye.lists(master, helper, archived=True, subagents=True)
        eye.paid()


class Integrated:
    def __init__(self, isle: Isle) -> None:
        self.isle = isle
        isle.env |= {key: isle.world.env[key] for key in ("INDEXERD_SOCKET", "PYTHONPATH")}
        isle.caller((SEARCH, "search_sessions", {"query": "eviction"}, 1))
        config = Path(isle.env["HOME"]) / ".codex/config.toml"
        before = config.read_text()
        done = isle.world.run("integrate", "codex", "--json")["changes"]
        assert [one["did"] for one in done] == ["created", "updated", "created"]
        # Codex writes its configuration anew in these tests, and is to keep what was installed;
        # a server in it gets the variables of its user, and this of the tests' besides.
        ours = config.read_text().removeprefix(before)
        ours = ours.replace("env_vars = [", 'env_vars = ["PYTHONPATH", ')
        self.config = plain.CONFIG.replace(f":{rig.PORT}/", f":{rig.CALLER}/") + "\n" + ours

    @contextmanager
    def codex(self, *trusted: dict[str, Any]) -> Iterator[Codex]:
        lines = [
            f'[hooks.state."{one["key"]}"]\ntrusted_hash = "{one["currentHash"]}"\n'
            for one in trusted
        ]
        app = Codex(self.isle, "codex", "\n".join((self.config, *lines)))
        yield app
        app.close()

    def hooks(self) -> list[dict[str, Any]]:
        with self.codex() as app:
            (found,) = app.call("hooks/list", cwds=[app.cwd])["data"]
        assert (found["warnings"], found["errors"]) == ([], [])
        assert {one["trustStatus"] for one in found["hooks"]} == {"untrusted"}
        return list(found["hooks"])


def past(eye: Beholder, isle: Isle) -> dict[str, Any]:
    with codex(isle, "codex") as app:
        thread = app.thread()
        app.say(thread, *rig.FIVE)
    eye.sees(thread, userMessageCount=len(rig.FIVE))
    return eye.indexed(thread)


def texts(body: dict[str, Any]) -> list[str]:
    kept = [{key: value for key, value in one.items() if key != "id"} for one in body["input"]]
    return [json.dumps(one, ensure_ascii=False) for one in kept]


def test_codex_calls_a_tool(bare_world: World) -> None:
    """S1.34: the model is offered our tools; a call is answered with the session it is about."""
    with watched(bare_world, "codex") as (isle, eye):
        meta = past(eye, isle)
        with Integrated(isle).codex() as app:
            thread = app.thread(model="fake-1")  # of a model it does not know, it hides no tools
            app._until(_ready)
            app.say(thread, SEARCH)
        asked, answered = isle.bodies()[-2:]
        below = [one for tool in asked["tools"] for one in tool.get("tools", ())]
        assert {str(one.get("name")) for one in (*asked["tools"], *below)} >= TOOLS
        (output,) = [one for one in answered["input"] if one["type"] == "function_call_output"]
        assert meta["sessionId"] in json.dumps(output)
        assert meta["name"] in json.dumps(output)


def _ready(told: dict[str, Any]) -> bool:
    if told.get("method") != "mcpServer/startupStatus/updated":
        return False
    assert told["params"]["status"] in ("starting", "ready"), told
    return (told["params"]["name"], told["params"]["status"]) == ("indexerd", "ready")


def test_a_reference_in_codex(bare_world: World) -> None:
    """S0.53: with trusted hooks the block is behind the user's text; no byte changes later."""
    with watched(bare_world, "codex") as (isle, eye):
        meta = past(eye, isle)
        put_in = Integrated(isle)
        asked = f'{rig.PICK} As in @@"{meta["name"]}".'
        with put_in.codex(*put_in.hooks()) as app:
            app.say(app.thread(), asked, rig.LINE)
        first, last = map(texts, isle.bodies()[-2:])
        (at,) = [n for n, text in enumerate(first) if rig.PICK in text]
        mark = f"({meta['sessionId']})"
        assert [mark in text for text in first] == [n == at + 1 for n in range(len(first))]
        assert json.dumps(meta["summary"].splitlines()[-1])[1:-1] in first[at + 1]
        assert last[: len(first)] == first
        assert rig.LINE in last[-1]


def test_a_resumed_codex_knows_what_was_relevant(bare_world: World) -> None:
    """S4.15, S4.18: once and to the byte with the first prompt; nothing more with the next."""
    with watched(bare_world, "codex") as (isle, eye):
        with codex(isle, "codex") as app:
            thread = app.thread()
            app.say(thread, rig.LINE)
        eye.sees(thread, userMessageCount=1)
        put_in = Integrated(isle)
        bare_world.call("set_relevant_context", session=thread, **rig.NOTED)
        with put_in.codex(*put_in.hooks()) as app:
            assert app.thread("thread/resume", threadId=thread) == thread
            app.say(thread, rig.RETRY, rig.GROW)
        first, second = map(_said, isle.bodies()[-2:])
    (told,) = [text for text in first if "[SESSION RESUMED]" in text]
    assert told == resumed(isle.project) + "\n\n"
    assert second[: len(first)] == first
    assert [text for text in second[len(first) :] if "[SESSION RESUMED]" in text] == []
    assert rig.GROW in second[-1]


def _said(body: dict[str, Any]) -> list[str]:
    said = [one for one in body["input"] if one["type"] == "message"]
    return ["".join(str(part["text"]) for part in one["content"]) for one in said]
