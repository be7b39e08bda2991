"""Two generations of the real Codex, plain and with indexerd's MCP server and hooks.

Codex announces a thread's file before it exists. 0.169 reverts a thread by starting a second file
and forks without copying; 0.120 copies in both cases. Codex passes an MCP server only the variables
that are named for it, shows a model that it knows such tools only after a tool search, and runs
hooks only once the user has trusted them.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.rig import codex as plain
from tests.e2e.rig import sandbox as rig
from tests.e2e.rig.codex import Codex, both, codex
from tests.e2e.rig.sandbox import Observer, Sandbox, needed, resumed, watched
from tests.e2e.world import World, until

pytestmark = needed

SEARCH = "Look for what we decided about eviction."
TOOLS = {"search_sessions", "query_session", "expand_references", "get_relevant_context"}


@both
def test_turns_of_the_real_codex(bare_world: World, version: str) -> None:
    """S0.1, S0.7, S1.45: each turn is seen, each due turn is sent once, and a thread is resumed."""
    with watched(bare_world, "codex") as (sandbox, observer):
        with codex(sandbox, version) as app:
            thread = app.thread()
            for count, prompt in enumerate(rig.FIVE, 1):
                app.say(thread, prompt)
                observer.sees(thread, userMessageCount=count, cwd=app.cwd)
            observer.indexed(thread)
            app.say(thread, rig.FIX)
            row = observer.sees(thread, userMessageCount=6, newUserMessages=1, gitBranch="main")
            assert row["sessionFile"] == str(app.file(thread))
            app.call("thread/name/set", threadId=thread, name="Forecast cache design")
        if version == "codex":  # the older release edits with shell commands
            changed = [str(sandbox.project / path) for path in rig.FIXED]
            until(
                lambda: sorted(observer.sees(thread)["filesModified"]) == changed, "changed files"
            )
        with codex(sandbox, version) as app:
            assert app.thread("thread/resume", threadId=thread) == thread
            app.say(thread, rig.MODES)
        observer.sees(thread, userMessageCount=7, agentTitle="Forecast cache design")
        events = ("session.created", "session.updated", "session.renamed", "index.succeeded")
        observer.hears(thread, *events)
        observer.lists(thread, archived=True, subagents=True)
        observer.paid(**{thread: 1})


@both
def test_codex_forks_goes_back_and_archives(bare_world: World, version: str) -> None:
    """S0.7, S1.13, S1.16, S1.45: forks have their history; undone turns no longer count."""
    with watched(bare_world, "codex") as (sandbox, observer), codex(sandbox, version) as app:
        thread = app.thread()
        app.say(thread, rig.PICK, rig.REDIS, rig.GROW)
        observer.sees(thread, userMessageCount=3)
        fork = app.thread("thread/fork", threadId=thread)
        app.say(fork, rig.RETRY)
        observer.sees(fork, userMessageCount=4, parentSessionId=thread, firstUserMessage=rig.PICK)
        twice = app.thread("thread/fork", threadId=fork)
        app.say(twice, rig.MODES)
        observer.sees(twice, userMessageCount=5, parentSessionId=fork, firstUserMessage=rig.PICK)
        observer.indexed(twice)
        app.back(thread)
        observer.sees(thread, userMessageCount=1, newUserMessages=1, parentSessionId=None)
        app.say(thread, rig.RETRY)
        row = observer.sees(thread, userMessageCount=2, firstUserMessage=rig.PICK)
        assert row["sessionFile"] == str(app.file(thread))
        observer.hears(thread, "session.branched")
        app.call("thread/archive", threadId=thread)
        observer.sees(thread, archived=True, gone=False, state="archived")
        observer.lists(fork, twice)
        app.call("thread/unarchive", threadId=thread)
        observer.sees(thread, archived=False, userMessageCount=2)
        app.delete(twice)
        observer.hears(twice, "session.removed")
        observer.lists(thread, fork)
        observer.paid(**{twice: 1})


@both
def test_codex_compacts_and_is_interrupted(bare_world: World, version: str) -> None:
    """S0.1, S1.13, S3.5: compacted turns still count; an interrupted turn has ended."""
    with watched(bare_world, "codex") as (sandbox, observer), codex(sandbox, version) as app:
        thread = app.thread()
        app.say(thread, rig.PICK, rig.REDIS)
        observer.sees(thread, userMessageCount=2)
        app.call("thread/compact/start", threadId=thread)
        app.ends("turn/completed", thread)
        app.say(thread, rig.LINE)
        observer.sees(thread, userMessageCount=3, compactions=1, firstUserMessage=rig.PICK)
        observer.hears(thread, "session.compacted")
        turn = app.begin(thread, rig.SLOW)
        observer.sees(thread, state="active", userMessageCount=4)
        app.call("turn/interrupt", threadId=thread, turnId=turn)
        app.ends("turn/completed", thread)
        observer.sees(thread, state="idle", userMessageCount=4)
        observer.paid()


def test_helpers_of_codex(bare_world: World) -> None:
    """S1.16: a sub-agent's session is hidden and names its parent."""
    with watched(bare_world, "codex") as (sandbox, observer), codex(sandbox, "codex") as app:
        master = app.thread(model="fake-1")
        app.say(master, rig.HELPER)
        helper = observer.helper(master)
        observer.sees(helper, parentSessionId=master, subagent=True, userMessageCount=0)
        observer.lists(master, archived=True)
        observer.lists(master, helper, archived=True, subagents=True)
        observer.paid()


class Integrated:
    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        sandbox.env |= {key: sandbox.world.env[key] for key in ("INDEXERD_SOCKET", "PYTHONPATH")}
        sandbox.caller((SEARCH, "search_sessions", {"query": "eviction"}, 1))
        config = Path(sandbox.env["HOME"]) / ".codex/config.toml"
        before = config.read_text()
        done = sandbox.world.run("integrate", "codex", "--json")["changes"]
        assert [change["did"] for change in done] == ["created", "updated", "created"]
        # These tests rewrite Codex's configuration, so keep what was installed. A server in it gets
        # the user's variables and, for the tests, PYTHONPATH.
        installed = config.read_text().removeprefix(before)
        installed = installed.replace("env_vars = [", 'env_vars = ["PYTHONPATH", ')
        self.config = plain.CONFIG.replace(f":{rig.PORT}/", f":{rig.CALLER}/") + "\n" + installed

    @contextmanager
    def codex(self, *trusted: dict[str, Any]) -> Iterator[Codex]:
        lines = [
            f'[hooks.state."{hook["key"]}"]\ntrusted_hash = "{hook["currentHash"]}"\n'
            for hook in trusted
        ]
        app = Codex(self.sandbox, "codex", "\n".join((self.config, *lines)))
        yield app
        app.close()

    def hooks(self) -> list[dict[str, Any]]:
        with self.codex() as app:
            (found,) = app.call("hooks/list", cwds=[app.cwd])["data"]
        assert (found["warnings"], found["errors"]) == ([], [])
        assert {hook["trustStatus"] for hook in found["hooks"]} == {"untrusted"}
        return list(found["hooks"])


def past(observer: Observer, sandbox: Sandbox) -> dict[str, Any]:
    with codex(sandbox, "codex") as app:
        thread = app.thread()
        app.say(thread, *rig.FIVE)
    observer.sees(thread, userMessageCount=len(rig.FIVE))
    return observer.indexed(thread)


def texts(body: dict[str, Any]) -> list[str]:
    kept = [{key: value for key, value in item.items() if key != "id"} for item in body["input"]]
    return [json.dumps(item, ensure_ascii=False) for item in kept]


def test_codex_calls_a_tool(bare_world: World) -> None:
    """S1.34: the model is offered the tools, and a call is answered for the current session."""
    with watched(bare_world, "codex") as (sandbox, observer):
        meta = past(observer, sandbox)
        with Integrated(sandbox).codex() as app:
            thread = app.thread(model="fake-1")  # tools are offered directly to an unknown model
            app._until(_ready)
            app.say(thread, SEARCH)
        asked, answered = sandbox.bodies()[-2:]
        below = [inner for tool in asked["tools"] for inner in tool.get("tools", ())]
        assert {str(tool.get("name")) for tool in (*asked["tools"], *below)} >= TOOLS
        (output,) = [item for item in answered["input"] if item["type"] == "function_call_output"]
        assert meta["sessionId"] in json.dumps(output)
        assert meta["name"] in json.dumps(output)


def _ready(message: dict[str, Any]) -> bool:
    if message.get("method") != "mcpServer/startupStatus/updated":
        return False
    assert message["params"]["status"] in ("starting", "ready"), message
    return (message["params"]["name"], message["params"]["status"]) == ("indexerd", "ready")


def test_a_reference_in_codex(bare_world: World) -> None:
    """S0.53: with trusted hooks the summary follows the user's text, and no byte changes later."""
    with watched(bare_world, "codex") as (sandbox, observer):
        meta = past(observer, sandbox)
        put_in = Integrated(sandbox)
        asked = f'{rig.PICK} As in @@"{meta["name"]}".'
        with put_in.codex(*put_in.hooks()) as app:
            app.say(app.thread(), asked, rig.LINE)
        first, last = map(texts, sandbox.bodies()[-2:])
        (at,) = [n for n, text in enumerate(first) if rig.PICK in text]
        mark = f"({meta['sessionId']})"
        assert [mark in text for text in first] == [n == at + 1 for n in range(len(first))]
        assert json.dumps(meta["summary"].splitlines()[-1])[1:-1] in first[at + 1]
        assert last[: len(first)] == first
        assert rig.LINE in last[-1]


def test_a_resumed_codex_gets_the_relevant_context(bare_world: World) -> None:
    """S4.15, S4.18: once, with the first prompt after the resume, and not with the next one."""
    with watched(bare_world, "codex") as (sandbox, observer):
        with codex(sandbox, "codex") as app:
            thread = app.thread()
            app.say(thread, rig.LINE)
        observer.sees(thread, userMessageCount=1)
        put_in = Integrated(sandbox)
        bare_world.call("set_relevant_context", session=thread, **rig.NOTED)
        with put_in.codex(*put_in.hooks()) as app:
            assert app.thread("thread/resume", threadId=thread) == thread
            app.say(thread, rig.RETRY, rig.GROW)
        first, second = map(_said, sandbox.bodies()[-2:])
    (block,) = [text for text in first if "[SESSION RESUMED]" in text]
    assert block == resumed(sandbox.project) + "\n\n"
    assert second[: len(first)] == first
    assert [text for text in second[len(first) :] if "[SESSION RESUMED]" in text] == []
    assert rig.GROW in second[-1]


def _said(body: dict[str, Any]) -> list[str]:
    messages = [item for item in body["input"] if item["type"] == "message"]
    return ["".join(str(part["text"]) for part in item["content"]) for item in messages]
