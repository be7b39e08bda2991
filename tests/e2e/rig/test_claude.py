"""The real Claude Code talks to a scripted model while the daemon looks on, plain and integrated.

What surprised us: Claude goes back in a conversation by writing on below an older entry
(`--resume-session-at`), all in the one file, and has no way to delete or archive a session. It puts
a hook's context, with all else that it adds itself, into the message of the user's text, before it;
and it moves its marks of what is to be cached from request to request.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.rig import claude as plain
from tests.e2e.rig import sandbox as rig
from tests.e2e.rig.claude import Claude
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
    """S0.1, S0.7, S1.45: each turn shows; due ones are sent once; a resumed session goes on."""
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


def test_claude_goes_back_and_compacts(bare_world: World) -> None:
    """S0.7, S0.9, S1.13: a turn taken back counts no more; a compacted one still does."""
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
    """S1.16, S1.45: a fork names its parent; a helper hides; a removed file is told of."""
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
    return [one["did"] for one in done]


def messages(body: dict[str, Any]) -> list[str]:
    return [_text(message) for message in body["messages"]]


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    parts = [{"text": content}] if isinstance(content, str) else content
    told = [{key: part[key] for key in part if key != "cache_control"} for part in parts]
    lines = [one["text"] if "text" in one else json.dumps(one) for one in told]
    return "\n".join([message["role"], *lines])


def test_a_reference_in_claude(bare_world: World) -> None:
    """S0.53: what was meant is behind the user's text; the next turn keeps every byte of it."""
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
        (told,) = [text for text in first if text.endswith(asked)]
        assert all(line in told for line in meta["summary"].splitlines())
        assert told.count(f"({past})") == 1
        assert last[: len(first)] == first
        assert [f"({past})" in text for text in last] == [text == told for text in last]
        assert last[-1].endswith(rig.REDIS)
        assert integrated(sandbox, "--remove") == ["removed"] * 3


def test_a_resumed_claude_knows_what_was_relevant(
    bare_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4.15, S4.18, S4.27: what its model noted by the tool is in one message of a resume."""
    with watched(bare_world, "claude") as (sandbox, observer):
        claude = Claude(sandbox)
        claude.once(rig.MODES)
        integrated(sandbox)
        tool = "mcp__indexerd__set_relevant_context"
        model = sandbox.caller((rig.NOTE, tool, rig.NOTED, 1))
        monkeypatch.setitem(plain.ENV, "ANTHROPIC_BASE_URL", model)
        with claude.talk() as talk:
            talk.say(rig.NOTE)  # so quickly that the daemon may not have seen the session
            observer.sees(talk.id, userMessageCount=1, state="idle")
            talk.say(rig.NOTE)
        assert "Set files: 2 items" in messages(sandbox.bodies()[-1])[-1]
        before = len(sandbox.bodies())
        with claude.talk("--resume", talk.id) as again:
            again.say(rig.RETRY)
            again.say(rig.GROW)
        first, second = map(messages, sandbox.bodies()[before:])
    assert "When to call set_relevant_context" in "\n".join(first), "S4.27: the skill"
    (told,) = [text for text in first if "[SESSION RESUMED]" in text]
    assert told.count(resumed(sandbox.project)) == 1
    assert told.endswith(rig.RETRY)
    assert second[: len(first)] == first
    assert second[-1].endswith(rig.GROW)
    assert "\n".join(second).count("[SESSION RESUMED]") == 1
