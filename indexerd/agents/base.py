"""The interface of an adapter, and the tree that it fills.

An adapter turns lines of its agent's files into entries of a tree (`scan`), and parses one line in
full (`read`). The layers above know trees, never an agent's format; what else differs by agent is
where sessions are (sources/), how forks name their origin (sessions/family.py, sources/forks.py)
and the rules of compaction (digests/).
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

from indexerd.entries import KIND_MASK, Base, Entry, Header, Kind, Turn, code

ROOT = -1  # the parent of a root
NOWHERE = -1  # no leaf: an empty session, or one whose leaf was moved before its first entry
PATH_KEPT = 8192  # characters of a path, an id or a title that are kept
WORD_MAX = 64  # characters of a time that are kept

_OPENINGS_MAX = 64  # first prompts of one tree that are kept
_FAR = 1024  # rows searched for an earlier prompt
KINDS: tuple[Kind, ...] = (*Kind, *[Kind.OTHER] * (KIND_MASK + 1 - len(Kind)))  # by code's low bits
PROMPT = code(Kind.USER, message=True)
PROMPTED = code(Kind.TOOL)  # a machine's prompt to the model
ANSWERS = {turn: code(Kind.ASSISTANT, turn=turn, message=True) for turn in Turn}


class LineClass(NamedTuple):
    """The classification of a line."""

    code: int  # packed (entries.py)
    text: str = ""  # typed by a human, or a sub-agent's task
    queued: bool = False  # typed while the agent was working
    settled: bool = True  # its parts will not change

    @property
    def kind(self) -> Kind:
        return KINDS[self.code & KIND_MASK]


@dataclass(frozen=True, slots=True)
class Oversize:
    """A line too long to be read: its place in the file, and its two ends."""

    offset: int
    head: bytes
    tail: bytes


class ContextUse(msgspec.Struct, array_like=True, frozen=True):
    """Tokens in the model's context, as the agent recorded them; 0: unknown."""

    used: int = 0
    at: int = NOWHERE  # the newest row when `used` was recorded
    window: int = 0


class Tree(msgspec.Struct, eq=False, dict=True):
    """Entries in arrays, one row each in file order, and facts that adapters set.

    A parent comes before its children: an entry whose parent is missing, comes later, or is the
    entry itself is a root. An id that repeats names its newest row. Pitfall: the leaf can move back
    without a trace until the next entry.
    """

    file: str = ""  # the path of the session file; some agents' ids are in its name
    header: Header | None = None
    foreign: bool = False  # the first record shows that the file is not a session
    ids: list[str] = field(default_factory=list)
    parents: array[int] = field(default_factory=lambda: array("i"))
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    lengths: array[int] = field(default_factory=lambda: array("Q"))
    codes: bytearray = field(default_factory=bytearray)  # packed (entries.py)
    ordinals: array[int] = field(default_factory=lambda: array("I"))  # index among the objects
    late: dict[str, int] = field(default_factory=dict)  # id of a parent not read yet -> a child
    cycles: list[str] = field(default_factory=list)  # ids whose parents form a cycle
    seen: int = 0  # JSON objects other than headers
    marks: dict[str, int] = field(default_factory=dict)  # names of rows that survive a rewrite
    leaf: int = NOWHERE
    openings: dict[int, str] = field(default_factory=dict)  # a path's first prompt -> its preview
    command: str = ""  # the first slash command without a text; names a session without prompts
    name: str | None = None  # the title in the agent, the newest in file order
    named_by_person: bool = False  # that title, and not by the agent
    labels: dict[str, str] = field(default_factory=dict)
    activity_ms: int = 0  # newest user or assistant message
    bad_lines: int = 0
    archived: bool = False  # by the agent
    git_branch: str = ""  # the newest recorded
    born_ms: int = 0  # when the file was begun; history copied into it is older
    copied: int = 0  # rows at the start that were copied from another session
    unsettled: int = 0  # rows at the end whose text may still change
    first: str = ""  # identifies the first entry: the same in all copies of one history
    fork_of: str = ""  # title of the session that this one was forked from, if it names that
    provider: str = ""  # of the models, for entries that name none
    # If the agent keeps sums, by day since the epoch (UTC) and model: input, output, cache r/w.
    tokens_on: dict[tuple[int, str], tuple[int, ...]] = field(default_factory=dict)
    context: ContextUse = ContextUse()
    recap: tuple[int, str] = (0, "")  # what the agent told of the rows before this one, a line
    asking: int = NOWHERE  # the newest row that asks the user something through a tool
    asked: str = ""  # what it asks, as one line
    split_answers: bool = False  # one answer of the model may be several entries
    memory: object = None  # the adapter's state between blocks of lines

    def __len__(self) -> int:
        return len(self.ids)

    def __bool__(self) -> bool:
        return True  # even without entries

    def add(self, entry_id: str, parent: str | None, code: int, offset: int, length: int) -> int:
        """Add an entry below the entry `parent`, as the new leaf. Returns its row."""
        above = ROOT if parent is None else self.index.get(parent, ROOT)
        row = self.add_below(above, entry_id, code, offset, length)
        trail = [*self.up(row)] if entry_id in self.late else []
        if (child := self.late.pop(entry_id, ROOT)) in trail:
            self.cycles += [self.ids[at] for at in trail[: trail.index(child) + 1]]
        if above == ROOT and parent not in (None, entry_id):
            self.late.setdefault(parent, row)
        if entry_id:
            self.leaf = row
        return row

    def add_below(self, above: int, entry_id: str, code: int, offset: int, length: int) -> int:
        """Add an entry below a row; the leaf does not move. Returns its row."""
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
        """Rows by id; for an id that repeats, the last row."""
        return {entry_id: row for row, entry_id in enumerate(self.ids) if entry_id}

    @property
    def tokens(self) -> tuple[int, ...] | None:
        """The agent's sums of the whole session, if it keeps them."""
        return tuple(map(sum, zip(*self.tokens_on.values(), strict=True))) or None

    def kind(self, row: int) -> Kind:
        return KINDS[self.codes[row] & KIND_MASK]

    def up(self, row: int) -> Iterator[int]:
        """Walk from a row to its root."""
        while row >= 0:
            yield row
            row = self.parents[row]

    def opened_by(self, row: int, preview: Callable[[], str]) -> None:
        """Keep the preview of a prompt if no prompt above it on its path has text."""
        if len(self.openings) < _OPENINGS_MAX:
            prompts = (
                above
                for above in islice(self.up(self.parents[row]), _FAR)
                if above in self.openings or self.kind(above) is Kind.USER
            )
            above = next(prompts, ROOT)
            if above == ROOT or self.openings.get(above) == "":
                self.openings[row] = preview()

    @property
    def first_prompt(self) -> str:
        """The preview of the first prompt on the path that has text, or ""."""
        rows = self.up(self.leaf) if self.openings else ()
        previews = [words for row in rows if (words := self.openings.get(row))]
        return previews[-1] if previews else ""


@dataclass(frozen=True, slots=True)
class Adapter:
    """The functions of an agent's module or package. No line makes `scan` raise."""

    # Adds whole lines, which begin at this offset of the file.
    scan: Callable[[Tree, bytes, int], None]
    read: Callable[[bytes, str], Entry]  # parses a line; ValueError if it is not a JSON object
    reopen: str  # the command that resumes the session named by its last argument
    # Finds in a file's first line the history in another file that precedes its own.
    base: Callable[[bytes], Base | None] = lambda _line: None
    delete: str = ""  # the command that deletes a session, where no file holds it alone
