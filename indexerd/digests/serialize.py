"""A conversation as plain text, for a model that is to sum it up and not to go on with it.

In: speeches. Out: pi's own form, to the letter (S1.24): parts joined by a blank line, each after
its speaker: `[User]: `, `[Assistant thinking]: `, `[Assistant]: `, `[Assistant tool calls]: ` and
`[Tool result]: `, of which no more than 2,000 UTF-16 units are kept. What pi's model is told as
the user's words (summaries, commands, extensions' notes) stands as the user's here, too, in the
sentences that pi puts around it. Pictures, system messages and a command that the user kept from
the model are left out; an answer's thoughts and calls stand before and after its words, wherever
they were among them. Nothing is redacted here.

What surprised us: JavaScript writes keys that are whole numbers first, and counts a character
beyond the basic plane as two.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

from indexerd.events import ToolCall
from indexerd.privacy.sanitize import scrub
from indexerd.sessions.clipped import Clipped, Written, joined, length
from indexerd.sessions.context import ContextMessage

TOOL_RESULT_MAX = 2000  # UTF-16 units
_INDEX_MAX = (1 << 32) - 2  # a key up to this is a place in a list to JavaScript
_INDEX_DIGITS = 10
_PLAIN_MAX, _PLAIN_MIN = 21, -6  # places before the point beyond which an exponent is written
_INTEGER_MAX = 1 << 53  # beyond it JavaScript knows whole numbers only about

# What pi puts around a summary; facts of its format.
_COMPACTED = "The conversation history before this point was compacted into the following summary:"
_BRANCHED = "The following is a summary of a branch that this conversation came back from:"
_AROUND = {
    "user": ("", ""),
    "custom": ("", ""),
    "compactionSummary": (f"{_COMPACTED}\n\n<summary>\n", "\n</summary>"),
    "branchSummary": (f"{_BRANCHED}\n\n<summary>\n", "</summary>"),
}


def serialize(speeches: Iterable[ContextMessage], *, tool_result_max: int = TOOL_RESULT_MAX) -> str:
    """The whole conversation; `tool_result_max` is in UTF-16 units."""
    return "\n\n".join(text for _, text in lines_of(speeches, tool_result_max=tool_result_max))


def lines_of(
    speeches: Iterable[ContextMessage], *, tool_result_max: int = TOOL_RESULT_MAX
) -> list[tuple[ContextMessage, str]]:
    """The parts before they are joined, each with the speech that it is of."""
    return [(speech, text) for speech in speeches for text in _parts(speech, tool_result_max)]


def _parts(speech: ContextMessage, most: int) -> Iterator[str]:
    if speech.role == "assistant":
        yield from _answer(speech)
    elif speech.role == "toolResult":
        text = joined(speech.texts)
        if text:
            yield f"[Tool result]: {_cut(text, most)}"
    else:
        said = as_user(speech)
        if said:
            yield f"[User]: {said}"


def _answer(speech: ContextMessage) -> Iterator[str]:
    if speech.thinking:
        yield "[Assistant thinking]: " + "\n".join(speech.thinking)
    if speech.texts:
        yield "[Assistant]: " + "\n".join(speech.texts)
    if speech.calls:
        yield "[Assistant tool calls]: " + "; ".join(call_text(one) for one in speech.calls)


def as_user(speech: ContextMessage) -> str:
    """What the model is told as the user's words; nothing where it is told nothing."""
    if speech.role == "bashExecution":
        return _command(speech)
    around = _AROUND.get(speech.role)
    return "".join((around[0], *speech.texts, around[1])) if around else ""


def _command(speech: ContextMessage) -> str:
    """A command that the user ran, as pi tells its model of it."""
    ran = speech.entry.details.get("ran")
    if ran is None:  # of another agent: the text says it all
        return "".join(speech.texts)
    if ran.get("excludeFromContext"):
        return ""
    output = ran["output"]
    text = f"Ran `{ran['command']}`\n" + (f"```\n{output}\n```" if output else "(no output)")
    if ran.get("cancelled"):
        text += "\n\n(command cancelled)"
    elif ran.get("exitCode"):
        text += f"\n\nCommand exited with code {js_json(ran['exitCode'])}"
    if ran.get("truncated") and ran.get("fullOutputPath"):
        text += f"\n\n[Output truncated. Full output: {ran['fullOutputPath']}]"
    return text


def _cut(text: str, most: int) -> str:
    """The text's beginning, and how many units are missing."""
    more = units(text) - most
    if more <= 0:
        return text
    head = text.encode("utf-16-le", "surrogatepass")[: 2 * most]
    # A pair that the cut tears apart is no text any more: pi writes it as U+FFFD.
    return f"{head.decode('utf-16-le', 'replace')}\n\n[... {more} more characters truncated]"


def units(text: str) -> int:
    """A text's length in UTF-16 units, as JavaScript counts."""
    if text.isascii() and not isinstance(text, Clipped):
        return len(text)
    return length(text).units


# -- calls ---------------------------------------------------------------------------------------


def call_text(call: ToolCall) -> str:
    """`name(key=JSON, …)`; an input that is no object is named `input`."""
    given = arguments(call)
    if given is None:
        return f"{call.name}()"
    pairs = _items(given) if isinstance(given, dict) else [("input", given)]
    told = [joined([f"{scrub(key)}=", js_json(value)]) for key, value in pairs]
    return joined([f"{call.name}(", joined(told, ", "), ")"])


def arguments(call: ToolCall) -> Any:
    """What a tool was given: an object that is stored as its text is read."""
    held = call.arguments
    if isinstance(held, str) and held.lstrip()[:1] == "{":
        try:
            parsed = json.loads(held)
        except (ValueError, RecursionError):
            return held
        return parsed if isinstance(parsed, dict) else held
    return held


def js_json(value: Any) -> str:
    """What JSON.stringify makes of a JSON value, however deep it is."""
    out: list[str] = []
    todo: list[tuple[bool, Any]] = [(False, value)]  # (whether it is written already, it)
    while todo:
        written, one = todo.pop()
        if written or not isinstance(one, dict | list | tuple):
            out.append(one if written else _scalar(one))
        elif isinstance(one, dict):
            out.append("{")
            todo.append((True, "}"))
            pairs = _items(one)
            for at in range(len(pairs) - 1, -1, -1):
                key, held = pairs[at]
                comma = "," if at else ""
                todo += [(False, held), (True, f"{comma}{_string(key)}:")]
        else:
            out.append("[")
            todo.append((True, "]"))
            for at in range(len(one) - 1, -1, -1):
                todo += [(False, one[at]), (True, "," if at else "")]
    return joined(out)


def _items(held: dict[str, Any]) -> list[tuple[str, Any]]:
    """Keys in JavaScript's order: places in a list first, ascending, and then as they came."""
    places = sorted((key for key in held if _is_index(key)), key=int)
    if not places:
        return list(held.items())
    first = [(key, held[key]) for key in places]
    return first + [(key, value) for key, value in held.items() if not _is_index(key)]


def _is_index(key: str) -> bool:
    digits = key.isascii() and key.isdigit() and len(key) <= _INDEX_DIGITS
    return digits and (key == "0" or key[0] != "0") and int(key) <= _INDEX_MAX


def _scalar(value: Any) -> str:
    if isinstance(value, Written):
        return value
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and -_INTEGER_MAX <= value <= _INTEGER_MAX:
        return str(value)
    if isinstance(value, int | float):
        return _number(value)
    return "null"


def _string(text: str) -> str:
    written = json.dumps(text, ensure_ascii=False)
    if written.isascii():
        return written
    try:
        written.encode()
    except UnicodeEncodeError:
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return "".join(
            f"\\u{ord(one):04x}" if "\ud800" <= one <= "\udfff" else one
            for one in json.dumps(whole, ensure_ascii=False)
        )
    return written


def _number(value: float) -> str:
    """A number as JavaScript prints it: the shortest digits that mean it, 1 and not 1.0."""
    try:
        held = float(value)
    except OverflowError:
        return "null"
    if not math.isfinite(held):
        return "null"
    if held == 0:
        return "0"
    mantissa, _, exponent = f"{held!r}e0".partition("e")
    whole, _, part = mantissa.lstrip("-").partition(".")
    shift = int(exponent.removesuffix("e0"))
    digits = (whole + part).lstrip("0")
    point = len(whole) + shift - (len(whole + part) - len(digits))  # places before the point
    digits = digits.rstrip("0")
    return ("-" if held < 0 else "") + _placed(digits, point)


def _placed(digits: str, point: int) -> str:
    """Digits with a point at its place, or an exponent where it is far away."""
    if len(digits) <= point <= _PLAIN_MAX:
        return digits + "0" * (point - len(digits))
    if 0 < point <= _PLAIN_MAX:
        return f"{digits[:point]}.{digits[point:]}"
    if _PLAIN_MIN < point <= 0:
        return "0." + "0" * -point + digits
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{tail}e{point - 1:+d}"
