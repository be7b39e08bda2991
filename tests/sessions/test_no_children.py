"""Models are asked over HTTP or not at all: no program is started for it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import indexerd

ROOT = Path(indexerd.__file__).parent
# These start programs for the user, and none of them asks a model.
ALLOWED = {"daemon/web_supervisor.py", "integrations/install.py"}
STARTERS = {"subprocess", "pty", "multiprocessing"}
CALLS = {
    "create_subprocess_exec",
    "create_subprocess_shell",
    "subprocess_exec",
    "subprocess_shell",
    "fork",
    "forkpty",
    "posix_spawn",
    "posix_spawnp",
    "popen",
    "system",
}

WORDS = re.compile("|".join((*STARTERS, *CALLS, "exec", "spawn")))  # parsing all takes its time


def starts(source: str) -> set[str]:
    """The ways to start a program that a module knows."""
    found: set[str] = set()
    if not WORDS.search(source):
        return found
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {one.name.partition(".")[0] for one in node.names} & STARTERS
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").partition(".")[0]} & STARTERS
            found |= {one.name for one in node.names} & (STARTERS | CALLS)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            ours = node.attr in CALLS and node.value.id in ("os", "asyncio", "loop")
            if ours or (node.value.id == "os" and node.attr.startswith(("exec", "spawn"))):
                found.add(node.attr)
    return found


def test_no_client_is_started_for_a_call() -> None:
    """W12: no model is a program of ours, so no agent writes a session for what we ask."""
    guilty = {}
    for part in ("llm", "service", "core"):
        for path in sorted((ROOT / part).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if name not in ALLOWED and (found := starts(path.read_text())):
                guilty[name] = found
    assert guilty == {}


def test_the_search_finds_what_it_looks_for() -> None:
    """W12: else it would be content with anything."""
    for source in (
        "import subprocess",
        "from subprocess import run",
        "import asyncio\nasyncio.create_subprocess_exec('pi')",
        "from asyncio import create_subprocess_shell",
        "import os\nos.execv('/bin/pi', [])",
        "import os\nos.posix_spawn('/bin/pi', [], {})",
    ):
        assert starts(source), source
    assert not starts("import os\nos.open('x', 0)")
