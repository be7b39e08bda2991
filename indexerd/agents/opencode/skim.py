"""Skim: the lines that `io` makes of an opencode session, keeping only where things are.

The first line says what the session is; each further one is a message, in brief form, in the
order in which they were said. The history is linear: each message stands below the one before.
A revert hides messages from one on (they stay until the next prompt): the leaf moves before it.
Nothing a line holds raises: one that is no JSON object is counted and passed over.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any

import msgspec

from indexerd.agents.lines import parse, safe_line, string
from indexerd.agents.opencode.kinds import (
    ANSWERS,
    PROMPT,
    PROMPTED,
    SUMMARY,
    Said,
    is_shell_note,
    overflowed,
    parts_of,
    prompt_words,
    said,
)
from indexerd.events import Header, Kind, Turn
from indexerd.privacy.sanitize import scrub
from indexerd.sessions.state import SessionState
from indexerd.sources.lines import Oversize
from indexerd.times import iso_of_ms

PATH_MAX = 8192
KEY = "opencode"

_MS_MAX = 253_402_300_800_000  # the year 10000
_DEFAULT = re.compile(r"(?:New|Child) session - \d{4}-\d\d-\d\dT[\d:.]{5,20}Z(?: \(fork #\d+\))?")
_FORK = re.compile(r"(.+) \(fork #(\d{1,6})\)", re.DOTALL)
_SETTLES = frozenset({Kind.ASSISTANT, Kind.COMPACTION, Kind.BASH})


class Memory(msgspec.Struct):
    """What must be known of earlier lines; it lives in `SessionState.notes`."""

    child: bool = False  # a sub-agent's session
    last: str | None = None  # id of the message before
    shell: str = ""  # id of the newest note that the user ran a command
    prompt: str = ""  # digest of the newest prompt
    overflow: bool = False  # the newest compaction was asked for because a prompt did not fit
    copy: bool = False  # the next message may be that prompt's copy
    answer: int = -1  # row of the newest answer since the newest prompt
    unsettled: int = -1  # row from which on texts may still change
    revert: str = ""  # id of the message from which on the history is hidden
    within: bool = False  # the revert begins inside that message, which stays
    hidden: bool = False  # that message was met
    leaf: str | None = None  # then: the newest message that is not hidden


def skim(state: SessionState, data: bytes, base: int) -> None:
    """Take in whole lines that stand at offset `base`."""
    memory = msgspec.convert(state.notes.setdefault(KEY, {}), Memory)
    find, start, end = data.find, 0, len(data)
    while start < end:
        stop = find(b"\n", start)
        stop = end if stop < 0 else stop
        _line(state, memory, data[start:stop], base + start)
        start = stop + 1
    state.unsettled = len(state) - memory.unsettled if memory.unsettled >= 0 else 0
    state.notes[KEY] = msgspec.to_builtins(memory)


def skim_oversize(state: SessionState, line: Oversize) -> None:
    """Lines are made by us and never that long; if one were, it would be passed over."""
    state.oversized += 1
    state.skip()
    state.foreign = state.foreign or (state.header is None and line.offset == 0)


def _line(state: SessionState, memory: Memory, line: bytes, offset: int) -> None:
    if not line or line.isspace():
        return
    try:
        held = parse(line)
    except ValueError:
        held = None
    if not isinstance(held, dict):
        state.bad_lines += 1
    elif state.header is None:
        _header(state, memory, held)
    elif held.get("type") == "message":
        _message(state, memory, held, offset, len(line))
    elif held.get("type") != "session":
        state.skip()


def _header(state: SessionState, memory: Memory, held: dict[str, Any]) -> None:
    """The first line: what the session is, or this is none (S1.3)."""
    session_id = string(held.get("id"))
    if state.foreign or held.get("type") != "session" or not session_id:
        state.foreign = True
        return
    time = _object(held.get("time"))
    parent, fork = string(held.get("parentID")), string(held.get("forkID"))
    revert = _object(held.get("revert"))
    state.born_ms = _ms(time.get("created"))
    state.archived = _ms(time.get("archived")) > 0
    state.header = Header(
        session_id=scrub(session_id[:PATH_MAX]),
        cwd=scrub(string(held.get("directory"))[:PATH_MAX]),
        created_at=iso_of_ms(state.born_ms) if state.born_ms else "",
        version=2 if held.get("schema") == 2 else 1,  # noqa: PLR2004 - the schema's number
        parent_id=scrub((parent or fork)[:PATH_MAX]) or None,
        subagent=bool(parent),
    )
    _title(state, string(held.get("title"))[:PATH_MAX])
    memory.child = bool(parent)
    memory.revert = string(revert.get("messageID"))
    memory.within = bool(string(revert.get("partID")))


def _title(state: SessionState, title: str) -> None:
    """A session's name, unless it is the one that every session begins with.

    A fork's is that of the session it came from, with a number that is one more than there.
    """
    forked = _FORK.fullmatch(title)
    if forked:
        before = int(forked[2]) - 1
        state.notes["fork_of"] = safe_line(forked[1] + (f" (fork #{before})" if before > 0 else ""))
    if not _DEFAULT.fullmatch(title):
        state.name = safe_line(title) or None


def _message(
    state: SessionState, memory: Memory, held: dict[str, Any], offset: int, length: int
) -> None:
    entry_id = scrub(string(held.get("id")))
    shell = bool(memory.shell) and held.get("parentID") == memory.shell
    what = said(held, child=memory.child, shell=shell)
    if held.get("role") == "user":
        what = _copied(memory, held, what)
    else:
        memory.copy = what.code == SUMMARY and memory.overflow
    above = _key(memory.last)
    row = state.add(entry_id.encode("utf-8", "replace"), above, what.code, offset, length)
    _noticed(state, memory, held, what, row)
    if memory.revert and not memory.hidden and entry_id == memory.revert:
        memory.hidden = True
        memory.leaf = entry_id if memory.within else memory.last
    if memory.hidden:
        state.move_leaf(_key(memory.leaf))
    memory.last = entry_id


def _key(entry_id: str | None) -> bytes | None:
    return None if entry_id is None else entry_id.encode("utf-8", "replace")


def _copied(memory: Memory, held: dict[str, Any], what: Said) -> Said:
    """A prompt that did not fit is stored once more after the compaction: it counts once."""
    parts = parts_of(held)
    if what.kind is Kind.CUSTOM and is_shell_note(parts):
        memory.shell = string(held.get("id"))
    if what.kind is Kind.OTHER:
        memory.overflow = overflowed(parts)
    if what.code == PROMPT:
        digest = _digest("\n".join(prompt_words(parts)))
        if memory.copy and digest == memory.prompt:
            what = Said(PROMPTED)
        memory.prompt = digest
    memory.copy = False
    return what


def _noticed(
    state: SessionState, memory: Memory, held: dict[str, Any], what: Said, row: int
) -> None:
    """What else a message says."""
    kind = what.kind
    if kind is Kind.USER or kind is Kind.ASSISTANT:
        time = _object(held.get("time"))
        said_at = max(_ms(held.get("at")), _ms(time.get("created")), _ms(time.get("completed")))
        state.activity_ms = max(state.activity_ms, said_at)
        memory.answer = row if kind is Kind.ASSISTANT else -1
        if kind is Kind.USER and not state.first_user:
            state.first_user = safe_line(what.text)
        if kind is Kind.USER and "first" not in state.notes:
            # A fork copies its messages under new ids, but with their times.
            asked_at = _ms(time.get("created")) or _ms(held.get("at"))
            state.notes["first"] = _digest(f"{asked_at}\n{what.text}")
    if not what.settled:
        memory.unsettled = row if memory.unsettled < 0 else memory.unsettled
    elif kind in _SETTLES:
        memory.unsettled = -1
    if held.get("role") == "idle":
        _idle(state, memory, held.get("outcome") == "succeeded")


def _idle(state: SessionState, memory: Memory, succeeded: bool) -> None:
    """The agent says that it stopped: whatever its last answer looks like, it is the last."""
    memory.unsettled = -1
    if memory.answer >= 0 and state.codes[memory.answer] == ANSWERS[Turn.OPEN]:
        state.recode(memory.answer, ANSWERS[Turn.ENDED if succeeded else Turn.FAILED])


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _ms(value: Any) -> int:
    """A time in ms since the epoch; 0 for anything else."""
    fine = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MS_MAX
    return int(value) if fine else 0
