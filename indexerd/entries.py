"""Types that all packages share: the contents of a session's lines, and a model's input."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import msgspec

# The characters that JavaScript's trim() removes, as pi does; Python's strip() differs.
JS_SPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)


class Kind(IntEnum):
    """The kind of a node of the session tree."""

    OTHER = 0
    USER = 1  # typed by a human
    ASSISTANT = 2
    TOOL = 3  # a tool's result
    SYSTEM = 4
    BASH = 5  # a command that the human ran
    CUSTOM = 6  # text of an extension, sent to the model as user text
    COMPACTION = 7
    BRANCH_SUMMARY = 8
    SETTING = 9  # model, thinking level, tools
    LABEL = 10
    NAME = 11
    CALL = 12  # a tool's call, or a record of what it did, on a line of its own


class Turn(IntEnum):
    """The state of the agent's turn after a node."""

    OPEN = 0  # the agent works, or waits for a tool
    ENDED = 1
    FAILED = 2  # ended by an error or an abort; a retry may follow


# A node's code is one byte: kind in the low 4 bits, turn in the next 2, then two flags.
KIND_MASK = 0x0F
TURN_SHIFT = 4
TURN_MASK = 0x30
MESSAGE = 0x40  # counts as a message of the session, whatever its kind
EXTRA = 0x80  # has what its kind does not show: a model call's cost, or in a tool's result a reply


def code(kind: Kind, *, turn: Turn = Turn.OPEN, message: bool = False, extra: bool = False) -> int:
    """Pack a node's kind, turn mark and flags into its one-byte code."""
    return kind | (turn << TURN_SHIFT) | (MESSAGE if message else 0) | (EXTRA if extra else 0)


@dataclass(frozen=True, slots=True)
class Header:
    """The beginning of a session file, before its first entry."""

    session_id: str
    cwd: str
    created_at: str  # ISO-8601 as written
    version: int
    parent: str | None = None  # path of the parent session file, verbatim
    parent_id: str | None = None  # id of the session that forked or started it
    subagent: bool = False


@dataclass(frozen=True, slots=True)
class Base:
    """History in another file of the same agent, before this file's own lines."""

    session_id: str
    end: int  # bytes of that file that belong to the history


class ToolCall(msgspec.Struct, frozen=True):
    """One call of a tool. Paths are verbatim."""

    name: str  # "" for a record of a call that was already counted
    detail: str = ""  # a command line, a path or a query, for a notable use
    id: str = ""  # a failed result names it; "" if none can
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    # An object or its JSON text, as the agent stored it; for summaries only.
    arguments: Any = None


class ToolResult(msgspec.Struct, frozen=True):
    """The full result of a tool call."""

    call: str  # the call's id, or ""
    name: str = ""  # of the tool, if the agent stored it here
    text: str = ""
    cleared: bool = False  # the agent itself no longer sends it
    patch: tuple[str, ...] = ()  # the lines of the diff that the agent stored with an edit
    reply: str = ""  # what the user says in it, as Markdown


class Tokens(msgspec.Struct, frozen=True):
    """The cost of a model call, as the agent recorded it."""

    input: int = 0  # without cache reads and writes
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    hour: int = 0  # of the cache writes: those that last an hour, at another price
    cost_usd: float | None = None
    answer: str = ""  # its id; of several records only the newest counts
    total: int = 0  # of the whole context with this answer, if recorded


class Command(msgspec.Struct, frozen=True):
    """A command that the user ran, and its result."""

    command: str
    output: str
    exit_code: int | None = None
    cancelled: bool = False
    truncated: bool = False
    output_file: str | None = None  # has the whole output
    hidden: bool = False  # it is not sent to the model


class Edit(msgspec.Struct, frozen=True):
    """The new contents of an earlier entry."""

    target: str  # its id
    removed: bool = False  # the entry is omitted
    texts: tuple[str, ...] = ()
    thinking: tuple[str, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    images: int = 0


class Retained(msgspec.Struct, frozen=True):
    """A message that is stored in a compaction."""

    role: str
    text: str
    human: bool = False


class Compaction(msgspec.Struct, frozen=True):
    """A compaction's replacement for the messages before it."""

    kept: str | None = None  # id of the first earlier entry that is kept
    retained: tuple[Retained, ...] | None = None  # instead of all earlier messages
    whole: bool = False  # `retained` includes the summary
    role: str = "compactionSummary"  # of the summary
    system: str | None = None  # text of the system message before it
    tokens_before: int | float | None = None


class Entry(msgspec.Struct, frozen=True):
    """One node, read in full. Texts are as stored, but without lone surrogates."""

    id: str
    kind: Kind
    type: str
    role: str | None
    timestamp: str
    texts: tuple[str, ...] = ()
    tools: tuple[ToolCall, ...] = ()
    failed: tuple[str, ...] = ()  # ids of calls that failed
    model: str | None = None
    tokens: Tokens | None = None
    thinking: tuple[str, ...] = ()  # the model's reasoning
    images: int = 0  # number of images
    attached: tuple[str, ...] = ()  # names of other files whose contents it holds
    results: tuple[ToolResult, ...] = ()  # tool results on this line
    # For what the model gets, if that differs:
    sent: tuple[str, ...] | None = None  # the texts
    sent_as: str | None = None  # the role
    unseen: bool = False  # later lines exclude it from the conversation
    restarts: bool = False  # a prompt above which the model sees nothing
    # For some kinds only:
    provider: str | None = None  # of the model
    next_model: str | None = None  # set by a setting
    thinking_level: str | None = None  # empty: there is none
    stop_reason: str = ""
    ended: str = ""  # when its agent had finished it, if it began earlier, at `timestamp`
    error: str = ""
    custom_type: str | None = None  # an extension's name for its `data`
    data: Any = None
    display: bool | None = None  # False: hidden from users
    from_id: str | None = None  # leaf of the summarized branch
    from_hook: bool | None = None  # whether an extension made the summary
    stored: Any = None  # stored with a summary by its author
    prompt: dict[str, Any] | None = None  # a system prompt's sections and tools, as stored
    ran: Command | None = None
    edit: Edit | None = None
    compaction: Compaction | None = None
    plan: str = ""  # heading of the plan that it presents or carries out

    @property
    def as_sent(self) -> tuple[str, ...]:
        return self.texts if self.sent is None else self.sent

    @property
    def text(self) -> str:
        """The trimmed, non-empty text blocks, joined by newlines."""
        return "\n".join(part for part in (text.strip(JS_SPACE) for text in self.texts) if part)

    @property
    def reply(self) -> str:
        """What the user says in the results of tools, as Markdown."""
        return "\n".join(result.reply for result in self.results if result.reply)

    @property
    def said(self) -> str:
        """What a person or the model says in it: of a tool's entry, only the user's reply."""
        if self.kind is Kind.TOOL:
            return self.reply
        return f"{self.text}\n\n{self.reply}".strip() if self.reply else self.text


ASKED = "Asked: "  # begins a recap that tells what was asked for, not what was done


@dataclass(frozen=True, slots=True)
class Facts:
    """A session's conversation and facts, redacted, for a local model."""

    messages: tuple[tuple[str, str], ...]  # ("user" | "assistant", text), oldest first
    files_read: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()
    tools_used: dict[str, int] = field(default_factory=dict)
    cwd: str = ""
    title: str = ""  # the agent's own
    # Of plans, documents, commits, pull requests and issues, oldest first:
    # ("plan" | "doc" | "commit" | "pr" | "issue", title).
    titles: tuple[tuple[str, str], ...] = ()
    recap: str = ""  # what most of the session did, by the agent's own model; or ASKED and requests


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a session, and its messages, redacted, for a local model."""

    text: str
    sections: tuple[tuple[str, str, str], ...]  # (entry id, role, text), oldest first


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a conversation to summarize, redacted, for a local model.

    `kind`: segment (a digest's bullets), checkpoint (to continue from; `previous` is merged in),
    turn (the beginning of a turn whose end is kept), or branch (an abandoned one).
    """

    kind: str
    messages: tuple[tuple[str, str], ...]  # ("user" | "assistant", text), oldest first
    cwd: str = ""
    previous: str = ""  # the summary before it
    instructions: str = ""  # from the user
    max_tokens: int = 1000  # of the summary, at 4 characters each


@dataclass(frozen=True, slots=True)
class Prompt:
    """A model's input. Only local models read `facts`, `question` and `stretch`."""

    system: str
    user: str
    schema: dict[str, Any] | None = None  # JSON schema of the answer, if any
    max_output_tokens: int = 4096
    facts: Facts | None = None
    question: Question | None = None
    stretch: Stretch | None = None
