"""What a human said, once: codex stores it as an item that the model sees, and as an event.

In a file without such events the items count, less those that only give context. In a file that
has them an item counts if an event confirms it, whichever comes first; an event without an item
counts itself. Some files have events of a few turns alone: of a turn in which no event tells of a
message, an item counts once it is answered. A file shows by its first event that it has them: the
items of that turn are doubted. What is asked in a sub-agent's or a review's thread was asked by a
program; the first of it names the thread, unless it was copied from the parent's.
"""

from __future__ import annotations

from typing import Any

from indexerd.agents.codex import turns
from indexerd.agents.codex.human import is_tagged, likeness, preview, said_by_event, said_in
from indexerd.agents.codex.rows import Taking
from indexerd.agents.codex.shape import Item, value
from indexerd.events import Kind, code

_OTHER = code(Kind.OTHER)
_HUMAN, _PROGRAM = code(Kind.USER, message=True), code(Kind.CUSTOM, message=True)


def user_item(taking: Taking, item: Item) -> bool:
    """A message under the user's role; False for one that is known from its event."""
    memory, said = taking.memory, said_in(value(item.content))
    if not said.human and not (said.text and memory.first is None):
        taking.add(_OTHER, item.id)
        taking.in_directory(said.cwd)
        memory.aborted |= said.aborted
        return True
    like = likeness(said.text)
    if memory.told == like:
        memory.told = None
        return False
    # After an interruption codex itself asks the first question again.
    again = memory.aborted and memory.first == like
    doubted = memory.events or again
    row = taking.add(_OTHER if doubted else _asks(taking), item.id)
    memory.asked, memory.aborted = (row, like), False
    if not doubted:
        _heard(taking, row, like, preview(said.text))
    elif not (again or memory.heard or is_tagged(said.text)):
        memory.unheard = (row, like, preview(said.text))
    return True


def answered(taking: Taking) -> None:
    """The model answers: it was asked, even where no event tells of it."""
    memory = taking.memory
    if memory.unheard is not None:
        (row, like, words), memory.unheard = memory.unheard, None
        taking.state.recode(row, _asks(taking))
        _heard(taking, row, like, words)


def user_event(taking: Taking, event: Item, turn_id: Any = None) -> bool:
    """An event of what a human said; False where its item is there already."""
    said = said_by_event(event)
    if not said.text:
        return False
    turns.under_way(taking, turn_id)
    memory, like = taking.memory, likeness(said.text)
    memory.heard, memory.unheard = True, None
    if not memory.events:
        _doubt_items(taking)
    if memory.asked is not None and memory.asked[1] == like:
        row, memory.asked = memory.asked[0], None
        taking.state.recode(row, _asks(taking))
        _heard(taking, row, like, preview(said.text))
        return False
    memory.told = like
    _heard(taking, taking.add(_asks(taking), event.id), like, preview(said.text))
    return True


def _asks(taking: Taking) -> int:
    header = taking.state.header
    return _PROGRAM if header is not None and header.subagent else _HUMAN


def _doubt_items(taking: Taking) -> None:
    state, memory, asks = taking.state, taking.memory, _asks(taking)
    memory.events = True
    for row in range(memory.since, len(state)):
        if state.codes[row] == asks:
            state.recode(row, _OTHER)
    if asks not in state.codes[memory.start : memory.since]:
        memory.first = None
    if not any(state.codes[row] == asks for row in range(memory.since)):
        state.first_user = ""


def _heard(taking: Taking, row: int, like: int, words: str) -> None:
    state, memory = taking.state, taking.memory
    memory.pending, memory.said = 0, None
    if memory.first is None:
        memory.first = like
    if not state.first_user:
        state.first_user = words
    if not memory.turn and state.marks:
        state.mark(state.ids[row], row)  # what follows is of no turn, and not of the last one
    taking.active()
