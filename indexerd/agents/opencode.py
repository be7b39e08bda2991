"""Turn the lines that `sources` makes of an opencode session into a tree, and parse one in full.

The first line describes the session; each later line is a message in brief form, below the line
before. A revert hides the last messages until a prompt deletes them: the leaf moves above them.

Pitfalls: nobody typed half of the messages with the role user. A machine's prompt (a sub-agent's,
"Continue if you have next steps") is coded as a result (TOOL, no message), so the turn is open
after it; in full it has kind OTHER and the user's role. A command that the user ran is a user
message with a synthetic note (CUSTOM) and an answer by no model (BASH): they do not change the
turn. A compaction is a user message with a `compaction` part, and an answer that is the summary.

A prompt is kept as stored: opencode's command line puts double quotes around it. Texts for the
model alone are in `sent`. An unfinished call has no result; an interrupted one, its output so far.
"""

from __future__ import annotations

import re
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from indexerd.agents.base import ANSWERS, PATH_KEPT, PROMPT, PROMPTED, LineClass, Tree
from indexerd.agents.json_lines import (
    Fields,
    as_dict,
    as_list,
    call_of,
    first_of,
    number,
    of_type,
    parse_object,
    patched_files,
    recorded_tokens,
    safe_line,
    scan_lines,
    string,
    texts_in,
    time_ms,
)
from indexerd.agents.replies import opencode_answers, question_in
from indexerd.entries import (
    Compaction,
    Entry,
    Header,
    Kind,
    Retained,
    Tokens,
    ToolCall,
    ToolResult,
    Turn,
    code,
)
from indexerd.times import iso_of_ms

_SUMMARY = code(Kind.COMPACTION, extra=True)
_UNSUMMED = code(Kind.OTHER, extra=True)  # a summary that is unfinished, or failed
_OF_ROLE = {
    "synthetic": Kind.CUSTOM,
    "system": Kind.SYSTEM,
    "shell": Kind.BASH,
    "agent-switched": Kind.SETTING,
    "model-switched": Kind.SETTING,
}
_SHELL_NOTE = "The following tool was executed by the user"
_UNDONE = frozenset({"pending", "running", "streaming"})
ASKING = "question"  # the tool that asks the user
OUTPUT = 60_000  # characters of a tool's output; opencode itself keeps 51,200 bytes and a note
_DONE, _FAILED = ("completed", "success", ""), "error"
_DEFAULT = re.compile(r"(?:New|Child) session - \d{4}-\d\d-\d\dT[\d:.]{5,20}Z(?: \(fork #\d+\))?")
_FORK = re.compile(r"(.+) \(fork #(\d{1,6})\)", re.DOTALL)
_ATTACHED = "[Attached "  # replaces a picture in a copy of a prompt
_SETTLES = frozenset({Kind.ASSISTANT, Kind.COMPACTION, Kind.BASH})


class Memory(msgspec.Struct):
    """The scan's state between lines."""

    shell: str = ""  # id of the newest note that the user ran a command
    prompt: str = ""  # digest of the newest prompt
    overflow: bool = False  # the newest compaction was started because a prompt did not fit
    copy: bool = False  # the next message may be a copy of that prompt
    answer: int = -1  # row of the newest answer since the newest prompt
    unsettled: int = -1  # first row whose text may still change
    revert: str = ""  # id of the first hidden message
    within: bool = False  # only a part of that message is hidden: it stays


def scan(tree: Tree, data: bytes, base: int) -> None:
    memory = tree.memory if isinstance(tree.memory, Memory) else Memory()
    tree.memory = memory
    for line, offset, length in scan_lines(tree, data, base):
        if tree.header is None:
            _begin(tree, memory, line)
        elif line.get("type") == "message":
            _add(tree, memory, line, (offset, length), child=tree.header.subagent)
    reverted = tree.index.get(memory.revert, len(tree))
    tree.leaf = min(reverted - (not memory.within), len(tree) - 1)
    tree.unsettled = len(tree) - memory.unsettled if memory.unsettled >= 0 else 0


def _begin(tree: Tree, memory: Memory, line: Fields) -> None:
    own, parent = string(line.get("id")), string(line.get("parentID"))
    if tree.foreign or line.get("type") != "session" or not own:
        tree.foreign = True
        return
    time, revert = as_dict(line.get("time")), as_dict(line.get("revert"))
    tree.born_ms = time_ms(time.get("created"))
    tree.archived = time_ms(time.get("archived")) > 0
    tree.header = Header(
        session_id=own[:PATH_KEPT],
        cwd=string(line.get("directory"))[:PATH_KEPT],
        created_at=iso_of_ms(tree.born_ms) if tree.born_ms else "",
        version=2 if line.get("schema") == 2 else 1,  # noqa: PLR2004 - the schema's number
        parent_id=(parent or string(line.get("forkID")))[:PATH_KEPT] or None,
        subagent=bool(parent),
    )
    title = string(line.get("title"))[:PATH_KEPT]
    if forked := _FORK.fullmatch(title):  # the origin's title, its number raised by one
        before = int(forked[2]) - 1
        tree.fork_of = safe_line(forked[1] + (f" (fork #{before})" if before > 0 else ""))
    if not _DEFAULT.fullmatch(title):
        tree.name = safe_line(title) or None
        tree.named_by_person = _by_person(title, line, made=bool(forked or parent))
    memory.revert = string(revert.get("messageID"))
    memory.within = bool(string(revert.get("partID")))


def _by_person(title: str, line: Fields, *, made: bool) -> bool:
    """Return whether a person gave a title: opencode itself replaces only a default one.

    `made`: the session began with a title that opencode made, as a fork's.
    """
    titles = [string(each)[:PATH_KEPT] for each in as_list(line.get("titles"))]
    if title not in titles:
        return False
    before = titles[: titles.index(title)]
    return any(not _DEFAULT.fullmatch(each) for each in before) if before else not made


def _add(tree: Tree, memory: Memory, line: Fields, place: tuple[int, int], *, child: bool) -> None:
    own, role = string(line.get("id")), line.get("role")
    shell = bool(memory.shell) and line.get("parentID") == memory.shell
    what = _said(line, child=child, shell=shell)
    if role == "user":
        memory.shell = own if what.kind is Kind.CUSTOM else memory.shell
        what = _copied(memory, _parts(line), what)
    else:
        memory.copy = what.code == _SUMMARY and memory.overflow
    row = tree.leaf = tree.add_below(len(tree) - 1, own, what.code, *place)
    time, at = as_dict(line.get("time")), time_ms(line.get("at"))
    created = time_ms(time.get("created"))
    if what.kind in (Kind.USER, Kind.ASSISTANT):
        tree.activity_ms = max(tree.activity_ms, at, created, time_ms(time.get("completed")))
        memory.answer = row if what.kind is Kind.ASSISTANT else -1
    if what.kind is Kind.USER or what.text:
        tree.opened_by(row, lambda: safe_line(what.text))
    if what.kind is Kind.USER:
        # A fork copies messages with new ids, but with their times.
        tree.first = tree.first or _digest(f"{created or at}\n{what.text}")
    for part in _parts(line):
        if part.get("tool") == ASKING and _status(part) in _UNDONE:
            tree.asking, tree.asked = row, question_in(as_dict(part.get("state")).get("input"))
    if not what.settled:
        memory.unsettled = row if memory.unsettled < 0 else memory.unsettled
    elif what.kind in _SETTLES or role == "idle":
        memory.unsettled = -1
    opened = memory.answer >= 0 and tree.codes[memory.answer] == ANSWERS[Turn.OPEN]
    if role == "idle" and opened:
        # The agent says that it stopped, so its last answer ended the turn.
        ended = line.get("outcome") == "succeeded"
        tree.codes[memory.answer] = ANSWERS[Turn.ENDED if ended else Turn.FAILED]


def _copied(memory: Memory, parts: list[Fields], what: LineClass) -> LineClass:
    """Count a prompt that did not fit only once: it is stored again after the compaction."""
    if what.kind is Kind.OTHER:  # a request for a compaction
        memory.overflow = any(part.get("overflow") is True for part in parts)
    if what.code == PROMPT:
        texts = [text for text in _words(parts) if not text.startswith(_ATTACHED)]
        digest = _digest("\n".join(texts))
        if memory.copy and digest == memory.prompt:
            what = LineClass(PROMPTED)
        memory.prompt = digest
    memory.copy = False
    return what


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _parts(line: Fields, key: str = "parts") -> list[Fields]:
    """Return a message's parts; key `parent`: its parent's parts, in a line's full form."""
    return [part for part in as_list(line.get(key)) if isinstance(part, dict)]


def _said(line: Fields, *, child: bool, shell: bool) -> LineClass:
    """Classify a message; `child`: a sub-agent's session; `shell`: it answers a shell note."""
    role = string(line.get("role"))
    if role == "user":
        return _asked(_parts(line), child)
    if role == "assistant":
        return _answered(line, shell)
    if role == "compaction":
        done = string(line.get("status")) in ("", "completed")
        return LineClass(_SUMMARY if done else _UNSUMMED, settled=done)
    return LineClass(_OF_ROLE.get(role, Kind.OTHER))


def _asked(parts: list[Fields], child: bool) -> LineClass:
    text, types = "\n".join(_words(parts)), {string(part.get("type")) for part in parts}
    if not text and "compaction" in types:
        return LineClass(Kind.OTHER)
    if not text and _is_shell_note(parts):
        return LineClass(Kind.CUSTOM)
    if child or not (text or types & {"file", "agent"}):
        return LineClass(PROMPTED, text, settled=bool(parts))
    return LineClass(PROMPT, text)


def _answered(line: Fields, shell: bool) -> LineClass:
    finish, failed = line.get("finish"), bool(line.get("error"))
    done = bool(as_dict(line.get("time")).get("completed")) or isinstance(finish, str)
    if line.get("summary") is True:
        return LineClass(_SUMMARY if done and not failed else _UNSUMMED, settled=done or failed)
    if shell:
        return LineClass(Kind.BASH, settled=done or failed)
    if failed:
        return LineClass(ANSWERS[Turn.FAILED])
    at_work = any(_status(part) in _UNDONE for part in _parts(line) if part.get("type") == "tool")
    ended = done and finish != "tool-calls" and not at_work
    return LineClass(ANSWERS[Turn.ENDED if ended else Turn.OPEN], settled=done)


def _words(parts: list[Fields]) -> list[str]:
    """Return the texts typed by a human or answered by a model, without those a program added."""
    return [
        text
        for part in parts
        if part.get("type") == "text" and True not in (part.get("synthetic"), part.get("ignored"))
        if (text := string(part.get("text"))).strip()
    ]


def _is_shell_note(parts: list[Fields]) -> bool:
    return bool(parts) and all(
        part.get("synthetic") is True and string(part.get("text")).startswith(_SHELL_NOTE)
        for part in parts
    )


def _status(part: Fields) -> str:
    return string(as_dict(part.get("state")).get("status"))


def read(data: bytes, entry_id: str) -> Entry:
    """Parse one message's line; ValueError if it is not a JSON object."""
    line = parse_object(data)
    before, parts = _parts(line, "parent"), _parts(line)
    what = _said(line, child=line.get("child") is True, shell=_is_shell_note(before))
    kind = Kind.OTHER if what.code == PROMPTED else what.kind
    answers, role, error = kind is Kind.ASSISTANT, string(line.get("role")), line.get("error")
    marker = kind is Kind.OTHER and what.code != PROMPTED
    tools = [part for part in parts if part.get("type") == "tool"] if answers else []
    clock = as_dict(line.get("time"))
    at, ended = time_ms(clock.get("created")) or time_ms(line.get("at")), clock.get("completed")
    fields: Fields = {}
    if kind is Kind.COMPACTION:
        fields["compaction"] = _compaction(line, before)
    else:
        name, stop = as_dict(error).get("name"), string(line.get("finish"))
        if error:  # named as pi does
            stop = "aborted" if name == "MessageAbortedError" else "error"
        fields = {"stop_reason": stop, "error": string(as_dict(error).get("message") or name)}
        fields["provider"] = string(line.get("providerID")) or None
    if kind is Kind.USER:
        sent = tuple(texts_in(part for part in parts if part.get("ignored") is not True))
        fields |= {"sent_as": "user", "sent": sent if list(sent) != _words(parts) else None}
    talks = role in ("user", "assistant")
    failed = [string(part.get("callID")) for part in tools if _status(part) == _FAILED]
    files = [file for part in parts for file in _files(part)]
    model = string(line.get("modelID")) if kind in (Kind.ASSISTANT, Kind.SETTING) else ""
    thoughts = [string(part.get("text")) for part in parts if part.get("type") == "reasoning"]
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
        thinking=tuple(filter(str.strip, thoughts)),
        images=len([file for file in files if _is_image(file)]),
        attached=tuple([_title(file) for file in files if not _is_image(file)]),
        results=tuple([_result(part) for part in tools if _status(part) in (*_DONE, _FAILED)]),
        ended=iso_of_ms(time_ms(ended)) if ended else "",
        **fields,
    )


def _texts(line: Fields, kind: Kind, parts: list[Fields]) -> tuple[str, ...]:
    if kind in (Kind.USER, Kind.ASSISTANT):
        return tuple(_words(parts))
    if kind is Kind.BASH:  # shown as pi shows it
        ran = [(line.get("command"), line.get("output"))] if line.get("role") == "shell" else []
        calls = [as_dict(part.get("state")) for part in of_type(parts, "tool")]
        ran += [(as_dict(call.get("input")).get("command"), call.get("output")) for call in calls]
        return tuple([f"$ {string(command)}\n{string(output)}" for command, output in ran])
    every = texts_in(parts)
    return ("\n\n".join(every),) if kind is Kind.COMPACTION else tuple(every)


def _compaction(line: Fields, before: list[Fields]) -> Compaction:
    kept = next(filter(None, (string(part.get("tail_start_id")) for part in before)), None)
    recent = string(line.get("recent"))
    return Compaction(kept=kept, retained=(Retained("user", recent),) if recent else None)


def _tokens(line: Fields) -> Tokens | None:
    counts = as_dict(line.get("tokens"))
    cache = as_dict(counts.get("cache"))
    stored = (counts.get("input"), counts.get("output"), cache.get("read"), cache.get("write"))
    sent, output, *cached = map(number, stored)
    total, whole = number(counts.get("total")), sent + output + sum(cached)
    if not whole:
        return None
    if total > whole:
        output += number(counts.get("reasoning"))  # counted apart from the rest of the answer
    return recorded_tokens((sent, output, *cached), total=total or whole, cost=line.get("cost"))


def _call(part: Fields) -> ToolCall:
    """Parse a tool call. A call that failed or never ran has no files."""
    arguments = as_dict(part.get("state")).get("input")
    call = call_of(string(part.get("tool")), arguments, string(part.get("callID")))
    patch = first_of(as_dict(arguments), ("patchText", "patch"))
    if patch and call.name in ("apply_patch", "patch"):
        files = patched_files(patch)
        call = replace(call, writes=files, detail=call.detail or ", ".join(files))
    if _status(part) not in _DONE or call.name == "invalid":
        call = replace(call, reads=(), writes=())
    return call


def _result(part: Fields) -> ToolResult:
    state = as_dict(part.get("state"))
    pieces = (as_dict(item).get("text") for item in as_list(state.get("content")))  # version 2
    joined = "\n".join([text for text in pieces if isinstance(text, str)])
    text = string(state.get("output")) or joined
    if _status(part) == _FAILED:
        of = as_dict(state.get("metadata"))
        kept = string(of.get("output")) if of.get("interrupted") is True else ""
        text = kept or string(state.get("error")) or joined
    name, call = string(part.get("tool")), string(part.get("callID"))
    reply, diff = opencode_answers(state), _diff(as_dict(state.get("metadata")).get("diff"))
    return ToolResult(call, name, text, cleared=_is_cleared(part), reply=reply, patch=diff)


def _diff(stored: object) -> tuple[str, ...]:
    """Return the lines of a stored diff, "@@" between its parts; none of one that was cut."""
    _head, _, rest = string(stored).partition("\n@@")
    lines = rest.split("\n")[1:] if len(string(stored)) < OUTPUT else []
    return tuple(["@@" if line.startswith("@@") else line for line in lines])


def _is_cleared(part: Fields) -> bool:
    compacted = as_dict(as_dict(part.get("state")).get("time")).get("compacted")
    return bool(compacted) or bool(as_dict(part.get("time")).get("pruned"))


def _files(part: Fields) -> list[Fields]:
    """List a part's files: attached to a prompt, or in a result that the model still sees.

    Texts are no such files: opencode puts their contents into the prompt.
    """
    state = as_dict(part.get("state"))
    results = as_list(state.get("attachments")) + as_list(state.get("content"))
    held = results if part.get("type") == "tool" and not _is_cleared(part) else []
    files = [part] if part.get("type") == "file" else [as_dict(each) for each in held]
    kinds = ((file, string(file.get("mime"))) for file in files)
    return [file for file, kind in kinds if kind and not kind.startswith("text/")]


def _is_image(file: Fields) -> bool:
    return string(file.get("mime")).startswith("image/")


def _title(file: Fields) -> str:
    return string(file.get("filename")) or string(file.get("mime"))
