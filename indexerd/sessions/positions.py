"""Positions of messages on a path, and names of rows that survive a rewritten file.

Positions count the user and assistant messages of a path, from 0; Claude Code writes one answer as
several lines, which count once. What surprised us: Codex may rewrite a file, so that ids change and
only turns keep their names. A row in the middle of a turn must not be named by the turn before:
that turn stays when this one is taken back, and another in its place would look summarized.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from indexerd.events import KIND_MASK, MESSAGE, Kind, Turn
from indexerd.privacy.sanitize import clean_line
from indexerd.sessions.state import SessionState

ROW_NAME_MAX = 256  # characters

_SPOKEN = frozenset({Kind.USER, Kind.ASSISTANT})
_ASKS = frozenset({Kind.USER, Kind.CUSTOM})
_BESIDE = frozenset({Kind.OTHER, Kind.SYSTEM, Kind.SETTING, Kind.LABEL, Kind.NAME, Kind.CALL})


def message_rows(state: SessionState, leaf: int | None = None) -> list[int]:
    """List the rows of a path's user and assistant messages, by their positions."""
    found, running = list[int](), False
    for row in state.path(leaf):
        packed = state.codes[row]
        kind = packed & KIND_MASK
        if kind not in _SPOKEN or not packed & MESSAGE:
            running = running and kind in _BESIDE
            continue
        failed = state.turn_of(row) is Turn.FAILED
        whole = state.split_answers and kind == Kind.ASSISTANT and not failed
        if not (whole and running):
            found.append(row)
        running = whole
    return found


def rows_between(path: Sequence[int], rows: Sequence[int], first: int, last: int) -> list[int]:
    """List the rows of a path that belong to the messages `first` to `last`.

    `rows` are the path's message rows. What stands between two messages belongs to the earlier
    one (results of tools, calls, settings), and what stands before message 0 to that.
    """
    if first > last or not 0 <= first < len(rows):
        return []
    start = path.index(rows[first], first) if first else 0
    end = path.index(rows[last + 1], last + 1) if last + 1 < len(rows) else len(path)
    return list(path[start:end])


def name_at(state: SessionState, row: int) -> str:
    """Name a row so that the name survives a rewritten file; linear in the row's path."""
    return names_on(state, row, {row}).get(row, "") if row >= 0 else ""


def names_on(state: SessionState, leaf: int, wanted: set[int]) -> dict[int, str]:
    """Name some rows of the path to a leaf.

    Where turns are marked, it is the row's own mark, or that of the turn it stands in, whose mark
    is on its newest row; outside of turns the nearest mark above. Without marks it is the id.
    """
    marked = {row: name for name, row in state.marks.items()}
    ordered = sorted(marked)
    found: dict[int, str] = {}
    above, asked = -1, False  # the last marked row, and whether anyone asked since
    for row in state.path(leaf) if marked else wanted:
        if row in marked:
            above, asked = row, False
        elif state.codes[row] & KIND_MASK in _ASKS:
            asked = True
        if row in wanted:
            at = bisect_left(ordered, row)
            below = ordered[at] if at < len(ordered) else -1
            outside = above >= 0 and marked[above] == state.ids[above] and not asked
            if below > row and (outside or marked[below] == state.ids[below]):
                below = -1  # its turn begins further down
            mark = below if below >= 0 else above
            name = marked[mark] if mark >= 0 else state.ids[row]
            found[row] = clean_line(name[: 8 * ROW_NAME_MAX], ROW_NAME_MAX)
    return found
