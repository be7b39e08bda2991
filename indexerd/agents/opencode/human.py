"""What a message of opencode is: typed by a human, an answer, or made by the machine.

In: a message's line, brief or full, as `sources` makes it. Out: its code, and a human's words.
Half of the messages of role user were typed by nobody. Four things to know:

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

from indexerd.agents.base import ANSWERS, KINDS, PROMPT, PROMPTED
from indexerd.agents.json_lines import as_dict, as_list, string
from indexerd.events import KIND_MASK, Kind, Turn, code

SUMMARY = code(Kind.COMPACTION, paid=True)
_UNSUMMED = code(Kind.OTHER, paid=True)  # a summary that is not there yet, or never will be
_OTHER, _QUIET, _SHELL = code(Kind.OTHER), code(Kind.CUSTOM), code(Kind.BASH)
_OF_ROLE = {
    "synthetic": _QUIET,
    "system": code(Kind.SYSTEM),
    "shell": _SHELL,
    "agent-switched": code(Kind.SETTING),
    "model-switched": code(Kind.SETTING),
}
_SHELL_NOTE = "The following tool was executed by the user"
_BESIDE = frozenset({"file", "agent"})  # parts that only a human's message has
_UNDONE = frozenset({"pending", "running", "streaming"})
_WORKS_ON = "tool-calls"  # the agent goes on after this

Fields = dict[str, Any]  # of a line, or of one of its parts


class Said(NamedTuple):
    """What a message is. `settled`: its parts do not change any more."""

    code: int
    text: str = ""  # a human's
    settled: bool = True

    @property
    def kind(self) -> Kind:
        """The kind alone."""
        return KINDS[self.code & KIND_MASK]


def parts_of(line: Fields, key: str = "parts") -> list[Fields]:
    """The parts of a message; `parent`: of the one before it, in the full form of a line."""
    return [part for part in as_list(line.get(key)) if isinstance(part, dict)]


def said(line: Fields, *, child: bool, shell: bool) -> Said:
    """What a message is; `child`: of a sub-agent's session; `shell`: it answers a shell note."""
    role = string(line.get("role"))
    if role == "user":
        return _user(parts_of(line), child)
    if role == "assistant":
        return _answer(line, shell)
    if role == "compaction":
        done = string(line.get("status")) in ("", "completed")
        return Said(SUMMARY if done else _UNSUMMED, settled=done)
    return Said(_OF_ROLE.get(role, _OTHER))


def _user(parts: list[Fields], child: bool) -> Said:
    text = "\n".join(words(parts))
    if not text and any(part.get("type") == "compaction" for part in parts):
        return Said(_OTHER)
    if not text and is_shell_note(parts):
        return Said(_QUIET)
    human = text or any(string(part.get("type")) in _BESIDE for part in parts)
    if child or not human:
        return Said(PROMPTED, settled=bool(parts))
    return Said(PROMPT, text)


def _answer(line: Fields, shell: bool) -> Said:
    finish, failed = line.get("finish"), bool(line.get("error"))
    done = bool(as_dict(line.get("time")).get("completed")) or isinstance(finish, str)
    if line.get("summary") is True:
        return Said(SUMMARY if done and not failed else _UNSUMMED, settled=done or failed)
    if shell:
        return Said(_SHELL, settled=done or failed)
    if failed:
        return Said(ANSWERS[Turn.FAILED])
    at_work = any(status_of(one) in _UNDONE for one in parts_of(line) if one.get("type") == "tool")
    ended = done and finish != _WORKS_ON and not at_work
    return Said(ANSWERS[Turn.ENDED if ended else Turn.OPEN], settled=done)


def status_of(part: Fields) -> str:
    """How a tool's call stands; "" where that is not said."""
    return string(as_dict(part.get("state")).get("status"))


def words(parts: list[Fields]) -> list[str]:
    """The texts that a human typed, or a model answered: none that the machine put beside them."""
    return [
        text
        for one in parts
        if one.get("type") == "text" and one.get("synthetic") is not True
        if one.get("ignored") is not True and (text := string(one.get("text"))).strip()
    ]


def is_shell_note(parts: list[Fields]) -> bool:
    """Whether a user message only notes that the user ran a command."""
    return bool(parts) and all(
        one.get("type") == "text"
        and one.get("synthetic") is True
        and string(one.get("text")).startswith(_SHELL_NOTE)
        for one in parts
    )
