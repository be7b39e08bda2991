"""What an agent asks the user through a tool, and what the user says in the tool's result.

The tools of Claude Code, Codex and opencode have the same argument `questions`. The results are
`"QUESTION"="ANSWER", …` in a sentence, but in Codex `{"answers": {ID: {"answers": […]}}}`. When a
user of Claude Code rejects a call, the result also has the reason, if there is one.
"""

from __future__ import annotations

import re
from itertools import islice

import msgspec

from indexerd.agents.json_lines import Fields, as_dict, as_list, string
from indexerd.entries import ToolCall
from indexerd.sessions.clipped import arguments

_REASON = re.compile(
    r"The user doesn't want to .{0,300}?(?:reason for the rejection:\s*|the user said:\n"
    r"(?!The user wants to clarify))(.+)",
    re.DOTALL,
)
_MOST = 20  # questions of one call
_NOTE = "user_note: "  # in Codex


def questions_of(call: ToolCall) -> list[Fields]:
    """Return what a call asks the user: objects with `question`, and mostly `options`."""
    listed = map(as_dict, as_list(as_dict(arguments(call)).get("questions")))
    return [one for one in islice(listed, _MOST) if string(one.get("question"))]


def asked(call: ToolCall) -> str:
    """Write what a call asks the user, as Markdown; "" for other calls."""
    if call.name == "ExitPlanMode":
        return string(as_dict(arguments(call)).get("plan"))
    lines = list[str]()
    for one in questions_of(call):
        options = [as_dict(option) for option in as_list(one.get("options"))]
        lines += ["", string(one["question"]), ""]
        texts = ((string(o.get("label")), string(o.get("description"))) for o in options)
        lines += [f"- {': '.join(filter(None, text))}" for text in texts]
    return "\n".join(lines).strip()


def reply_in(result: str, questions: list[Fields]) -> str:
    """Return what the user said in the result of a call that asked this, as Markdown, or ""."""
    texts = [string(one["question"]) for one in questions]
    answers = (_chosen(result) or _quoted(result, texts)) if questions else {}
    said = [
        f"- {string(one.get('header')) or text}: {answer}"
        for one, text in zip(questions, texts, strict=True)
        if (answer := answers.get(string(one.get("id"))) or answers.get(text))
    ]
    reason = _REASON.match(result)
    return "\n".join(said) or (reason[1].strip() if reason else "")


def _chosen(result: str) -> dict[str, str]:
    """Read Codex's answers, by the questions' ids."""
    try:
        answers = as_dict(as_dict(msgspec.json.decode(result)).get("answers"))
    except (ValueError, RecursionError):
        return {}
    texts = {key: as_list(as_dict(value).get("answers")) for key, value in answers.items()}
    return {
        key: ", ".join(string(text).removeprefix(_NOTE) for text in chosen)
        for key, chosen in texts.items()
    }


def _quoted(result: str, questions: list[str]) -> dict[str, str]:
    """Read a sentence's answers, by the questions."""
    marks, found = [f'"{one}"="' for one in questions], dict[str, str]()
    for one, mark in zip(questions, marks, strict=True):
        rest = result.partition(mark)[2]
        for other in marks:
            rest = rest.partition(other)[0]
        found[one] = rest.rpartition('"')[0]
    return found
