"""What a message of opencode is: typed by a human, an answer, or made by the machine.

In: a message's line, brief or full. Out: its code, and a human's words. Half of the messages of
role user were typed by nobody (formats.md 4.4). Four things to know:

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

from indexerd.events import KIND_MASK, Kind, Turn, code
from indexerd.privacy.sanitize import scrub

PROMPT = code(Kind.USER, message=True)
PROMPTED = code(Kind.TOOL)
QUIET = code(Kind.CUSTOM)
SHELL = code(Kind.BASH)
SUMMARY = code(Kind.COMPACTION, paid=True)
UNSUMMED = code(Kind.OTHER, paid=True)  # a summary that is not there yet, or never will be
SETTING = code(Kind.SETTING)
SYSTEM = code(Kind.SYSTEM)
OTHER = code(Kind.OTHER)
ANSWERS = {turn: code(Kind.ASSISTANT, turn=turn, message=True) for turn in Turn}

_SHELL_NOTE = "The following tool was executed by the user"
_ATTACHED = "[Attached "  # what a copy of a prompt has in the place of its pictures
# Tuples, not sets: what is looked for in them may be of any type.
_BESIDE = ("file", "agent")  # parts that only a human's message has
_UNDONE = ("pending", "running", "streaming")
_WORKS_ON = "tool-calls"  # the agent goes on after this
_OF_ROLE = {
    "synthetic": QUIET,
    "system": SYSTEM,
    "shell": SHELL,
    "agent-switched": SETTING,
    "model-switched": SETTING,
}


_KINDS = tuple(Kind)


class Said(NamedTuple):
    """What a message is. `settled`: its parts do not change any more."""

    code: int
    text: str = ""  # a human's
    settled: bool = True

    @property
    def kind(self) -> Kind:
        """The kind alone."""
        return _KINDS[self.code & KIND_MASK]


def said(held: dict[str, Any], *, child: bool, shell: bool) -> Said:
    """What a message is; `child`: of a sub-agent's session; `shell`: it answers a shell note."""
    role = held.get("role")
    if role == "user":
        return _user(parts_of(held), child)
    if role == "assistant":
        return _answer(held, shell)
    if role == "compaction":
        done = held.get("status") in (None, "completed")
        return Said(SUMMARY if done else UNSUMMED, settled=done)
    return Said(_OF_ROLE.get(role, OTHER) if isinstance(role, str) else OTHER)


def _user(parts: list[dict[str, Any]], child: bool) -> Said:
    text = "\n".join(words(parts))
    if not text and any(part.get("type") == "compaction" for part in parts):
        return Said(OTHER)
    if not text and is_shell_note(parts):
        return Said(QUIET)
    human = text or any(part.get("type") in _BESIDE for part in parts)
    if child or not human:
        return Said(PROMPTED, settled=bool(parts))
    return Said(PROMPT, text)


def _answer(held: dict[str, Any], shell: bool) -> Said:
    time, finish = held.get("time"), held.get("finish")
    completed = isinstance(time, dict) and bool(time.get("completed"))
    done = completed or isinstance(finish, str)
    failed = bool(held.get("error"))
    if held.get("summary") is True:
        return Said(SUMMARY if done and not failed else UNSUMMED, settled=done or failed)
    if shell:
        return Said(SHELL, settled=done or failed)
    if failed:
        return Said(ANSWERS[Turn.FAILED])
    ended = done and finish != _WORKS_ON and not any(map(_at_work, parts_of(held)))
    return Said(ANSWERS[Turn.ENDED if ended else Turn.OPEN], settled=done)


def _at_work(part: dict[str, Any]) -> bool:
    return part.get("type") == "tool" and status_of(part) in _UNDONE


def status_of(part: dict[str, Any]) -> Any:
    """How a tool's call stands; None where that is not said."""
    state = part.get("state")
    return state.get("status") if isinstance(state, dict) else None


def parts_of(held: dict[str, Any], key: str = "parts") -> list[dict[str, Any]]:
    """The parts of a message, as far as they are objects."""
    several = held.get(key)
    return [one for one in several if isinstance(one, dict)] if isinstance(several, list) else []


def words(parts: list[dict[str, Any]]) -> list[str]:
    """The texts that a human typed, or a model answered: none that the machine put beside them."""
    return [
        scrub(one["text"])
        for one in parts
        if one.get("type") == "text"
        and one.get("synthetic") is not True
        and one.get("ignored") is not True
        and isinstance(one.get("text"), str)
        and one["text"].strip()
    ]


def is_shell_note(parts: list[dict[str, Any]]) -> bool:
    """Whether a user message only notes that the user ran a command."""
    return bool(parts) and all(
        one.get("type") == "text"
        and one.get("synthetic") is True
        and isinstance(one.get("text"), str)
        and one["text"].startswith(_SHELL_NOTE)
        for one in parts
    )


def overflowed(parts: list[dict[str, Any]]) -> bool:
    """Whether a compaction was asked for because the last prompt did not fit: it comes again."""
    return any(one.get("type") == "compaction" and one.get("overflow") is True for one in parts)


def prompt_words(parts: list[dict[str, Any]]) -> list[str]:
    """What a prompt and its copy have in common."""
    return [text for text in words(parts) if not text.startswith(_ATTACHED)]
