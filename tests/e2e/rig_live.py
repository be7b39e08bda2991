"""The real pi at work in a world: it writes as it does, and says itself what a file holds."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.world import World

RIG = Path(os.environ.get("INDEXERD_RIG") or "/nonexistent").absolute()
NODE = RIG / "node/node_modules/node/bin/node"
PI = RIG / "clients/pi/node_modules/@earendil-works/pi-coding-agent/dist/index.js"
TREE = re.compile(rb'^( +)"tree": \[.*?^\1\],\n', re.MULTILINE | re.DOTALL)


def command(world: World, *argv: str | Path, **options: Any) -> subprocess.Popen[str]:
    """A node process in the world's own home."""
    env = {"PATH": os.environ["PATH"], "HOME": world.env["HOME"], "RIG": str(RIG)}
    whole = [str(NODE), *map(str, argv)]
    return subprocess.Popen(whole, env=env, cwd=world.root, text=True, **options)


class Live:
    """pi's own session writer at work; what it appended is told entry by entry."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self._lines = (json.loads(line) for line in process.stdout)
        first = next(self._lines)
        self.id, self.path = str(first["id"]), Path(first["file"])
        self.seen: list[dict[str, Any]] = []

    def entries(self) -> Iterator[dict[str, Any]]:
        """Entries as pi writes them, to the end."""
        for entry in self._lines:
            if "done" not in entry:
                self.seen.append(entry)
                yield entry

    def answers(self) -> Iterator[dict[str, Any]]:
        """Each turn's end; pi stands still while the caller looks at it."""
        for entry in self.entries():
            if entry.get("role") == "assistant":
                self.process.send_signal(signal.SIGSTOP)
                yield entry
                self.process.send_signal(signal.SIGCONT)

    def users(self, leaf: str, since: str | None) -> int:
        """User messages on the path to `leaf`, after `since` where that is on it."""
        by_id = {entry["id"]: entry for entry in self.seen}
        path = [by_id[leaf]]
        while above := path[-1]["parentId"]:
            path.append(by_id[above])
        ids = [entry["id"] for entry in path]
        new = path[: ids.index(since)] if since in ids else path
        return sum(1 for entry in new if entry.get("role") == "user")


@contextmanager
def live(world: World, *options: str) -> Iterator[Live]:
    """Run pi_live in pi's own directory; it is ended with the block."""
    with command(world, *_pi_live(world), *options, stdout=subprocess.PIPE) as process:
        try:
            yield Live(process)
        finally:
            process.kill()


def _pi_live(world: World) -> tuple[str | Path, ...]:
    return RIG / "pi_live.mjs", "--agent-dir", world.pi, "--cwd", "/w"


def oracle(world: World, *files: Path) -> list[dict[str, Any]]:
    """What pi itself makes of session files."""
    answer = world.root / "oracle.json"
    with answer.open("w") as out:
        assert command(world, RIG / "pi_oracle.mjs", *files, stdout=out).wait(50) == 0
    found = json.loads(TREE.sub(b"", answer.read_bytes()))  # it nests as deep as the branch is long
    return found if isinstance(found, list) else [found]
