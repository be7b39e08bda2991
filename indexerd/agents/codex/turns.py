"""Turns on a session's path: where one begins, how it ends, how the newest are taken back.

A turn is known by its id, and its rows are marked with it: whatever codex does to its files, the
turn's id stays (S3.6). How a turn ended is said by its last answer, so its end needs no row of
its own. Only where it ended without a word after its last question or tool, the line of its end
gets one, as an answer that is empty and counts as none.

Where a file does not say where turns end, an answer ends one if no call waits for its output.
"""

from __future__ import annotations

from typing import Any

from indexerd.agents.codex.copies import turn_begins
from indexerd.agents.codex.rows import Taking, name_of
from indexerd.agents.codex.shape import Item, string, value
from indexerd.events import MESSAGE, Kind, Turn, code

_TALKS = frozenset({Kind.USER, Kind.ASSISTANT, Kind.TOOL})
_ASKS = frozenset({Kind.USER, Kind.CUSTOM})  # a human, or another agent
_LEADS = frozenset({Kind.SETTING, Kind.SYSTEM, Kind.OTHER})  # what a turn begins with
_SETTING = code(Kind.SETTING)


def started(taking: Taking, event: Item) -> bool:
    """A turn begins."""
    name = name_of(event.turn_id)
    if not name or name != taking.memory.turn:
        _begin(taking, name)
    taking.memory.tasks = True
    taking.context(window=event.model_context_window)
    taking.add(_SETTING)
    return True


def context(taking: Taking, payload: Item) -> bool:
    """What holds in a turn: its model, its directory."""
    under_way(taking, payload.turn_id)
    taking.in_directory(string(payload.cwd))
    taking.add(_SETTING)
    return True


def under_way(taking: Taking, turn_id: Any) -> None:
    """A line names its turn: it is under way, unless it ended already."""
    name = name_of(turn_id)
    if name and name not in (taking.memory.turn, taking.memory.ended):
        _begin(taking, name)


def _begin(taking: Taking, name: str) -> None:
    memory = taking.memory
    turn_begins(taking.state, memory, name)
    memory.turn, memory.open, memory.failed = name, True, False
    memory.began = memory.since = len(taking.state)
    memory.said, memory.heard, memory.unheard = None, False, None


def completed(taking: Taking, event: Item) -> bool:
    """A turn ends; with an error, if one was reported."""
    wrong = taking.memory.failed or value(event.error) is not None
    return _end(taking, event, Turn.FAILED if wrong else Turn.ENDED)


def aborted(taking: Taking, event: Item) -> bool:
    """A turn is broken off."""
    return _end(taking, event, Turn.FAILED)


def erred(taking: Taking, _event: Item) -> bool:
    """An error ends the work; the turn's own end may still come."""
    taking.memory.failed = True
    return _say_end(taking, Turn.FAILED)


def _end(taking: Taking, event: Item, turn: Turn) -> bool:
    memory, name = taking.memory, name_of(event.turn_id)
    if name and (name == memory.ended or (memory.turn and name != memory.turn)):
        return False
    memory.turn = memory.turn or name
    added = _say_end(taking, turn)
    ended, leaf = memory.turn, taking.state.leaf
    if ended and leaf >= memory.began:
        taking.state.mark(ended.encode(), leaf)
    _begin(taking, "")
    memory.open, memory.ended, memory.pending = False, ended, 0
    return added


def _say_end(taking: Taking, turn: Turn) -> bool:
    """Let the last answer say how the turn ended; whether the line got a row for it."""
    state = taking.state
    last = _last(taking)
    if last is None:
        return False
    if state.kind(last) is Kind.ASSISTANT:
        answered(taking, last, turn)
        return False
    taking.add(code(Kind.ASSISTANT, turn=turn))
    state.assistants -= 1  # it stands for an answer that never came
    return True


def answered(taking: Taking, row: int, turn: Turn) -> None:
    """Say how the turn stands after an answer."""
    state = taking.state
    state.recode(row, code(Kind.ASSISTANT, turn=turn) | (state.codes[row] & MESSAGE))


def _last(taking: Taking) -> int | None:
    """What was said last in the turn under way."""
    state = taking.state
    for row in state.up(state.leaf):
        if row < taking.memory.began:
            return None
        if state.kind(row) in _TALKS:
            return row
    return None


def rolled_back(taking: Taking, event: Item) -> bool:
    """The newest turns are taken back: the leaf moves to before them, at most to the start."""
    state, count = taking.state, event.num_turns
    target = None
    for row in state.up(state.leaf) if type(count) is int and count > 0 else ():
        if state.kind(row) in _ASKS:
            target, count = row, count - 1
            if count <= 0:
                break
    if target is None:
        return False
    ends = set(state.marks.values())
    above = state.parent(target)
    while above >= 0 and state.kind(above) in _LEADS and above not in ends:
        above = state.parent(above)
    state.move_leaf(state.ids[above] if above >= 0 else None)
    _begin(taking, "")
    taking.memory.open, taking.memory.pending = False, 0
    taking.memory.asked = taking.memory.told = None
    return False
