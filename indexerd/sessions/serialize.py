"""Write a conversation as plain text, in pi's format, for a model that will summarize it.

What pi gives its model as the user's words (summaries, commands, extensions' notes) is the user's
here, too. Pictures, system messages and commands that the user kept from the model are left out.
Nothing is redacted here. What surprised us: JavaScript counts a character beyond the basic plane
as two.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

from indexerd.events import ToolCall
from indexerd.privacy.sanitize import replace_surrogates
from indexerd.sessions.clipped import Clipped, arguments, joined, units
from indexerd.sessions.context import ContextMessage

TOOL_RESULT_MAX = 2000  # UTF-16 units
_WHOLE_MAX = 1e21  # from here on JavaScript writes whole numbers with an exponent

# What pi puts around a summary; facts of its format.
_COMPACTED = "The conversation history before this point was compacted into the following summary:"
_BRANCHED = "The following is a summary of a branch that this conversation came back from:"
_AROUND = {
    "user": ("", ""),
    "custom": ("", ""),
    "compactionSummary": (f"{_COMPACTED}\n\n<summary>\n", "\n</summary>"),
    "branchSummary": (f"{_BRANCHED}\n\n<summary>\n", "</summary>"),
}


def serialize(messages: Iterable[ContextMessage]) -> str:
    return "\n\n".join(text for _, text in parts_of(messages))


def parts_of(
    messages: Iterable[ContextMessage], *, tool_result_max: int = TOOL_RESULT_MAX
) -> list[tuple[ContextMessage, str]]:
    return [(message, text) for message in messages for text in _parts(message, tool_result_max)]


def _parts(message: ContextMessage, most: int) -> Iterator[str]:
    if message.role == "assistant":
        if message.thinking:
            yield "[Assistant thinking]: " + "\n".join(message.thinking)
        if message.texts:
            yield "[Assistant]: " + "\n".join(message.texts)
        if message.calls:
            yield "[Assistant tool calls]: " + "; ".join(map(call_text, message.calls))
    elif message.role == "toolResult":
        if text := joined(message.texts):
            yield f"[Tool result]: {_cut(text, most)}"
    elif said := _as_user(message):
        yield f"[User]: {said}"


def _as_user(message: ContextMessage) -> str:
    """Return the user's words as the model gets them; "" where it gets none."""
    if message.role == "bashExecution":
        return _command(message)
    around = _AROUND.get(message.role)
    return "".join((around[0], *message.texts, around[1])) if around else ""


def _command(message: ContextMessage) -> str:
    ran = message.entry.ran
    if ran is None:  # of another agent: the text says it all
        return "".join(message.texts)
    if ran.hidden:
        return ""
    output = ran.output
    text = f"Ran `{ran.command}`\n" + (f"```\n{output}\n```" if output else "(no output)")
    if ran.cancelled:
        text += "\n\n(command cancelled)"
    elif ran.exit_code:
        text += f"\n\nCommand exited with code {js_json(ran.exit_code)}"
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


def call_text(call: ToolCall) -> str:
    """`name(key=JSON, …)`; an input that is no object is named `input`."""
    given = arguments(call)
    if given is None:
        return f"{call.name}()"
    pairs = given.items() if isinstance(given, dict) else [("input", given)]
    told = [joined([f"{replace_surrogates(key)}=", js_json(value)]) for key, value in pairs]
    return joined([f"{call.name}(", joined(told, ", "), ")"])


def js_json(value: Any) -> str:
    """Write a value as JSON.stringify does; null for one nested too deeply."""
    try:
        return _json(value)
    except RecursionError:
        return "null"


def _json(value: Any) -> str:
    if isinstance(value, Clipped):
        return value
    if isinstance(value, dict):
        pairs = [joined([_string(key), ":", _json(one)]) for key, one in value.items()]
        return joined(["{", joined(pairs, ","), "}"])
    if isinstance(value, list | tuple):
        return joined(["[", joined([_json(one) for one in value], ","), "]"])
    if isinstance(value, float):
        if not math.isfinite(value):
            return "null"
        whole = value.is_integer() and abs(value) < _WHOLE_MAX
        return str(int(value)) if whole else repr(value).replace("e-0", "e-")
    return _string(value) if isinstance(value, str) else json.dumps(value)


def _string(text: str) -> str:
    written = json.dumps(text, ensure_ascii=False)
    try:
        written.encode()
    except UnicodeEncodeError:  # half a pair: JSON can say it, UTF-8 cannot
        return json.dumps(text)
    return written
