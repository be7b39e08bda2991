"""The real pi in a sandbox, with the extension, in RPC mode; it must write nothing to stderr."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.rig.sandbox import MODEL, RIG, Sandbox, program

CLI = "@earendil-works/pi-coding-agent/dist/bundle/cli.js"
FAKE: dict[str, Any] = {
    "baseUrl": f"{MODEL}/v1",
    "api": "openai-completions",
    "apiKey": "fake-key",
    "models": [{"id": "fake-1", "name": "Fake 1", "contextWindow": 200_000, "maxTokens": 8192}],
}
SETTINGS = {"defaultProvider": "fake", "defaultModel": "fake-1", "quietStartup": True}


class Pi:
    def __init__(self, sandbox: Sandbox) -> None:
        world = sandbox.world
        self.sandbox = sandbox
        self.env = {"INDEXERD_SOCKET": str(world.socket), "PI_OFFLINE": "1", "PI_TELEMETRY": "0"}
        node = str(RIG / "node/node_modules/node/bin/node")
        self.argv = (node, program("pi", CLI))
        world.run("integrate", "pi")
        (world.pi / "settings.json").write_text(json.dumps(SETTINGS))
        (world.pi / "models.json").write_text(json.dumps({"providers": {"fake": FAKE}}))
        self._log = world.root / "model"
        self._seen = len(self._dumps())

    def requests(self) -> list[dict[str, Any]]:
        dumps = self._dumps()
        new, self._seen = dumps[self._seen :], len(dumps)
        dumped = [json.loads(path.read_text()) for path in new]
        return [
            request["body"] for request in dumped if request["path"].endswith("/chat/completions")
        ]

    def _dumps(self) -> list[Path]:
        return sorted(self._log.glob("*.json"))

    @contextmanager
    def talk(self, *options: str) -> Iterator[Talk]:
        before = self.sandbox.errors.read_text()
        process = self.sandbox.start(*self.argv, "--mode", "rpc", *options, **self.env)
        yield Talk(self, process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0
        assert self.sandbox.errors.read_text() == before


class Talk:
    def __init__(self, pi: Pi, process: subprocess.Popen[str]) -> None:
        self.pi = pi
        assert process.stdout
        assert process.stdin
        self._stdin, self._stdout = process.stdin, process.stdout
        self._count = 0
        self.lines: list[dict[str, Any]] = []

    def wait(self, what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            text = self._stdout.readline()
            assert text, "pi ended"
            line: dict[str, Any] = json.loads(text)
            self.lines.append(line)
            if what(line):
                return line

    def command(self, kind: str, **fields: Any) -> Any:
        self._count += 1
        wanted = f"r{self._count}"
        self._stdin.write(json.dumps({"id": wanted, "type": kind, **fields}) + "\n")
        self._stdin.flush()
        answer = self.wait(lambda line: line.get("id") == wanted)
        assert answer["success"], answer
        return answer.get("data")

    def prompt(self, text: str) -> dict[str, Any]:
        self.command("prompt", message=text)
        self.wait(lambda line: line["type"] == "agent_settled")
        (sent,) = self.pi.requests()
        return sent

    def statuses(self, key: str = "index-session") -> list[str | None]:
        return [
            line.get("statusText")
            for line in self.lines
            if line.get("method") == "setStatus" and line["statusKey"] == key
        ]

    def shows(self, text: str | None, key: str = "index-session") -> None:
        if text not in self.statuses(key):
            self.wait(lambda line: self.statuses(key)[-1:] == [text])

    @property
    def id(self) -> str:
        return str(self.command("get_state")["sessionId"])

    @property
    def entries(self) -> list[dict[str, Any]]:
        path = Path(self.command("get_state")["sessionFile"])
        return [json.loads(line) for line in path.read_text().splitlines()]


def texts(request: dict[str, Any]) -> list[tuple[str, str]]:
    messages = [message for message in request["messages"] if message["role"] != "system"]
    return [(message["role"], _text(message.get("content"))) for message in messages]


def _text(content: Any) -> str:
    return (
        content if isinstance(content, str) else "".join(block["text"] for block in content or [])
    )


def begins_with(later: dict[str, Any], earlier: dict[str, Any]) -> bool:
    bodies = [json.dumps(request["messages"]) for request in (later, earlier)]
    return bodies[0].startswith(bodies[1][:-1]) and later["tools"] == earlier["tools"]
