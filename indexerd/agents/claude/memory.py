"""What the skim remembers from one block of lines to the next.

It lives in `SessionState.notes`, so that it survives a restart with the state; `first` is for
the service, which links sessions of one directory that share it (forks copy ids).
"""

from __future__ import annotations

from typing import Any

import msgspec

KEY = "claude"


class Prompt(msgspec.Struct, array_like=True):
    """A prompt that was counted, as far as a second record of it is recognised."""

    digest: int
    timestamp: str
    queued: bool  # recorded as typed while the agent worked
    waited: bool  # so, or sent later, after it had waited
    source: str  # its line's id, or the one under which it waited
    row: int
    turn: int


class Memory(msgspec.Struct, omit_defaults=True):
    """The skim's own memory; rows are numbers, -1 is none."""

    # the tree
    chained: bool = False  # some line has named a parent
    tail: int = -1  # the newest row of the main conversation, whatever its kind
    opener: int = -1  # the row that opened the current turn
    rewound: bool = False  # a prompt was taken back since the newest compact_boundary
    hook: int = -1  # the newest row in which a hook told the model something
    boundary: int = -1  # the newest compact_boundary's row
    boundary_at: tuple[int, int] = (-1, -1)  # where its line begins and ends
    again: dict[str, str] = msgspec.field(default_factory=dict)  # repeated id -> its newest row's
    lost: dict[str, int] = msgspec.field(default_factory=dict)  # unknown parent -> what it is
    prompts: list[Prompt] = msgspec.field(default_factory=list)  # the newest
    turns: int = 0  # that have ended
    steps: int = 0  # taken in the tree so far, to bound them
    # the header
    begun: str = ""  # the file's first timestamp
    own_ms: int = 0  # first time on a line that a fork does not copy, before the first that it does
    foreign_ms: int = 0  # newest time on a line of another session id
    main: bool = False  # a conversation line was met that is no sub-agent's
    child: bool = False  # the file is a sub-agent's
    named_child: bool = False  # its path says so
    # names
    titles: dict[str, str] = msgspec.field(default_factory=dict)  # kind -> the newest
    summaries: dict[str, str] = msgspec.field(default_factory=dict)  # of ids not met yet


def recall(notes: dict[str, Any]) -> Memory:
    """The memory in a state's notes, or an empty one."""
    return msgspec.convert(notes.setdefault(KEY, {}), Memory)


def store(notes: dict[str, Any], memory: Memory) -> None:
    """Put it back."""
    notes[KEY] = msgspec.to_builtins(memory)
