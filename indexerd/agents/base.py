"""What an adapter offers, and the tree that it fills.

An adapter's whole job: a line of its agent's file becomes an entry of a tree (`scan`), or is read
in full (`read`). Everything above the adapters knows trees of entries, never an agent's format.
What an agent keeps in a database reaches its adapter as lines of JSON all the same, made by
`sources`: the first says what the session is, and each further one is a message.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import msgspec

from indexerd.events import Base, Entry, Header, Kind, Turn

READ_MAX = 64 * 1024 * 1024  # bytes of one line that is read in full, newline not counted
ROOT = -1  # the parent of a root
NOWHERE = -1  # no leaf: an empty session, or one whose leaf was moved before its first entry
PATH_MAX = 8192  # characters of a path that are kept
WORD_MAX = 64  # characters of a time that are kept
TIME_MAX = 253_402_300_800_000  # ms since the epoch: the year 10000


@dataclass(frozen=True, slots=True)
class Oversize:
    """A line too long to hold while a file is followed: where it is, and its two ends."""

    offset: int
    length: int  # bytes, newline included
    head: bytes
    tail: bytes

    @property
    def readable(self) -> int:
        """Bytes of the line, newline not counted, for its row; 0 where nobody may read it."""
        length = self.length - 1
        return length if length <= READ_MAX else 0


class ContextUse(msgspec.Struct, array_like=True, frozen=True):
    """How full the model's context is, as the agent recorded it, in tokens; 0: not said."""

    used: int = 0
    at: int = NOWHERE  # the newest row when that was said
    window: int = 0


class Tree(Protocol):
    """What an adapter may see and change of a session's state (sessions/state.py)."""

    file: str  # some agents' ids are in its name
    header: Header | None
    foreign: bool  # the first record shows that this is no session (S1.3)
    leaf: int
    seen: int  # JSON objects other than headers
    name: str | None  # the agent's own, newest in file order
    labels: dict[str, str]
    activity_ms: int  # newest user or assistant message
    bad_lines: int
    oversized: int  # lines too long to be read at all
    archived: bool  # the agent itself says so
    git_branch: str  # the newest that the agent recorded
    born_ms: int  # when the file began; copies of history are older than their file
    copied: int  # rows at the start that are copies of another session's
    unsettled: int  # rows at the end whose text may still change
    first: str  # what sessions share that are copies of one history: its first entry
    fork_of: str  # the title of the session that this one says it was forked from
    provider: str  # whose models are used where no entry says it
    tokens: tuple[int, int, int, int] | None  # input, output, cache: where the agent sums them up
    context: ContextUse
    split_answers: bool  # one answer of the model is several entries
    memory: bytes  # what the adapter remembers between blocks of lines, in its own encoding

    @property
    def ids(self) -> list[str]: ...  # noqa: D102
    @property
    def index(self) -> dict[str, int]: ...  # noqa: D102
    @property
    def parents(self) -> array[int]: ...  # noqa: D102
    @property
    def offsets(self) -> array[int]: ...  # noqa: D102
    @property
    def lengths(self) -> array[int]: ...  # noqa: D102
    @property
    def codes(self) -> bytearray: ...  # noqa: D102
    @property
    def marks(self) -> dict[str, int]: ...  # noqa: D102
    @property
    def turn(self) -> Turn: ...  # noqa: D102
    @property
    def first_user(self) -> str: ...  # noqa: D102
    @first_user.setter
    def first_user(self, words: str) -> None: ...
    def __len__(self) -> int: ...

    def add(self, entry_id: str, parent: str | None, code: int, offset: int, length: int) -> int:
        """Add one entry, which becomes the leaf; its row. `code` is packed (events.py)."""
        ...

    def skip(self) -> None:
        """Pass over a JSON object that is no entry: it takes an ordinal all the same."""
        ...

    def recode(self, row: int, code: int) -> None:
        """Say anew what a row is: later lines showed it in another light."""
        ...

    def mark(self, name: str, row: int) -> None:
        """Name a row so that it is found again when the agent rewrote the file (S3.6)."""
        ...

    def move_leaf(self, entry_id: str | None) -> None:
        """Move the leaf to a known entry, or (None) before the first."""
        ...

    def kind(self, row: int) -> Kind:
        """What a row is."""
        ...

    def parent(self, row: int) -> int:
        """The row above, or ROOT."""
        ...

    def up(self, row: int) -> Iterator[int]:
        """Walk from a row to its root."""
        ...


class Adapter(Protocol):
    """What the package of an agent offers."""

    NAME: str

    def scan(self, tree: Tree, data: bytes, base: int) -> None:
        """Take in whole lines that stand at file offset `base`. Nothing they hold raises."""
        ...

    def scan_oversize(self, tree: Tree, line: Oversize) -> None:
        """Take in a line too long to hold, from its two ends (F8)."""
        ...

    def read(self, line: bytes, entry_id: str) -> Entry:
        """Parse one entry's line in full; ValueError where it holds no JSON object.

        Wrong types read as absent, and texts come scrubbed of lone surrogates.
        """
        ...

    def base(self, line: bytes) -> Base | None:
        """The history in another file that a file's first line says comes before its own."""
        ...

    def preview(self, text: str) -> str:
        """A user message as one line of at most 200 characters, without what was put around it."""
        ...

    def resume_command(
        self, session_id: str, cwd: str, session_file: str, variables: str = "", /
    ) -> str:
        """The shell command with which the agent opens this session again.

        `variables` are the shell's assignments that tell it where its sessions are, if any.
        """
        ...
