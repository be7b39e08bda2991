"""Messages, steps and session states for the tests of compaction."""

from typing import Any

from indexerd.entries import Entry, Kind, ToolCall, ToolResult, code
from indexerd.sessions.context import CLEARED, ContextEntry, ContextMessage
from indexerd.sessions.state import SessionState

_KINDS = {"user": Kind.USER, "assistant": Kind.ASSISTANT, "toolResult": Kind.TOOL}


def entry(kind: Kind, name: str = "e", **more: Any) -> Entry:
    return Entry(id=name, kind=kind, type="message", role=None, timestamp="", **more)


def said(role: str, text: str = "", *, name: str = "e", kind: Kind | None = None) -> ContextMessage:
    kind = _KINDS.get(role, Kind.OTHER) if kind is None else kind
    return ContextMessage(role, entry(kind, name), (text,) if text else ())


def calls(*ids: str, tool: str = "bash") -> ContextMessage:
    tool_calls = tuple(ToolCall(tool, id=session_id) for session_id in ids)
    return ContextMessage("assistant", entry(Kind.ASSISTANT), calls=tool_calls)


def gave(call: str, text: str, *, cleared: bool = False, failed: bool = False) -> ContextMessage:
    at = entry(Kind.TOOL, failed=(call,) if failed else ())
    result = ToolResult(call, text=text, cleared=cleared)
    return ContextMessage("toolResult", at, (CLEARED if cleared else text,), result=result)


def steps(*speeches: ContextMessage) -> list[ContextEntry]:
    return [ContextEntry(at, speech.entry, (speech,), at) for at, speech in enumerate(speeches)]


def state_of(rows: int, **facts: Any) -> SessionState:
    state = SessionState("/s.jsonl")
    for row in range(rows):
        above = f"r{row - 1}" if row else None
        state.add(f"r{row}", above, code(Kind.USER), row, 1)
    for name, fact in facts.items():
        setattr(state, name, fact)
    return state
