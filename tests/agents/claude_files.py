"""Lines of Claude Code as the client writes them, and a scan of them."""

import itertools
import json
from typing import Any

from indexerd.entries import Entry, Kind
from indexerd.sessions.state import SessionState
from tests.agents.feeding import fed, on_path

FILE = "/home/u/.claude/projects/-w/s1.jsonl"
MISSING = "(the key is not written)"


def state_of(data: bytes, *, file: str = FILE) -> SessionState:
    return fed("claude", data, file)


def entries(data: bytes, *kinds: Kind) -> list[Entry]:
    return on_path("claude", data, FILE, *kinds)


def prompts(data: bytes) -> list[str]:
    return [entry.text for entry in entries(data, Kind.USER)]


def answers(data: bytes) -> list[str]:
    return [entry.text for entry in entries(data, Kind.ASSISTANT) if entry.text]


_clock = itertools.count()


def line(kind: str, uuid: str | None, parent: str | None, **more: Any) -> bytes:
    at = next(_clock)
    fields: dict[str, Any] = {} if parent == MISSING else {"parentUuid": parent}
    fields |= {
        "isSidechain": False,
        "type": kind,
        "timestamp": f"2026-01-01T{at // 3600 % 24:02d}:{at // 60 % 60:02d}:{at % 60:02d}.000Z",
        "cwd": "/w",
        "sessionId": "s1",
        "version": "2.1.330",
        "gitBranch": "main",
    }
    if uuid is not None:
        fields["uuid"] = uuid
    return bare(**(fields | more))


def bare(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def user(uuid: str, parent: str | None, content: Any, **more: Any) -> bytes:
    return line("user", uuid, parent, message={"role": "user", "content": content}, **more)


def result(uuid: str, parent: str | None, call: str, *, error: bool = False) -> bytes:
    block = {"type": "tool_result", "tool_use_id": call, "content": "r", "is_error": error}
    return user(uuid, parent, [block], toolUseResult={"stdout": "r"})


def answer(
    uuid: str,
    parent: str | None,
    said: Any = "ok",
    *,
    stop: str | None = "end_turn",
    message: str = "",
    **more: Any,
) -> bytes:
    content = [{"type": "text", "text": said}] if isinstance(said, str) else said
    held = {
        "id": message or f"msg_{uuid}",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": content,
        "stop_reason": stop,
        "usage": {"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 7},
    }
    return line("assistant", uuid, parent, message=held, **more)


def call(
    uuid: str,
    parent: str | None,
    tool: str,
    *,
    message: str = "",
    name: str = "Bash",
    **arguments: Any,
) -> bytes:
    block = {"type": "tool_use", "id": tool, "name": name, "input": arguments}
    return answer(uuid, parent, [block], stop="tool_use", message=message)


def attachment(uuid: str | None, parent: str | None, kind: str, **held: Any) -> bytes:
    return line("attachment", uuid, parent, attachment={"type": kind, **held})


def queued(uuid: str | None, parent: str | None, prompt: Any, **held: Any) -> bytes:
    return attachment(uuid, parent, "queued_command", prompt=prompt, **held)


def boundary(uuid: str, logical: str | None, **metadata: Any) -> bytes:
    meta = {"trigger": "auto", "preTokens": 9, **metadata}
    return line(
        "system",
        uuid,
        None,
        subtype="compact_boundary",
        logicalParentUuid=logical,
        compactMetadata=meta,
        content="Conversation compacted",
    )


def summary(uuid: str, parent: str | None, text: str = "It was about X.") -> bytes:
    said = f"This session is being continued from a previous conversation. {text}"
    return user(uuid, parent, said, isCompactSummary=True, isVisibleInTranscriptOnly=True)
