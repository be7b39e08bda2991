"""node plays pi with the extension loaded, for cases that are rare with the real pi."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import playwright
import pytest

from tests.fakes.daemon import HELLO

HERE = Path(__file__).parent
EXTENSION = HERE.parents[1] / "indexerd/integrations/pi"
ENOUGH = (22, 18)  # the first node that reads TypeScript by itself
KEY = "index-session"
SAID = {"type": "message", "message": {"role": "user"}}  # an entry of an existing session
BLOCK = {"customType": "session-reference", "content": "B", "display": False, "details": {}}


def _node() -> str | None:
    rig = Path(os.environ.get("INDEXERD_RIG") or "/nonexistent") / "node/node_modules/node/bin/node"
    browsers = Path(playwright.__file__).parent / "driver/node"
    for found in (rig, shutil.which("node"), browsers):
        if found and Path(found).exists():
            said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
            parts = re.match(r"v(\d+)\.(\d+)", said.stdout)
            if parts and (int(parts[1]), int(parts[2])) >= ENOUGH:
                return str(found)
    return None


NODE = _node()
needed = pytest.mark.skipif(NODE is None, reason="there is no node of 22.18 or newer")


class Pi:
    """pi, played by node."""

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
        """Run one step to its end."""
        self.begin(**what)
        return self.answer()

    def begin(self, **what: Any) -> None:
        """Start a step; with `meanwhile` the next may run before it ends."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The result of the first step that has ended since the last call."""
        while (answer := self._line()) is None:
            pass
        return answer

    def start(self, reason: str = "startup", **ctx: Any) -> None:
        assert "error" not in self.do(emit="session_start", event={"reason": reason}, ctx=ctx)

    def prompt(self, text: str, typed: str | None = None, **ctx: Any) -> list[dict[str, Any]]:
        """Send a prompt, with the text that was typed; return the messages added, in order."""
        self.input(text if typed is None else typed, **ctx)
        answer = self.do(emit="before_agent_start", event={"prompt": text}, ctx=ctx)
        assert "error" not in self.do(emit="agent_start")
        return [result["message"] for result in answer["results"] if result]

    def input(self, text: str, queued: str | None = None, **ctx: Any) -> None:
        """Type something, as a prompt or to be queued."""
        event = {"text": text, "source": "interactive", "streamingBehavior": queued}
        assert "error" not in self.do(emit="input", event=event, ctx=ctx)

    def tool(self, name: str, **params: Any) -> dict[str, Any]:
        """Call a tool; return its result, or its error's JSON under `error`."""
        answer = self.do(tool=name, params=params)
        return {"error": json.loads(answer["error"])} if "error" in answer else answer

    def shows(self, text: str | None) -> None:
        """Wait until the status line shows the text, after any text waited for before."""
        while text not in self.statuses[self._shown :]:
            assert self._line() is None
        self._shown += self.statuses[self._shown :].index(text) + 1

    def ends(self) -> None:
        """Close pi's input: the process must end by itself without complaints."""
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
        assert text, "the process that plays pi ended"
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
