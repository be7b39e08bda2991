"""What tools ask the user, and what the user says in their results: answers, reasons to reject.

Claude Code and opencode store the answers beside the questions. In Codex the result itself is
`{"answers": {ID: {"answers": […]}}}`, and the questions are only in the call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from indexerd.agents.json_lines import Fields, as_dict, as_list, safe_line, string

_REASON = re.compile(
    r"The user doesn't want to .{0,300}?(?:reason for the rejection:\s*|the user said:\n"
    r"(?!The user wants to clarify))(.+)",
    re.DOTALL,
)
# How the results begin in Claude Code, Codex and opencode.
_REJECTED = ("The user doesn't want to ", "exec command rejected by user", "The user rejected ")
_MOST = 20  # questions of one call
_NOTE = "user_note: "  # in Codex


def questions_in(arguments: Any) -> list[Fields]:
    """Return what a call with these arguments asks the user: objects with `question`."""
    listed = map(as_dict, as_list(as_dict(arguments).get("questions"))[:_MOST])
    return [one for one in listed if string(one.get("question"))]


def question_in(arguments: Any) -> str:
    """Return the first question that a call with these arguments asks, as one line."""
    first = next(iter(questions_in(arguments)), {})
    return safe_line(string(first.get("question"))) or "The agent asks something."


def is_rejection(result: str) -> bool:
    """Return whether the result of a call that failed says that the user rejected the call."""
    return result.startswith(_REJECTED)


def reason_in(result: str) -> str:
    """Return why the user rejected a call of Claude Code, or ""."""
    reason = _REASON.match(result)
    return reason[1].strip() if reason else ""


def claude_answers(stored: Any) -> str:
    """Write the answers that a line stores with a tool's result, as Markdown, or ""."""
    answers = as_dict(as_dict(stored).get("answers"))
    asked = questions_in(stored) if answers else []
    return _listed((_head(one), [answers.get(one["question"])]) for one in asked)


def opencode_answers(state: Fields) -> str:
    """Write the answers in a tool part's state as Markdown, or ""."""
    answers = as_list(as_dict(state.get("metadata")).get("answers"))
    asked = questions_in(state.get("input")) if answers else []
    chosen = map(as_list, answers)
    return _listed((_head(one), texts) for one, texts in zip(asked, chosen, strict=False))


def codex_answers(result: str) -> str:
    """Write the answers in a tool's result as Markdown, by the questions' ids, or ""."""
    if not result.startswith('{"answers":'):
        return ""
    try:
        answers = as_dict(as_dict(msgspec.json.decode(result)).get("answers"))
    except (ValueError, RecursionError):
        return ""
    chosen = ((key, as_list(as_dict(value).get("answers"))) for key, value in answers.items())
    return _listed(
        (key, [string(text).removeprefix(_NOTE) for text in texts]) for key, texts in chosen
    )


def _head(question: Fields) -> str:
    return string(question.get("header")) or string(question["question"])


def _listed(answers: Iterable[tuple[str, list[Any]]]) -> str:
    lines = ((head, ", ".join(filter(None, map(string, chosen)))) for head, chosen in answers)
    return "\n".join(f"- {head}: {answer}" for head, answer in lines if answer)
