"""Types that all packages share: what a line of a session says, and what a model is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import msgspec

# What JavaScript's trim() takes off: pi trims texts with it, and Python's strip() differs.
JS_SPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)


class Kind(IntEnum):
    """What a node of the session tree is."""

    OTHER = 0
    USER = 1  # typed by a human
    ASSISTANT = 2
    TOOL = 3  # a tool's result
    SYSTEM = 4
    BASH = 5  # a command that the human ran
    CUSTOM = 6  # said by an extension, shown to the model as user text
    COMPACTION = 7
    BRANCH_SUMMARY = 8
    SETTING = 9  # model, thinking level, tools
    LABEL = 10
    NAME = 11
    CALL = 12  # a tool's call, or a record of what it did, on a line of its own


class Turn(IntEnum):
    """How the agent's turn stands after a node."""

    OPEN = 0  # the agent is at work, or waits for a tool
    ENDED = 1
    FAILED = 2  # ended by an error or an abort; a retry may follow


# A node's code is one byte: kind in the low 4 bits, turn in the next 2, then two flags.
KIND_MASK = 0x0F
TURN_SHIFT = 4
TURN_MASK = 0x30
MESSAGE = 0x40  # counts as a message of the session, whatever its kind
PAID = 0x80  # no answer, and yet it says what a model's call took: a summary, a cache kept warm


def code(kind: Kind, *, turn: Turn = Turn.OPEN, message: bool = False, paid: bool = False) -> int:
    """Pack a node's kind, turn mark and flags into its one-byte code."""
    return kind | (turn << TURN_SHIFT) | (MESSAGE if message else 0) | (PAID if paid else 0)


@dataclass(frozen=True, slots=True)
class Header:
    """What a session file says of itself before its first entry."""

    session_id: str
    cwd: str
    created_at: str  # ISO-8601 as written
    version: int
    parent: str | None = None  # path of the parent session file, verbatim
    parent_id: str | None = None  # id of the session it was forked from or started by
    subagent: bool = False


@dataclass(frozen=True, slots=True)
class Base:
    """History that stands in another file of the same agent, before this file's own lines."""

    session_id: str
    end: int  # bytes of that file that belong to the history
    # Lines count on through all files of a history; 0 where it is not said. It tells files of one
    # session apart that have a line end at the same byte, and is no part of what is asked for.
    end_ordinal: int = field(default=0, compare=False)


class ToolCall(msgspec.Struct, frozen=True):
    """One use of a tool, as far as facts about a session need it. Paths are verbatim."""

    name: str  # "" for a record of what a call that was counted already did
    detail: str = ""  # a command line, a path or a query, for a notable use
    id: str = ""  # what a result that takes it back names it by; "" where none can
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    # As the agent stored them: an object, or the text of one. For a summary alone.
    arguments: Any = None


class ToolResult(msgspec.Struct, frozen=True):
    """What a call came back with, where the whole of it is wanted."""

    call: str  # the call's id; "" where none is said
    name: str = ""  # of the tool, where the agent stored it here
    text: str = ""
    cleared: bool = False  # the agent itself shows its model no more of it


class Tokens(msgspec.Struct, frozen=True):
    """What a model's call cost, as the agent recorded it."""

    input: int = 0  # without what was read from or written to a cache
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost_usd: float | None = None
    answer: str = ""  # answers of one id are one answer: the newest counts
    total: int = 0  # of the whole context with this answer, as counted there; 0: not said


class Command(msgspec.Struct, frozen=True):
    """A command that the user ran, and how it ended, as far as that was stored."""

    command: str
    output: str
    exit_code: int | None = None
    cancelled: bool = False
    truncated: bool = False
    output_file: str | None = None  # with all of the output
    hidden: bool = False  # the model is told nothing of it


class Edit(msgspec.Struct, frozen=True):
    """All that an earlier entry says from now on."""

    target: str  # its id
    removed: bool = False  # it is left out
    texts: tuple[str, ...] = ()
    thinking: tuple[str, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    images: int = 0


class Retained(msgspec.Struct, frozen=True):
    """A message that a compaction brings along."""

    role: str
    text: str
    human: bool = False


class Compaction(msgspec.Struct, frozen=True):
    """What stands for the messages before a summary."""

    kept: str | None = None  # id of the first earlier entry that stays
    retained: tuple[Retained, ...] | None = None  # in the place of all earlier messages
    whole: bool = False  # these hold the summary, too
    role: str = "compactionSummary"  # of the summary
    system: str | None = None  # text of the system message that goes before it
    tokens_before: int | float | None = None


class Entry(msgspec.Struct, frozen=True):
    """One node, read in full. Texts are as the agent stored them, scrubbed of lone surrogates."""

    id: str
    kind: Kind
    type: str
    role: str | None
    timestamp: str
    texts: tuple[str, ...] = ()
    tools: tuple[ToolCall, ...] = ()
    failed: tuple[str, ...] = ()  # ids of calls that came to nothing
    model: str | None = None
    tokens: Tokens | None = None
    thinking: tuple[str, ...] = ()  # what the model thought before it spoke
    images: int = 0  # that stand beside the texts
    results: tuple[ToolResult, ...] = ()  # what tools gave back on this line
    # what the model gets, where that differs from what was said
    sent: tuple[str, ...] | None = None  # the texts, where those of the entry are less
    sent_as: str | None = None  # the role, where the kind does not tell it
    ahead: bool = False  # before what was said since the newest answer, after results of tools
    unseen: bool = False  # it is no part of the conversation, as later lines show
    # of some kinds alone
    provider: str | None = None  # whose model
    next_model: str | None = None  # that a setting chooses
    thinking_level: str | None = None  # empty: there is none
    stop_reason: str = ""
    error: str = ""
    custom_type: str | None = None  # an extension's name for what it stored, in `data`
    data: Any = None
    display: bool | None = None  # False: its author wants it hidden from people
    from_id: str | None = None  # the leaf of the branch that a summary tells of
    from_hook: bool | None = None  # an extension made the summary
    stored: Any = None  # what whoever made a summary stored with it
    prompt: dict[str, Any] | None = None  # a system prompt's sections and tools, as stored
    ran: Command | None = None
    edit: Edit | None = None
    compaction: Compaction | None = None

    @property
    def as_sent(self) -> tuple[str, ...]:
        """The texts as the model gets them."""
        return self.texts if self.sent is None else self.sent

    @property
    def text(self) -> str:
        """The text blocks: each trimmed, empty ones dropped, joined by a newline."""
        return "\n".join(part for part in (text.strip(JS_SPACE) for text in self.texts) if part)


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a session's conversation, already redacted: food for a local model."""

    messages: tuple[tuple[str, str], ...]  # ("user" | "assistant", text), oldest first
    files_read: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()
    tools_used: dict[str, int] = field(default_factory=dict)
    cwd: str = ""
    previous_summary: str | None = None  # of an earlier run, where history was cut
    title: str = ""  # the agent's own
    commands: tuple[str, ...] = ()  # some that were run


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a session, and what was said there, redacted: food for a local model."""

    text: str
    said: tuple[tuple[str, str, str], ...]  # (entry id, role, text), oldest first


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a conversation that is to be summed up, redacted: food for a local model.

    `kind`: segment (a digest's bullets), checkpoint (to go on from; `previous` is merged into it),
    turn (the beginning of a turn whose end stays), or branch (one that was left).
    """

    kind: str
    messages: tuple[tuple[str, str], ...]  # ("user" | "assistant", text), oldest first
    files_read: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()
    tools_used: dict[str, int] = field(default_factory=dict)
    cwd: str = ""
    previous: str = ""  # summary of what came before
    instructions: str = ""  # what the user wants it to dwell on
    max_tokens: int = 1000  # of the summary, at 4 characters each


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is sent to a model.

    `facts`, `question` and `stretch` never leave the machine: only local models read them.
    """

    system: str
    user: str
    schema: dict[str, Any] | None = None  # JSON schema of the answer, where one is wanted
    max_output_tokens: int = 4096
    facts: Facts | None = None
    question: Question | None = None
    stretch: Stretch | None = None
