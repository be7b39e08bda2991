"""One message of opencode in full: what a transcript, a search or the facts need of it.

A prompt stays as it was stored: the command line puts double quotes around it; what stands beside
it for the model is in `sent` alone. What a machine told the model is of kind OTHER here, although
its row is coded as a result: to whoever reads it, it is a message of the user's role.

A call that is not finished has no result; one that was interrupted has what it had given by then,
or else its error. Of one whose output opencode itself shows its model no more (`time.compacted`,
or `time.pruned` of version 2), the output is still there: `cleared` says so. Version 2 keeps a
result in several pieces, its pictures among them. What was allowed, snapshots and patches of the
work tree are never looked at (S3.28).
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Raw

from indexerd.agents.lines import count, is_object, listed, mapping, string, tokens_of, value
from indexerd.agents.opencode.messages import (
    PROMPTED,
    Line,
    Part,
    Said,
    State,
    decode,
    is_shell_note,
    ms,
    said,
    words,
)
from indexerd.events import Compaction, Entry, Kind, Retained, Tokens, ToolCall, ToolResult
from indexerd.times import iso_of_ms

_ABORTED = "MessageAbortedError"
_READS = frozenset({"read"})
_WRITES = frozenset({"write", "edit", "multiedit"})
_PATCHES = frozenset({"apply_patch", "patch"})
_HEADERS = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+)", re.MULTILINE)
_DONE = ("completed", "success", None)
_FAILED = "error"
_SAYS = ("command", "pattern", "url", "query", "description")  # what a call is about
_IMAGE = "image/"


def read(data: bytes, entry_id: str) -> Entry:
    """Parse one message's line in full; ValueError where it holds no JSON object."""
    line = decode(data)
    if line is None:
        raise ValueError("not an object")
    before, parts = line.parent or [], line.parts or []
    what = said(line, child=bool(line.child), shell=is_shell_note(before))
    kind = Kind.OTHER if what.code == PROMPTED else what.kind
    marker = kind is Kind.OTHER and what.code != PROMPTED
    answers, role = kind is Kind.ASSISTANT, line.role or ""
    tools = [part for part in parts if part.type == "tool"] if answers else []
    speaks = role in ("user", "assistant")
    return Entry(
        id=entry_id or line.id or "",
        kind=kind,
        type=("compaction" if marker else "message") if speaks else role,
        role=role or None,
        timestamp=_when(line),
        texts=_texts(line, what, parts),
        tools=tuple(map(_call, tools)),
        failed=tuple([one.call_id for one in tools if one.status == _FAILED and one.call_id]),
        model=line.model or None if kind in (Kind.ASSISTANT, Kind.SETTING) else None,
        tokens=_tokens(line),
        thinking=_thinking(parts) if answers else (),
        images=sum([_images(part) for part in parts]),
        results=tuple([_result(one) for one in tools if one.status in (*_DONE, _FAILED)]),
        **(_compaction(line, before) if kind is Kind.COMPACTION else _fields(line, kind, parts)),
    )


def _when(line: Line) -> str:
    at = ms(line.time.created if line.time else None) or ms(line.at)
    return iso_of_ms(at) if at else ""


def _texts(line: Line, what: Said, parts: list[Part]) -> tuple[str, ...]:
    if what.kind in (Kind.USER, Kind.ASSISTANT):
        return tuple(words(parts))
    if what.kind is Kind.BASH:
        return _shell(line, parts)
    every = [one.text for one in parts if one.type == "text" and one.text is not None]
    return ("\n\n".join(every),) if what.kind is Kind.COMPACTION else tuple(every)


def _shell(line: Line, parts: list[Part]) -> tuple[str, ...]:
    """A command that the user ran, as pi would show it."""
    ran = [(line.command, line.output)] if line.role == "shell" else []
    for part in parts:
        if part.type == "tool" and part.state is not None:
            command = string(mapping(part.state.input).get("command"))
            ran.append((command, part.state.output))
    return tuple([f"$ {command or ''}\n{output or ''}" for command, output in ran])


def _thinking(parts: list[Part]) -> tuple[str, ...]:
    found = [one.text for one in parts if one.type == "reasoning" and one.text]
    return tuple([text for text in found if text.strip()])


def _fields(line: Line, kind: Kind, parts: list[Part]) -> dict[str, Any]:
    error = line.error
    wrong: dict[str, Any] = error if isinstance(error, dict) else {}
    found: dict[str, Any] = {
        "provider": line.provider or None,
        "stop_reason": line.finish or "",
        "error": string(wrong.get("message") or wrong.get("name")),
    }
    if error:  # it did not end well: in pi's words
        found["stop_reason"] = "aborted" if wrong.get("name") == _ABORTED else "error"
    if kind is Kind.USER:
        sent = [one.text for one in parts if one.type == "text" and not one.ignored]
        texts = [text for text in sent if text is not None]
        # The role is said because the row of a prompt that was stored again is coded as a result.
        found["sent_as"] = "user"
        found["sent"] = tuple(texts) if texts != words(parts) else None
    return found


def _compaction(line: Line, before: list[Part]) -> dict[str, Any]:
    kept = next((one.tail_start_id for one in before if one.tail_start_id), None)
    retained = (Retained("user", line.recent),) if line.recent else None
    return {"compaction": Compaction(kept=kept, retained=retained)}


def _tokens(line: Line) -> Tokens | None:
    if not is_object(line.tokens):
        return None
    counts = mapping(line.tokens)
    cache = counts.get("cache")
    cached: dict[str, Any] = cache if isinstance(cache, dict) else {}
    asked, output, total = (count(counts.get(key)) for key in ("input", "output", "total"))
    read_back, written = count(cached.get("read")), count(cached.get("write"))
    whole = asked + output + read_back + written
    if total > whole:
        output += count(counts.get("reasoning"))  # counted apart from the rest of the answer
    if not (asked or output or read_back or written):
        return None
    return tokens_of((asked, output, read_back, written), total=total or whole, cost=line.cost)


# -- tools ---------------------------------------------------------------------------------------


def _call(part: Part) -> ToolCall:
    """A call of a tool. One that failed, or was never run, did nothing to any file."""
    name, state = part.tool or "", part.state or State()
    arguments = value(state.input)
    given: dict[str, Any] = arguments if isinstance(arguments, dict) else {}
    path = string(given.get("filePath")) or string(given.get("path"))
    says = (string(given.get(key)) for key in _SAYS)
    patched = _patched(given) if name in _PATCHES else ()
    done = state.status in _DONE and name != "invalid"
    written = (path,) if path and name in _WRITES else patched
    return ToolCall(
        name=name,
        detail=next((one for one in says if one), path) or ", ".join(patched),
        id=part.call_id or "",
        reads=(path,) if done and path and name in _READS else (),
        writes=written if done else (),
        arguments=arguments,
    )


def _patched(given: dict[str, Any]) -> tuple[str, ...]:
    """The files that a patch names."""
    text = string(given.get("patchText")) or string(given.get("patch"))
    return tuple(dict.fromkeys(one.strip() for one in _HEADERS.findall(text)))


def _result(part: Part) -> ToolResult:
    """What a call came back with; one that failed its error."""
    return ToolResult(
        call=part.call_id or "",
        name=part.tool or "",
        text=_gave(part.state or State()),
        cleared=_is_cleared(part),
    )


def _gave(state: State) -> str:
    """A result's text, the first that there is of those that stand for it."""
    pieces = (one.get("text") for one in _objects(state.content))
    joined = "\n".join([text for text in pieces if isinstance(text, str)])  # as opencode does it
    if state.status != _FAILED:
        return state.output or joined
    said_of = mapping(state.metadata)
    kept = said_of.get("interrupted") is True and string(said_of.get("output"))
    return kept or state.error or joined


def _is_cleared(part: Part) -> bool:
    compacted = part.state.time.compacted if part.state and part.state.time else None
    return bool(compacted) or bool(part.time.pruned if part.time else None)


def _images(part: Part) -> int:
    """How many pictures a part has: beside a prompt, or in a result that the model still sees."""
    if part.type == "file":
        return (part.mime or "").startswith(_IMAGE)
    if part.type != "tool" or part.state is None or _is_cleared(part):
        return 0
    files = _objects(part.state.attachments) + _objects(part.state.content)
    return sum([string(one.get("mime")).startswith(_IMAGE) for one in files])


def _objects(raw: Raw) -> list[dict[str, Any]]:
    return [one for one in listed(raw) if isinstance(one, dict)]
