"""The real opencode in a sandbox, driven through its HTTP server."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.e2e.rig.sandbox import MODEL, Sandbox, program
from tests.e2e.world import until

PORT = 4097
WHO = {"providerID": "fake", "modelID": "fake-1"}
LIMITS = {"limit": {"context": 200000, "output": 8192}, "cost": {"input": 1, "output": 2}}
CONFIG = {
    "autoupdate": False,
    "share": "disabled",
    "model": "fake/fake-1",
    "small_model": "fake/fake-1",
    "enabled_providers": ["fake"],
    "permission": {"edit": "allow", "bash": "allow", "webfetch": "deny"},
    "provider": {
        "fake": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Fake",
            "options": {"baseURL": f"{MODEL}/v1", "apiKey": "x"},
            "models": {"fake-1": {"name": "Fake 1", "tool_call": True, **LIMITS}},
        }
    },
}
NO = ("MODELS_FETCH", "AUTOUPDATE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD", "SHARE", "EMBEDDED_WEB_UI")
ENV = {f"OPENCODE_DISABLE_{name}": "1" for name in NO}
both = pytest.mark.parametrize("version", ["opencode", "opencode-12"])


class Opencode:
    def __init__(self, sandbox: Sandbox, version: str) -> None:
        config = Path(sandbox.env["XDG_CONFIG_HOME"]) / "opencode"
        config.mkdir(parents=True, exist_ok=True)
        (config / "opencode.json").write_text(json.dumps(CONFIG))
        self._isle = sandbox
        binary = program(version, "opencode-linux-x64/bin/opencode")
        where = ("--port", str(PORT), "--hostname", "127.0.0.1")
        self._process = sandbox.start(binary, "serve", *where, "--print-logs", **ENV)
        until(lambda: sandbox.answers(PORT, "/config"), "opencode's start", 40)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        whole = f"{path}?directory={quote(str(self._isle.project))}"
        return self._isle.ask(method, PORT, whole, body)

    def session(self, **fields: Any) -> str:
        return str(self.call("POST", "/session", fields)["id"])

    def say(self, session: str, *texts: str) -> list[str]:
        path = f"/session/{session}/message"
        prompts = ({"model": WHO, "parts": [{"type": "text", "text": text}]} for text in texts)
        answers = [self.call("POST", path, prompt) for prompt in prompts]
        return [str(answer["info"]["parentID"]) for answer in answers]

    def change(self, session: str, **fields: Any) -> None:
        self.call("PATCH", f"/session/{session}", fields)

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(20)


@contextmanager
def opencode(sandbox: Sandbox, version: str) -> Iterator[Opencode]:
    served = Opencode(sandbox, version)
    yield served
    served.close()
