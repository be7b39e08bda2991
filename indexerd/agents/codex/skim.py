"""Skim: every byte of a codex file once, keeping only where things are.

Nothing a file holds raises: a line that is no JSON object is counted and passed over. Rows are
messages, calls and their outputs, settings, compactions and records of changed or shown files
(formats.md §3, formats-observed.md). Of what is stored twice, one is passed over, and so is what
tells nothing of the conversation; the newest sum of tokens is noted, and how full the context is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from indexerd.agents.codex import turns
from indexerd.agents.codex.copies import disown, line_comes
from indexerd.agents.codex.effects import changed, failed, shown
from indexerd.agents.codex.human import likeness, summary_of
from indexerd.agents.codex.origin import meta_of
from indexerd.agents.codex.people import answered, user_event, user_item
from indexerd.agents.codex.rows import TOKENS_MAX, Taking
from indexerd.agents.codex.shape import (
    Item,
    Line,
    item_of,
    parse_line,
    raw,
    string,
    texts_of,
    value,
)
from indexerd.agents.lines import past_hole, safe_line
from indexerd.events import Kind, Turn, code
from indexerd.privacy.sanitize import scrub
from indexerd.sessions.state import SessionState

_TOKENS = {"input": "input_tokens", "cached": "cached_input_tokens", "output": "output_tokens"}
_UNANSWERED = frozenset({"web_search_call", "image_generation_call"})  # calls without an output
_NO_SUMMARY = (b"", b"[]", b"null")
_BOM = b"\xef\xbb\xbf"

_OTHER, _SYSTEM, _INTER_AGENT = code(Kind.OTHER), code(Kind.SYSTEM), code(Kind.CUSTOM)
_CALL, _COMPACTION = code(Kind.CALL), code(Kind.COMPACTION)
_TOOL, _TOOL_FAILED = code(Kind.TOOL), code(Kind.TOOL, turn=Turn.FAILED)
_ANSWER = code(Kind.ASSISTANT, message=True)
_LAST_ANSWER = code(Kind.ASSISTANT, turn=Turn.ENDED, message=True)


def skim(state: SessionState, data: bytes, base: int) -> None:
    """Take in whole lines that stand at file offset `base`."""
    taking = Taking(state)
    find, start, end, holed = data.find, 0, len(data), b"\0" in data
    while start < end:
        stop = find(b"\n", start)
        stop = end if stop < 0 else stop
        if holed:
            begin = past_hole(data, start, stop)
            state.bad_lines += begin > start
            start = begin
        take(taking, data[start:stop], base + start, stop - start)
        start = stop + 1
    taking.memory.keep(state)


def take(taking: Taking, line: bytes, offset: int, length: int) -> None:
    """Take in one line. Each handler below says whether it made a row of it."""
    state = taking.state
    try:
        held = parse_line(line)
    except ValueError:
        if offset == 0 and line.startswith(_BOM):
            take(taking, line[len(_BOM) :], offset + len(_BOM), length - len(_BOM))
        elif line.strip():
            state.bad_lines += 1
        return
    if held is None:
        state.bad_lines += 1
        return
    taking.at(held, offset, length)
    _take(taking, held, line)
    disown(state, taking.memory)


def _take(taking: Taking, held: Line, line: bytes) -> None:
    state = taking.state
    if held.type == "session_meta" or (held.type is None and state.header is None):
        meta = meta_of(line)
        if meta is not None:
            taking.meta(meta)
            return
    line_comes(taking.memory, string(held.timestamp))
    if not (taking.known() and _line(taking, held)):
        state.skip()


def _line(taking: Taking, line: Line) -> bool:
    payload, kind = line.payload, line.type
    if payload is None:
        return _item(taking, line)
    if kind in ("response_item", "request_item"):
        return _item(taking, payload)
    take = _LINES.get(kind) if isinstance(kind, str) else None
    return take is not None and take(taking, payload)


# -- items -----------------------------------------------------------------------------------


def _item(taking: Taking, item: Item) -> bool:
    kind = item.type
    if kind == "message" or (kind is None and isinstance(item.role, str)):
        return _message(taking, item)
    if not isinstance(kind, str):
        return False
    if kind.endswith("_call"):
        return _call(taking, item, waits=kind not in _UNANSWERED)
    if kind.endswith(("_output", "_result")):
        return _output(taking, item)
    take = _ITEMS.get(kind)
    return take is not None and take(taking, item)


def _told(taking: Taking, item: Item) -> bool:
    """What another agent said."""
    taking.add(_INTER_AGENT, item.id)
    return True


def _thought(taking: Taking, item: Item) -> bool:
    """What the model thought, if it let anything of it be seen."""
    if raw(item.summary).strip() in _NO_SUMMARY:
        return False
    taking.add(_OTHER, item.id)
    return True


def _message(taking: Taking, item: Item) -> bool:
    if item.role == "user":
        return user_item(taking, item)
    if item.role == "assistant":
        _answer(taking, item)
    else:
        taking.add(_SYSTEM, item.id)
    return True


def _answer(taking: Taking, item: Item) -> None:
    memory = taking.memory
    if b"compaction_output" in raw(taking.line.metadata):
        taking.add(_OTHER, item.id)  # the summary, which the compaction tells as well
        return
    said_by_events = memory.tasks and memory.open
    ends = not said_by_events and not memory.pending and item.phase != "commentary"
    answered(taking)
    row = taking.add(_LAST_ANSWER if ends else _ANSWER, item.id)
    if ends and not memory.tasks:
        memory.since, memory.heard = row + 1, False
    memory.said = (row, likeness("".join(texts_of(value(item.content)))))
    taking.active()


def _call(taking: Taking, item: Item, *, waits: bool) -> bool:
    memory = taking.memory
    answered(taking)
    memory.pending += waits
    if not memory.tasks and memory.said is not None:
        turns.answered(taking, memory.said[0], Turn.OPEN)
    taking.add(_CALL, item.id)
    return True


def _output(taking: Taking, item: Item) -> bool:
    memory = taking.memory
    memory.pending = max(0, memory.pending - 1)
    if memory.tasks and not memory.open:
        taking.add(_CALL, item.id)  # it came late, and opens no turn again
    else:
        taking.add(_TOOL_FAILED if failed(item.output) else _TOOL, item.id)
    return True


# -- other lines -----------------------------------------------------------------------------


def _compacted(taking: Taking, payload: Item) -> bool:
    memory, summary = taking.memory, summary_of(scrub(string(value(payload.message))))
    if summary and memory.said is not None and memory.said[1] == likeness(summary):
        taking.state.recode(memory.said[0], _OTHER)  # the summary was an answer, too
        memory.said = None
    taking.add(_COMPACTION)
    return True


def _inter_agent(taking: Taking, _payload: Item) -> bool:
    taking.add(_INTER_AGENT)
    return True


def _event(taking: Taking, event: Item) -> bool:
    take = _EVENTS.get(event.type) if isinstance(event.type, str) else None
    return take is not None and take(taking, event)


def _completed(taking: Taking, event: Item) -> bool:
    """An item in the newest dialect; most of them double a response item."""
    item = item_of(event.item)
    kind = string(item.type).lower()
    if kind == "usermessage":
        return user_event(taking, item, event.turn_id)
    if kind == "filechange" and changed(item) is not None:
        taking.add(_CALL, item.id)
        return True
    return kind == "commandexecution" and _executed(taking, item)


def _executed(taking: Taking, item: Item) -> bool:
    """A finished command: its call and output are rows; this one is if it tells what was read."""
    if not shown(item):
        return False
    taking.add(_CALL, item.id)
    return True


def _patched(taking: Taking, _event: Item) -> bool:
    taking.add(_CALL)
    return True


def _renamed(taking: Taking, event: Item) -> bool:
    if string(event.thread_id) in ("", taking.memory.thread):
        taking.state.name = safe_line(scrub(string(event.thread_name))) or None
    return False


def _counted(taking: Taking, event: Item) -> bool:
    held = value(event.info)
    info: dict[str, Any] = held if isinstance(held, dict) else {}
    total, last = info.get("total_token_usage"), info.get("last_token_usage")
    used = last.get("total_tokens") if isinstance(last, dict) else None
    taking.context(used=used, window=info.get("model_context_window"))
    if isinstance(total, dict):
        newest = _sums(last) if isinstance(last, dict) else None
        taking.state.notes["tokens"] = taking.memory.spent(_sums(total), newest)
    return False


def _sums(counts: dict[str, Any]) -> dict[str, int]:
    return {name: _number(counts.get(key)) for name, key in _TOKENS.items()}


def _number(count: Any) -> int:
    return count if type(count) is int and 0 <= count < TOKENS_MAX else 0


_Take = Callable[[Taking, Item], bool]
_ITEMS: dict[str, _Take] = {"agent_message": _told, "reasoning": _thought}
_LINES: dict[str, _Take] = {
    "event_msg": _event,
    "turn_context": turns.context,
    "compacted": _compacted,
    "inter_agent_communication": _inter_agent,
}
_EVENTS: dict[str, _Take] = {
    "user_message": user_event,
    "item_completed": _completed,
    "token_count": _counted,
    "task_started": turns.started,
    "turn_started": turns.started,
    "task_complete": turns.completed,
    "turn_complete": turns.completed,
    "turn_aborted": turns.aborted,
    "error": turns.erred,
    "thread_rolled_back": turns.rolled_back,
    "thread_name_updated": _renamed,
    "patch_apply_end": _patched,
    "exec_command_end": _executed,
}
