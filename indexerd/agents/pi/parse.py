"""Turn the lines of a pi session into a tree, and parse one line in full.

Pitfalls: the leaf is the last entry of the file, whatever its type; only the harness's `leaf` entry
names another one. A later header repeats the first. Version 1 has no ids: we make one from an
entry's row, which stays the same when the file is read again.

`branch_lines` writes one path as a new session, as pi's createBranchedSession does: label entries
are left out, the parent of every other entry is the one before it, and the labels of kept entries
follow at the end. A line that need not change keeps its bytes; pi migrates an old format when it
opens the file. A compaction that keeps history from a label on keeps it from the entry after that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from indexerd.agents.base import ANSWERS, NOWHERE, PATH_KEPT, WORD_MAX, Tree
from indexerd.agents.json_lines import (
    PREVIEWED,
    Fields,
    as_blocks,
    as_dict,
    as_list,
    call_of,
    number,
    of_type,
    parse_object,
    recorded_tokens,
    safe_line,
    scan_lines,
    string,
    texts_in,
    time_ms,
)
from indexerd.agents.recaps import goal_in
from indexerd.entries import (
    EXTRA,
    MESSAGE,
    TURN_SHIFT,
    Command,
    Compaction,
    Edit,
    Entry,
    Header,
    Kind,
    Retained,
    Tokens,
    ToolCall,
    ToolResult,
    Turn,
)
from indexerd.times import iso_ms

_ROLES = {
    "user": Kind.USER,
    "assistant": Kind.ASSISTANT,
    "toolResult": Kind.TOOL,
    "system": Kind.SYSTEM,
    "bashExecution": Kind.BASH,
    "custom": Kind.CUSTOM,
    "hookMessage": Kind.CUSTOM,  # its name in version 2
}
_TYPES = {
    "custom_message": Kind.CUSTOM,
    "compaction": Kind.COMPACTION,
    "branch_summary": Kind.BRANCH_SUMMARY,
    "model_change": Kind.SETTING,
    "thinking_level_change": Kind.SETTING,
    "active_tools_change": Kind.SETTING,
    "leaf": Kind.SETTING,
    "label": Kind.LABEL,
    "session_info": Kind.NAME,
}
_WORDS = {  # type of an entry without a message -> the field with its text
    "compaction": "summary",
    "branch_summary": "summary",
    "session_info": "name",
    "label": "label",
    "model_change": "modelId",
    "thinking_level_change": "thinkingLevel",
    "custom": "customType",
    "context_edit": "targetId",
}
_PROMPT = {"sections": dict, "toolsAdded": list, "toolsRemoved": list}
_NEWEST = 3  # version of a file
_TURNS = {"toolUse": Turn.OPEN, "error": Turn.FAILED, "aborted": Turn.FAILED}
_WRAPPED = re.compile(r"<(skill|file)\b[^>]{0,500}>.*?</\1>", re.DOTALL)


def made_id(row: int) -> str:
    """Make an id for an entry of version 1, which has none."""
    return f"{row:08x}"


def scan(tree: Tree, data: bytes, base: int) -> None:
    for line, offset, length in scan_lines(tree, data, base):
        if tree.header is not None:
            if line.get("type") != "session":
                _add(tree, line, offset, length)
        elif tree.foreign or line.get("type") != "session" or not isinstance(line.get("id"), str):
            tree.foreign = True
        else:
            parent = line.get("parentSession") or line.get("branchedFrom")
            tree.header = Header(
                session_id=line["id"][:PATH_KEPT],
                cwd=string(line.get("cwd"))[:PATH_KEPT],
                created_at=string(line.get("timestamp"))[:WORD_MAX],
                version=number(line.get("version"), 1_000_000) or 1,
                parent=string(parent)[:PATH_KEPT] or None,
            )


def _add(tree: Tree, line: Fields, offset: int, length: int) -> None:
    kind, message, row = string(line.get("type")), as_dict(line.get("message")), len(tree.ids)
    role, packed = string(message.get("role")), _TYPES.get(kind, 0)
    if role == "assistant" and kind == "message":
        stop = message.get("stopReason") or line.get("stopReason")  # the latter in a line cut short
        packed = ANSWERS[_TURNS.get(string(stop), Turn.ENDED)]
    else:
        says = message if kind == "message" else line
        packed = _ROLES.get(role, 0) | MESSAGE if kind == "message" else packed
        packed |= EXTRA if isinstance(says.get("usage"), dict) else 0
        failed = role == "toolResult" and message.get("isError") is True
        if failed and message.get("toolName") != "read":  # pi itself lists files of failed reads
            packed |= Turn.FAILED << TURN_SHIFT
    own, parent = string(line.get("id")), string(line.get("parentId")) or None
    if tree.header is not None and tree.header.version <= 1:
        own, parent = made_id(row), made_id(row - 1) if row else None
    tree.add(own, parent, packed, offset, length)
    target = line.get("targetId")
    if kind == "message":
        if role in ("user", "assistant"):
            at = time_ms(message.get("timestamp")) or iso_ms(string(line.get("timestamp")))
            tree.activity_ms = max(tree.activity_ms, at)
        if role == "user":
            tree.opened_by(row, lambda: _preview(_entry(line).text))
    elif kind == "session_info":
        tree.name = safe_line(string(line.get("name"))) or None
        tree.named_by_person = tree.name is not None
    elif kind == "compaction" and (goal := goal_in(string(line.get("summary")))):
        tree.recap = row, goal
    elif kind == "label" and isinstance(target, str):
        tree.labels.pop(target, None)
        if label := safe_line(string(line.get("label"))):
            tree.labels[target] = label
    elif kind == "leaf":
        tree.leaf = tree.index.get(target, tree.leaf) if isinstance(target, str) else NOWHERE


def _preview(text: str) -> str:
    """Make a preview of a prompt, without the skills and files that pi adds to it."""
    head = text[:PREVIEWED]
    return safe_line(_WRAPPED.sub(" ", head)) or safe_line(head)


def read(data: bytes, entry_id: str) -> Entry:
    """Parse one entry's line; ValueError if it is not a JSON object."""
    return _entry(parse_object(data), entry_id)


def _entry(line: Fields, entry_id: str = "") -> Entry:
    kind, message = string(line.get("type")), as_dict(line.get("message"))
    says = message if kind == "message" else line
    content = as_blocks(says.get("content"))
    fields = _message(message, content) if kind == "message" else _other(line, kind, entry_id)
    return Entry(
        id=entry_id or string(line.get("id")),
        type=kind,
        timestamp=string(line.get("timestamp")),
        tokens=_tokens(says.get("usage")),
        provider=string(says.get("provider")) or None,
        custom_type=string(says.get("customType")) or None,
        display=_flag(says.get("display")),
        images=len(of_type(content, "image")),
        **fields,
    )


def _message(message: Fields, content: list[Fields]) -> Fields:
    role, texts, call = string(message.get("role")), _texts(message), message.get("toolCallId")
    fields: Fields = {
        "kind": _ROLES.get(role, Kind.OTHER),
        "role": "custom" if role == "hookMessage" else role or None,
        "texts": texts,
        "tools": _calls(content),
        "model": string(message.get("model")) or None,
        "thinking": _thinking(content),
        "stop_reason": string(message.get("stopReason")),
        "error": string(message.get("errorMessage")),
        "prompt": _prompt(message),
    }
    if role == "toolResult":
        result = ToolResult(string(call), string(message.get("toolName")), "".join(texts))
        fields["results"] = (result,)
        fields["failed"] = (result.call,) if message.get("isError") is True else ()
    elif role == "bashExecution":
        code = message.get("exitCode")
        fields["ran"] = Command(
            command=string(message.get("command")),
            output=string(message.get("output")),
            exit_code=code if type(code) is int else None,
            cancelled=message.get("cancelled") is True,
            truncated=message.get("truncated") is True,
            output_file=string(message.get("fullOutputPath")) or None,
            hidden=message.get("excludeFromContext") is True,  # `!!`
        )
    return fields


def _other(line: Fields, kind: str, entry_id: str) -> Fields:
    word = string(line.get(_WORDS[kind])) if kind in _WORDS else ""
    fields: Fields = {"kind": _TYPES.get(kind, Kind.OTHER), "role": None}
    fields |= {"texts": (word,)} if word else {}
    match kind:
        case "custom_message":
            fields["texts"] = _texts(line)
        case "custom":
            fields["data"] = line.get("data")
        case "model_change":
            fields["next_model"] = word or None
        case "thinking_level_change":
            level = line.get("thinkingLevel")
            fields["thinking_level"] = level if isinstance(level, str) else None
        case "context_edit":
            fields["edit"] = _edit(line, word)
        case "compaction":
            fields["compaction"] = _compaction(line, entry_id)
            fields["prompt"] = _prompt(as_dict(line.get("systemMessage")))
        case "branch_summary":
            fields["from_id"] = string(line.get("fromId")) or None
    if kind in ("compaction", "branch_summary"):
        fields |= {"from_hook": _flag(line.get("fromHook")), "stored": line.get("details")}
    return fields


def _texts(message: Fields) -> tuple[str, ...]:
    if message.get("role") == "bashExecution":  # shown as pi shows it
        return (f"$ {string(message.get('command'))}\n{string(message.get('output'))}",)
    return tuple(texts_in(as_blocks(message.get("content"))))


def _thinking(content: list[Fields]) -> tuple[str, ...]:
    return tuple([string(block.get("thinking")) for block in of_type(content, "thinking")])


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _calls(content: list[Fields]) -> tuple[ToolCall, ...]:
    calls = of_type(content, "toolCall")
    fields = [(call.get("name"), call.get("arguments"), call.get("id")) for call in calls]
    return tuple([call_of(string(name), value, string(own)) for name, value, own in fields])


def _tokens(usage: Any) -> Tokens | None:
    if not isinstance(usage, dict):
        return None
    counts = [usage.get(key) for key in ("input", "output", "cacheRead", "cacheWrite")]
    cost = as_dict(usage.get("cost")).get("total")
    return recorded_tokens(counts, total=usage.get("totalTokens"), cost=cost)


def _prompt(message: Fields) -> Fields | None:
    """Return the parts of a system prompt that are stored outside its texts."""
    parts = {
        key: message[key] for key, kind in _PROMPT.items() if isinstance(message.get(key), kind)
    }
    return parts or None


def _edit(line: Fields, target: str) -> Edit | None:
    """Parse the replacement of an earlier entry; None if there is none."""
    replacement = line.get("replacement", "")
    if replacement is None:
        return Edit(target, removed=True)
    if not isinstance(replacement, dict):
        return None
    content = as_blocks(replacement.get("content"))
    return Edit(
        target,
        texts=tuple(texts_in(content)),
        thinking=_thinking(content),
        calls=_calls(content),
        images=len(of_type(content, "image")),
    )


def _compaction(line: Fields, entry_id: str) -> Compaction:
    first, index = line.get("firstKeptEntryId"), line.get("firstKeptEntryIndex")
    if entry_id and line.get("id") != entry_id:  # version 1: made_id
        first = made_id(number(index) - 1) if number(index) else None  # the header is 0
    tail, system = line.get("retainedTail"), line.get("systemMessage")
    before = line.get("tokensBefore")
    kept = [item for item in as_list(tail) if isinstance(item, dict)]
    retained = tuple(Retained(string(item.get("role")), "".join(_texts(item))) for item in kept)
    return Compaction(
        kept=first if isinstance(first, str) else None,
        retained=retained if isinstance(tail, list) else None,
        system="".join(_texts(system)) if isinstance(system, dict) else None,
        tokens_before=before if type(before) in (int, float) else None,
    )


def branch_lines(
    header: Fields,
    path: Iterable[tuple[str, bytes]],
    labels: Iterable[bytes],
    fresh: Callable[[], str],
) -> Iterator[bytes]:
    """Yield the lines of the new file, header first, each with its newline.

    `header` has the version of the source. `path` pairs the ids that we show with lines. `labels`
    are the label entries of the whole source, in the file's order; `fresh` returns eight random
    hexadecimal digits. ValueError for a line that is not a JSON object.
    """
    version = min(header["version"], _NEWEST)
    yield _encoded({"type": "session", **header, "version": version})
    last: str | None = None
    ids: set[str] = set()
    moved: dict[str, str] = {}  # id of a label -> the entry after it, which takes its place
    waiting: list[str] = []
    for own, line in path:
        entry = parse_object(line)
        if entry.get("type") == "label":
            waiting.append(own)
            continue
        moved |= dict.fromkeys(waiting, own)
        waiting.clear()
        fields = entry if version <= 1 else entry | {"parentId": last}  # version 1 has no ids
        kept = entry.get("firstKeptEntryId")
        if entry.get("type") == "compaction" and kept not in (None, own):
            fields["firstKeptEntryId"] = moved.get(str(kept), kept)
        yield line.strip() + b"\n" if fields == entry else _encoded(fields)
        last = own
        ids.add(own)
    for target, stored in _resolved(labels).items():
        if target in ids:
            above, last = last, fresh()
            while last in ids:
                last = fresh()
            ids.add(last)
            yield _encoded(
                {"type": "label", "id": last, "parentId": above, **stored, "targetId": target}
            )


def _resolved(labels: Iterable[bytes]) -> dict[str, Fields]:
    """Find each target's label and its time; the last change counts, an empty label clears."""
    newest: dict[str, Fields] = {}
    for line in labels:
        entry = parse_object(line)
        target, label = entry.get("targetId"), entry.get("label")
        if isinstance(target, str) and isinstance(label, str) and label:
            # As in pi, a changed label keeps its place among the labels.
            newest[target] = {key: entry[key] for key in ("label", "timestamp") if key in entry}
        elif isinstance(target, str):
            newest.pop(target, None)
    return newest


def _encoded(fields: Fields) -> bytes:
    return msgspec.json.encode(fields) + b"\n"
