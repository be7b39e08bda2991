"""Rollouts as Codex 0.118 to 0.145 wrote them, with times that the test chooses.

Each line has an envelope, each prompt and answer is stored twice, and thread and turn ids contain
their time of creation. A fork, or a sub-agent with its parent's context, begins with a copy of the
parent's lines that carries the time of the copy.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

DAY = datetime(2026, 4, 7, 9, 0, tzinfo=UTC)
Line = dict[str, Any]


def id_at(seconds: float, number: int) -> str:
    ms = round((DAY + timedelta(seconds=seconds)).timestamp() * 1000)
    head = f"{ms:012x}"
    return f"{head[:8]}-{head[8:]}-7000-8000-{number:012x}"


class Rollout:
    def __init__(self, number: int, at: float, **meta: Any) -> None:
        self.number, self.at = number, at
        self.id = id_at(at, number)
        self.lines: list[Line] = []
        self.sum = {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0}
        self._turns = 0
        first = {"id": self.id, "timestamp": self._time(), "cwd": "/w", "originator": "codex-tui"}
        self.add("session_meta", first | {"cli_version": "0.118.0", "source": "cli"} | meta)

    def add(self, kind: str, payload: Line) -> None:
        self.at += 0.001
        self.lines.append({"timestamp": self._time(), "type": kind, "payload": payload})

    def event(self, kind: str, **fields: Any) -> None:
        self.add("event_msg", {"type": kind, **fields})

    def asks(self, text: str, *, event: bool = True) -> None:
        content = [{"type": "input_text", "text": text}]
        self.add("response_item", {"type": "message", "role": "user", "content": content})
        if event:
            self.event("user_message", message=text, images=[], local_images=[])

    def answers(self, text: str = "Done.") -> None:
        content = [{"type": "output_text", "text": text}]
        self.add("response_item", {"type": "message", "role": "assistant", "content": content})
        self.event("agent_message", message=text)

    def edits(self, path: str) -> None:
        call = f"call_{self.number}_{len(self.lines)}"
        patch = f"*** Begin Patch\n*** Update File: {path}\n@@\n-a\n+b\n*** End Patch"
        known = {"name": "apply_patch", "call_id": call}
        self.add("response_item", {"type": "custom_tool_call", "input": patch} | known)
        change = {f"/w/{path}": {"type": "update", "unified_diff": "", "move_path": None}}
        self.event("patch_apply_end", call_id=call, success=True, changes=change)
        output = {"type": "custom_tool_call_output", "call_id": call, "output": "Exit code: 0"}
        self.add("response_item", output)

    def spends(self, given: int, output: int, *, restarted: bool = False) -> None:
        last = {"input_tokens": given, "cached_input_tokens": 0, "output_tokens": output}
        self.sum = last if restarted else {key: self.sum[key] + last[key] for key in last}
        info = {"total_token_usage": self.sum, "last_token_usage": last}
        self.event("token_count", info=info | {"model_context_window": 258_400})

    def turn(self, prompt: str, path: str = "", given: int = 1000, later: float = 30) -> None:
        self.at += later
        self._turns += 1
        turn = id_at(self.at, 1000 * self.number + self._turns)
        self.event("task_started", turn_id=turn, model_context_window=258_400)
        self.add("turn_context", {"turn_id": turn, "cwd": "/w", "model": "gpt-5.4"})
        self.asks(prompt)
        if path:
            self.edits(path)
        self.answers(f"Done: {prompt}")
        self.spends(given, given // 100)
        self.event("task_complete", turn_id=turn, last_agent_message=f"Done: {prompt}")

    def copies(self, parent: Rollout, *, header: bool = True) -> None:
        for line in parent.lines if header else parent.lines[1:]:
            self.add(line["type"], line["payload"])
        self.sum = parent.sum

    def path(self, home: Path) -> Path:
        stem = self.lines[0]["timestamp"][:19].replace(":", "-")
        return home / f".codex/sessions/2026/04/07/rollout-{stem}-{self.id}.jsonl"

    def data(self, *, numbered: bool = False) -> bytes:
        lines = self.lines
        if numbered:
            kept = [line for line in lines if line["payload"].get("type") != "agent_message"]
            lines = [{"ordinal": n} | _migrated(line) for n, line in enumerate(kept)]
        return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)

    def write(self, home: Path, *, numbered: bool = False) -> None:
        path = self.path(home)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data(numbered=numbered))

    def _time(self) -> str:
        moment = DAY + timedelta(seconds=self.at)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _migrated(line: Line) -> Line:
    payload = line["payload"]
    if line["type"] == "session_meta":
        payload = payload | {"history_mode": "paginated"}
    elif payload.get("type") == "user_message":
        content = [{"type": "text", "text": payload["message"]}]
        item = {"type": "UserMessage", "id": "u", "content": content}
        payload = {"type": "item_completed", "item": item}
    elif payload.get("type") == "patch_apply_end":
        item = {"type": "FileChange", "id": payload["call_id"], "status": "completed"}
        payload = {"type": "item_completed", "item": item | {"changes": payload["changes"]}}
    return line | {"payload": payload}
