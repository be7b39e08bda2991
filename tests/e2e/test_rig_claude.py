"""The real Claude Code talks to a scripted model while the daemon looks on.

Only where `INDEXERD_RIG` names a directory in which the rig is installed (see rig.py).

What surprised us: Claude goes back in a conversation by writing on below an older entry
(`--resume-session-at`), all in the one file; and it has no way to delete or archive a session,
so its users remove the file.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    Beholder,
    Isle,
    needed,
    program,
    watched,
)
from tests.e2e.world import World, until

pytestmark = needed

FREE = "--dangerously-skip-permissions"
ENV = {
    "ANTHROPIC_BASE_URL": MODEL,
    "ANTHROPIC_API_KEY": "fake-key",
    "ANTHROPIC_MODEL": "claude-sonnet-4-5",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "IS_SANDBOX": "1",
}


class Claude:
    """The installed Claude Code in an isle."""

    def __init__(self, isle: Isle) -> None:
        self.isle = isle
        self.home = Path(isle.env["HOME"])
        self._program = program("claude", "@anthropic-ai/claude-code-linux-x64/claude")
        trusted = {str(isle.project): {"hasTrustDialogAccepted": True}}
        told = {"hasCompletedOnboarding": True, "autoUpdates": False, "projects": trusted}
        (self.home / ".claude.json").write_text(json.dumps(told))

    def once(self, prompt: str, *options: str) -> str:
        """One prompt in a process of its own: the session's id."""
        said = self.isle.run(*self._argv("json"), *options, prompt, **ENV)
        answer = json.loads(said)
        last = answer[-1] if isinstance(answer, list) else answer
        return str(last["session_id"])

    def start(self, prompt: str) -> Any:
        """One prompt in a process that is not waited for."""
        return self.isle.start(*self._argv("json"), prompt, **ENV)

    @contextmanager
    def talk(self, *options: str) -> Iterator[Talk]:
        """A process that takes one prompt after another; it ends with the block."""
        streams = ("--input-format", "stream-json", "--verbose")
        process: Any = self.isle.start(*self._argv("stream-json"), *streams, *options, **ENV)
        yield Talk(process)
        process.stdin.close()
        assert process.wait(20) == 0

    def _argv(self, output: str) -> tuple[str, ...]:
        return (self._program, "-p", FREE, "--output-format", output)

    def file(self, session_id: str) -> Path:
        """The session's file."""
        (found,) = self.home.glob(f".claude/projects/*/{session_id}.jsonl")
        return found

    def answers(self, session_id: str) -> list[str]:
        """The ids of a session's assistant lines, as Claude wrote them."""
        lines = map(json.loads, self.file(session_id).read_text().splitlines())
        return [line["uuid"] for line in lines if line["type"] == "assistant"]


class Talk:
    """A conversation over stream-json."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self.id = ""

    def say(self, text: str) -> dict[str, Any]:
        """Send a prompt and wait for its end."""
        message = {"role": "user", "content": [{"type": "text", "text": text}]}
        print(
            json.dumps({"type": "user", "message": message}), file=self._process.stdin, flush=True
        )
        for line in self._process.stdout:
            told: dict[str, Any] = json.loads(line)
            self.id = told.get("session_id") or self.id
            if told["type"] == "result":
                return told
        raise AssertionError("Claude hung up")


def test_turns_of_the_real_claude(bare_world: World) -> None:
    """S0.1, S0.7, S1.45: each turn shows; due ones are sent once; a resumed session goes on."""
    with watched(bare_world, "claude") as (isle, eye):
        claude = Claude(isle)
        with claude.talk() as talk:
            for count, prompt in enumerate(FIVE, 1):
                talk.say(prompt)
                eye.sees(talk.id, userMessageCount=count, cwd=str(isle.project))
            eye.indexed(talk.id)
            talk.say(FIX)
            changed = [str(isle.project / path) for path in FIXED]
            row = eye.sees(talk.id, userMessageCount=6, newUserMessages=1)
        eye.lists(talk.id, archived=True, subagents=True)
        assert (row["agent"], row["firstUserMessage"]) == ("claude", FIVE[0])
        assert row["sessionFile"] == str(claude.file(talk.id))
        until(lambda: sorted(eye.sees(talk.id)["filesModified"]) == changed, "the changed files")
        assert claude.once(MODES, "--resume", talk.id, "--name", "Forecast cache") == talk.id
        eye.sees(talk.id, userMessageCount=7, agentTitle="Forecast cache")
        events = ("session.created", "session.updated", "session.renamed", "index.succeeded")
        eye.hears(talk.id, *events)
        told = bare_world.run("list", "--json", cwd=isle.project)["sessions"]
        assert [one["sessionId"] for one in told] == [talk.id]
        eye.lists(talk.id, archived=True, subagents=True)
        eye.paid(**{talk.id: 1})


def test_claude_goes_back_and_compacts(bare_world: World) -> None:
    """S0.7, S0.9, S1.13: a turn taken back counts no more; a compacted one still does."""
    with watched(bare_world, "claude") as (isle, eye):
        claude = Claude(isle)
        with claude.talk() as talk:
            for prompt in (PICK, REDIS, GROW):
                talk.say(prompt)
        eye.sees(talk.id, userMessageCount=3)
        first = claude.answers(talk.id)[0]
        claude.once(RETRY, "--resume", talk.id, "--resume-session-at", first)
        eye.sees(talk.id, userMessageCount=2, newUserMessages=2, firstUserMessage=PICK)
        eye.hears(talk.id, "session.branched")
        with claude.talk("--resume", talk.id) as again:
            again.say("/compact keep the storage decision")
            again.say(LINE)
        assert again.id == talk.id
        eye.sees(talk.id, userMessageCount=3, compactions=1)
        eye.hears(talk.id, "session.compacted")
        eye.lists(talk.id, archived=True, subagents=True)
        eye.paid()


def test_forks_and_helpers_of_claude(bare_world: World) -> None:
    """S1.16, S1.45: a fork names its parent; a helper hides; a removed file is told of."""
    with watched(bare_world, "claude") as (isle, eye):
        claude = Claude(isle)
        parent = _five(claude, eye)
        fork = claude.once(REDIS, "--resume", parent, "--fork-session")
        eye.sees(fork, userMessageCount=6, parentSessionId=parent)
        eye.sees(parent, userMessageCount=5, parentSessionId=None)
        eye.indexed(fork)
        master = claude.once(HELPER)
        helper = _helper(bare_world, master)
        eye.sees(helper, parentSessionId=master, subagent=True, userMessageCount=0)
        eye.sees(master, userMessageCount=1, subagent=False)
        eye.lists(parent, fork, master, archived=True)
        eye.lists(parent, fork, master, helper, archived=True, subagents=True)
        claude.file(fork).unlink()
        eye.hears(fork, "session.removed")
        eye.lists(parent, master)
        eye.paid(**{parent: 1, fork: 1})


def _five(claude: Claude, eye: Beholder) -> str:
    """A session of five turns, indexed."""
    with claude.talk() as talk:
        for prompt in FIVE:
            talk.say(prompt)
    eye.sees(talk.id, userMessageCount=len(FIVE))
    eye.indexed(talk.id)
    return talk.id


def _helper(world: World, master: str) -> str:
    """The one sub-agent's session."""

    def others() -> list[str]:
        rows = world.call("list", agent="claude", subagents=True)["sessions"]
        return [row["sessionId"] for row in rows if row.get("parentSessionId") == master]

    (found,) = until(others, "the helper's session")
    return str(found)


def test_a_claude_that_is_ended_in_a_tool(bare_world: World) -> None:
    """S0.1: a call without a result leaves the turn open, until the session is gone on with."""
    with watched(bare_world, "claude") as (isle, eye):
        claude = Claude(isle)
        process = claude.start(SLOW)
        (row,) = until(lambda: bare_world.call("list", agent="claude")["sessions"], "the session")
        eye.sees(row["sessionId"], state="active", toolsUsed={"Bash": 1})
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        claude.once(LINE, "--resume", row["sessionId"])
        eye.sees(row["sessionId"], state="idle", userMessageCount=2)
        eye.paid()
