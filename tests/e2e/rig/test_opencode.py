"""The real opencode, with its database and with its older tree of files, plain and with the plugin.

A fork has new ids throughout and names no parent. Reverted messages stay in the store until the
next prompt and come back on request. Deleting leaves no trace. With any plugin, 1.18 serves nothing
until it has installed its own package into its configuration directory, which takes minutes without
a network; so the tests put there what a first start online would.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import indexerd
from tests.e2e.rig import sandbox as rig
from tests.e2e.rig.opencode import WHO, Opencode, both, opencode
from tests.e2e.rig.sandbox import Sandbox, needed, program, watched
from tests.e2e.world import World, until

pytestmark = needed

TITLE = "Weather CLI maintenance session"  # the scripted model gives every session this title
PLUGIN = Path(indexerd.__file__).parent / "integrations/opencode/indexerd.js"
TWO = rig.FIVE[1:3]  # turns that make a session due in `keen_world`
QUESTION = "Ask the earlier session."


@both
def test_turns_of_the_real_opencode(bare_world: World, version: str) -> None:
    """S0.1, S0.7, S1.45, S3.9: each turn is seen; due turns are sent once; a session goes on."""
    with watched(bare_world, "opencode") as (sandbox, observer):
        with opencode(sandbox, version) as app:
            session = app.session()
            for count, prompt in enumerate(rig.FIVE, 1):
                app.say(session, prompt)
                observer.sees(session, userMessageCount=count, cwd=str(sandbox.project))
            observer.sees(session, agentTitle=TITLE, firstUserMessage=rig.FIVE[0])
            observer.indexed(session)
            app.say(session, rig.FIX)
            changed = [str(sandbox.project / path) for path in rig.FIXED]
            observer.sees(session, userMessageCount=6, newUserMessages=1)
            until(
                lambda: sorted(observer.sees(session)["filesModified"]) == changed, "changed files"
            )
            app.change(session, title="Forecast cache design")
        with opencode(sandbox, version) as app:
            app.say(session, rig.MODES)
            observer.sees(session, userMessageCount=7, agentTitle="Forecast cache design")
        events = ("session.created", "session.updated", "session.renamed", "index.succeeded")
        observer.hears(session, *events)
        observer.lists(session, archived=True, subagents=True)
        observer.paid(**{session: 1})


@both
def test_opencode_forks_and_goes_back(bare_world: World, version: str) -> None:
    """S0.7, S1.13, S3.10: reverted messages do not count unless they are restored."""
    with watched(bare_world, "opencode") as (sandbox, observer), opencode(sandbox, version) as app:
        session = app.session(title="Alerts")
        prompts = app.say(session, rig.PICK, rig.REDIS, rig.GROW)
        observer.sees(session, userMessageCount=3, agentTitle="Alerts")
        fork = str(app.do(session, "fork", messageID=prompts[2])["id"])
        app.say(fork, rig.RETRY)
        observer.sees(
            fork, userMessageCount=3, firstUserMessage=rig.PICK, agentTitle="Alerts (fork #1)"
        )
        app.do(session, "revert", messageID=prompts[1])
        observer.sees(session, userMessageCount=1, newUserMessages=1)
        app.do(session, "unrevert")
        observer.sees(session, userMessageCount=3, newUserMessages=3)
        app.do(session, "revert", messageID=prompts[1])
        app.say(session, rig.RETRY)
        observer.sees(session, userMessageCount=2, newUserMessages=2, firstUserMessage=rig.PICK)
        observer.hears(session, "session.branched")
        observer.lists(session, fork, archived=True, subagents=True)
        observer.paid()


@both
def test_opencode_archives_and_deletes(bare_world: World, version: str) -> None:
    """S0.41, S1.16, S1.45, S3.10: archived sessions and sub-agents are hidden; deletion is seen."""
    with watched(bare_world, "opencode") as (sandbox, observer), opencode(sandbox, version) as app:
        kept, gone, master = app.session(), app.session(), app.session()
        app.say(kept, *rig.FIVE)
        app.say(gone, rig.MODES)
        app.say(master, rig.HELPER)
        helper = observer.helper(master)
        observer.sees(helper, subagent=True, userMessageCount=0)
        observer.lists(kept, gone, master)
        observer.indexed(kept)
        app.change(kept, time={"archived": int(time.time() * 1000)})
        observer.sees(kept, archived=True, gone=False, state="archived", userMessageCount=5)
        app.call("DELETE", f"/session/{gone}")
        observer.hears(gone, "session.removed")
        observer.lists(master)
        observer.lists(kept, gone, master, helper, archived=True, subagents=True)
        observer.paid(**{kept: 1})


@both
def test_opencode_compacts_and_is_interrupted(bare_world: World, version: str) -> None:
    """S0.1, S1.13, S3.10: compacted turns still count; an aborted turn has ended."""
    with watched(bare_world, "opencode") as (sandbox, observer), opencode(sandbox, version) as app:
        session = app.session()
        app.say(session, rig.PICK, rig.REDIS)
        observer.sees(session, userMessageCount=2)
        app.do(session, "summarize", **WHO)
        app.say(session, rig.LINE)
        observer.sees(session, userMessageCount=3, compactions=1, firstUserMessage=rig.PICK)
        observer.hears(session, "session.compacted")
        app.begin(session, rig.SLOW)
        observer.sees(session, state="active", userMessageCount=4)
        app.do(session, "abort")
        observer.sees(session, state="idle", userMessageCount=4)
        observer.paid()


@pytest.fixture
def keen_world(bare_world: World) -> World:
    bare_world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = "2"
    return bare_world


def plug(sandbox: Sandbox, version: str, *calls: tuple[str, str, dict[str, Any], int]) -> None:
    config = Path(sandbox.env["XDG_CONFIG_HOME"]) / "opencode"
    (config / "plugins").mkdir(parents=True)
    command = json.dumps([sys.executable, "-m", "indexerd"])
    source = PLUGIN.read_text().replace("__INDEXERD_COMMAND__", command)
    (config / "plugins/indexerd.js").write_text(source)
    (config / "node_modules").mkdir()
    package = json.loads(Path(program(version, "opencode-linux-x64/package.json")).read_text())
    wanted = {"dependencies": {"@opencode-ai/plugin": package["version"]}}
    (config / "package.json").write_text(json.dumps(wanted))
    (config / "package-lock.json").write_text(json.dumps({"packages": {"": wanted}}))
    base = {"options": {"baseURL": f"{sandbox.caller(*calls)}/v1"}}
    sandbox.env |= {key: sandbox.world.env[key] for key in ("INDEXERD_SOCKET", "PYTHONPATH")}
    sandbox.env["OPENCODE_CONFIG_CONTENT"] = json.dumps({"provider": {"fake": base}})


def turns(sandbox: Sandbox) -> list[list[dict[str, Any]]]:
    return [
        [message for message in b["messages"] if message["role"] != "system"]
        for b in sandbox.bodies()
    ]


def texts(message: dict[str, Any]) -> list[str]:
    content = message["content"]
    return [content] if isinstance(content, str) else [str(block["text"]) for block in content]


def parts(app: Opencode, session: str, nth: int = 0) -> list[dict[str, Any]]:
    messages = app.call("GET", f"/session/{session}/message")
    prompts = [message["parts"] for message in messages if message["info"]["role"] == "user"]
    found: list[dict[str, Any]] = prompts[nth]
    return found


@both
def test_references_reach_opencodes_model(keen_world: World, version: str) -> None:
    """S0.53, S0.55, S1.38: the summary follows the prompt and is the same in later requests."""
    with watched(keen_world, "opencode") as (sandbox, observer):
        plug(sandbox, version)
        with opencode(sandbox, version) as app:
            past = app.session(title="Forecast cache design")
            app.say(past, *TWO)
            name = observer.indexed(past)["name"]
            session = app.session(title="Alerts")
            prompt = f'{rig.PICK} As in @@"{name}".'
            app.say(session, prompt, rig.REDIS)
        first, second = turns(sandbox)[-2:]
        (asked,) = first
        own, added = texts(asked)
        assert own == prompt
        assert added.startswith("Referenced session summaries:")
        assert past in added
        assert json.dumps(second[:1]) == json.dumps(first)
        observer.sees(session, userMessageCount=2, firstUserMessage=prompt)
        with opencode(sandbox, version) as app:
            kept, hidden = parts(app, session)
            assert (kept["text"], kept.get("synthetic")) == (prompt, None)
            assert (hidden["text"], hidden["synthetic"]) == (added, True)
            app.say(session, rig.GROW)
        third = turns(sandbox)[-1]
        assert json.dumps(third[: len(second)]) == json.dumps(second)
        assert texts(third[-1])[0] == rig.GROW


@both
def test_opencode_calls_the_tools(keen_world: World, version: str) -> None:
    """S0.60, S0.64, S4.26: the tools are offered once and answer; stored sets come back."""
    with watched(keen_world, "opencode") as (sandbox, observer):
        noted = str(sandbox.project / "src/cache.py")
        with opencode(sandbox, version) as app:
            past = app.session(title="Forecast cache design")
            app.say(past, *TWO)
            observer.indexed(past)
        note = (
            rig.NOTE,
            "indexerd_set_relevant_context",
            {"setName": "files", "items": [noted]},
            2,
        )
        asked = {"session": past, "question": "What is said about eviction?"}
        plug(sandbox, version, note, (QUESTION, "indexerd_query_session", asked, 2))
        with opencode(sandbox, version) as app:
            session = app.session(title="Alerts")
            app.say(session, QUESTION)
            tools = [turn["content"] for turn in turns(sandbox)[-1] if turn["role"] == "tool"]
            assert "Least-recently-used" in tools[0]
            assert "CALL_LIMIT_EXCEEDED" in tools[1], "only one question per turn is allowed"
            app.say(session, rig.NOTE)
        stored = keen_world.call("get_relevant_context", session=session)
        assert stored["context"] == {"files": [noted]}
        with opencode(sandbox, version) as app:
            app.say(session, rig.RETRY, rig.GROW)
            assert [len(parts(app, session, nth)) for nth in (2, 3)] == [2, 1]
        own, context = texts(turns(sandbox)[-2][-1])
        assert (own, noted in context) == (rig.RETRY, True)
