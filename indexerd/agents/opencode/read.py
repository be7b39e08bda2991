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

from indexerd.agents.lines import as_dict, as_list, count, mapping, string, tokens_of, value
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

_WRITES = frozenset({"write", "edit", "multiedit"})
_PATCHES = frozenset({"apply_patch", "patch"})
_HEADERS = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+)", re.MULTILINE)
_DONE = ("completed", "success", None)
_FAILED = "error"
_SAYS = ("command", "pattern", "url", "query", "description")  # what a call is about


def read(data: bytes, entry_id: str) -> Entry:
    """Parse one message's line in full; ValueError where it holds no JSON object."""
    line = decode(data)
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
    wrong = as_dict(line.error)
    found: dict[str, Any] = {
        "provider": line.provider or None,
        "stop_reason": line.finish or "",
        "error": string(wrong.get("message") or wrong.get("name")),
    }
    if line.error:  # it did not end well: in pi's words
        aborted = wrong.get("name") == "MessageAbortedError"
        found["stop_reason"] = "aborted" if aborted else "error"
    if kind is Kind.USER:
        sent = [one.text for one in parts if one.type == "text" and not one.ignored]
        texts = [text for text in sent if text is not None]
        # The role is said because the row of a prompt that was stored again is coded as a result.
        found |= {"sent_as": "user", "sent": tuple(texts) if texts != words(parts) else None}
    return found


def _compaction(line: Line, before: list[Part]) -> dict[str, Any]:
    kept = next((one.tail_start_id for one in before if one.tail_start_id), None)
    retained = (Retained("user", line.recent),) if line.recent else None
    return {"compaction": Compaction(kept=kept, retained=retained)}


def _tokens(line: Line) -> Tokens | None:
    counts = mapping(line.tokens)
    cache = as_dict(counts.get("cache"))
    asked, output, total = (count(counts.get(key)) for key in ("input", "output", "total"))
    read_back, written = count(cache.get("read")), count(cache.get("write"))
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
    given = as_dict(arguments)
    path = string(given.get("filePath")) or string(given.get("path"))
    patch = string(given.get("patchText")) or string(given.get("patch"))
    patched = _HEADERS.findall(patch) if name in _PATCHES else ()
    written = (path,) if path and name in _WRITES else tuple(dict.fromkeys(map(str.strip, patched)))
    done = state.status in _DONE and name != "invalid"
    says = (string(given.get(key)) for key in _SAYS)
    return ToolCall(
        name=name,
        detail=next((one for one in says if one), path) or ", ".join(written),
        id=part.call_id or "",
        reads=(path,) if done and path and name == "read" else (),
        writes=written if done else (),
        arguments=arguments,
    )


def _result(part: Part) -> ToolResult:
    """What a call came back with: the first text there is of those that stand for it."""
    state = part.state or State()
    pieces = (as_dict(one).get("text") for one in as_list(value(state.content)))
    joined = "\n".join([text for text in pieces if isinstance(text, str)])  # as opencode does it
    text = state.output or joined
    if state.status == _FAILED:
        of = mapping(state.metadata)
        kept = string(of.get("output")) if of.get("interrupted") is True else ""
        text = kept or state.error or joined
    return ToolResult(part.call_id or "", part.tool or "", text, cleared=_is_cleared(part))


def _is_cleared(part: Part) -> bool:
    compacted = part.state.time.compacted if part.state and part.state.time else None
    return bool(compacted) or bool(part.time.pruned if part.time else None)


def _images(part: Part) -> int:
    """How many pictures a part has: beside a prompt, or in a result that the model still sees."""
    if part.type == "file":
        return (part.mime or "").startswith("image/")
    if part.type != "tool" or part.state is None or _is_cleared(part):
        return 0
    files = as_list(value(part.state.attachments)) + as_list(value(part.state.content))
    return sum([string(as_dict(one).get("mime")).startswith("image/") for one in files])
