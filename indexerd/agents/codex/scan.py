"""Scan: every line of a Codex file once, keeping only where things are.

Nothing a file holds raises: a line that is no JSON object is counted and passed over. Rows are
messages, calls and their outputs, settings, compactions and records of changed or shown files
(formats.md §3, formats-observed.md). Of what is stored twice, one is passed over, and so is what
tells nothing of the conversation; the newest sum of tokens is noted, and how full the context is.

**What a human said, once.** Codex stores it as an item that the model sees, and as an event. In a
file without such events the items count, less those that only give context. In a file that has
them an item counts if an event confirms it, whichever comes first; an event without an item counts
itself. Some files have events of a few turns alone: of a turn in which no event tells of a message,
an item counts once it is answered. A file shows by its first event that it has them: the items of
that turn are doubted. What is asked in a sub-agent's or a review's thread was asked by a program;
the first of it names the thread, unless it was copied from the parent's.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Raw

from indexerd.agents.base import Oversize, Tree
from indexerd.agents.codex import turns
from indexerd.agents.codex.human import (
    is_tagged,
    likeness,
    preview,
    said_by_event,
    said_in,
    summary_of,
)
from indexerd.agents.codex.lines import Item, Line, decode, item_of, meta_of, texts_of
from indexerd.agents.codex.rows import Rows
from indexerd.agents.codex.tools import changed, failed, shown
from indexerd.agents.lines import blocks, from_ends, safe_line, scan_lines, string, value
from indexerd.events import Kind, Turn, code

_UNANSWERED = frozenset({"web_search_call", "image_generation_call"})  # calls without an output
_OTHER, _SYSTEM, _INTER_AGENT = code(Kind.OTHER), code(Kind.SYSTEM), code(Kind.CUSTOM)
_CALL, _COMPACTION = code(Kind.CALL), code(Kind.COMPACTION)
_TOOL, _TOOL_FAILED = code(Kind.TOOL), code(Kind.TOOL, turn=Turn.FAILED)
_ANSWER = code(Kind.ASSISTANT, message=True)
_LAST_ANSWER = code(Kind.ASSISTANT, turn=Turn.ENDED, message=True)
_HUMAN, _PROGRAM = code(Kind.USER, message=True), code(Kind.CUSTOM, message=True)


def scan(tree: Tree, data: bytes, base: int) -> None:
    """Take in whole lines that stand at file offset `base`."""
    rows = Rows(tree)
    for line, offset, text in scan_lines(tree, data, base, decode):
        _take(rows, line, offset, len(text), text)
    rows.done()


def scan_oversize(tree: Tree, ends: Oversize) -> None:
    """Take in a line too long to hold; it has no length where nobody may read it (F8).

    What makes a line long stands behind what tells what it is: images behind a prompt, an output
    behind its call's id, instructions behind the session's. So its beginning tells all.
    """
    rows = Rows(tree)
    line, offset, text = from_ends(tree, ends, decode)
    if line is None:
        tree.bad_lines += 1
    else:
        _take(rows, line, offset, ends.readable, text)
    rows.done()


def _take(rows: Rows, line: Line, offset: int, length: int, text: bytes) -> None:
    """Take in one line. Each handler below says whether it made a row of it."""
    tree, kind, item = rows.tree, line.type, line.payload
    rows.line, rows.place = line, (offset, length)
    named = kind == "session_meta" or (kind is None and tree.header is None)
    meta = meta_of(line, text) if named else None
    if meta is not None:
        rows.meta(meta)
    else:
        if rows.memory.copies:
            rows.comes()
        take = _LINES.get(kind or "") if item else _item
        if tree.header is None and not rows.known():
            take = None
        if take is None or not take(rows, item or item_of(Raw(text))):
            tree.seen += 1
    if rows.memory.copies:
        rows.disown()


# -- items -----------------------------------------------------------------------------------


def _item(rows: Rows, item: Item) -> bool:
    kind = item.type or ""
    if kind == "message" or (not kind and item.role is not None):
        if item.role == "user":
            return _user_item(rows, item)
        if item.role == "assistant":
            _answer(rows, item)
        else:
            rows.add(_SYSTEM, item.id)
    elif kind.endswith("_call"):
        _call(rows, item)
    elif kind.endswith(("_output", "_result")):
        memory = rows.memory
        memory.pending = max(0, memory.pending - 1)
        late = memory.tasks and not memory.open  # then it opens no turn again
        rows.add(_CALL if late else _TOOL_FAILED if failed(item.output) else _TOOL, item.id)
    elif kind == "agent_message":  # another agent said it
        rows.add(_INTER_AGENT, item.id)
    elif kind == "reasoning" and bytes(item.summary).strip() not in (b"", b"[]", b"null"):
        rows.add(_OTHER, item.id)  # what the model let be seen of its thoughts
    else:
        return False
    return True


def _answer(rows: Rows, item: Item) -> None:
    memory = rows.memory
    if b"compaction_output" in bytes(rows.line.metadata):
        rows.add(_OTHER, item.id)  # the summary, which the compaction tells as well
        return
    said_by_events = memory.tasks and memory.open
    ends = not said_by_events and not memory.pending and item.phase != "commentary"
    _answered(rows)
    row = rows.add(_LAST_ANSWER if ends else _ANSWER, item.id)
    if ends and not memory.tasks:
        memory.since, memory.told = row + 1, False
    memory.said = (row, likeness("".join(texts_of(blocks(item.content)))))
    rows.active()


def _call(rows: Rows, item: Item) -> None:
    memory = rows.memory
    _answered(rows)
    memory.pending += item.type not in _UNANSWERED
    if not memory.tasks and memory.said is not None:
        turns.answered(rows, memory.said[0], Turn.OPEN)
    rows.add(_CALL, item.id)


# -- what a human said -----------------------------------------------------------------------


def _user_item(rows: Rows, item: Item) -> bool:
    """A message under the user's role; False for one that is known from its event."""
    memory, said = rows.memory, said_in(blocks(item.content))
    if not said.human and not (said.text and memory.first is None):
        rows.add(_OTHER, item.id)
        rows.in_directory(said.cwd)
        memory.aborted |= said.aborted
        return True
    like = likeness(said.text)
    if memory.event == like:
        memory.event = None
        return False
    # After an interruption codex itself asks the first question again.
    again = memory.aborted and memory.first == like
    doubted = memory.events or again
    row = rows.add(_OTHER if doubted else _asks(rows), item.id)
    memory.asked, memory.aborted = (row, like), False
    if not doubted:
        _counts(rows, row, like, said.text)
    elif not (again or memory.told or is_tagged(said.text)):
        memory.doubted = (row, like, preview(said.text))
    return True


def _answered(rows: Rows) -> None:
    """The model answers: it was asked, even where no event tells of it."""
    if rows.memory.doubted is not None:
        (row, like, words), rows.memory.doubted = rows.memory.doubted, None
        rows.tree.recode(row, _asks(rows))
        _counts(rows, row, like, words)


def _user_event(rows: Rows, event: Item, turn_id: str | None = None) -> bool:
    """An event of what a human said; False where its item is there already."""
    said = said_by_event(event)
    if not said.text:
        return False
    turns.under_way(rows, turn_id)
    memory, like = rows.memory, likeness(said.text)
    memory.told, memory.doubted = True, None
    if not memory.events:
        _doubt_items(rows)
    if memory.asked is not None and memory.asked[1] == like:
        row, memory.asked = memory.asked[0], None
        rows.tree.recode(row, _asks(rows))
        _counts(rows, row, like, said.text)
        return False
    memory.event = like
    _counts(rows, rows.add(_asks(rows), event.id), like, said.text)
    return True


def _asks(rows: Rows) -> int:
    header = rows.tree.header
    return _PROGRAM if header is not None and header.subagent else _HUMAN


def _doubt_items(rows: Rows) -> None:
    tree, memory, asks = rows.tree, rows.memory, _asks(rows)
    memory.events = True
    for row in range(memory.since, len(tree)):
        if tree.codes[row] == asks:
            tree.recode(row, _OTHER)
    if asks not in tree.codes[memory.start : memory.since]:
        memory.first = None
    if asks not in tree.codes[: memory.since]:
        tree.first_user = ""


def _counts(rows: Rows, row: int, like: int, text: str) -> None:
    """A row counts as what a human said."""
    tree, memory = rows.tree, rows.memory
    memory.pending, memory.said = 0, None
    if memory.first is None:
        memory.first = like
    if not tree.first_user:
        tree.first_user = preview(text)
    if not memory.turn and tree.marks:
        tree.marks[tree.ids[row]] = row  # what follows is of no turn, and not of the last one
    rows.active()


# -- other lines -----------------------------------------------------------------------------


def _compacted(rows: Rows, payload: Item) -> bool:
    memory, summary = rows.memory, summary_of(string(value(payload.message)))
    if summary and memory.said is not None and memory.said[1] == likeness(summary):
        rows.tree.recode(memory.said[0], _OTHER)  # the summary was an answer, too
        memory.said = None
    rows.add(_COMPACTION)
    return True


def _inter_agent(rows: Rows, _payload: Item) -> bool:
    rows.add(_INTER_AGENT)
    return True


def _event(rows: Rows, event: Item) -> bool:
    take = _EVENTS.get(event.type or "")
    return take is not None and take(rows, event)


def _completed(rows: Rows, event: Item) -> bool:
    """An item in the newest dialect; most of them double a response item."""
    item = item_of(event.item)
    kind = (item.type or "").lower()
    if kind == "usermessage":
        return _user_event(rows, item, event.turn_id)
    if kind == "filechange" and changed(item) is not None:
        rows.add(_CALL, item.id)
        return True
    return kind == "commandexecution" and _executed(rows, item)


def _executed(rows: Rows, item: Item) -> bool:
    """A finished command: its call and output are rows; this one is if it tells what was read."""
    if not shown(item):
        return False
    rows.add(_CALL, item.id)
    return True


def _patched(rows: Rows, _event: Item) -> bool:
    rows.add(_CALL)
    return True


def _renamed(rows: Rows, event: Item) -> bool:
    if (event.thread_id or "") in ("", rows.memory.thread):
        rows.tree.name = safe_line(event.thread_name or "") or None
    return False


def _counted(rows: Rows, event: Item) -> bool:
    info = event.info
    if info is not None:
        total, last = info.total_token_usage, info.last_token_usage
        rows.context(used=last.total_tokens if last else None, window=info.model_context_window)
        if total is not None:
            rows.spent(total, last)
    return False


_Take = Callable[[Rows, Item], bool]
_LINES: dict[str, _Take] = {
    "response_item": _item,
    "request_item": _item,
    "event_msg": _event,
    "turn_context": turns.context,
    "compacted": _compacted,
    "inter_agent_communication": _inter_agent,
}
_EVENTS: dict[str, _Take] = {
    "user_message": _user_event,
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
