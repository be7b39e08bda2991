"""Session files for the tests of trees: recorded ones with pi's answers, and small ones."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from indexerd.agents.pi import parse
from indexerd.sessions.context import ReadRow
from indexerd.sessions.state import SessionState
from indexerd.sessions.tree_answers import nodes

SHARED = Path(__file__).parents[3] / "shared/fixtures"
REAL = Path(__file__).parents[1] / "fixtures/real"
PUBLIC = SHARED / "public/pi"
STAMP = "2026-01-01T00:00:00.000Z"


def state_of(data: bytes) -> SessionState:
    state = SessionState("/s.jsonl")
    parse.scan(state, data if data.endswith(b"\n") else data + b"\n", 0)
    return state


def reader(state: SessionState, data: bytes) -> ReadRow:

    def read(row: int) -> Any:
        start = state.offsets[row]
        return parse.read(data[start : start + state.lengths[row]], state.ids[row])

    return read


def all_nodes(state: SessionState, data: bytes) -> list[dict[str, Any]]:
    return list(nodes(state, reader(state, data), state.labels))


def answers() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every file that pi could read, with its answers."""
    folder = SHARED / "real" if (SHARED / "real/pi-oracle").is_dir() else REAL
    for path in sorted((folder / "pi-oracle").glob("*.json")):
        oracle = json.loads(path.read_text())
        if not oracle.get("error") and (folder / oracle["file"]).is_file():
            yield folder / oracle["file"], oracle


def line(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def session(*entries: bytes, version: int = 3) -> bytes:
    head = {"type": "session", "version": version, "id": "s1", "timestamp": STAMP, "cwd": "/w"}
    return line(**head) + b"".join(entries)


def entry(kind: str, entry_id: str, parent: str | None, at: int = 0, /, **more: Any) -> bytes:
    stamp = f"2026-01-01T00:{at // 60:02}:{at % 60:02}.000Z"
    return line(type=kind, id=entry_id, parentId=parent, timestamp=stamp, **more)


def said(entry_id: str, parent: str | None, role: str, text: str = "", **more: Any) -> bytes:
    at = more.pop("at", 0)
    content = [{"type": "text", "text": text}] if text else []
    message = {"role": role, "content": content, **more}
    return entry("message", entry_id, parent, at, message=message)


def call(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    """A block of an answer that calls a tool."""
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}


def result(
    entry_id: str, parent: str | None, call_id: str, name: str, text: str = "", **more: Any
) -> bytes:
    return said(entry_id, parent, "toolResult", text, toolCallId=call_id, toolName=name, **more)


def chain(ids: Iterable[str]) -> Iterator[bytes]:
    above = None
    for session_id in ids:
        yield said(session_id, above, "user", session_id)
        above = session_id
