"""What is read of a session in one step, for its words and for what it did.

In: a session's tree, its path, and how far its lines were read. Out: which rows come next, bounded
in lines and in bytes, and what they tell. Nothing here reads a file by itself or stores anything.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Protocol

from indexerd.agents import ADAPTERS
from indexerd.events import PAID, TURN_MASK, TURN_SHIFT, Entry, Kind, Turn
from indexerd.sessions.info import SessionInfo
from indexerd.sessions.state import SessionState
from indexerd.sources.session_lines import SessionLines

BATCH = 500  # lines read in one step, and not many more than these bytes of them: others wait
STEP_BYTES = 512 * 1024

_DOES = frozenset({Kind.USER, Kind.ASSISTANT, Kind.CALL, Kind.SETTING})


class Read(Protocol):
    """How far a session's lines were read."""

    words: int  # rows, for their words and for what was paid
    deeds: int  # rows of the path, from its root, for what was done


@dataclass(frozen=True, slots=True)
class Part:
    """Rows to be read now for their words and for their deeds, and how far this comes.

    `words` are also those that say what a model's call took, on whichever branch. `unsettled` are
    those at the path's end whose lines may still change: they are read again at each step.
    """

    words: list[int]
    deeds: list[int]
    word_end: int
    deed_end: int
    last: bool  # nothing is left after it but what is unsettled
    unsettled: list[int]


def part_of(state: SessionState, path: list[int], held: Read, limit: int) -> Part:
    """The next rows; lines that tell of both are read once, where the path is in file order."""
    end = max(0, len(state) - state.unsettled)
    settled = next((at for at in range(held.deeds, len(path)) if path[at] >= end), len(path))
    first = max(held.words, _copied(state))
    next_words = (row for row in range(first, end) if _says(state, row))
    next_deeds = (row for row in path[held.deeds : settled] if _does(state, row))
    words, deeds = list(islice(next_words, limit + 1)), list(islice(next_deeds, limit + 1))
    if state.orderly:
        both = sorted({*words, *deeds})
        few = _few(state, both, limit)
        stop = both[few] if few < len(both) else end
        some_words = words[: bisect_left(words, stop)]
        some_deeds = deeds[: bisect_left(deeds, stop)]
    else:
        some_words = words[: _few(state, words, limit)]
        some_deeds = deeds[: _few(state, deeds, limit)]
    word_end, deed_end = max(end, held.words), settled
    if len(some_words) < len(words):
        word_end = words[len(some_words)]
    if len(some_deeds) < len(deeds):
        deed_end = path.index(deeds[len(some_deeds)], held.deeds)
    last = some_words == words and some_deeds == deeds
    unsettled = [row for row in path[settled:] if _does(state, row)] if last else []
    return Part(some_words, some_deeds, word_end, deed_end, last, unsettled[-limit:])


def _copied(state: SessionState) -> int:
    """How many rows at the start are not searched: what a sub-agent copied is its parent's.

    A fork's copies are, for what they were copied from may be gone.
    """
    return state.copied if state.header is not None and state.header.subagent else 0


def _few(state: SessionState, rows: list[int], limit: int) -> int:
    """How many of these rows make one step: one at least."""
    size = 0
    for count, row in enumerate(rows[:limit]):
        size += state.lengths[row]
        if count and size > STEP_BYTES:
            return count
    return min(limit, len(rows))


def _says(state: SessionState, row: int) -> bool:
    """Whether a row has words, or says what was paid."""
    return speaks(state.kind(row)) or bool(state.codes[row] & PAID)


def speaks(kind: Kind) -> bool:
    """Whether what it says is searchable."""
    return kind in (Kind.USER, Kind.ASSISTANT)


def _does(state: SessionState, row: int) -> bool:
    """Whether a row tells of deeds: a tool's result only where it says that the call failed."""
    kind = state.kind(row)
    if kind is Kind.TOOL:
        return Turn((state.codes[row] & TURN_MASK) >> TURN_SHIFT) is Turn.FAILED
    return kind in _DOES


def entries(
    card: SessionInfo, state: SessionState, rows: Iterable[int], lines: SessionLines
) -> Iterator[tuple[int, Entry]]:
    """What these rows tell; a line that is no entry any more is passed over."""
    read = ADAPTERS[card.agent].read
    for row in rows:
        line = lines.brief(row)
        if not line:
            continue  # far too long, or no JSON: its text is not kept
        yield row, read(line, state.id(row))


def ascending(rows: Sequence[int]) -> bool:
    """Whether rows are in the file's order."""
    return all(one < other for one, other in pairwise(rows))
