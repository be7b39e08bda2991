"""What an agent asks the user through a tool; the answers are in results (agents/replies.py)."""

from __future__ import annotations

from indexerd.agents.json_lines import as_dict, as_list, string
from indexerd.agents.replies import questions_in
from indexerd.entries import ToolCall
from indexerd.sessions.clipped import arguments


def asked(call: ToolCall) -> str:
    """Write what a call asks the user, as Markdown; "" for other calls."""
    if call.name == "ExitPlanMode":
        return string(as_dict(arguments(call)).get("plan"))
    lines = list[str]()
    for one in questions_in(arguments(call)):
        options = [as_dict(option) for option in as_list(one.get("options"))]
        lines += ["", string(one["question"]), ""]
        texts = ((string(o.get("label")), string(o.get("description"))) for o in options)
        lines += [f"- {': '.join(filter(None, text))}" for text in texts]
    return "\n".join(lines).strip()
