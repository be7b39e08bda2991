"""One message of opencode in full: what a transcript, a search or the facts need of it.

Wrong types read as absent, texts come scrubbed of lone surrogates, and the only error is
ValueError for a line that is no JSON object. A prompt stays as it was stored: the command line
puts double quotes around it; what stands beside it for the model is in `sent` alone. What a
machine told the model is of kind OTHER here, although its row is coded as a result: to whoever
reads it, it is a message of the user's role.
"""

from __future__ import annotations

from typing import Any

from indexerd.agents.lines import parse, safe_line, string
from indexerd.agents.opencode.kinds import (
    PROMPTED,
    Said,
    is_shell_note,
    parts_of,
    said,
    words,
)
from indexerd.agents.opencode.tools import calls, failed, given, images, results, tools_in
from indexerd.events import Entry, Kind, Tokens
from indexerd.privacy.sanitize import scrub
from indexerd.times import iso_of_ms

_ABORTED = "MessageAbortedError"
_COUNT_MAX = 1 << 53
_MS_MAX = 253_402_300_800_000  # the year 10000


def preview(text: str) -> str:
    """A message as one line of at most 200 characters."""
    return safe_line(text)


def read(line: bytes, entry_id: str) -> Entry:
    """Parse one message's line in full; ValueError when it holds no JSON object."""
    held = parse(line)
    if not isinstance(held, dict):
        raise ValueError("not an object")
    before, parts = parts_of(held, "parent"), parts_of(held)
    what = said(held, child=held.get("child") is True, shell=is_shell_note(before))
    role = scrub(string(held.get("role")))
    kind = Kind.OTHER if what.code == PROMPTED else what.kind
    marker = kind is Kind.OTHER and what.code != PROMPTED
    tools = tools_in(parts) if kind is Kind.ASSISTANT else []
    speaks = role in ("user", "assistant")
    return Entry(
        id=entry_id or scrub(string(held.get("id"))),
        kind=kind,
        type=("compaction" if marker else "message") if speaks else role,
        role=role or None,
        timestamp=_when(held),
        texts=_texts(held, what, parts),
        tools=calls(tools),
        failed=failed(tools),
        model=_model(held) if kind in (Kind.ASSISTANT, Kind.SETTING) else None,
        tokens=_tokens(held),
        thinking=_thinking(parts) if kind is Kind.ASSISTANT else (),
        images=images(parts),
        results=results(tools),
        details=_details(held, kind, before),
    )


def _when(held: dict[str, Any]) -> str:
    time = held.get("time")
    own = time.get("created") if isinstance(time, dict) else None
    for value in (own, held.get("at")):
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MS_MAX:
            return iso_of_ms(int(value))
    return ""


def _texts(held: dict[str, Any], what: Said, parts: list[dict[str, Any]]) -> tuple[str, ...]:
    if what.kind in (Kind.USER, Kind.ASSISTANT):
        return tuple(words(parts))
    if what.kind is Kind.BASH:
        return _shell(held, parts)
    every = [scrub(one["text"]) for one in parts if _is_text(one)]
    if what.kind is Kind.COMPACTION:
        return ("\n\n".join(every),)
    return tuple(every)


def _thinking(parts: list[dict[str, Any]]) -> tuple[str, ...]:
    found = [string(one.get("text")) for one in parts if one.get("type") == "reasoning"]
    return tuple([scrub(text) for text in found if text.strip()])


def _is_text(part: dict[str, Any]) -> bool:
    return part.get("type") == "text" and isinstance(part.get("text"), str)


def _sent(held: dict[str, Any]) -> dict[str, Any]:
    """What the model gets of a prompt, with what opencode and plugins put beside it."""
    parts = parts_of(held)
    sent = tuple(
        scrub(one["text"]) for one in parts if _is_text(one) and one.get("ignored") is not True
    )
    # The role is said because the row of a prompt that was stored again is coded as a result.
    return {"sentAs": "user"} | ({"sent": sent} if sent != tuple(words(parts)) else {})


def _shell(held: dict[str, Any], parts: list[dict[str, Any]]) -> tuple[str, ...]:
    """A command that the user ran, as pi would show it."""
    ran = [(held.get("command"), held.get("output"))] if held.get("role") == "shell" else []
    for part in parts:
        state = part.get("state")
        if part.get("type") == "tool" and isinstance(state, dict):
            ran.append((given(state).get("command"), state.get("output")))
    return tuple(scrub(f"$ {string(command)}\n{string(output)}") for command, output in ran)


def _details(held: dict[str, Any], kind: Kind, before: list[dict[str, Any]]) -> dict[str, Any]:
    if kind is Kind.COMPACTION:
        tails = [string(one.get("tail_start_id")) for one in before]
        found: dict[str, Any] = {"kept": next((scrub(one) for one in tails if one), None)}
        recent = scrub(string(held.get("recent")))
        if recent:
            found["retained"] = [{"role": "user", "text": recent}]
        return found
    error = held.get("error")
    said_of = {
        "provider": held.get("providerID"),
        "modelId": held.get("modelID") if kind is Kind.SETTING else None,
        "stopReason": _stopped(error) if error else held.get("finish"),
        "errorMessage": error.get("message") or error.get("name")
        if isinstance(error, dict)
        else None,
    }
    found = {key: scrub(one) for key, one in said_of.items() if isinstance(one, str) and one}
    return (_sent(held) | found) if kind is Kind.USER else found


def _stopped(error: Any) -> str:
    """How an answer ended that did not end well, in pi's words."""
    aborted = isinstance(error, dict) and error.get("name") == _ABORTED
    return "aborted" if aborted else "error"


def _model(held: dict[str, Any]) -> str | None:
    return scrub(string(held.get("modelID"))) or None


def _tokens(held: dict[str, Any]) -> Tokens | None:
    counted = held.get("tokens")
    if not isinstance(counted, dict):
        return None
    cache = counted.get("cache")
    cached: dict[str, Any] = cache if isinstance(cache, dict) else {}
    asked, output, thought, total = (
        _count(counted.get(key)) for key in ("input", "output", "reasoning", "total")
    )
    read_back, written = _count(cached.get("read")), _count(cached.get("write"))
    whole = asked + output + read_back + written
    if total > whole:
        output += thought  # counted apart from the rest of the answer
    cost = _cost(held.get("cost"))
    found = Tokens(asked, output, read_back, written, cost, total=total or whole)
    return found if asked or output or read_back or written else None


def _cost(value: Any) -> float | None:
    fine = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if fine and 0 <= value < _COUNT_MAX else None


def _count(value: Any) -> int:
    fine = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if fine and 0 <= value < _COUNT_MAX else 0
