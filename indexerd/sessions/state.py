"""The state of one session: a tree of entries, in arrays, that knows its own leaf.

Adapters add entries line by line, in file order; everything else here is a question. A row is
an entry's number in that order; its ordinal counts the file's other JSON objects too, except
headers. Texts stay in the file: a row knows its offset and length, and whoever needs the words
reads that line alone. Where a history begins in another file, its rows come first, and `parts`
says which rows stand where.

What surprised us, and is handled: ids repeat in one file (the last one wins); parents can name
an entry that never came, or comes later, or is the entry itself; the leaf can be moved back
without a trace until the next entry; counts therefore fall as well as rise. A parent normally
stands before its child, so a walk to the root ends by itself; where ids repeat or parents come
late the walk keeps a record and stops at a cycle.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise, takewhile
from typing import Any

import msgspec

from indexerd.events import KIND_MASK, MESSAGE, TURN_MASK, TURN_SHIFT, Header, Kind, Turn
from indexerd.sessions.asked import Asked
from indexerd.sessions.chain import Chain
from indexerd.sessions.stored import FACTS, Stored

ROOT = -1
UNKNOWN = -2  # the parent is named in `_late`, and had not been seen when the entry came
NOWHERE = -1  # no leaf: an empty session, or one whose leaf was moved before its first entry

_TALKS = {Kind.USER, Kind.ASSISTANT, Kind.TOOL}
# By code, which is sooner than to ask the enum.
_KINDS: tuple[Kind, ...] = (*Kind, *[Kind.OTHER] * (KIND_MASK + 1 - len(Kind)))


class SessionState:
    """Arrays of entries, the leaf, and the few facts that are not in the tree."""

    def __init__(self, file: str = "") -> None:
        """`file`: the path of the session file; some agents' ids are in its name."""
        self.file = file
        self.header: Header | None = None
        self.strict = False  # every line is parsed: one was found to be what it did not look like
        self.foreign = False  # the first record is no session header: not a session (S1.3)
        self.ids: list[bytes] = []
        self.index: dict[bytes, int] = {}
        self.parents = array("i")
        self.offsets = array("Q")
        self.lengths = array("Q")
        self.codes = bytearray()
        self.ordinals = array("I")
        self.seen = 0  # JSON objects other than headers
        self.parts: list[tuple[int, str]] = []  # (rows before which, file) of borrowed history
        self.marks: dict[bytes, int] = {}  # names of rows that outlive a rewritten file
        self.leaf = NOWHERE
        self.name: str | None = None  # the agent's own, newest in file order
        self.labels: dict[str, str] = {}
        self.openings: dict[int, str] = {}  # row of a path's first human message -> its words
        self.activity_ms = 0  # newest user or assistant message
        self.messages = 0
        self.users = 0  # in the whole file, every branch
        self.assistants = 0
        self.bad_lines = 0
        self.oversized = 0  # lines too long to be read at all
        self.compactions = 0
        self.archived = False  # the agent itself says so
        self.git_branch = ""  # the newest the agent recorded
        self.born_ms = 0  # when the file began; copies of history are older than their file
        self.copied = 0  # rows at the start that are copies of another session's
        self.unsettled = 0  # rows at the end whose text may still change
        self.notes: dict[str, Any] = {}  # an adapter's own memory, of what msgpack can hold
        self._late: dict[int, bytes] = {}
        self._repeats = False
        self._was = NOWHERE  # the leaf before the last entry
        self._asked = Asked()

    def __len__(self) -> int:
        return len(self.ids)

    def __bool__(self) -> bool:
        return True  # a session without entries is a state all the same

    # -- taking entries in ---------------------------------------------------------------

    def add(
        self, entry_id: bytes, parent: bytes | None, kind: int, offset: int, length: int
    ) -> int:
        """Add one entry; `kind` is its packed code. Returns its row. It becomes the leaf."""
        row = len(self.ids)
        above = ROOT
        if parent is not None:
            above = self.index.get(parent, UNKNOWN)
            if above == UNKNOWN:
                self._late[row] = parent
        if entry_id in self.index:
            self._repeats = True
        self.ids.append(entry_id)
        self.parents.append(above)
        self.offsets.append(offset)
        self.lengths.append(length)
        self.codes.append(kind)
        self.ordinals.append(self.seen)
        self.seen += 1
        self._was = self.leaf
        if entry_id:
            self.index[entry_id] = row
            self.leaf = row
        if kind & MESSAGE:
            self.messages += 1
        what = kind & KIND_MASK
        if what == Kind.USER:
            self.users += 1
        elif what == Kind.ASSISTANT:
            self.assistants += 1
        elif what == Kind.COMPACTION:
            self.compactions += 1
        return row

    def extend(self, chain: Chain, base: int) -> None:
        """Add a chain, which is one entry at least; `base` is the file offset of its block."""
        row, count = len(self.ids), len(chain.ids)
        above = self.index.get(chain.parent, UNKNOWN)
        if above == UNKNOWN:
            self._late[row] = chain.parent
        self.ids += chain.ids
        self.parents.append(above)
        self.parents.extend(range(row, row + count - 1))
        pairs = pairwise([*chain.starts, chain.end])
        self.lengths += array("Q", [end - one - 1 for one, end in pairs])
        self.offsets += array("Q", [base + one for one in chain.starts] if base else chain.starts)
        self.ordinals.extend(range(self.seen, self.seen + count))
        self.codes += chain.codes
        self.seen += count
        known = len(self.index)
        self.index.update(zip(chain.ids, range(row, row + count), strict=True))
        if len(self.index) < known + count:
            self._repeats = True
        self._was = self.leaf if count == 1 else row + count - 2
        self.leaf = row + count - 1
        self.messages += count
        for packed in set(chain.codes):
            if packed & KIND_MASK == Kind.USER:
                self.users += chain.codes.count(packed)
            elif packed & KIND_MASK == Kind.ASSISTANT:
                self.assistants += chain.codes.count(packed)

    def take_back(self) -> None:
        """Undo the last `add`: its line turned out to be no JSON."""
        row = len(self.ids) - 1
        entry_id, kind = self.ids.pop(), self.codes.pop()
        self._late.pop(row, None)
        for numbers in (self.parents, self.offsets, self.lengths, self.ordinals):
            numbers.pop()
        self.seen -= 1
        self._asked.cut(row)
        self.openings.pop(row, None)
        if self.index.get(entry_id) == row:
            del self.index[entry_id]
        if self._repeats and entry_id in self.ids:  # it stands for the one before again
            self.index[entry_id] = row - 1 - self.ids[::-1].index(entry_id)
        self.messages -= 1 if kind & MESSAGE else 0
        self.users -= 1 if kind & KIND_MASK == Kind.USER else 0
        self.assistants -= 1 if kind & KIND_MASK == Kind.ASSISTANT else 0
        self.compactions -= 1 if kind & KIND_MASK == Kind.COMPACTION else 0
        self.bad_lines += 1
        self.leaf = self._was

    def skip(self) -> None:
        """A JSON object that is no entry of the tree: it takes an ordinal all the same."""
        self.seen += 1

    def recode(self, row: int, kind: int) -> None:
        """Say anew what a row is: later lines showed it in another light."""
        old, self.codes[row] = self.codes[row], kind
        self.messages += bool(kind & MESSAGE) - bool(old & MESSAGE)
        for what, by in ((old & KIND_MASK, -1), (kind & KIND_MASK, 1)):
            self.users += by if what == Kind.USER else 0
            self.assistants += by if what == Kind.ASSISTANT else 0
        self._asked.cut(row)

    def mark(self, name: bytes, row: int) -> None:
        """Name a row so that it is found again when the agent rewrote the file (S3.6)."""
        self.marks[name] = row

    def borrowed(self, path: str) -> None:
        """All rows so far stand in another file: what follows is this file's own, or another's."""
        self.parts.append((len(self.ids), path))
        self.header, self.seen = None, 0

    def move_leaf(self, entry_id: bytes | None) -> None:
        """Move the leaf to a known entry, or (None) before the first."""
        self.leaf = NOWHERE if entry_id is None else self.index.get(entry_id, self.leaf)

    # -- the tree ------------------------------------------------------------------------

    def row(self, entry_id: str) -> int | None:
        """The row that an id stands for now (the last one, where ids repeat)."""
        key = entry_id.encode("utf-8", "replace")
        return self.index.get(key, self.marks.get(key))

    def file_of(self, row: int) -> str:
        """The file in which a row stands."""
        parts = self.parts
        return next((path for end, path in parts if row < end), self.file) if parts else self.file

    def id(self, row: int) -> str:
        """The id of a row."""
        return self.ids[row].decode("utf-8", "replace")

    @property
    def leaf_id(self) -> str | None:
        """The id of the leaf, or the name of the last marked row before it (S3.6)."""
        if self.leaf == NOWHERE:
            return None
        if self.marks:
            names = {row: name for name, row in self.marks.items()}
            for row in self.up(self.leaf):
                if row in names:
                    return names[row].decode("utf-8", "replace")
        return self.id(self.leaf)

    def kind(self, row: int) -> Kind:
        """What a row is."""
        return _KINDS[self.codes[row] & KIND_MASK]

    def parent(self, row: int) -> int:
        """The row above, or ROOT. An unknown or own parent makes a root (an orphan)."""
        above = self.parents[row]
        if above == UNKNOWN:
            above = self.index.get(self._late[row], ROOT)
        elif above >= 0 and self._repeats:
            above = self.index[self.ids[above]]
        return ROOT if above == row else above

    @property
    def orderly(self) -> bool:
        """Whether every parent stands before its child, so that no walk can loop."""
        return not self._repeats and not self._late

    def up(self, row: int) -> Iterator[int]:
        """Walk from a row to its root. A cycle ends the walk at its first repeated row."""
        seen: set[int] | None = None if self.orderly else set()
        while row >= 0:
            if seen is not None:
                if row in seen:
                    return
                seen.add(row)
            yield row
            row = self.parent(row)

    def path(self, leaf: int | None = None) -> list[int]:
        """Rows from the root to a leaf (by default the current one); a new list."""
        rows = list(self.up(self.leaf if leaf is None else leaf))
        rows.reverse()
        return rows

    def cycles(self) -> list[str]:
        """Ids of entries that stand on a parent cycle (S1.7); empty for every orderly file."""
        if self.orderly:
            return []
        looped: list[str] = []
        fate: dict[int, bool] = {}  # row -> whether it is on a cycle
        for start in range(len(self.ids)):
            trail: list[int] = []
            row = start
            while row >= 0 and row not in fate:
                fate[row] = False
                trail.append(row)
                row = self.parent(row)
            if row in trail:
                for one in trail[trail.index(row) :]:
                    fate[one] = True
                    looped.append(self.id(one))
        return looped

    # -- counting ------------------------------------------------------------------------

    def user_messages(self, leaf: int | None = None) -> int:
        """User messages from the root to a leaf; constant time for orderly files."""
        return self._asked.count(self, self.leaf if leaf is None else leaf)

    @property
    def first_user(self) -> str:
        """The first human message on the path, as adapters cut it; "" while it is not known."""
        return self._asked.words(self, self.leaf)

    @first_user.setter
    def first_user(self, words: str) -> None:
        self._asked.note(self, words)

    def opens(self, parent: bytes) -> bool:
        """Whether a human message below this entry is the first of its path, and to be read."""
        return not self._asked.words(self, self.index.get(parent, NOWHERE))

    def new_user_messages(self, since: str | None) -> int:
        """User messages on the path after `since`; all of them where that is not on it (S0.9)."""
        mark = self.row(since) if since else None
        if mark is None or not self.on_path(mark):
            return self.user_messages()
        if self.orderly:
            return self.user_messages() - self.user_messages(mark)
        after = takewhile(lambda row: row != mark, self.up(self.leaf))
        return sum(1 for row in after if self.codes[row] & KIND_MASK == Kind.USER)

    def on_path(self, row: int) -> bool:
        """Whether a row lies between the root and the leaf."""
        for one in self.up(self.leaf):
            if one == row:
                return True
            if one < row and self.orderly:
                return False
        return False

    def left(self, leaf_id: str | None) -> bool:
        """Whether a former leaf is known, and no more on the path: the branch was left."""
        row = self.row(leaf_id) if leaf_id else None
        return row is not None and not self.on_path(row)

    @property
    def turn(self) -> Turn:
        """Whether the agent's turn has ended, by the last thing said on the path."""
        for row in self.up(self.leaf):
            packed = self.codes[row]
            if packed & KIND_MASK in _TALKS:
                if packed & KIND_MASK == Kind.ASSISTANT:
                    return Turn((packed & TURN_MASK) >> TURN_SHIFT)
                return Turn.OPEN
        return Turn.OPEN

    def tips(self) -> list[int]:
        """Rows without children, in file order: the leaf of every branch."""
        parents = {self.parent(row) for row in range(len(self.ids))}
        return [
            row
            for row, entry_id in enumerate(self.ids)
            if row not in parents and self.index.get(entry_id, row) == row
        ]

    # -- the store's bytes --------------------------------------------------------------

    def encode(self) -> bytes:
        """The state as bytes, for the store."""
        return _encoder.encode(
            Stored(
                header=self.header,
                foreign=self.foreign,
                ids=self.ids,
                parents=self.parents.tobytes(),
                offsets=self.offsets.tobytes(),
                lengths=self.lengths.tobytes(),
                codes=bytes(self.codes),
                ordinals=self.ordinals.tobytes(),
                marks=self.marks,
                parts=[(end, path.encode("utf-8", "surrogateescape")) for end, path in self.parts],
                notes=self.notes,
                leaf=self.leaf,
                facts=tuple(getattr(self, name) for name in FACTS),
                labels=self.labels,
                openings=self.openings,
                late=self._late,
                repeats=self._repeats,
            )
        )

    @classmethod
    def decode(cls, data: bytes, file: str = "") -> SessionState:
        """The reverse of `encode`; raises ValueError for bytes that are not one."""
        try:
            held = _decoder.decode(data)
        except msgspec.DecodeError as bad:
            raise ValueError(f"not a session state: {bad}") from None
        state = cls(file)
        state.header, state.foreign, state.ids = held.header, held.foreign, held.ids
        state.parents.frombytes(held.parents)
        state.offsets.frombytes(held.offsets)
        state.lengths.frombytes(held.lengths)
        state.codes = bytearray(held.codes)
        state.ordinals.frombytes(held.ordinals)
        state.marks, state.notes = held.marks, held.notes
        state.parts = [(end, path.decode("utf-8", "surrogateescape")) for end, path in held.parts]
        state.leaf = held.leaf
        for name, value in zip(FACTS, held.facts, strict=True):
            setattr(state, name, value)
        state.labels, state.openings = held.labels, held.openings
        state._late, state._repeats = held.late, held.repeats
        arrays = (state.parents, state.offsets, state.lengths, state.codes, state.ordinals)
        fit = all(len(one) == len(state.ids) for one in arrays)
        if not fit or not NOWHERE <= held.leaf < len(state.ids):
            raise ValueError("not a session state: its parts do not fit together")
        state.index = {entry_id: row for row, entry_id in enumerate(state.ids) if entry_id}
        return state


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Stored)
