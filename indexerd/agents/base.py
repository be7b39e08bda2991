"""The interface of an adapter, and the tree that it fills.

An adapter turns lines of its agent's files into entries of a tree (`scan`), and one line into an
entry in full (`read`). Everything above knows trees of entries, never an agent's format.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import msgspec
from msgspec import field

from indexerd.events import KIND_MASK, Base, Entry, Header, Kind, Turn, code

READ_MAX = 64 * 1024 * 1024  # bytes of one line that is read in full, newline not counted
ROOT = -1  # the parent of a root
NOWHERE = -1  # no leaf: an empty session, or one whose leaf was moved before its first entry
PATH_MAX = 8192  # characters of a path that are kept
WORD_MAX = 64  # characters of a time that are kept

_OPENINGS_MAX = 64  # first prompts of one tree that are kept
_FAR = 1024  # rows in which an earlier prompt is looked for
_UNKNOWN = -2  # the parent is named in `late`, and had not been seen when the entry came
KINDS: tuple[Kind, ...] = (*Kind, *[Kind.OTHER] * (KIND_MASK + 1 - len(Kind)))
PROMPT = code(Kind.USER, message=True)
PROMPTED = code(Kind.TOOL)  # a machine's prompt to the model
ANSWERS = {turn: code(Kind.ASSISTANT, turn=turn, message=True) for turn in Turn}


class Said(NamedTuple):
    """The classification of a line."""

    code: int  # packed (events.py)
    text: str = ""  # a human's
    queued: bool = False  # typed while the agent was at work
    settled: bool = True  # its parts do not change any more

    @property
    def kind(self) -> Kind:
        return KINDS[self.code & KIND_MASK]


@dataclass(frozen=True, slots=True)
class Oversize:
    """A line too long to hold while a file is followed: its place, and its two ends."""

    offset: int
    length: int  # bytes, newline included
    head: bytes
    tail: bytes

    @property
    def readable(self) -> int:
        """Bytes of the line without its newline; 0 for a line too long to be read at all."""
        length = self.length - 1
        return length if length <= READ_MAX else 0


class ContextUse(msgspec.Struct, array_like=True, frozen=True):
    """How full the model's context is, in tokens, as the agent recorded it; 0: unknown."""

    used: int = 0
    at: int = NOWHERE  # the newest row at that moment
    window: int = 0


class Tree(msgspec.Struct, eq=False, dict=True):
    """Entries in arrays, a row for each in file order, and the facts that adapters set.

    What surprised us: ids repeat in one file (the last one wins); a parent can be an entry that
    never came, comes later, or is the entry itself; the leaf can be moved back without a trace
    until the next entry. Where a parent stands before its child a walk ends by itself.
    """

    file: str = ""  # the path of the session file; some agents' ids are in its name
    header: Header | None = None
    foreign: bool = False  # the first record shows that this is no session
    ids: list[str] = field(default_factory=list)
    parents: array[int] = field(default_factory=lambda: array("i"))
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    lengths: array[int] = field(default_factory=lambda: array("Q"))
    codes: bytearray = field(default_factory=bytearray)  # packed (events.py)
    ordinals: array[int] = field(default_factory=lambda: array("I"))  # among the file's objects
    late: dict[int, str] = field(default_factory=dict)  # row -> a parent that was not there yet
    repeats: bool = False  # an id came again
    seen: int = 0  # JSON objects other than headers
    marks: dict[str, int] = field(default_factory=dict)  # names of rows that outlive a rewrite
    leaf: int = NOWHERE
    openings: dict[int, str] = field(
        default_factory=dict
    )  # row of a path's first prompt -> preview
    name: str | None = None  # the agent's own, newest in file order
    labels: dict[str, str] = field(default_factory=dict)
    activity_ms: int = 0  # newest user or assistant message
    bad_lines: int = 0
    oversized: int = 0  # lines too long to be read at all
    archived: bool = False  # the agent itself says so
    git_branch: str = ""  # the newest that the agent recorded
    born_ms: int = 0  # when the file began; copies of history are older than their file
    copied: int = 0  # rows at the start that are copies of another session's
    unsettled: int = 0  # rows at the end whose text may still change
    first: str = ""  # what sessions share that are copies of one history: its first entry
    fork_of: str = ""  # the title of the session that this one says it was forked from
    provider: str = ""  # whose models are used where no entry says it
    tokens: tuple[int, int, int, int] | None = None  # input, output, cache: where the agent sums
    context: ContextUse = ContextUse()
    split_answers: bool = False  # one answer of the model is several entries
    memory: object = None  # what the adapter remembers between blocks

    def __len__(self) -> int:
        return len(self.ids)

    def __bool__(self) -> bool:
        return True  # a session without entries is a state all the same

    def add(self, entry_id: str, parent: str | None, code: int, offset: int, length: int) -> int:
        """Add an entry below the entry of this id, as the new leaf. Returns its row."""
        index, above = self.index, ROOT
        if parent is not None and (above := index.get(parent, _UNKNOWN)) == _UNKNOWN:
            self.late[len(self.ids)] = parent
        if entry_id in index:
            self.repeats = True
        row = self.add_below(above, entry_id, code, offset, length)
        if entry_id:
            self.leaf = row
        return row

    def add_below(self, above: int, entry_id: str, code: int, offset: int, length: int) -> int:
        """Add an entry below a row; the leaf stays. Returns its row."""
        row = len(self.ids)
        self.ids.append(entry_id)
        self.parents.append(above)
        self.offsets.append(offset)
        self.lengths.append(length)
        self.codes.append(code)
        self.ordinals.append(self.seen)
        self.seen += 1
        if entry_id:
            self.index[entry_id] = row
        return row

    @cached_property
    def index(self) -> dict[str, int]:
        """Rows by id: the last one, where ids repeat."""
        return {entry_id: row for row, entry_id in enumerate(self.ids) if entry_id}

    def kind(self, row: int) -> Kind:
        return KINDS[self.codes[row] & KIND_MASK]

    def parent(self, row: int) -> int:
        """The row above, or ROOT where the parent is unknown or the row itself."""
        above = self.parents[row]
        if above == _UNKNOWN:
            above = self.index.get(self.late[row], ROOT)
        elif above >= 0 and self.repeats:
            above = self.index.get(self.ids[above], above)
        return ROOT if above == row else above

    @property
    def orderly(self) -> bool:
        """Return whether every parent comes before its child, so that no walk can loop."""
        return not self.repeats and not self.late

    def up(self, row: int) -> Iterator[int]:
        """Walk from a row to its root. A cycle ends the walk at its first repeated row."""
        orderly, met = self.orderly, set[int]()
        while row >= 0 and row not in met:
            yield row
            if orderly:
                row = self.parents[row]
            else:
                met.add(row)
                row = self.parent(row)

    def opened_by(self, row: int, preview: Callable[[], str]) -> None:
        """Keep the preview of a prompt if no prompt above it on its path has words."""
        if len(self.openings) < _OPENINGS_MAX:
            prompts = (
                above
                for above in islice(self.up(self.parent(row)), _FAR)
                if above in self.openings or self.kind(above) is Kind.USER
            )
            above = next(prompts, ROOT)
            if above == ROOT or self.openings.get(above) == "":
                self.openings[row] = preview()

    @property
    def first_user(self) -> str:
        """The preview of the first prompt on the path that has words; "" while there is none."""
        rows = self.up(self.leaf) if self.openings else ()
        found = [words for row in rows if (words := self.openings.get(row))]
        return found[-1] if found else ""


@dataclass(frozen=True, slots=True)
class Adapter:
    """The functions of an agent's package. Nothing in a line makes a scan raise."""

    scan: Callable[
        [Tree, bytes, int], None
    ]  # adds whole lines, which begin at this offset of the file
    read: Callable[[bytes, str], Entry]  # parses a line; ValueError where it is no object
    reopen: str  # the command that resumes a session, which is its last argument
    # Reads from a file's first line which history in another file comes before its own.
    base: Callable[[bytes], Base | None] = lambda _line: None
