"""Nodes of a session's entries, kept from one reading to the next: only what is new is read.

In: a session's state, the rows that are wanted, and how a row's node is made. Out: all their
nodes. A node is kept for as long as the line it was made of is the same one: the same id, place,
length and mark. Where lines change in place (a database's rows), each is looked at again, and only
one that differs is made anew. What was made stays, though a reading ends halfway: the next one
goes on from there.

A story writes into its nodes (where they stand, whether they are on the path): that is no part of
what is compared. Not for several threads at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import blake2b

from indexerd.events import Entry
from indexerd.sessions.context import Read
from indexerd.sessions.state import SessionState
from indexerd.sources.session_lines import SessionLines
from indexerd.web.story import Node

SHORT = 16 * 1024  # bytes of a line whose entry is kept whole for what asks again and again
SHORT_TOTAL = 16 * 1024 * 1024  # of all of them

_Key = tuple[int, int, int, bytes, bytes]


class Drafts:
    """The nodes of one session."""

    def __init__(self, *, changing: bool = False) -> None:
        """`changing`: a line may become another one although it stands where it stood."""
        self.names: dict[str, str] = {}  # of calls, by their ids
        self._changing = changing
        self._room = 0
        self._state: SessionState | None = None  # that of the last reading, which stays as it was
        self._nodes: dict[int, Node] = {}
        self._keys: dict[int, _Key] = {}
        self._entries: dict[int, tuple[_Key, Entry]] = {}
        self._held = 0  # bytes of their lines

    def nodes(
        self,
        state: SessionState,
        lines: SessionLines,
        rows: Iterable[int],
        room: int,
        make: Callable[[int], Node],
    ) -> dict[int, Node]:
        """A node for each of these rows, in their order; `room` is what `make` lets each say."""
        if room != self._room:  # what they may say is another length now
            self._nodes, self._keys, self._room, self._state = {}, {}, room, None
        found: dict[int, Node] = {}
        rows, same = list(rows), self._same_rows(state)
        if rows[:same] == list(range(same)) and all(row in self._nodes for row in range(same)):
            found = {row: self._nodes[row] for row in range(same)}
            rows = rows[same:]
        for row in rows:
            key = self._key(state, lines, row)
            node = self._nodes.get(row)
            if node is None or self._keys[row] != key:
                node = self._put(row, key, make(row))
            found[row] = node
        self._state = state
        if len(found) < len(self._nodes):
            self._nodes = dict(found)
            self._keys = {row: self._keys[row] for row in found}
        return found

    def reading(self, state: SessionState, read: Read) -> Read:
        """The same way to read, which remembers short entries; for after `nodes`."""

        def entry(row: int) -> Entry:
            key = self._keys.get(row)
            kept = self._entries.get(row)
            if key is not None and kept is not None and kept[0] == key:
                return kept[1]
            found = read(row)
            self._remember(row, key, found, state.lengths[row])
            return found

        return entry

    def _same_rows(self, state: SessionState) -> int:
        """How many of the first rows have nodes of the very lines that they had, by a glance."""
        old = self._state
        if old is None or self._changing or len(old) > len(state):
            return 0
        rows = len(old)
        held = all(
            now[:rows] == before[:rows]
            for now, before in (
                (state.offsets, old.offsets),
                (state.lengths, old.lengths),
                (state.codes, old.codes),
            )
        )
        return rows if held and state.ids[:rows] == old.ids else 0

    def _remember(self, row: int, key: _Key | None, entry: Entry, length: int) -> None:
        if key is None or length > SHORT or sum(map(len, entry.texts)) > SHORT:
            return
        if self._held + length > SHORT_TOTAL:
            self._entries, self._held = {}, 0
        self._entries[row] = key, entry
        self._held += length

    def _key(self, state: SessionState, lines: SessionLines, row: int) -> _Key:
        seen = b""
        if self._changing:
            seen = blake2b(lines.row(row), digest_size=16).digest()
        return state.offsets[row], state.lengths[row], state.codes[row], state.ids[row], seen

    def _put(self, row: int, key: _Key, made: Node) -> Node:
        """Keep a node; one that says the same as that before it is no other."""
        old = self._nodes.get(row)
        node = old if old is not None and _same(old, made) else made
        self._nodes[row], self._keys[row] = node, key
        return node


def _same(old: Node, new: Node) -> bool:
    placed = replace(new, label=old.label, ordinal=old.ordinal, above=old.above, active=old.active)
    return placed == old
