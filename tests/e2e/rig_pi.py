"""The real pi in an isle, with our extension and a scripted model that calls tools.

In: an `Isle`. Out: pi in its RPC mode (`Talk`), in a terminal (`Screen`), or for one prompt, and
what its model was asked. The model does what the newest prompt says, where it says `call TOOL {…}`,
and otherwise what the rig's scenarios say. Nothing may appear on pi's stderr.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.rig import RIG, Isle, program
from tests.e2e.world import until

PORT = 8932
SCRIPT = f"""
import json, os, re, sys
sys.stderr = open(os.devnull, "w")  # what the client says is told apart by this
sys.path.insert(0, {str(RIG)!r})
import fake_server
scripted = fake_server.plan

def plan(kind, body):
    said = body["messages"]
    for at in range(len(said) - 1, -1, -1):
        text = str(fake_server.text_of(said[at].get("content")))
        found = re.search(r"^call (\\w+) (.*)$", text, re.M)
        if said[at]["role"] == "user" and found:
            results = [one for one in said[at:] if one["role"] == "tool"]
            calls = [] if results else [(found[1], json.loads(found[2]))]
            return {{"text": "Done." if results else "", "think": "", "calls": calls}}, "call"
    return scripted(kind, body)

fake_server.plan = plan
fake_server.map_call = lambda name, given, body: (name, given, False)
server = fake_server.ThreadingHTTPServer(("127.0.0.1", {PORT}), fake_server.H)
server.serve_forever()
"""
CLI = {
    "pi": "@earendil-works/pi-coding-agent/dist/bundle/cli.js",
    "pi-old": "@mariozechner/pi-coding-agent/dist/cli.js",
}
FAKE = {
    "baseUrl": f"http://127.0.0.1:{PORT}/v1",
    "api": "openai-completions",
    "apiKey": "fake-key",
    "models": [{"id": "fake-1", "name": "Fake 1", "contextWindow": 200_000, "maxTokens": 8192}],
}
SETTINGS = {"defaultProvider": "fake", "defaultModel": "fake-1", "quietStartup": True}
STYLE = re.compile("\x1b\\[[0-9;?]*[a-zA-Z]")
END = {"pi": "agent_settled", "pi-old": "agent_end"}


class Pi:
    """The installed pi with the extension, put there as users do, and the model it talks to."""

    def __init__(self, isle: Isle, version: str = "pi") -> None:
        world = isle.world
        self.isle, self.version = isle, version
        self.env = {"INDEXERD_SOCKET": str(world.socket), "PI_OFFLINE": "1", "PI_TELEMETRY": "0"}
        node = str(RIG / "node/node_modules/node/bin/node")
        self.argv = (node, program(version, CLI[version]))
        world.run("integrate", "pi")
        (world.pi / "settings.json").write_text(json.dumps(SETTINGS))
        (world.pi / "models.json").write_text(json.dumps({"providers": {"fake": FAKE}}))
        self._log = world.root / "model-2"
        isle.start(sys.executable, "-B", "-c", SCRIPT, FAKE_LOG=str(self._log))
        until(lambda: isle.answers(PORT, "/health"), "the scripted model")
        self._seen = len(self._dumps())

    def requests(self) -> list[dict[str, Any]]:
        """What the model was asked since the last time this was called."""
        dumps = self._dumps()
        new, self._seen = dumps[self._seen :], len(dumps)
        held = [json.loads(path.read_text()) for path in new]
        return [one["body"] for one in held if one["path"].endswith("/chat/completions")]

    def was_asked(self) -> bool:
        """Whether there is a whole request that `requests` has not told yet."""
        return any(path.read_text().endswith("}") for path in self._dumps()[self._seen :])

    def _dumps(self) -> list[Path]:
        return sorted(self._log.glob("*.json"))

    def once(self, *options: str) -> str:
        """A process of one prompt: what it said. Nothing may go to its stderr."""
        before = self.isle.errors.read_text()
        said = self.isle.run(*self.argv, "-p", *options, **self.env)
        assert self.isle.errors.read_text() == before
        return said

    @contextmanager
    def talk(self, *options: str) -> Iterator[Talk]:
        """A process that takes prompts; it ends with the block, quietly."""
        before = self.isle.errors.read_text()
        process = self.isle.start(*self.argv, "--mode", "rpc", *options, **self.env)
        yield Talk(self, process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0
        assert self.isle.errors.read_text() == before

    @contextmanager
    def terminal(self) -> Iterator[Screen]:
        """A process with an editor in a terminal; it is killed with the block."""
        shell = "stty rows 40 cols 150; exec " + shlex.join(self.argv)
        wrapped = f"import pty, sys; pty.spawn(['sh', '-c', {shell!r}])"
        process = self.isle.start(sys.executable, "-c", wrapped, TERM="xterm-256color", **self.env)
        yield Screen(process)


class Screen:
    """What a terminal got to see so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        assert process.stdin
        self._stdin, self._out = process.stdin, process.stdout.fileno()
        self._seen = ""
        self.shows("π - ")  # the title: all extensions are at work

    def type(self, text: str) -> None:
        """Press keys."""
        self._stdin.write(text)
        self._stdin.flush()

    def shows(self, text: str) -> None:
        """Wait until something is drawn, after what was waited for before."""
        while text not in self._seen:
            new = os.read(self._out, 65536)
            assert new, "the terminal ended"
            self._seen += STYLE.sub("", new.decode(errors="replace"))
        self._seen = self._seen.partition(text)[2]


class Talk:
    """pi's RPC mode."""

    def __init__(self, pi: Pi, process: subprocess.Popen[str]) -> None:
        self.pi = pi
        assert process.stdout
        assert process.stdin
        self._stdin, self._stdout = process.stdin, process.stdout
        self._count = 0
        self.lines: list[dict[str, Any]] = []
        self.last: dict[str, Any] = {}

    def wait(self, what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read on until there is such a line."""
        while True:
            text = self._stdout.readline()
            assert text, "pi ended"
            line: dict[str, Any] = json.loads(text)
            self.lines.append(line)
            if what(line):
                return line

    def command(self, kind: str, **fields: Any) -> Any:
        """Send a command, and wait for what it answers."""
        self._count += 1
        wanted = f"r{self._count}"
        self._stdin.write(json.dumps({"id": wanted, "type": kind, **fields}) + "\n")
        self._stdin.flush()
        answer = self.wait(lambda line: line.get("id") == wanted)
        assert answer["success"], answer
        return answer.get("data")

    def prompt(self, text: str, requests: int = 1) -> dict[str, Any]:
        """Send a prompt and wait for the agent's end: the first request; the last is `last`."""
        self.command("prompt", message=text)
        self.wait(lambda line: line["type"] == END[self.pi.version])
        made = self.pi.requests()
        assert len(made) == requests
        self.last = made[-1]
        return made[0]

    def statuses(self, key: str = "index-session") -> list[str | None]:
        """What the status line showed so far, in order; None where it was emptied."""
        return [
            line.get("statusText")
            for line in self.lines
            if line.get("method") == "setStatus" and line["statusKey"] == key
        ]

    def shows(self, text: str | None, key: str = "index-session") -> None:
        """Wait until the status line shows this."""
        if text not in self.statuses(key):
            self.wait(lambda line: self.statuses(key)[-1:] == [text])

    @property
    def notices(self) -> list[str]:
        """What the user was warned of so far; pi itself may have more to say."""
        shown = [line for line in self.lines if line.get("method") == "notify"]
        return [line["message"] for line in shown if line["notifyType"] == "warning"]

    @property
    def id(self) -> str:
        return str(self.command("get_state")["sessionId"])

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The session's file."""
        path = Path(self.command("get_state")["sessionFile"])
        return [json.loads(line) for line in path.read_text().splitlines()]


def texts(request: dict[str, Any]) -> list[tuple[str, str]]:
    """Role and text of each message of a request but the system's."""
    said = [one for one in request["messages"] if one["role"] != "system"]
    return [(one["role"], _text(one.get("content"))) for one in said]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(one["text"] for one in content or [])


def begins_with(later: dict[str, Any], earlier: dict[str, Any]) -> bool:
    """Whether a request holds all of an earlier one, byte for byte, before anything else."""
    bodies = [json.dumps(one["messages"]) for one in (later, earlier)]
    return bodies[0].startswith(bodies[1][:-1]) and later["tools"] == earlier["tools"]
