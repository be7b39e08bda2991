"""What hooks tell the model in a Claude Code session: lines of type `attachment`.

In: an attachment of a kind in `HOOKS`, as parsed JSON. Out: the text as the model gets it, in the
words that Claude Code puts around it, or nothing. Wrong types read as absent, and nothing raises.

What surprised us: the text stands in the file behind the prompt, and is sent before it, in the
same message; what a hook printed is sent for the beginning of a session and for a prompt only; a
message to the user and an error that blocks nothing are not sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from indexerd.agents.lines import string

_PRINTS = ("SessionStart", "UserPromptSubmit", "UserPromptExpansion")  # events; a tuple: any type
_OPENING, _CLOSING = "<system-reminder>\n", "\n</system-reminder>"


def told(held: dict[str, Any]) -> tuple[str, ...]:
    """The texts of a hook's attachment that go to the model."""
    kind = held.get("type")
    look = _KINDS.get(kind) if isinstance(kind, str) else None
    found = look(held) if look else []
    return tuple(f"{_OPENING}{text}{_CLOSING}" for text in found)


def _context(held: dict[str, Any]) -> list[str]:
    content = held.get("content")
    several = content if isinstance(content, list) else [content]
    text = "\n".join(one for one in several if isinstance(one, str))
    return [f"{_name(held)} hook additional context: {text}"] if text else []


def _printed(held: dict[str, Any]) -> list[str]:
    text = string(held.get("content"))
    sent = text and held.get("hookEvent") in _PRINTS
    return [f"{_name(held)} hook success: {text}"] if sent else []


def _blocked(held: dict[str, Any]) -> list[str]:
    error = held.get("blockingError")
    wrong = error if isinstance(error, dict) else {}
    why, command = string(wrong.get("blockingError")), string(wrong.get("command"))
    return [f'{_name(held)} hook blocking error from command: "{command}": {why}'] if why else []


def _stopped(held: dict[str, Any]) -> list[str]:
    why = string(held.get("message"))
    return [f"{_name(held)} hook stopped continuation: {why}"] if why else []


def _answered_late(held: dict[str, Any]) -> list[str]:
    """What a hook said that nobody waited for."""
    answer = held.get("response")
    given = answer if isinstance(answer, dict) else {}
    output = given.get("hookSpecificOutput")
    context = string(output.get("additionalContext")) if isinstance(output, dict) else ""
    if context and held.get("isPlainOutput") is True:
        context = f"{_name(held)} hook success: {context}"
    return [text for text in (string(given.get("systemMessage")), context) if text]


def _name(held: dict[str, Any]) -> str:
    return string(held.get("hookName"))


_KINDS: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "hook_additional_context": _context,
    "hook_success": _printed,
    "hook_blocking_error": _blocked,
    "hook_stopped_continuation": _stopped,
    "async_hook_response": _answered_late,
}
HOOKS = frozenset(_KINDS)
