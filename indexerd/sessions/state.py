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
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice, takewhile
from typing import Any, Self

import msgspec
from msgspec import field
from msgspec.structs import replace

from indexerd.agents.base import NOWHERE, ROOT, ContextUse
from indexerd.events import KIND_MASK, MESSAGE, TURN_MASK, TURN_SHIFT, Header, Kind, Turn

__all__ = ["NOWHERE", "ROOT", "SessionState"]

_UNKNOWN = -2  # the parent is named in `late`, and had not been seen when the entry came
_NONE = -1  # no human message on the way
_OPENINGS_KEPT = 64  # first messages of one tree that are remembered
_TALKS = {Kind.USER, Kind.ASSISTANT, Kind.TOOL}
# By code, which is sooner than to ask the enum.
_KINDS: tuple[Kind, ...] = (*Kind, *[Kind.OTHER] * (KIND_MASK + 1 - len(Kind)))
_IS_USER = bytes(packed & KIND_MASK == Kind.USER for packed in range(256))
_IS_MESSAGE = bytes(bool(packed & MESSAGE) for packed in range(256))
_IS_ANSWER = bytes(
    packed & KIND_MASK == Kind.ASSISTANT and bool(packed & MESSAGE) for packed in range(256)
)
_IS_COMPACTION = bytes(packed & KIND_MASK == Kind.COMPACTION for packed in range(256))


class _Int32(array):  # type: ignore[type-arg]
    """Numbers that are stored as bytes."""

    code = "i"

    def __new__(cls, held: Iterable[int] | bytes = b"") -> Self:
        return super().__new__(cls, cls.code, held)


class _UInt32(_Int32):
    code = "I"


class _UInt64(_Int32):
    code = "Q"


class SessionState(msgspec.Struct, array_like=True, eq=False, dict=True):
    """Arrays of entries, the leaf, and the few facts that are not in the tree.

    All of it is stored (`encode`) but `file`. What adapters set is described at
    `agents.base.Tree`.
    """

    file: str = ""  # the path of the session file; some agents' ids are in its name
    header: Header | None = None
    foreign: bool = False
    ids: list[str] = field(default_factory=list)
    parents: _Int32 = field(default_factory=_Int32)
    offsets: _UInt64 = field(default_factory=_UInt64)
    lengths: _UInt64 = field(default_factory=_UInt64)
    codes: bytearray = field(default_factory=bytearray)
    ordinals: _UInt32 = field(default_factory=_UInt32)
    late: dict[int, str] = field(default_factory=dict)  # row -> a parent that was not there yet
    repeats: bool = False  # an id came again
    seen: int = 0
    parts: list[tuple[int, bytes]] = field(default_factory=list)  # rows before which, and file
    marks: dict[str, int] = field(default_factory=dict)  # names of rows that outlive a rewrite
    leaf: int = NOWHERE
    openings: dict[int, str] = field(default_factory=dict)  # a path's first message -> its words
    name: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    activity_ms: int = 0
    bad_lines: int = 0
    oversized: int = 0
    archived: bool = False
    git_branch: str = ""
    born_ms: int = 0
    copied: int = 0
    unsettled: int = 0
    first: str = ""
    fork_of: str = ""
    provider: str = ""
    tokens: tuple[int, int, int, int] | None = None
    context: ContextUse = ContextUse()
    split_answers: bool = False
    wants: str = ""  # the thread whose file holds more of its history, and was not found
    barred: bool = False  # more of its history is in a file that the user excluded
    memory: bytes = b""

    def __len__(self) -> int:
        return len(self.ids)

    def __bool__(self) -> bool:
        return True  # a session without entries is a state all the same

    # -- taking entries in ---------------------------------------------------------------

    def add(self, entry_id: str, parent: str | None, code: int, offset: int, length: int) -> int:
        """Add one entry; `code` is packed. Returns its row. It becomes the leaf."""
        row, index = len(self.ids), self.index
        above = ROOT
        if parent is not None:
            above = index.get(parent, _UNKNOWN)
            if above == _UNKNOWN:
                self.late[row] = parent
        self.ids.append(entry_id)
        self.parents.append(above)
        self.offsets.append(offset)
        self.lengths.append(length)
        self.codes.append(code)
        self.ordinals.append(self.seen)
        self.seen += 1
        if entry_id:
            if entry_id in index:
                self.repeats = True
            index[entry_id] = row
            self.leaf = row
        return row

    def skip(self) -> None:
        """Pass over a JSON object that is no entry: it takes an ordinal all the same."""
        self.seen += 1

    def recode(self, row: int, code: int) -> None:
        """Say anew what a row is: later lines showed it in another light."""
        changed = _IS_USER[self.codes[row]] != _IS_USER[code]
        self.codes[row] = code
        if changed:
            sums, firsts = self._asked
            del sums[row:], firsts[row:]

    def mark(self, name: str, row: int) -> None:
        """Name a row so that it is found again when the agent rewrote the file (S3.6)."""
        self.marks[name] = row

    def borrowed(self, path: str) -> None:
        """All rows so far stand in another file: what follows is this file's own, or another's."""
        self.parts.append((len(self.ids), path.encode("utf-8", "surrogateescape")))
        self.header, self.seen = None, 0

    def move_leaf(self, entry_id: str | None) -> None:
        """Move the leaf to a known entry, or (None) before the first."""
        self.leaf = NOWHERE if entry_id is None else self.index.get(entry_id, self.leaf)

    # -- the tree ------------------------------------------------------------------------

    @cached_property
    def index(self) -> dict[str, int]:
        """Rows by id: the last one, where ids repeat."""
        return {entry_id: row for row, entry_id in enumerate(self.ids) if entry_id}

    def row(self, entry_id: str) -> int | None:
        """The row that an id, or a mark, stands for now."""
        return self.index.get(entry_id, self.marks.get(entry_id))

    def file_of(self, row: int) -> str:
        """The file in which a row stands."""
        return next((path for end, path in self.borrowed_files if row < end), self.file)

    @property
    def borrowed_files(self) -> list[tuple[int, str]]:
        """Files in which the history begins, each with the row before which its rows end."""
        return [(end, path.decode("utf-8", "surrogateescape")) for end, path in self.parts]

    def id(self, row: int) -> str:
        """The id of a row."""
        return self.ids[row]

    @property
    def leaf_id(self) -> str | None:
        """The id of the leaf, or the name of the last marked row before it (S3.6)."""
        if self.leaf == NOWHERE:
            return None
        if self.marks:
            names = {row: name for name, row in self.marks.items()}
            for row in self.up(self.leaf):
                if row in names:
                    return names[row]
        return self.ids[self.leaf]

    def kind(self, row: int) -> Kind:
        """What a row is."""
        return _KINDS[self.codes[row] & KIND_MASK]

    def turn_of(self, row: int) -> Turn:
        """How the turn stands after a row."""
        return Turn((self.codes[row] & TURN_MASK) >> TURN_SHIFT)

    def parent(self, row: int) -> int:
        """The row above, or ROOT. An unknown or own parent makes a root (an orphan)."""
        above = self.parents[row]
        if above == _UNKNOWN:
            above = self.index.get(self.late[row], ROOT)
        elif above >= 0 and self.repeats:
            above = self.index.get(self.ids[above], above)
        return ROOT if above == row else above

    @property
    def orderly(self) -> bool:
        """Whether every parent stands before its child, so that no walk can loop."""
        return not self.repeats and not self.late

    def up(self, row: int) -> Iterator[int]:
        """Walk from a row to its root. A cycle ends the walk at its first repeated row."""
        if self.orderly:
            parents = self.parents
            while row >= 0:
                yield row
                row = parents[row]
            return
        met = set[int]()
        while row >= 0 and row not in met:
            met.add(row)
            yield row
            row = self.parent(row)

    def path(self, leaf: int | None = None) -> list[int]:
        """Rows from the root to a leaf (by default the current one); a new list."""
        rows = list(self.up(self.leaf if leaf is None else leaf))
        rows.reverse()
        return rows

    def on_path(self, row: int) -> bool:
        """Whether a row lies between the root and the leaf."""
        return self.leads_to(row, self.leaf)

    def leads_to(self, above: int, row: int) -> bool:
        """Whether a row stands between another one and the root, or is that one."""
        for one in self.up(row):
            if one == above:
                return True
            if one < above and self.orderly:
                return False
        return False

    def left(self, leaf_id: str | None) -> bool:
        """Whether a former leaf is known, and no more on the path: the branch was left."""
        row = self.row(leaf_id) if leaf_id else None
        return row is not None and not self.on_path(row)

    def lines(self) -> dict[int, None]:
        """The row of every entry, in file order: of an id that repeats the last."""
        return dict.fromkeys(self.index.get(one, row) for row, one in enumerate(self.ids))

    def tips(self) -> list[int]:
        """Rows without children, in file order: the leaf of every branch."""
        parents = {self.parent(row) for row in range(len(self.ids))}
        return [
            row
            for row, entry_id in enumerate(self.ids)
            if row not in parents and self.index.get(entry_id, row) == row
        ]

    def cycles(self) -> list[str]:
        """Ids of entries that stand on a parent cycle (S1.7); empty for every orderly file."""
        if self.orderly:
            return []
        looped: list[str] = []
        met: set[int] = set()
        for start in range(len(self.ids)):
            trail: dict[int, None] = {}
            row = start
            while row >= 0 and row not in met:
                met.add(row)
                trail[row] = None
                row = self.parent(row)
            if row in trail:
                rows = list(trail)
                looped += [self.ids[one] for one in rows[rows.index(row) :]]
        return looped

    # -- counting ------------------------------------------------------------------------

    @property
    def messages(self) -> int:
        """Messages in the whole file, on every branch."""
        return self.codes.translate(_IS_MESSAGE).count(1)

    @property
    def compactions(self) -> int:
        """Compactions in the whole file."""
        return self.codes.translate(_IS_COMPACTION).count(1)

    @property
    def answered(self) -> bool:
        """Whether a model answered anything."""
        return 1 in self.codes.translate(_IS_ANSWER)

    @property
    def turn(self) -> Turn:
        """Whether the agent's turn has ended, by the last thing said on the path."""
        for row in self.up(self.leaf):
            kind = self.codes[row] & KIND_MASK
            if kind in _TALKS:
                return self.turn_of(row) if kind == Kind.ASSISTANT else Turn.OPEN
        return Turn.OPEN

    def user_messages(self, leaf: int | None = None) -> int:
        """User messages from the root to a leaf; constant time for orderly files."""
        row = self.leaf if leaf is None else leaf
        if not self.orderly:
            return sum(_IS_USER[self.codes[one]] for one in self.up(row))
        return self._summed(row)[0]

    def new_user_messages(self, since: str | None) -> int:
        """User messages on the path after `since`; all of them where that is not on it (S0.9)."""
        mark = self.row(since) if since else None
        if mark is None or not self.on_path(mark):
            return self.user_messages()
        if self.orderly:
            return self.user_messages() - self.user_messages(mark)
        after = takewhile(lambda row: row != mark, self.up(self.leaf))
        return sum(_IS_USER[self.codes[row]] for row in after)

    @property
    def first_user(self) -> str:
        """The first human message on the path, as adapters cut it; "" while it is not known.

        Where ids repeat or parents come late, the file's first, whatever the path.
        """
        if not self.orderly:
            return next(iter(self.openings.values()), "")
        return self.openings.get(self._summed(self.leaf)[1], "")

    @first_user.setter
    def first_user(self, words: str) -> None:
        if not words:
            self.openings.clear()
            return
        self.openings[self._summed(self.leaf)[1] if self.orderly else _NONE] = words
        if len(self.openings) > _OPENINGS_KEPT:  # the file's first stays
            del self.openings[next(islice(self.openings, 1, None))]

    @cached_property
    def _asked(self) -> tuple[array[int], array[int]]:
        """Of each row, as far as asked: human messages from the root on, and the first of them."""
        return array("I"), array("i")

    def _summed(self, row: int) -> tuple[int, int]:
        """Human messages from the root to a row, and the row of the first of them."""
        if row < 0:
            return 0, _NONE
        sums, firsts = self._asked
        parents, codes = self.parents, self.codes
        for one in range(len(sums), row + 1):
            above = parents[one]
            asked, first = (sums[above], firsts[above]) if above >= 0 else (0, _NONE)
            if _IS_USER[codes[one]]:
                asked, first = asked + 1, one if first == _NONE else first
            sums.append(asked)
            firsts.append(first)
        return sums[row], firsts[row]

    # -- copies --------------------------------------------------------------------------

    def still(self, leaf: int | None = None) -> SessionState:
        """A copy that stays as it is while the session goes on, seen from a leaf of choice."""
        copy = replace(self, leaf=self.leaf if leaf is None else leaf)
        for name in self.__struct_fields__:
            held: Any = getattr(self, name)
            if isinstance(held, list | dict | array | bytearray):
                kind: Any = type(held)
                setattr(copy, name, kind(held))
        copy.__dict__["index"] = dict(self.index)
        return copy

    def encode(self) -> bytes:
        """The state as bytes, to be stored."""
        return _encoder.encode(replace(self, file=""))

    @classmethod
    def decode(cls, data: bytes, file: str = "") -> SessionState:
        """The reverse of `encode`; ValueError for bytes that are not one."""
        try:
            state = _decoder.decode(data)
        except msgspec.DecodeError as bad:
            raise ValueError(f"not a session state: {bad}") from None
        arrays = (state.parents, state.offsets, state.lengths, state.codes, state.ordinals)
        fit = all(len(one) == len(state.ids) for one in arrays)
        if not fit or not NOWHERE <= state.leaf < len(state.ids):
            raise ValueError("not a session state: its parts do not fit together")
        state.file = file
        return state


def _numbers(kind: type, held: Any) -> Any:
    return kind(held)


_encoder = msgspec.msgpack.Encoder(enc_hook=array.tobytes)
_decoder = msgspec.msgpack.Decoder(SessionState, dec_hook=_numbers)
