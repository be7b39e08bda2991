"""What a message of opencode is: typed by a human, an answer, or made by the machine.

Half of the messages of role user were typed by nobody:

- what a machine tells the model, so that it goes to work (the prompt of a sub-agent, "Continue
  if you have next steps"), is coded as a result (TOOL, no message): the turn is open after it;
- a command that the user ran is a user message with a synthetic note (CUSTOM) and an answer that
  no model gave (BASH): the turn stays as it was;
- a compaction is a user message with a `compaction` part, and an answer that is the summary.
"""

from __future__ import annotations

from indexerd.agents.base import ANSWERS, PROMPT, PROMPTED, Said
from indexerd.agents.json_lines import Fields, as_dict, as_list, string
from indexerd.events import Kind, Turn, code

SUMMARY = code(Kind.COMPACTION, paid=True)
_UNSUMMED = code(Kind.OTHER, paid=True)  # a summary that is not there yet, or never will be
_OF_ROLE = {
    "synthetic": Kind.CUSTOM,
    "system": Kind.SYSTEM,
    "shell": Kind.BASH,
    "agent-switched": Kind.SETTING,
    "model-switched": Kind.SETTING,
}
_SHELL_NOTE = "The following tool was executed by the user"
_UNDONE = frozenset({"pending", "running", "streaming"})


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
    return Said(_OF_ROLE.get(role, Kind.OTHER))


def _user(parts: list[Fields], child: bool) -> Said:
    text, types = "\n".join(words(parts)), {string(part.get("type")) for part in parts}
    if not text and "compaction" in types:
        return Said(Kind.OTHER)
    if not text and is_shell_note(parts):
        return Said(Kind.CUSTOM)
    if child or not (text or types & {"file", "agent"}):
        return Said(PROMPTED, settled=bool(parts))
    return Said(PROMPT, text)


def _answer(line: Fields, shell: bool) -> Said:
    finish, failed = line.get("finish"), bool(line.get("error"))
    done = bool(as_dict(line.get("time")).get("completed")) or isinstance(finish, str)
    if line.get("summary") is True:
        return Said(SUMMARY if done and not failed else _UNSUMMED, settled=done or failed)
    if shell:
        return Said(Kind.BASH, settled=done or failed)
    if failed:
        return Said(ANSWERS[Turn.FAILED])
    at_work = any(status_of(one) in _UNDONE for one in parts_of(line) if one.get("type") == "tool")
    ended = done and finish != "tool-calls" and not at_work
    return Said(ANSWERS[Turn.ENDED if ended else Turn.OPEN], settled=done)


def status_of(part: Fields) -> str:
    return string(as_dict(part.get("state")).get("status"))


def words(parts: list[Fields]) -> list[str]:
    """The texts that a human typed, or a model answered: none that the machine put beside them."""
    return [
        text
        for one in parts
        if one.get("type") == "text" and True not in (one.get("synthetic"), one.get("ignored"))
        if (text := string(one.get("text"))).strip()
    ]


def is_shell_note(parts: list[Fields]) -> bool:
    return bool(parts) and all(
        one.get("synthetic") is True and string(one.get("text")).startswith(_SHELL_NOTE)
        for one in parts
    )
