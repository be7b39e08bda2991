"""Stand-ins that write session files line by line, as Claude Code and Codex do."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from tests.e2e.world import append, iso


class ClaudeSession:
    def __init__(
        self,
        home: Path,
        cwd: str = "/w",
        folder: Path | None = None,
        session_id: str = "",
        **common: Any,
    ) -> None:
        self.id = session_id or str(uuid.uuid4())
        self.common = common  # of every line
        self.turns = 0
        self.cwd = cwd
        folder = folder or home / ".claude/projects/-w"
        self.path = folder / f"{self.id}.jsonl"
        self.last: str | None = None

    def line(self, kind: str, **fields: Any) -> str:
        line_id = str(uuid.uuid4())
        common = {"parentUuid": self.last, "isSidechain": False, "type": kind, "uuid": line_id}
        common |= {"timestamp": iso(), "cwd": self.cwd, "sessionId": self.id, "version": "2.1.330"}
        common |= {"userType": "external", "gitBranch": "main"}
        append(self.path, common | self.common | fields)
        self.last = line_id
        return line_id

    def prompt(self, content: Any, **fields: Any) -> str:
        return self.line("user", message={"role": "user", "content": content}, **fields)

    def turn(self, text: str = "") -> str:
        text = text or f"Please adjust widget {uuid.uuid4()}."
        self.turns += 1
        self.prompt(text)
        return self.say(f"Done: {text}")

    def say(self, text: str = "Done.") -> str:
        return self.answer([{"type": "text", "text": text}])

    def answer(self, content: Any, stop: str = "end_turn", **message: Any) -> str:
        known = {"id": f"msg_{uuid.uuid4().hex}", "role": "assistant", "model": "claude-x"}
        known |= {"content": content, "stop_reason": stop}
        usage = {"input_tokens": 10, "output_tokens": 5}
        return self.line("assistant", message=known | {"usage": usage} | message)

    def edit(self, path: str) -> None:
        self.prompt(f"Edit {path}.")
        self.tool("Edit", file_path=path)
        self.say("Edited.")

    def tool(self, name: str, output: str = "ok", **arguments: Any) -> None:
        self.result(self.call(name, **arguments), output)

    def call(self, name: str, /, said: str = "", **arguments: Any) -> str:
        call_id = f"toolu_{self.last}"
        call = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        self.answer([*([{"type": "text", "text": said}] if said else []), call], stop="tool_use")
        return call_id

    def result(self, call_id: str, output: str = "ok", **fields: Any) -> str:
        result = {"type": "tool_result", "tool_use_id": call_id, "content": output}
        return self.prompt([result], **{"toolUseResult": {"stdout": output, "stderr": ""}} | fields)

    def helper(self, name: str) -> ClaudeSession:
        """Begin a sub-agent of this session."""
        own = {"sessionId": self.id, "isSidechain": True}
        return ClaudeSession(Path(), self.cwd, self.path.with_suffix("") / "subagents", name, **own)

    def title(self, text: str) -> None:
        line = {"type": "custom-title", "customTitle": text, "sessionId": self.id}
        append(self.path, line)

    def fork(self) -> ClaudeSession:
        other = ClaudeSession(Path(), self.cwd, self.path.parent)
        now = iso()
        while iso() == now:  # what was copied is older
            pass
        started = {"type": "queue-operation", "operation": "enqueue", "timestamp": iso()}
        append(other.path, started | {"sessionId": other.id})
        for text in self.path.read_text().splitlines():
            line = json.loads(text)
            if "uuid" in line:
                append(other.path, line | {"sessionId": other.id})
        other.last = self.last
        return other


class CodexThread:
    def __init__(self, home: Path, name: str = "", **meta: Any) -> None:
        self.home = home / ".codex"
        self.ordinal = int(meta.pop("ordinal", 0))
        self.id = thread = str(meta.pop("thread", uuid.uuid4()))
        self.turns = 0
        stem = f"rollout-{iso()[:19].replace(':', '-')}-{thread}{name}"
        self.path = self.home / "sessions/2026/11/22" / f"{stem}.jsonl"
        header = {"id": thread, "session_id": thread, "timestamp": iso(), "cwd": "/w"}
        header |= {"source": "cli", "cli_version": "0.169.0", "history_mode": "paginated"}
        self.write("session_meta", header | {"git": {"branch": "trunk"}} | meta)

    def write(self, kind: str, payload: dict[str, Any]) -> None:
        line = {"timestamp": iso(), "ordinal": self.ordinal, "type": kind, "payload": payload}
        append(self.path, line)
        self.ordinal += 1

    def event(self, kind: str, **fields: Any) -> None:
        self.write("event_msg", {"type": kind, **fields})

    def item(self, role: str, *texts: str, **more: Any) -> None:
        kind = "output_text" if role == "assistant" else "input_text"
        content = [{"type": kind, "text": text} for text in texts]
        message = {"type": "message", "role": role, "content": content}
        self.write("response_item", message | more)

    def turn(self, text: str = "Please adjust a widget.", *edits: str, answer: str = "") -> str:
        turn = str(uuid.uuid4())
        self.turns += 1
        self.event("task_started", turn_id=turn)
        self.write("turn_context", {"turn_id": turn, "cwd": "/w", "model": "gpt-x"})
        known = {"thread_id": self.id, "turn_id": turn}
        asked = {"type": "UserMessage", "id": f"u{turn}"}
        asked["content"] = [{"type": "text", "text": text}]
        self.event("item_completed", item=asked, **known)
        for path in edits:
            change = {path: {"type": "update", "unified_diff": "", "move_path": None}}
            item = {"type": "FileChange", "id": path, "changes": change, "status": "completed"}
            self.event("item_completed", item=item, **known)
        self.item("assistant", answer or f"Done: {text}", id=f"m{turn}")
        self.event("task_complete", turn_id=turn, last_agent_message="Done")
        return turn

    def roll_back(self, turns: int) -> None:
        self.event("thread_rolled_back", num_turns=turns)

    def fork(self) -> CodexThread:
        end = {"end_ordinal_exclusive": self.ordinal, "end_byte_offset": self.path.stat().st_size}
        base = {"thread_id": self.id, **end}
        begun = {"ordinal": self.ordinal, "history_base": base, "forked_from_id": self.id}
        return CodexThread(self.home.parent, **begun)

    def revert(self, end: int, ordinal: int) -> CodexThread:
        base = {"thread_id": self.id, "end_ordinal_exclusive": ordinal, "end_byte_offset": end}
        again = {"thread": self.id, "ordinal": ordinal, "history_base": base}
        return CodexThread(self.home.parent, f"_{uuid.uuid4()}", **again)

    def archive(self) -> None:
        there = self.home / "archived_sessions" / self.path.name
        there.parent.mkdir(exist_ok=True)
        self.path = self.path.rename(there)

    def rename(self, name: str) -> None:
        line = {"id": self.id, "thread_name": name, "updated_at": iso()}
        append(self.home / "session_index.jsonl", line)
