"""Answer questions about one session's tree of entries, which adapters fill (agents/base.py).

Texts stay in the file: a row has its offset and length. If a history begins in another file, those
rows come first, and `base_files` names the file. Counts are those of the path, so they can also
fall. Positions number the user and assistant messages of a path from 0; an answer that Claude Code
writes as several lines counts once.

Pitfalls: Codex may rewrite a file, so that ids change and only turns keep their names. A row in the
middle of a turn must not be named by the turn before: that turn stays when this one is undone, and
the turn that replaces it would look summarized.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from copy import copy
from itertools import count, takewhile
from typing import Any

from msgspec import field
from msgspec.structs import replace

from indexerd.agents.base import NOWHERE, ROOT, Tree
from indexerd.entries import EXTRA, KIND_MASK, MESSAGE, TURN_MASK, TURN_SHIFT, Kind, Turn
from indexerd.privacy.sanitize import clean_line

__all__ = ["NOWHERE", "ROOT", "SessionState", "message_rows", "name_at", "names_on", "rows_between"]

ROW_NAME_MAX = 256  # characters
ID_LEAST, ID_MOST = 8, 16  # characters of an id that may stand for it

_SPOKEN = frozenset({Kind.USER, Kind.ASSISTANT})
_SPEAKS = frozenset({Kind.USER, Kind.ASSISTANT, Kind.TOOL, Kind.CALL})
_ASKS = frozenset({Kind.USER, Kind.CUSTOM})
BOOKKEEPING = frozenset({Kind.OTHER, Kind.SYSTEM, Kind.SETTING, Kind.LABEL, Kind.NAME, Kind.CALL})

_IS_MESSAGE = bytes(bool(packed & MESSAGE) for packed in range(256))
_ANSWER = Kind.ASSISTANT | MESSAGE
_IS_ANSWER = bytes(packed & (KIND_MASK | MESSAGE) == _ANSWER for packed in range(256))
_IS_COMPACTION = bytes(packed & KIND_MASK == Kind.COMPACTION for packed in range(256))


class SessionState(Tree):
    """A session's tree, and the files that hold its history."""

    base_files: list[tuple[int, str]] = field(default_factory=list)  # end row, path
    missing_base: str = ""  # the thread with earlier history whose file was not found
    base_excluded: bool = False  # earlier history is in a file that the user excluded

    def add_base(self, path: str) -> None:
        """Record that the rows so far are in another file."""
        self.base_files.append((len(self.ids), path))
        self.header, self.seen = None, 0

    def row(self, entry_id: str) -> int | None:
        return self.index.get(entry_id, self.marks.get(entry_id))

    def file_of(self, row: int) -> str:
        return next((path for end, path in self.base_files if row < end), self.file)

    @property
    def id_length(self) -> int:
        """How many characters of the entries' ids tell them apart: the first; if < 0, the last."""
        ids = self.index
        fits = (n for n in count(ID_LEAST, 4) if len({key[:n] for key in ids}) == len(ids))
        if (first := next(fits)) <= ID_MOST:  # else they begin with a time, as many of Codex do
            return first
        return next(-n for n in count(ID_LEAST, 4) if len({key[-n:] for key in ids}) == len(ids))

    @property
    def leaf_id(self) -> str | None:
        """The name of the nearest marked row at or above the leaf, or else the leaf's id."""
        if self.leaf == NOWHERE:
            return None
        names = {row: name for name, row in self.marks.items()}
        marked = (names[row] for row in self.up(self.leaf) if row in names) if names else ()
        return next(iter(marked), self.ids[self.leaf])

    def turn_of(self, row: int) -> Turn:
        return Turn((self.codes[row] & TURN_MASK) >> TURN_SHIFT)

    def speaker(self, row: int) -> str:
        """Return who speaks in a row: user (also by a tool's result), assistant, or ""."""
        kind = self.kind(row)
        if kind is Kind.USER or (kind is Kind.TOOL and self.codes[row] & EXTRA):
            return "user"
        return "assistant" if kind is Kind.ASSISTANT else ""

    def path(self, leaf: int | None = None) -> array[int]:
        """Return the rows from the root to a leaf, by default the current one."""
        return array("i", self.up(self.leaf if leaf is None else leaf))[::-1]

    def on_path(self, row: int) -> bool:
        return self.leads_to(row, self.leaf)

    def leads_to(self, above: int, row: int) -> bool:
        """Return whether `above` is `row` or one of its ancestors."""
        return next((at for at in self.up(row) if at <= above), None) == above

    def abandoned(self, leaf_id: str | None) -> bool:
        """Return whether a former leaf is known but off the path: its branch was abandoned."""
        row = self.row(leaf_id) if leaf_id else None
        return row is not None and not self.on_path(row)

    def tips(self) -> list[int]:
        """List the rows without children, in file order: the leaf of every branch.

        Of rows with the same id only the last counts.
        """
        above, ids = set(self.parents), enumerate(self.ids)
        return [row for row, own in ids if row not in above and self.index.get(own, row) == row]

    @property
    def messages(self) -> int:
        return self.codes.translate(_IS_MESSAGE).count(1)

    @property
    def compactions(self) -> int:
        return self.codes.translate(_IS_COMPACTION).count(1)

    @property
    def answered(self) -> bool:
        return 1 in self.codes.translate(_IS_ANSWER)

    @property
    def turn(self) -> Turn:
        """Return the state of the agent's turn after the path's last message."""
        for row in self.up(self.leaf):
            kind = self.codes[row] & KIND_MASK
            if kind in (Kind.USER, Kind.ASSISTANT, Kind.TOOL):
                return self.turn_of(row) if kind == Kind.ASSISTANT else Turn.OPEN
        return Turn.OPEN

    @property
    def question(self) -> str:
        """Return what the path's last message asks the user, unanswered so far, or ""."""
        last = (row for row in self.up(self.leaf) if self.kind(row) in _SPEAKS)
        return self.asked if next(last, NOWHERE) == self.asking >= 0 else ""

    @property
    def told(self) -> str:
        """Return what the agent told of the session, if that was most of the path."""
        row, text = self.recap
        prompts = [at for at in self.up(self.leaf) if self.kind(at) is Kind.USER] if text else []
        return text if 2 * sum(at < row for at in prompts) >= len(prompts) else ""

    def user_messages(self) -> int:
        return sum(self.codes[row] & KIND_MASK == Kind.USER for row in self.up(self.leaf))

    def new_user_messages(self, since: str | None) -> int:
        """Count user messages on the path after `since`, or all if it is not on the path."""
        mark = self.row(since) if since else None
        if mark is None or not self.on_path(mark):
            return self.user_messages()
        after = takewhile(lambda row: row != mark, self.up(self.leaf))
        return sum(self.codes[row] & KIND_MASK == Kind.USER for row in after)

    def snapshot(self, leaf: int | None = None) -> SessionState:
        """Copy the state for a reader in another thread, as seen from `leaf` or its own leaf."""
        copied = replace(self, leaf=self.leaf if leaf is None else leaf)
        for name in self.__struct_fields__:
            value: Any = getattr(self, name)
            if isinstance(value, list | dict | array | bytearray):
                setattr(copied, name, copy(value))
        return copied


def message_rows(state: SessionState, leaf: int | None = None) -> list[int]:
    """List the rows of a path's user and assistant messages, in order of position."""
    message_rows, running = list[int](), False
    for row in state.path(leaf):
        packed = state.codes[row]
        kind = packed & KIND_MASK
        if kind not in _SPOKEN or not packed & MESSAGE:
            running = running and kind in BOOKKEEPING
            continue
        failed = state.turn_of(row) is Turn.FAILED
        whole = state.split_answers and kind == Kind.ASSISTANT and not failed
        if not (whole and running):
            message_rows.append(row)
        running = whole
    return message_rows


def rows_between(path: Sequence[int], rows: Sequence[int], first: int, last: int) -> list[int]:
    """List the rows of a path that belong to the messages `first` to `last`.

    `rows` are the path's message rows. Rows between two messages (tool results, calls, settings)
    belong to the earlier message, rows before message 0 to message 0.
    """
    if first > last or not 0 <= first < len(rows):
        return []
    start = path.index(rows[first], first) if first else 0
    end = path.index(rows[last + 1], last + 1) if last + 1 < len(rows) else len(path)
    return list(path[start:end])


def name_at(state: SessionState, row: int) -> str:
    """Name a row so that the name survives a rewrite of the file; linear in the path's length."""
    return names_on(state, row, {row}).get(row, "") if row >= 0 else ""


def names_on(state: SessionState, leaf: int, wanted: set[int]) -> dict[int, str]:
    """Name some rows of the path to a leaf.

    If turns are marked, the name is the row's own mark, or that of its turn, which is on the turn's
    newest row; outside turns it is the nearest mark above. Without marks it is the row's id.
    """
    marked = {row: name for name, row in state.marks.items()}
    ordered = sorted(marked)
    names: dict[int, str] = {}
    above, prompted = -1, False  # the last marked row, and whether a prompt followed it
    for row in state.path(leaf) if marked else wanted:
        if row in marked:
            above, prompted = row, False
        elif state.codes[row] & KIND_MASK in _ASKS:
            prompted = True
        if row in wanted:
            at = bisect_left(ordered, row)
            below = ordered[at] if at < len(ordered) else -1
            outside = above >= 0 and marked[above] == state.ids[above] and not prompted
            if below > row and (outside or marked[below] == state.ids[below]):
                below = -1  # that turn begins after this row
            mark = below if below >= 0 else above
            name = marked[mark] if mark >= 0 else state.ids[row]
            names[row] = clean_line(name[: 8 * ROW_NAME_MAX], ROW_NAME_MAX)
    return names
