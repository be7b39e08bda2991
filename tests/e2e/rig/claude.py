"""The real Claude Code in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.rig.sandbox import MODEL, Sandbox, program

FREE = "--dangerously-skip-permissions"
ENV = {
    "ANTHROPIC_BASE_URL": MODEL,
    "ANTHROPIC_API_KEY": "fake-key",
    "ANTHROPIC_MODEL": "claude-sonnet-4-5",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "IS_SANDBOX": "1",
}


class Claude:
    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.home = Path(sandbox.env["HOME"])
        self.program = program("claude", "@anthropic-ai/claude-code-linux-x64/claude")
        trusted = {str(sandbox.project): {"hasTrustDialogAccepted": True}}
        settings = {"hasCompletedOnboarding": True, "autoUpdates": False, "projects": trusted}
        (self.home / ".claude.json").write_text(json.dumps(settings))

    def once(self, prompt: str, *options: str) -> str:
        output = self.sandbox.run(*self._argv("json"), *options, prompt, **ENV)
        answer = json.loads(output)
        last = answer[-1] if isinstance(answer, list) else answer
        return str(last["session_id"])

    @contextmanager
    def talk(self, *options: str) -> Iterator[Talk]:
        streams = ("--input-format", "stream-json", "--verbose")
        process: Any = self.sandbox.start(*self._argv("stream-json"), *streams, *options, **ENV)
        yield Talk(process)
        process.stdin.close()
        assert process.wait(20) == 0

    def _argv(self, output: str) -> tuple[str, ...]:
        return (self.program, "-p", FREE, "--output-format", output)

    def file(self, session_id: str) -> Path:
        (found,) = self.home.glob(f".claude/projects/*/{session_id}.jsonl")
        return found


class Talk:
    def __init__(self, process: Any) -> None:
        self._process = process
        self.id = ""

    def say(self, text: str) -> dict[str, Any]:
        message = {"role": "user", "content": [{"type": "text", "text": text}]}
        print(
            json.dumps({"type": "user", "message": message}), file=self._process.stdin, flush=True
        )
        for line in self._process.stdout:
            event: dict[str, Any] = json.loads(line)
            self.id = event.get("session_id") or self.id
            if event["type"] == "result":
                return event
        raise AssertionError("Claude hung up")
