"""Write a conversation as plain text, in pi's format, for a model that will summarize it.

What pi gives its model as the user's words (summaries, commands, extensions' notes) is the user's
here, too. Pictures, system messages and commands that the user kept from the model are left out.
Nothing is redacted here. What surprised us: JavaScript counts a character beyond the basic plane
as two.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from indexerd.events import ToolCall
from indexerd.privacy.sanitize import replace_surrogates
from indexerd.sessions.clipped import Clipped, arguments, joined, units
from indexerd.sessions.context import ContextMessage

TOOL_RESULT_MAX = 2000  # UTF-16 units

# What pi puts around a summary; facts of its format.
_COMPACTED = "The conversation history before this point was compacted into the following summary:"
_BRANCHED = "The following is a summary of a branch that this conversation came back from:"
_AROUND = {
    "user": ("", ""),
    "custom": ("", ""),
    "bashExecution": ("", ""),  # of another agent: the text says it all
    "compactionSummary": (f"{_COMPACTED}\n\n<summary>\n", "\n</summary>"),
    "branchSummary": (f"{_BRANCHED}\n\n<summary>\n", "</summary>"),
}


def serialize(messages: Iterable[ContextMessage]) -> str:
    return "\n\n".join(text for _, text in parts_of(messages))


def parts_of(
    messages: Iterable[ContextMessage], *, tool_result_max: int = TOOL_RESULT_MAX
) -> list[tuple[ContextMessage, str]]:
    """Return the messages with their texts, of which one has several where it also calls tools."""
    return [(message, text) for message in messages for text in _parts(message, tool_result_max)]


def _parts(message: ContextMessage, most: int) -> Iterator[str]:
    if message.role == "assistant":
        if message.thinking:
            yield "[Assistant thinking]: " + "\n".join(message.thinking)
        if message.texts:
            yield "[Assistant]: " + "\n".join(message.texts)
        if message.calls:
            yield "[Assistant tool calls]: " + "; ".join(map(_call, message.calls))
    elif message.role == "toolResult":
        if text := joined(message.texts):
            yield f"[Tool result]: {_cut(text, most)}"
    elif said := _as_user(message):
        yield f"[User]: {said}"


def _as_user(message: ContextMessage) -> str:
    """Return the user's words as the model gets them; "" where it gets none."""
    ran = message.entry.ran
    if message.role != "bashExecution" or ran is None:
        around = _AROUND.get(message.role)
        return "".join((around[0], *message.texts, around[1])) if around else ""
    if ran.hidden:
        return ""
    output = ran.output
    text = f"Ran `{ran.command}`\n" + (f"```\n{output}\n```" if output else "(no output)")
    if ran.cancelled:
        text += "\n\n(command cancelled)"
    elif ran.exit_code:
        text += f"\n\nCommand exited with code {ran.exit_code}"
    if ran.truncated and ran.output_file:
        text += f"\n\n[Output truncated. Full output: {ran.output_file}]"
    return text


def _cut(text: str, most: int) -> str:
    more = units(text) - most
    if more <= 0:
        return text
    head = text.encode("utf-16-le", "surrogatepass")[: 2 * most]
    # A pair that the cut tears apart is no text any more: pi writes it as U+FFFD.
    return f"{head.decode('utf-16-le', 'replace')}\n\n[... {more} more characters truncated]"


def _call(call: ToolCall) -> str:
    """Write a call as `name(key=JSON, …)`; an input that is no object is named `input`."""
    given = arguments(call)
    if given is None:
        return f"{call.name}()"
    pairs = given.items() if isinstance(given, dict) else [("input", given)]
    inside = (f"{replace_surrogates(key)}={js_json(value)}" for key, value in pairs)
    return f"{call.name}({', '.join(inside)})"


def js_json(value: Any) -> str:
    """Write a value as JSON.stringify does; null for one nested too deeply."""
    if isinstance(value, Clipped):
        return value
    if isinstance(value, dict) and any(isinstance(one, Clipped) for one in value.values()):
        pairs = [joined([js_json(key), ":", js_json(one)]) for key, one in value.items()]
        return joined(["{", joined(pairs, ","), "}"])
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return "null"
    return replace_surrogates(text)
