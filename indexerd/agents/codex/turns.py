"""Turns on a session's path: where one begins, how it ends, how the newest are taken back.

A turn is known by its id, and its rows are marked with it: whatever codex does to its files, the
turn's id stays (S3.6). How a turn ended is said by its last answer, so its end needs no row of
its own. Only where it ended without a word after its last question or tool, the line of its end
gets one, as an answer that is empty and counts as none.

Where a file does not say where turns end, an answer ends one if no call waits for its output.
"""

from __future__ import annotations

from indexerd.agents.codex.lines import Item, name_of
from indexerd.agents.codex.rows import Rows
from indexerd.agents.lines import value
from indexerd.events import MESSAGE, Kind, Turn, code

_TALKS = frozenset({Kind.USER, Kind.ASSISTANT, Kind.TOOL})
_ASKS = frozenset({Kind.USER, Kind.CUSTOM})  # a human, or another agent
_LEADS = frozenset({Kind.SETTING, Kind.SYSTEM, Kind.OTHER})  # what a turn begins with
_SETTING = code(Kind.SETTING)


def started(rows: Rows, event: Item) -> bool:
    """A turn begins."""
    name = name_of(event.turn_id)
    if not name or name != rows.memory.turn:
        _begin(rows, name)
    rows.memory.tasks = True
    rows.context(window=event.model_context_window)
    rows.add(_SETTING)
    return True


def context(rows: Rows, payload: Item) -> bool:
    """What holds in a turn: its model, its directory."""
    under_way(rows, payload.turn_id)
    rows.in_directory(payload.cwd or "")
    rows.add(_SETTING)
    return True


def under_way(rows: Rows, turn_id: str | None) -> None:
    """A line names its turn: it is under way, unless it ended already."""
    name = name_of(turn_id)
    if name and name not in (rows.memory.turn, rows.memory.ended):
        _begin(rows, name)


def _begin(rows: Rows, name: str) -> None:
    memory = rows.memory
    rows.turn_begins(name)
    memory.turn, memory.open, memory.failed = name, True, False
    memory.began = memory.since = len(rows.tree)
    memory.said, memory.told, memory.doubted = None, False, None


def completed(rows: Rows, event: Item) -> bool:
    """A turn ends; with an error, if one was reported."""
    wrong = rows.memory.failed or value(event.error) is not None
    return _end(rows, event, Turn.FAILED if wrong else Turn.ENDED)


def aborted(rows: Rows, event: Item) -> bool:
    """A turn is broken off."""
    return _end(rows, event, Turn.FAILED)


def erred(rows: Rows, _event: Item) -> bool:
    """An error ends the work; the turn's own end may still come."""
    rows.memory.failed = True
    return _say_end(rows, Turn.FAILED)


def _end(rows: Rows, event: Item, turn: Turn) -> bool:
    memory, name = rows.memory, name_of(event.turn_id)
    if name and (name == memory.ended or (memory.turn and name != memory.turn)):
        return False
    memory.turn = memory.turn or name
    added = _say_end(rows, turn)
    ended, leaf = memory.turn, rows.tree.leaf
    if ended and leaf >= memory.began:
        rows.tree.marks[ended] = leaf
    _begin(rows, "")
    memory.open, memory.ended, memory.pending = False, ended, 0
    return added


def _say_end(rows: Rows, turn: Turn) -> bool:
    """Let the last answer say how the turn ended; whether the line got a row for it."""
    tree = rows.tree
    last = _last(rows)
    if last is None:
        return False
    if tree.kind(last) is Kind.ASSISTANT:
        answered(rows, last, turn)
        return False
    rows.add(code(Kind.ASSISTANT, turn=turn))
    return True


def answered(rows: Rows, row: int, turn: Turn) -> None:
    """Say how the turn stands after an answer."""
    tree = rows.tree
    tree.recode(row, code(Kind.ASSISTANT, turn=turn) | (tree.codes[row] & MESSAGE))


def _last(rows: Rows) -> int | None:
    """What was said last in the turn under way."""
    tree = rows.tree
    for row in tree.up(tree.leaf):
        if row < rows.memory.began:
            return None
        if tree.kind(row) in _TALKS:
            return row
    return None


def rolled_back(rows: Rows, event: Item) -> bool:
    """The newest turns are taken back: the leaf moves to before them, at most to the start."""
    tree, count = rows.tree, event.num_turns
    target = None
    for row in tree.up(tree.leaf) if count is not None and count > 0 else ():
        if tree.kind(row) in _ASKS:
            target, count = row, (count or 0) - 1
            if count <= 0:
                break
    if target is None:
        return False
    ends = set(tree.marks.values())
    above = tree.parent(target)
    while above >= 0 and tree.kind(above) in _LEADS and above not in ends:
        above = tree.parent(above)
    tree.move_leaf(tree.ids[above] if above >= 0 else None)
    _begin(rows, "")
    rows.memory.open, rows.memory.pending = False, 0
    rows.memory.asked = rows.memory.event = None
    return False
