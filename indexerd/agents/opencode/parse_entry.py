"""Classify a message of opencode, and parse it in full.

Nobody typed half of the messages of role user. A machine's prompt (a sub-agent's, "Continue if you
have next steps") is coded as a result (TOOL, no message): the turn is open after it; in full it is
of kind OTHER, a message of the user's role. A command that the user ran is a user message with a
synthetic note (CUSTOM) and an answer that no model gave (BASH): they do not change the turn. A
compaction is a user message with a `compaction` part, and an answer that is the summary.

A prompt stays as it was stored: the command line puts double quotes around it; texts for the model
alone are in `sent`. An unfinished call has no result; an interrupted one has what it gave by then.
"""

from __future__ import annotations

from msgspec.structs import replace

from indexerd.agents.base import ANSWERS, PROMPT, PROMPTED, Said
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
from indexerd.events import (
    Compaction,
    Entry,
    Kind,
    Retained,
    Tokens,
    ToolCall,
    ToolResult,
    Turn,
    code,
)
from indexerd.times import iso_of_ms

SUMMARY = code(Kind.COMPACTION, paid=True)
_UNSUMMED = code(Kind.OTHER, paid=True)  # a summary that is not there yet, or never will be
_OF_ROLE = {
    "synthetic": Kind.CUSTOM,
    "system": Kind.SYSTEM,
    "shell": Kind.BASH,
    "agent-switched": Kind.SETTING,
    "model-switched": Kind.SETTING,
}
_SHELL_NOTE = "The following tool was executed by the user"
_UNDONE = frozenset({"pending", "running", "streaming"})
_DONE, _FAILED = ("completed", "success", ""), "error"


def parts_of(line: Fields, key: str = "parts") -> list[Fields]:
    """Return a message's parts; `parent`: those of the one before it, in a line's full form."""
    return [part for part in as_list(line.get(key)) if isinstance(part, dict)]


def said(line: Fields, *, child: bool, shell: bool) -> Said:
    """Classify a message; `child`: of a sub-agent's session; `shell`: it answers a shell note."""
    role = string(line.get("role"))
    if role == "user":
        return _asked(parts_of(line), child)
    if role == "assistant":
        return _answered(line, shell)
    if role == "compaction":
        done = string(line.get("status")) in ("", "completed")
        return Said(SUMMARY if done else _UNSUMMED, settled=done)
    return Said(_OF_ROLE.get(role, Kind.OTHER))


def _asked(parts: list[Fields], child: bool) -> Said:
    text, types = "\n".join(words(parts)), {string(part.get("type")) for part in parts}
    if not text and "compaction" in types:
        return Said(Kind.OTHER)
    if not text and is_shell_note(parts):
        return Said(Kind.CUSTOM)
    if child or not (text or types & {"file", "agent"}):
        return Said(PROMPTED, settled=bool(parts))
    return Said(PROMPT, text)


def _answered(line: Fields, shell: bool) -> Said:
    finish, failed = line.get("finish"), bool(line.get("error"))
    done = bool(as_dict(line.get("time")).get("completed")) or isinstance(finish, str)
    if line.get("summary") is True:
        return Said(SUMMARY if done and not failed else _UNSUMMED, settled=done or failed)
    if shell:
        return Said(Kind.BASH, settled=done or failed)
    if failed:
        return Said(ANSWERS[Turn.FAILED])
    at_work = any(_status(one) in _UNDONE for one in parts_of(line) if one.get("type") == "tool")
    ended = done and finish != "tool-calls" and not at_work
    return Said(ANSWERS[Turn.ENDED if ended else Turn.OPEN], settled=done)


def words(parts: list[Fields]) -> list[str]:
    """Return the texts that a human typed or a model answered, none that the machine added."""
    return [
        text
        for one in parts
        if one.get("type") == "text" and True not in (one.get("synthetic"), one.get("ignored"))
        if (text := string(one.get("text"))).strip()
    ]


def is_shell_note(parts: list[Fields]) -> bool:
    return bool(parts) and all(
        one.get("synthetic") is True and string(one.get("text")).startswith(_SHELL_NOTE)
        for one in parts
    )


def _status(part: Fields) -> str:
    return string(as_dict(part.get("state")).get("status"))


def read(data: bytes, entry_id: str) -> Entry:
    """Parse one message's line; ValueError where it holds no JSON object."""
    line = parse_object(data)
    before, parts = parts_of(line, "parent"), parts_of(line)
    what = said(line, child=line.get("child") is True, shell=is_shell_note(before))
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
    failed = [string(one.get("callID")) for one in tools if _status(one) == _FAILED]
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
        results=tuple([_result(one) for one in tools if _status(one) in (*_DONE, _FAILED)]),
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
    """Parse a call of a tool. One that failed, or was never run, changed no file."""
    given = as_dict(part.get("state")).get("input")
    call = call_of(string(part.get("tool")), given, string(part.get("callID")))
    patch = first_of(as_dict(given), ("patchText", "patch"))
    if patch and call.name in ("apply_patch", "patch"):
        files = patched_files(patch)
        call = replace(call, writes=files, detail=call.detail or ", ".join(files))
    if _status(part) not in _DONE or call.name == "invalid":
        call = replace(call, reads=(), writes=())
    return call


def _result(part: Fields) -> ToolResult:
    state = as_dict(part.get("state"))
    pieces = (as_dict(one).get("text") for one in as_list(state.get("content")))  # version 2
    joined = "\n".join([text for text in pieces if isinstance(text, str)])
    text = string(state.get("output")) or joined
    if _status(part) == _FAILED:
        of = as_dict(state.get("metadata"))
        kept = string(of.get("output")) if of.get("interrupted") is True else ""
        text = kept or string(state.get("error")) or joined
    name, call = string(part.get("tool")), string(part.get("callID"))
    return ToolResult(call, name, text, cleared=_is_cleared(part))


def _is_cleared(part: Fields) -> bool:
    compacted = as_dict(as_dict(part.get("state")).get("time")).get("compacted")
    return bool(compacted) or bool(as_dict(part.get("time")).get("pruned"))


def _images(part: Fields) -> int:
    """Count a part's pictures: next to a prompt, or in a result that the model still sees."""
    if part.get("type") == "file":
        return string(part.get("mime")).startswith("image/")
    if part.get("type") != "tool" or _is_cleared(part):
        return 0
    state = as_dict(part.get("state"))
    files = as_list(state.get("attachments")) + as_list(state.get("content"))
    return sum([string(as_dict(one).get("mime")).startswith("image/") for one in files])
