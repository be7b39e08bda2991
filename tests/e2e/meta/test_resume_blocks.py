"""The block after a resume is the same bytes in every integration (S4.15, S4.28)."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.forked import ran
from tests.e2e.world import World
from tests.integrations import acted_pi, opencode_host

HEAD = "[SESSION RESUMED]\nShell state was reset. Re-run environment setup before continuing.\n\n"
HINT = "source .venv/bin/activate && module load gcc/7.5"
SETS = {
    "ports": ["8080", "5173"],
    "applet": ["git-diff", "path=/w", "file=a b.py"],
    "files": ["a.py", "/nowhere/b.md"],
}
HEADING, MISSING = "Relevant files:", "(2 file(s) no longer exist)"
SHOWN = (
    f"{HEADING}\n- a.py\n(1 file(s) no longer exist)\n\n"
    "Last applet: git-diff (path=/w, file=a b.py)\n\n"
    "ports: 8080, 5173"
)
STATES: list[tuple[dict[str, Any], str]] = [  # what is stored, what follows the directory line
    ({}, ""),
    ({"envHint": HINT}, f"Environment hint: {HINT}\n"),
    ({"envHint": HINT, "context": SETS}, f"Environment hint: {HINT}\n\n{SHOWN}\n"),
    ({"envHint": None}, f"\n{SHOWN}\n"),
    ({"context": {"files": ["/nowhere/b", "/nowhere/c"]}}, f"\n{HEADING}\n{MISSING}\n"),
]


def furnish(world: World) -> None:
    (world.root / "a.py").touch()


def by_command(world: World, session: str, resume: str) -> str:
    return str(world.run("resume-context", session, "--resume-id", resume))


def by_hook(agent: str) -> Callable[[World, str, str], str]:
    def block_by(world: World, session: str, _resume: str) -> str:
        event = {"hook_event_name": "SessionStart", "source": "resume", "session_id": session}
        command = [sys.executable, "-m", "indexerd", "hook", agent]
        done = ran(command, json.dumps(event), env=world.env)
        return str(json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"])

    return block_by


def by_pi(world: World, session: str, resume: str) -> str:
    root = world.root / resume
    root.mkdir()
    pi = acted_pi.Pi(root, world.socket)
    try:
        pi.start("resume", id=session, entries=[acted_pi.SAID])
        (message,) = pi.prompt("go on", id=session)
        pi.ends()
    finally:
        pi.leave()
    return str(message["content"])


def by_opencode(world: World, session: str, _resume: str) -> str:
    env = {"INDEXERD_SOCKET": str(world.socket), "HOME": str(world.root)}
    prompt = opencode_host.prompt("Go on.", session=session)
    found = opencode_host.run(env, prompt, begun={session: [{}]})
    own, block = opencode_host.parts(found)
    assert own["text"] == "Go on."
    return str(block["text"])


@pytest.mark.parametrize(
    "block_by",
    [
        pytest.param(by_command, id="command"),
        pytest.param(by_hook("claude"), id="claude"),
        pytest.param(by_hook("codex"), id="codex"),
        pytest.param(by_pi, id="pi", marks=acted_pi.needed),
        pytest.param(by_opencode, id="opencode", marks=opencode_host.needs_node),
    ],
)
def test_every_integration_sends_the_same_bytes(
    running: World, block_by: Callable[[World, str, str], str]
) -> None:
    """S4.15, S4.16, S4.17, S4.19, S4.20: a hint, sets, neither, and files that are all missing."""
    session = running.session(turns=1, cwd=str(running.root))
    running.seen(session)
    for number, (change, rest) in enumerate(STATES):
        running.call("update", ref=session.id, **change)
        text = f"{HEAD}Session directory: {running.root}\n{rest}---\n\n"
        assert block_by(running, session.id, f"{session.id}-{number}") == text
