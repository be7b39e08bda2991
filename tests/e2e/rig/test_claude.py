"""The real Claude Code talks to a scripted model, without and with the integration.

Claude goes back (`--resume-session-at`) by appending below an older entry of the same file, and
cannot delete or archive a session. It puts a hook's context and its own additions before the user's
text in the same message, and moves its cache marks with each request.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rig import claude as plain
from tests.e2e.rig import sandbox as rig
from tests.e2e.rig.claude import ENV, FREE, Claude
from tests.e2e.rig.sandbox import Observer, Sandbox, needed, resumed, watched
from tests.e2e.world import World, until

pytestmark = needed


def five(claude: Claude, observer: Observer) -> str:
    with claude.talk() as talk:
        for count, prompt in enumerate(rig.FIVE, 1):
            talk.say(prompt)
            observer.sees(talk.id, userMessageCount=count)
    observer.indexed(talk.id)
    return talk.id


def test_turns_of_the_real_claude(bare_world: World) -> None:
    """S0.1, S0.7, S1.45: each turn is seen, each due one is sent once, and a session is resumed."""
    with watched(bare_world, "claude") as (sandbox, observer):
        claude = Claude(sandbox)
        session = five(claude, observer)
        assert claude.once(rig.FIX, "--resume", session, "--name", "Forecast cache") == session
        changed = [str(sandbox.project / path) for path in rig.FIXED]
        row = observer.sees(
            session, userMessageCount=6, newUserMessages=1, agentTitle="Forecast cache"
        )
        assert (row["agent"], row["firstUserMessage"]) == ("claude", rig.FIVE[0])
        assert (row["cwd"], row["sessionFile"]) == (str(sandbox.project), str(claude.file(session)))
        until(
            lambda: sorted(observer.sees(session)["filesModified"]) == changed, "the changed files"
        )
        events = ("session.created", "session.updated", "session.renamed", "index.succeeded")
        observer.hears(session, *events)
        observer.lists(session, archived=True, subagents=True)
        observer.paid(**{session: 1})


def test_claude_resumes_where_a_project_is_now(bare_world: World) -> None:
    """The command of `resume` continues the session in the new directory, in its old file."""
    with watched(bare_world, "claude") as (sandbox, observer):
        claude = Claude(sandbox)
        session = claude.once(rig.FIVE[0])
        observer.sees(session, userMessageCount=1)
        file, old = claude.file(session), sandbox.project
        sandbox.project = old.rename(old.with_name("forecasts"))
        bare_world.call("move", old=str(old), new=str(sandbox.project))
        row = observer.sees(session, movedTo=str(sandbox.project))
        path = f"{Path(claude.program).parent}:/usr/bin:/bin"
        shell = f'{row["resume"]} -p {FREE} "{rig.FIVE[1]}"'
        sandbox.run("/bin/sh", "-c", shell, **ENV, PATH=path)
        row = observer.sees(session, userMessageCount=2, movedTo=str(sandbox.project))
        assert row["sessionFile"] == str(file)
        assert f'"cwd":"{sandbox.project}"' in file.read_text()


def test_claude_goes_back_and_compacts(bare_world: World) -> None:
    """S0.7, S0.9, S1.13: a turn that was undone no longer counts, a compacted one still does."""
    with watched(bare_world, "claude") as (sandbox, observer):
        claude = Claude(sandbox)
        with claude.talk() as talk:
            for prompt in (rig.PICK, rig.REDIS, rig.GROW):
                talk.say(prompt)
        observer.sees(talk.id, userMessageCount=3)
        first = claude.answers(talk.id)[0]
        claude.once(rig.RETRY, "--resume", talk.id, "--resume-session-at", first)
        observer.sees(talk.id, userMessageCount=2, newUserMessages=2, firstUserMessage=rig.PICK)
        observer.hears(talk.id, "session.branched")
        with claude.talk("--resume", talk.id) as again:
            again.say("/compact keep the storage decision")
            again.say(rig.LINE)
        observer.sees(talk.id, userMessageCount=3, compactions=1)
        observer.hears(talk.id, "session.compacted")
        observer.paid()


def test_forks_and_helpers_of_claude(bare_world: World) -> None:
    """S1.16, S1.45: a fork has its parent, sub-agents are hidden, deletion sends an event."""
    with watched(bare_world, "claude") as (sandbox, observer):
        claude = Claude(sandbox)
        parent = five(claude, observer)
        fork = claude.once(rig.REDIS, "--resume", parent, "--fork-session")
        observer.sees(fork, userMessageCount=6, parentSessionId=parent)
        observer.sees(parent, userMessageCount=5, parentSessionId=None)
        observer.indexed(fork)
        master = claude.once(rig.HELPER)
        helper = observer.helper(master)
        observer.sees(helper, parentSessionId=master, subagent=True, userMessageCount=0)
        observer.lists(parent, fork, master, archived=True)
        observer.lists(parent, fork, master, helper, archived=True, subagents=True)
        claude.file(fork).unlink()
        observer.hears(fork, "session.removed")
        observer.lists(parent, master)
        observer.paid(**{parent: 1, fork: 1})


def integrated(sandbox: Sandbox, *options: str) -> list[str]:
    sandbox.env |= {key: sandbox.world.env[key] for key in ("INDEXERD_SOCKET", "PYTHONPATH")}
    done = sandbox.world.run("integrate", "claude", *options, "--json")["changes"]
    return [change["did"] for change in done]


def messages(body: dict[str, Any]) -> list[str]:
    return [_text(message) for message in body["messages"]]


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    parts = [{"text": content}] if isinstance(content, str) else content
    kept = [{key: part[key] for key in part if key != "cache_control"} for part in parts]
    lines = [message["text"] if "text" in message else json.dumps(message) for message in kept]
    return "\n".join([message["role"], *lines])


def test_a_reference_in_claude(bare_world: World) -> None:
    """S0.53: the summary reaches the model, and the next request repeats every byte."""
    with watched(bare_world, "claude") as (sandbox, observer):
        claude = Claude(sandbox)
        past = five(claude, observer)
        assert sorted(integrated(sandbox)) == ["created", "updated", "updated"]
        meta = bare_world.meta(past) or {}
        asked = f'{rig.PICK} As in @@"{meta["name"]}".'
        before = len(sandbox.bodies("model"))
        with claude.talk() as talk:
            talk.say(asked)
            talk.say(rig.REDIS)
        first, *_, last = map(messages, sandbox.bodies("model")[before:])
        (block,) = [text for text in first if text.endswith(asked)]
        assert all(line in block for line in meta["summary"].splitlines())
        assert block.count(f"({past})") == 1
        assert last[: len(first)] == first
        assert [f"({past})" in text for text in last] == [text == block for text in last]
        assert last[-1].endswith(rig.REDIS)
        assert integrated(sandbox, "--remove") == ["removed"] * 3


def test_a_resumed_claude_gets_the_relevant_context(
    bare_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4.15, S4.18, S4.27: sets that its model stored are in one message after a resume."""
    with watched(bare_world, "claude") as (sandbox, observer):
        claude = Claude(sandbox)
        claude.once(rig.MODES)
        integrated(sandbox)
        tool = "mcp__indexerd__set_relevant_context"
        model = sandbox.caller((rig.NOTE, tool, rig.NOTED, 1))
        monkeypatch.setitem(plain.ENV, "ANTHROPIC_BASE_URL", model)
        with claude.talk() as talk:
            talk.say(rig.NOTE)  # possibly before the daemon has seen the session
            observer.sees(talk.id, userMessageCount=1, state="idle")
            talk.say(rig.NOTE)
        assert "Set files: 2 items" in messages(sandbox.bodies()[-1])[-1]
        before = len(sandbox.bodies())
        with claude.talk("--resume", talk.id) as again:
            again.say(rig.RETRY)
            again.say(rig.GROW)
        first, second = map(messages, sandbox.bodies()[before:])
    assert "When to call set_relevant_context" in "\n".join(first), (
        "the skill was not offered (S4.27)"
    )
    (block,) = [text for text in first if "[SESSION RESUMED]" in text]
    assert block.count(resumed(sandbox.project)) == 1
    assert block.endswith(rig.RETRY)
    assert second[: len(first)] == first
    assert second[-1].endswith(rig.GROW)
    assert "\n".join(second).count("[SESSION RESUMED]") == 1
