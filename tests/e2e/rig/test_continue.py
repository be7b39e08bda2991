"""The real clients, in a terminal, begin with the hand-off of another agent's session."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rig import claude, codex, opencode
from tests.e2e.rig.claude import Claude
from tests.e2e.rig.pi import Pi
from tests.e2e.rig.sandbox import FIVE, Sandbox, needed, sandbox
from tests.e2e.rig.sandbox import program as program_of
from tests.e2e.world import World, until, wait

pytestmark = needed
# A terminal that answers what the clients ask of it.
TERMINAL = r"""
import os, pty, sys
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
ANSWERS = (b"\x1b[6n", b"\x1b[1;1R"), (b"\x1b[c", b"\x1b[?62c")
def read(fd):
    data = os.read(fd, 4096)
    for asked, answer in ANSWERS:
        if asked in data:
            os.write(fd, answer)
    return data
pty.spawn(["sh", "-c", 'stty rows 40 cols 120; exec "$@"', "sh", *sys.argv[1:]], read)
"""
KNOWN = {"customApiKeyResponses": {"approved": [claude.ENV["ANTHROPIC_API_KEY"]]}}
NEWER = '[notice.model_migrations]\n"gpt-5.5" = "gpt-6-sol"\n'


def set_up(box: Sandbox, agent: str) -> tuple[str, dict[str, str]]:
    """Configure a client so that it asks nothing; return how it is run, and its environment."""
    home = Path(box.env["HOME"])
    if agent == "claude":
        program, file = Claude(box).program, home / ".claude.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | KNOWN))
        return program, claude.ENV
    if agent == "codex":
        with codex.codex(box, "codex"):
            file = home / ".codex/config.toml"
            file.write_text(file.read_text() + NEWER)
        return f"{program_of('codex', codex.PROGRAMS['codex'])} --no-daemon", {"FAKE_API_KEY": "x"}
    if agent == "opencode":
        with opencode.opencode(box, "opencode"):
            return program_of("opencode", "opencode-linux-x64/bin/opencode"), opencode.ENV
    pi = Pi(box)
    return " ".join(pi.argv), pi.env


def carry_on(box: Sandbox, session_id: str, agent: str) -> None:
    """Run `continue` in a terminal, with a real client by its usual name."""
    program, env = set_up(box, agent)
    folder = box.world.root / "bin"
    folder.mkdir()
    (folder / agent).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    (folder / agent).chmod(0o755)
    env |= {name: box.world.env[name] for name in ("PYTHONPATH", "INDEXERD_SOCKET")}
    env |= {"PATH": f"{folder}:{os.environ['PATH']}", "TERM": "xterm-256color"}
    words = (sys.executable, "-m", "indexerd", "continue", session_id, "--in", agent)
    box.start(sys.executable, "-B", "-c", TERMINAL, *words, **env)


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode", "pi"])
def test_another_agent_goes_on(world: World, agent: str) -> None:
    with sandbox(world) as box, world.daemon():
        session = world.session(cwd=str(box.project))
        session.turn("Look into the quaggas of the weather client.", "They are in the cache.")
        wait(world, session.id, userMessageCount=1)
        carry_on(box, session.id, agent)

        def row() -> dict[str, Any] | None:
            rows = world.call("list", agent=agent, archived=True)["sessions"]
            new = (found for found in rows if found["sessionId"] != session.id)
            return next((found for found in new if found["cwd"] == str(box.project)), None)

        found = until(row, f"a session of {agent}", 50.0)
        if agent != "pi":  # which waits for a prompt
            until(lambda: "quaggas" in (row() or found)["firstUserMessage"], "the hand-off")
            return
        with Pi(box).talk("--session", found["sessionFile"]) as talk:
            assert "quaggas" in str(talk.prompt(FIVE[0])["messages"])
