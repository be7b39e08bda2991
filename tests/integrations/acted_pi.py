"""pi, acted by node, with the extension in it: for what the real pi does only once in a while.

Only where there is a node that reads TypeScript (22.18 or newer): the rig's, or one on PATH.
The real pi and the real daemon are in tests/e2e/rig/test_pi_extension.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.acting import HELLO

HERE = Path(__file__).parent
EXTENSION = HERE.parents[1] / "indexerd/integrations/pi"
ENOUGH = (22, 18)  # the first node that reads TypeScript of itself
KEY = "index-session"
SAID = {"type": "message", "message": {"role": "user"}}  # an entry of a session that was begun
BLOCK = {"customType": "session-reference", "content": "B", "display": False, "details": {}}


def _node() -> str | None:
    rig = Path(os.environ.get("INDEXERD_RIG") or "/nonexistent") / "node/node_modules/node/bin/node"
    for found in (str(rig) if rig.exists() else None, shutil.which("node")):
        if found:
            said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
            parts = re.match(r"v(\d+)\.(\d+)", said.stdout)
            if parts and (int(parts[1]), int(parts[2])) >= ENOUGH:
                return found
    return None


NODE = _node()
needed = pytest.mark.skipif(NODE is None, reason="there is no node of 22.18 or newer")


class Pi:
    """The acted pi."""

    def __init__(self, root: Path, socket: Path) -> None:
        assert NODE
        env = {"PATH": "/usr/bin:/bin", "HOME": str(root), "INDEXERD_SOCKET": str(socket)}
        self._errors = (root / "node.err").open("w+")
        self.process = subprocess.Popen(
            [NODE, "--disable-warning=ExperimentalWarning", HERE / "pi_acted.mjs", EXTENSION],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.statuses: list[str | None] = []
        self.notices: list[str] = []
        self.keys: set[str] = set()
        self._shown = 0

    def do(self, **what: Any) -> dict[str, Any]:
        """Have one thing done, to its end."""
        self.begin(**what)
        return self.answer()

    def begin(self, **what: Any) -> None:
        """Have one thing begun; with `meanwhile` the next may be done before its end."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """What came of the first thing that has ended since."""
        while (answer := self._line()) is None:
            pass
        return answer

    def start(self, reason: str = "startup", **ctx: Any) -> None:
        assert "error" not in self.do(emit="session_start", event={"reason": reason}, ctx=ctx)

    def prompt(self, text: str, typed: str | None = None, **ctx: Any) -> list[dict[str, Any]]:
        """A prompt, and what was typed for it: the messages that go with it, in order."""
        self.input(text if typed is None else typed, **ctx)
        answer = self.do(emit="before_agent_start", event={"prompt": text}, ctx=ctx)
        assert "error" not in self.do(emit="agent_start")
        return [one["message"] for one in answer["results"] if one]

    def input(self, text: str, queued: str | None = None, **ctx: Any) -> None:
        """Something is typed, for a prompt or to be queued."""
        event = {"text": text, "source": "interactive", "streamingBehavior": queued}
        assert "error" not in self.do(emit="input", event=event, ctx=ctx)

    def tool(self, name: str, **params: Any) -> dict[str, Any]:
        """A call of a tool: its result, or its error's JSON under `error`."""
        answer = self.do(tool=name, params=params)
        return {"error": json.loads(answer["error"])} if "error" in answer else answer

    def shows(self, text: str | None) -> None:
        """Wait until the status line shows this, after what was waited for before."""
        while text not in self.statuses[self._shown :]:
            assert self._line() is None
        self._shown += self.statuses[self._shown :].index(text) + 1

    def ends(self) -> None:
        """The input of pi has ended: the process ends of itself, and never complained."""
        assert self.process.stdin
        self.process.stdin.close()
        assert self.process.wait(20) == 0
        self._errors.seek(0)
        assert self._errors.read() == ""

    def leave(self) -> None:
        with self.process, self._errors:
            self.process.kill()

    def _line(self) -> dict[str, Any] | None:
        """The next line: an answer, or None for something shown."""
        assert self.process.stdout
        text = self.process.stdout.readline()
        assert text, "the acted pi ended"
        said: dict[str, Any] = json.loads(text)
        if "notice" in said:
            text, level = said["notice"]
            assert level == "warning"
            self.notices.append(text)
            return None
        if "status" not in said:
            return said
        self.keys.add(said["status"][0])
        self.statuses.append(said["status"][1])
        return None


def greeting(**settings: Any) -> dict[str, Any]:
    return HELLO | {"settings": settings}
