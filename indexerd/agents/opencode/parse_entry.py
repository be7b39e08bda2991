"""One message of opencode in full.

A prompt stays as it was stored: the command line puts double quotes around it; what stands beside
it for the model is in `sent` alone. What a machine told the model is of kind OTHER here, although
its row is coded as a result: to whoever reads it, it is a message of the user's role. A call that
is not finished has no result; one that was interrupted has what it had given by then. An output
that opencode itself shows its model no more is still there: `cleared` says so.
"""

from __future__ import annotations

from msgspec.structs import replace

from indexerd.agents.base import PROMPTED
from indexerd.agents.json_lines import (
    Fields,
    as_dict,
    as_list,
    call_of,
    first_of,
    number,
    parse_object,
    patched_files,
    string,
    texts_in,
    time_ms,
    tokens_of,
)
from indexerd.agents.opencode import human
from indexerd.agents.opencode.human import parts_of, status_of, words
from indexerd.events import Compaction, Entry, Kind, Retained, Tokens, ToolCall, ToolResult
from indexerd.times import iso_of_ms

_DONE, _FAILED = ("completed", "success", ""), "error"


def read(data: bytes, entry_id: str) -> Entry:
    """Parse one message's line in full; ValueError where it holds no JSON object."""
    line = parse_object(data)
    before, parts = parts_of(line, "parent"), parts_of(line)
    what = human.said(line, child=line.get("child") is True, shell=human.is_shell_note(before))
    kind = Kind.OTHER if what.code == PROMPTED else what.kind
    answers, role, error = kind is Kind.ASSISTANT, string(line.get("role")), line.get("error")
    marker = kind is Kind.OTHER and what.code != PROMPTED
    tools = [part for part in parts if part.get("type") == "tool"] if answers else []
    at = time_ms(as_dict(line.get("time")).get("created")) or time_ms(line.get("at"))
    fields: Fields = {}
    if kind is Kind.COMPACTION:
        fields["compaction"] = _compaction(line, before)
    else:
        name, stop = as_dict(error).get("name"), string(line.get("finish"))
        if error:  # in pi's words
            stop = "aborted" if name == "MessageAbortedError" else "error"
        fields = {"stop_reason": stop, "error": string(as_dict(error).get("message") or name)}
        fields["provider"] = string(line.get("providerID")) or None
    if kind is Kind.USER:
        sent = tuple(texts_in(one for one in parts if one.get("ignored") is not True))
        fields |= {"sent_as": "user", "sent": sent if list(sent) != words(parts) else None}
    talks = role in ("user", "assistant")
    failed = [string(one.get("callID")) for one in tools if status_of(one) == _FAILED]
    model = string(line.get("modelID")) if kind in (Kind.ASSISTANT, Kind.SETTING) else ""
    thoughts = [string(one.get("text")) for one in parts if one.get("type") == "reasoning"]
    return Entry(
        id=entry_id or string(line.get("id")),
        kind=kind,
        type=("compaction" if marker else "message") if talks else role,
        role=role or None,
        timestamp=iso_of_ms(at) if at else "",
        texts=_texts(line, kind, parts),
        tools=tuple(map(_call, tools)),
        failed=tuple(filter(None, failed)),
        model=model or None,
        tokens=_tokens(line),
        thinking=tuple([text for text in thoughts if text.strip()]) if answers else (),
        images=sum([_images(part) for part in parts]),
        results=tuple([_result(one) for one in tools if status_of(one) in (*_DONE, _FAILED)]),
        **fields,
    )


def _texts(line: Fields, kind: Kind, parts: list[Fields]) -> tuple[str, ...]:
    if kind in (Kind.USER, Kind.ASSISTANT):
        return tuple(words(parts))
    if kind is Kind.BASH:  # a command that the user ran, as pi would show it
        ran = [(line.get("command"), line.get("output"))] if line.get("role") == "shell" else []
        states = [as_dict(one.get("state")) for one in parts if one.get("type") == "tool"]
        ran += [(as_dict(one.get("input")).get("command"), one.get("output")) for one in states]
        return tuple([f"$ {string(command)}\n{string(output)}" for command, output in ran])
    every = texts_in(parts)
    return ("\n\n".join(every),) if kind is Kind.COMPACTION else tuple(every)


def _compaction(line: Fields, before: list[Fields]) -> Compaction:
    kept = next((one for part in before if (one := string(part.get("tail_start_id")))), None)
    recent = string(line.get("recent"))
    return Compaction(kept=kept, retained=(Retained("user", recent),) if recent else None)


def _tokens(line: Fields) -> Tokens | None:
    counts = as_dict(line.get("tokens"))
    cache = as_dict(counts.get("cache"))
    held = (counts.get("input"), counts.get("output"), cache.get("read"), cache.get("write"))
    given, output, *cached = map(number, held)
    total, whole = number(counts.get("total")), given + output + sum(cached)
    if not whole:
        return None
    if total > whole:
        output += number(counts.get("reasoning"))  # counted apart from the rest of the answer
    return tokens_of((given, output, *cached), total=total or whole, cost=line.get("cost"))


def _call(part: Fields) -> ToolCall:
    """A call of a tool. One that failed, or was never run, did nothing to any file."""
    given = as_dict(part.get("state")).get("input")
    call = call_of(string(part.get("tool")), given, string(part.get("callID")))
    patch = first_of(as_dict(given), ("patchText", "patch"))
    if patch and call.name in ("apply_patch", "patch"):
        files = patched_files(patch)
        call = replace(call, writes=files, detail=call.detail or ", ".join(files))
    if status_of(part) not in _DONE or call.name == "invalid":
        call = replace(call, reads=(), writes=())
    return call


def _result(part: Fields) -> ToolResult:
    """What a call came back with: the first text there is of those that stand for it."""
    state = as_dict(part.get("state"))
    pieces = (as_dict(one).get("text") for one in as_list(state.get("content")))  # version 2
    joined = "\n".join([text for text in pieces if isinstance(text, str)])
    text = string(state.get("output")) or joined
    if status_of(part) == _FAILED:
        of = as_dict(state.get("metadata"))
        kept = string(of.get("output")) if of.get("interrupted") is True else ""
        text = kept or string(state.get("error")) or joined
    name, call = string(part.get("tool")), string(part.get("callID"))
    return ToolResult(call, name, text, cleared=_is_cleared(part))


def _is_cleared(part: Fields) -> bool:
    compacted = as_dict(as_dict(part.get("state")).get("time")).get("compacted")
    return bool(compacted) or bool(as_dict(part.get("time")).get("pruned"))


def _images(part: Fields) -> int:
    """How many pictures a part has: beside a prompt, or in a result that the model still sees."""
    if part.get("type") == "file":
        return string(part.get("mime")).startswith("image/")
    if part.get("type") != "tool" or _is_cleared(part):
        return 0
    state = as_dict(part.get("state"))
    files = as_list(state.get("attachments")) + as_list(state.get("content"))
    return sum([string(as_dict(one).get("mime")).startswith("image/") for one in files])
