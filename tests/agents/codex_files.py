"""Lines of Codex as the client writes them, and files read as indexerd reads them."""

import json
from typing import Any

from indexerd.entries import Entry, Kind
from indexerd.sessions.state import SessionState
from tests.agents.feeding import fed, on_path

THREAD = "019c0000-0000-7000-8000-000000000001"
OTHER = "019c0000-0000-7000-8000-000000000002"
FILE = f"/home/u/.codex/sessions/2026/03/01/rollout-2026-03-01T09-00-00-{THREAD}.jsonl"
STAMP = "2026-03-01T09:00:00.000Z"


def line(kind: str | None = None, payload: Any = None, **more: Any) -> bytes:
    held = more if kind is None else {"timestamp": STAMP, "type": kind, "payload": payload} | more
    text = json.dumps(held, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"  # lone surrogates stay escaped


def meta(thread: str = THREAD, **more: Any) -> bytes:
    return line("session_meta", {"id": thread, "timestamp": STAMP, "cwd": "/w"} | more)


def item(kind: str, **fields: Any) -> bytes:
    return line("response_item", {"type": kind} | fields)


def event(kind: str, **fields: Any) -> bytes:
    return line("event_msg", {"type": kind} | fields)


def done(kind: str, **fields: Any) -> bytes:
    return event("item_completed", thread_id=THREAD, turn_id="t", item={"type": kind} | fields)


def user(*texts: str, **more: Any) -> bytes:
    blocks = [{"type": "input_text", "text": text} for text in texts]
    return item("message", role="user", content=blocks, **more)


def said(text: str) -> bytes:
    return event("user_message", message=text, images=[], local_images=[])


def answer(text: str, **more: Any) -> bytes:
    return item(
        "message", role="assistant", content=[{"type": "output_text", "text": text}], **more
    )


def call(call_id: str = "c1", name: str = "exec_command", **arguments: Any) -> bytes:
    return item("function_call", name=name, arguments=json.dumps(arguments), call_id=call_id)


def output(text: Any) -> bytes:
    return item("function_call_output", call_id="c1", output=text)


def turn(name: str, *inside: bytes, end: str = "task_complete") -> bytes:
    around = event("task_started", turn_id=name), line("turn_context", {"turn_id": name})
    return b"".join((*around, *inside, event(end, turn_id=name)))


def talk(name: str, question: str) -> bytes:
    return turn(name, user(question), said(question), answer(f"{question}!"))


def state_of(*lines: bytes) -> SessionState:
    return fed("codex", b"".join(lines), FILE)


def entries(*lines: bytes) -> list[Entry]:
    return on_path("codex", b"".join(lines), FILE)


def texts(*lines: bytes) -> list[str]:
    """Texts of the prompts on the path."""
    return [entry.text for entry in on_path("codex", b"".join(lines), FILE, Kind.USER)]
