"""The real Codex in a sandbox, driven by JSON-RPC through its app-server."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rig.sandbox import MODEL, Sandbox, program

VENDOR = "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl"
PROGRAMS = {"codex": f"{VENDOR}/bin/codex", "codex-120": f"{VENDOR}/codex/codex"}
CONFIG = f"""
model = "gpt-5.5"
model_provider = "fake"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[model_providers.fake]
name = "Fake"
base_url = "{MODEL}/v1"
wire_api = "responses"
env_key = "FAKE_API_KEY"
request_max_retries = 1
stream_max_retries = 1
[analytics]
enabled = false
[otel]
exporter = "none"
"""
both = pytest.mark.parametrize("version", sorted(PROGRAMS))


class Codex:
    def __init__(self, sandbox: Sandbox, version: str, config: str = CONFIG) -> None:
        self.version = version
        home = Path(sandbox.env["HOME"]) / ".codex"
        home.mkdir(exist_ok=True)
        trust = f'[projects."{sandbox.project}"]\ntrust_level = "trusted"\n'
        (home / "config.toml").write_text(config + trust)
        self.cwd = str(sandbox.project)
        self._calls = 0
        argv = (program(version, PROGRAMS[version]), "app-server")
        self._process: Any = sandbox.start(*argv, FAKE_API_KEY="x", RUST_LOG="error")
        who = {"name": "rig", "title": "rig", "version": "1"}
        self.call("initialize", clientInfo=who, capabilities={"experimentalApi": True})
        self._send({"method": "initialized"})

    def call(self, method: str, **params: Any) -> Any:
        self._calls += 1
        self._send({"id": self._calls, "method": method, "params": params})
        message = self._until(
            lambda message: message.get("id") == self._calls and "method" not in message
        )
        assert "error" not in message, (method, message["error"])
        return message["result"]

    def thread(self, method: str = "thread/start", **params: Any) -> str:
        return str(self.call(method, cwd=self.cwd, **params)["thread"]["id"])

    def begin(self, thread: str, text: str) -> str:
        user_input = [{"type": "text", "text": text, "text_elements": []}]
        return str(self.call("turn/start", threadId=thread, input=user_input)["turn"]["id"])

    def say(self, thread: str, *texts: str) -> None:
        for text in texts:
            self.begin(thread, text)
            self._until(
                lambda message: (
                    message.get("method") == "turn/completed"
                    and message["params"].get("threadId") == thread
                )
            )

    def file(self, thread: str) -> Path:
        return Path(self.call("thread/read", threadId=thread)["thread"]["path"])

    def close(self) -> None:
        self._process.stdin.close()
        assert self._process.wait(20) == 0

    def _send(self, message: dict[str, Any]) -> None:
        print(json.dumps(message), file=self._process.stdin, flush=True)

    def _until(self, wanted: Any) -> dict[str, Any]:
        for line in self._process.stdout:
            message: dict[str, Any] = json.loads(line)
            if wanted(message):
                return message
            if "id" in message and "method" in message:  # a request for permission
                self._send({"id": message["id"], "result": {"decision": "accept"}})
        raise AssertionError("Codex hung up")


@contextmanager
def codex(sandbox: Sandbox, version: str) -> Iterator[Codex]:
    served = Codex(sandbox, version)
    yield served
    served.close()
