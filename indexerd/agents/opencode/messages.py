"""What a message of opencode is: typed by a human, an answer, or made by the machine.

In: a message's line, brief or full, as `sources` makes it. Out: its code, and a human's words.
Half of the messages of role user were typed by nobody (formats.md 4.4). Four things to know:

- what a machine tells the model, so that it goes to work (the prompt of a sub-agent, "Continue
  if you have next steps", a copy of the last prompt after a compaction), is coded as a result
  (TOOL, no message): the turn is open after it, and no human is counted;
- a command that the user ran is a user message with a synthetic note and an answer that no model
  gave: the note is CUSTOM, the answer is BASH, and the turn stays as it was;
- a compaction is a user message with a `compaction` part, and an answer that is the summary;
- an answer is finished when its time or its finish says so, and the turn with it, unless it
  stopped for the sake of its tools.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import Raw, Struct, field

from indexerd.agents.base import TIME_MAX
from indexerd.agents.lines import NOTHING, NUMBERS, decoder
from indexerd.events import KIND_MASK, Kind, Turn, code

PROMPT = code(Kind.USER, message=True)
PROMPTED = code(Kind.TOOL)
QUIET = code(Kind.CUSTOM)
SHELL = code(Kind.BASH)
SUMMARY = code(Kind.COMPACTION, paid=True)
UNSUMMED = code(Kind.OTHER, paid=True)  # a summary that is not there yet, or never will be
OTHER = code(Kind.OTHER)
ANSWERS = {turn: code(Kind.ASSISTANT, turn=turn, message=True) for turn in Turn}

_SHELL_NOTE = "The following tool was executed by the user"
_ATTACHED = "[Attached "  # what a copy of a prompt has in the place of its pictures
_BESIDE = frozenset({"file", "agent"})  # parts that only a human's message has
_UNDONE = frozenset({"pending", "running", "streaming"})
_WORKS_ON = "tool-calls"  # the agent goes on after this
_OF_ROLE = {
    "synthetic": QUIET,
    "system": code(Kind.SYSTEM),
    "shell": SHELL,
    "agent-switched": code(Kind.SETTING),
    "model-switched": code(Kind.SETTING),
}
_KINDS = tuple(Kind)


class Time(Struct):
    """Moments in ms since the epoch, or what else stands there."""

    created: Any = None
    completed: Any = None
    archived: Any = None
    compacted: Any = None
    pruned: Any = None


class State(Struct):
    """How a tool's call stands, what it was given, and what it gave."""

    status: str | None = None
    input: Raw = NOTHING  # while a call is being written it may be a string
    output: str | None = None
    error: str | None = None
    metadata: Raw = NOTHING
    time: Time | None = None
    content: Raw = NOTHING  # of version 2: the pieces of a result
    attachments: Raw = NOTHING


class Part(Struct):
    """A part of a message."""

    type: str | None = None
    text: str | None = None
    synthetic: bool | None = None
    ignored: bool | None = None
    overflow: bool | None = None
    mime: str | None = None
    tail_start_id: str | None = None
    tool: str | None = None
    call_id: str | None = field(default=None, name="callID")
    state: State | None = None
    time: Time | None = None

    @property
    def status(self) -> str | None:
        """How a tool's call stands; None where that is not said."""
        return self.state.status if self.state else None


class Line(Struct):
    """A session's line or a message's."""

    type: str | None = None
    id: str | None = None
    role: str | None = None
    at: Any = None
    time: Time | None = None
    finish: str | None = None
    error: Any = None
    parent_id: str | None = field(default=None, name="parentID")
    summary: Any = None
    status: str | None = None
    outcome: str | None = None
    child: bool | None = None
    parts: list[Part] | None = None
    parent: list[Part] | None = None  # those of the message before, in the full form
    provider: str | None = field(default=None, name="providerID")
    model: str | None = field(default=None, name="modelID")
    tokens: Raw = NOTHING
    cost: Any = None
    command: str | None = None
    output: str | None = None
    recent: str | None = None
    # of a session
    fork_id: str | None = field(default=None, name="forkID")
    version: Any = field(default=None, name="schema")
    directory: str | None = None
    title: str | None = None
    revert: Raw = NOTHING


decode = decoder(Line)


class Said(NamedTuple):
    """What a message is. `settled`: its parts do not change any more."""

    code: int
    text: str = ""  # a human's
    settled: bool = True

    @property
    def kind(self) -> Kind:
        """The kind alone."""
        return _KINDS[self.code & KIND_MASK]


def said(line: Line, *, child: bool, shell: bool) -> Said:
    """What a message is; `child`: of a sub-agent's session; `shell`: it answers a shell note."""
    if line.role == "user":
        return _user(line.parts or [], child)
    if line.role == "assistant":
        return _answer(line, shell)
    if line.role == "compaction":
        done = line.status in (None, "completed")
        return Said(SUMMARY if done else UNSUMMED, settled=done)
    return Said(_OF_ROLE.get(line.role or "", OTHER))


def _user(parts: list[Part], child: bool) -> Said:
    text = "\n".join(words(parts))
    if not text and any(part.type == "compaction" for part in parts):
        return Said(OTHER)
    if not text and is_shell_note(parts):
        return Said(QUIET)
    human = text or any(part.type in _BESIDE for part in parts)
    if child or not human:
        return Said(PROMPTED, settled=bool(parts))
    return Said(PROMPT, text)


def _answer(line: Line, shell: bool) -> Said:
    completed = line.time is not None and bool(line.time.completed)
    done, failed = completed or line.finish is not None, bool(line.error)
    if line.summary is True:
        return Said(SUMMARY if done and not failed else UNSUMMED, settled=done or failed)
    if shell:
        return Said(SHELL, settled=done or failed)
    if failed:
        return Said(ANSWERS[Turn.FAILED])
    at_work = any(one.type == "tool" and one.status in _UNDONE for one in line.parts or ())
    ended = done and line.finish != _WORKS_ON and not at_work
    return Said(ANSWERS[Turn.ENDED if ended else Turn.OPEN], settled=done)


def words(parts: list[Part]) -> list[str]:
    """The texts that a human typed, or a model answered: none that the machine put beside them."""
    return [
        one.text
        for one in parts
        if one.type == "text"
        and not one.synthetic
        and not one.ignored
        and one.text is not None
        and one.text.strip()
    ]


def is_shell_note(parts: list[Part]) -> bool:
    """Whether a user message only notes that the user ran a command."""
    return bool(parts) and all(
        one.type == "text" and one.synthetic and (one.text or "").startswith(_SHELL_NOTE)
        for one in parts
    )


def overflowed(parts: list[Part]) -> bool:
    """Whether a compaction was asked for because the last prompt did not fit: it comes again."""
    return any(one.type == "compaction" and one.overflow for one in parts)


def prompt_words(parts: list[Part]) -> list[str]:
    """What a prompt and its copy have in common."""
    return [text for text in words(parts) if not text.startswith(_ATTACHED)]


def ms(held: Any) -> int:
    """A time in ms since the epoch; 0 for anything else."""
    return int(held) if type(held) in NUMBERS and 0 < held < TIME_MAX else 0
