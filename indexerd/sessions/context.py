"""Build the messages that an agent would send its model, and serialize them for a summary.

Rows that a compaction replaced are not read, except settings, which apply however old they are. The
rules are pi's. Pitfalls: an older compaction in the range that a newer one keeps is repeated in its
place, as pi did at least until 0.81; pi 0.87 leaves it out.

The text follows pi as well: what pi sends in the user's name (summaries, commands, extensions'
notes) is the user's; pictures, system messages and commands that the user hid from the model are
left out; JavaScript counts a character beyond the basic plane as two. Nothing is redacted here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from indexerd.agents.base import PROMPTED
from indexerd.entries import Compaction, Edit, Entry, Kind, ToolCall, ToolResult
from indexerd.errors import ContextTooLargeError
from indexerd.privacy.sanitize import replace_surrogates
from indexerd.sessions.clipped import Clipped, arguments, beside_results, joined, units
from indexerd.sessions.state import SessionState

ASKED_MAX = 80_000  # bytes of human messages that an old Codex compaction keeps
TEXT_MAX = 10_000_000  # characters of all texts together; more than any model's window
ENTRIES_MAX = 15_000  # of a context, 2 KB of memory each; more than any model's window
CLEARED = "[Old tool result content cleared]"  # opencode's text in place of a pruned result

ROLES = {
    Kind.USER: "user",
    Kind.ASSISTANT: "assistant",
    Kind.TOOL: "toolResult",
    Kind.BASH: "bashExecution",
    Kind.CUSTOM: "custom",
    Kind.COMPACTION: "compactionSummary",
    Kind.BRANCH_SUMMARY: "branchSummary",
}
_EDITABLE = frozenset({Kind.USER, Kind.ASSISTANT, Kind.TOOL, Kind.CUSTOM})

TOOL_RESULT_MAX = 2000  # UTF-16 units

# pi's own texts around a summary.
_COMPACTED = "The conversation history before this point was compacted into the following summary:"
_BRANCHED = "The following is a summary of a branch that this conversation came back from:"
_AROUND = {
    "user": ("", ""),
    "custom": ("", ""),
    "bashExecution": ("", ""),  # another agent's: its text is complete
    "compactionSummary": (f"{_COMPACTED}\n\n<summary>\n", "\n</summary>"),
    "branchSummary": (f"{_BRANCHED}\n\n<summary>\n", "</summary>"),
}

ReadRow = Callable[[int], Entry]  # reads a row in full
_Says = Callable[..., Iterator["ContextMessage"]]  # turns an entry and its edit into messages


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """A message to the model. `role` is pi's, or an agent's own (developer)."""

    role: str
    entry: Entry  # its source
    texts: tuple[str, ...] = ()  # as the model gets them
    thinking: tuple[str, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    images: int = 0
    result: ToolResult | None = None  # whose text this is, if the agent stores results apart

    @property
    def text(self) -> str:
        return joined(self.texts)


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """An entry and the messages that it becomes."""

    row: int
    entry: Entry
    speeches: tuple[ContextMessage, ...] = ()  # none: the model does not see the entry
    place: int = 0  # on the path


@dataclass(frozen=True, slots=True)
class Context:
    """The messages for a model, one per entry. `model`: {provider, modelId}."""

    messages: list[ContextMessage]
    model: dict[str, str | None] | None
    thinking_level: str | None


def context_of(state: SessionState, read: ReadRow, *, level: str | None = None) -> Context:
    """Build the context at the leaf; ContextTooLargeError beyond ENTRIES_MAX or TEXT_MAX."""
    # Only messages are kept: no bound counts the parts that the model does not see.
    parts = _bounded(_parts(state, read, _messages))
    messages = [message for part in parts for message in part.speeches]
    model, thinking = _settings(state, read)
    return Context(messages, model, thinking or level)


def context_entries(state: SessionState, read: ReadRow) -> list[ContextEntry]:
    """Build the context by entry: the newest compaction, the entries it keeps, and later ones."""
    return list(_bounded(_parts(state, read, _speeches)))


def entries_of(state: SessionState, read: ReadRow, rows: Sequence[int]) -> list[ContextEntry]:
    """Build the context of these rows in order; edits and compactions among them do not count."""
    _limit(len(rows), ENTRIES_MAX, "entries")
    return list(_bounded(_one_by_one(state, read, rows, edits=False)))


def context_messages(
    state: SessionState, read: ReadRow, rows: Sequence[int]
) -> Iterator[ContextMessage]:
    """Yield the messages of these rows without a limit, for callers that do not keep them."""
    entries = _one_by_one(state, read, rows, edits=True)
    return (speech for entry in entries for speech in entry.speeches)


def _one_by_one(
    state: SessionState, read: ReadRow, rows: Sequence[int], *, edits: bool
) -> Iterator[ContextEntry]:
    new = _edits(read(row) for row in rows if edits and state.kind(row) is Kind.OTHER)
    for place, row in enumerate(rows):
        entry = read(row)
        speeches = _speeches(entry, new.get(entry.id), newest=False)
        yield ContextEntry(row, entry, tuple(speeches), place)


def _limit(size: int, most: int, what: str) -> None:
    if size > most:
        hint = "name an earlier entry with --leaf, if the command has that option"
        raise ContextTooLargeError(f"the context is longer than {most} {what}", hint=hint)


def _bounded(entries: Iterable[ContextEntry]) -> Iterator[ContextEntry]:
    size = 0
    for entry in entries:
        for message in entry.speeches:
            size += sum(map(len, (*message.texts, *message.thinking)))
            size += sum(len(js_json(call.arguments)) for call in message.calls)
        _limit(size, TEXT_MAX, "characters")
        yield entry


def _parts(state: SessionState, read: ReadRow, says: _Says) -> Iterator[ContextEntry]:
    """Yield the entries of the context in the model's order."""
    path = state.path()
    places = (at for at in reversed(range(len(path))) if state.kind(path[at]) is Kind.COMPACTION)
    at = next(places, None)
    stays = range(len(path)) if at is None else _kept(state, path, at, read)
    # The agent may have begun a new context for a plan.
    begun = (n for n in reversed(range(at or 0, len(path))) if state.codes[path[n]] == PROMPTED)
    start = next((place for place in begun if read(path[place]).restarts), None)
    stays = stays if start is None else range(start, len(path))
    _limit(len(stays), ENTRIES_MAX, "entries")
    rows = [path[place] for place in stays]
    edits = _edits(read(row) for row in rows if state.kind(row) is Kind.OTHER)
    for place, row in zip(stays, rows, strict=True):
        entry = read(row)
        speeches = says(entry, edits.get(entry.id), newest=place == at)
        yield ContextEntry(row, entry, tuple(speeches), place)


def _kept(state: SessionState, path: Sequence[int], at: int, read: ReadRow) -> Sequence[int]:
    """List places on the path: the compaction, earlier entries that it keeps, then later ones."""
    compaction, later = read(path[at]).compaction or Compaction(), range(at + 1, len(path))
    if compaction.retained is None and compaction.role == "user":  # old Codex: human messages stay
        prompts, room = [], ASKED_MAX
        for place in (n for n in reversed(range(at)) if state.kind(path[n]) is Kind.USER):
            room -= len("".join(read(path[place]).as_sent).encode("utf-8", "replace"))
            if room < 0:
                break
            prompts.append(place)
        return [*reversed(prompts), at, *later]
    first = at
    if compaction.retained is None and compaction.kept is not None:
        ids = [state.ids[row] for row in path[:at]]
        first = ids.index(compaction.kept) if compaction.kept in ids else at
    stays = [place for place in range(first, at) if state.kind(path[place]) is not Kind.SYSTEM]
    return [at, *stays, *later]


def _edits(entries: Iterable[Entry]) -> dict[str, Edit]:
    """Map entries' ids to their newest edits."""
    return {entry.edit.target: entry.edit for entry in entries if entry.edit is not None}


def role_of(entry: Entry) -> str | None:
    """Return the role in which a model sees an entry; None if it does not."""
    if entry.unseen:
        return None
    if entry.kind is Kind.COMPACTION:
        compaction = entry.compaction or Compaction()
        return None if compaction.whole else compaction.role
    if entry.sent_as is not None:
        return entry.sent_as
    if entry.kind is Kind.SYSTEM:
        return entry.role if entry.role in ("system", "developer") else None
    if entry.kind is Kind.OTHER:  # sent, though no human typed it
        return entry.role if entry.type == "message" else None
    return ROLES.get(entry.kind)


def _messages(entry: Entry, edit: Edit | None, *, newest: bool) -> Iterator[ContextMessage]:
    """Yield an entry's message, and the messages that the newest compaction retains."""
    role = role_of(entry)
    if edit is not None and edit.removed:
        return
    compaction = (entry.compaction if newest else None) or Compaction()
    if compaction.system is not None:
        yield ContextMessage("system", entry, (compaction.system,))
    if role is not None and (entry.kind is not Kind.BRANCH_SUMMARY or entry.texts):
        if edit is not None and entry.kind in _EDITABLE:
            yield ContextMessage(role, entry, edit.texts, edit.thinking, edit.calls, edit.images)
        else:
            calls = tuple(call for call in entry.tools if call.name)
            yield ContextMessage(role, entry, entry.as_sent, entry.thinking, calls, entry.images)
    for kept in compaction.retained or ():
        yield ContextMessage(kept.role, entry, (kept.text,))


def _speeches(entry: Entry, edit: Edit | None, *, newest: bool) -> Iterator[ContextMessage]:
    """Yield an entry's messages, with a message per tool result, and calls on their own lines."""
    if entry.kind is Kind.CALL or (entry.kind is Kind.OTHER and role_of(entry) is None):
        # Part of an answer on a line of its own: calls or thoughts.
        calls = tuple(call for call in entry.tools if call.name and entry.kind is Kind.CALL)
        thinking = entry.thinking if entry.role == "assistant" else ()
        if (calls or thinking) and not entry.unseen:
            yield ContextMessage("assistant", entry, thinking=thinking, calls=calls)
        return
    edited = edit is not None and entry.kind in _EDITABLE
    for message in _messages(entry, edit, newest=newest):
        if entry.kind is Kind.COMPACTION:
            yield ContextMessage(message.role, message.entry, (message.text,))
        elif edited:
            yield message
        elif message.role == "assistant":
            yield replace(message, images=0) if entry.results else message
            yield from _results(entry, message.images)
        elif message.role == "toolResult":
            yield from _result_line(message)
        else:
            yield ContextMessage(message.role, entry, message.texts, images=message.images)


def _result_line(line: ContextMessage) -> Iterator[ContextMessage]:
    rest = beside_results(line.entry, line.texts)
    if rest is None:
        yield ContextMessage("toolResult", line.entry, line.texts, images=line.images)
        return
    if rest:
        yield ContextMessage("toolResult", line.entry, (rest,))
    yield from _results(line.entry, line.images)


def _results(entry: Entry, images: int) -> Iterator[ContextMessage]:
    for result in entry.results:
        text = CLEARED if result.cleared else result.text
        yield ContextMessage("toolResult", entry, (text,), images=images, result=result)
        images = 0  # it is not known which result has them: count them once


def _settings(
    state: SessionState, read: ReadRow
) -> tuple[dict[str, str | None] | None, str | None]:
    model: dict[str, str | None] | None = None
    level: str | None = None
    for row in state.up(state.leaf):
        kind = state.kind(row)
        if kind is not Kind.SETTING and not (kind is Kind.ASSISTANT and model is None):
            continue
        entry = read(row)
        named = entry.model or entry.next_model
        if model is None and named:
            model = {"provider": entry.provider or state.provider or None, "modelId": named}
        if level is None:  # "": an entry says that there is none
            level = entry.thinking_level
        if model is not None and level is not None:
            break
    return model, level


def serialize(messages: Iterable[ContextMessage]) -> str:
    return "\n\n".join(text for _, text in parts_of(messages))


def parts_of(
    messages: Iterable[ContextMessage], *, tool_result_max: int = TOOL_RESULT_MAX
) -> list[tuple[ContextMessage, str]]:
    """Pair the messages with their texts; an answer with thoughts or calls has several."""
    return [(message, text) for message in messages for text in _written(message, tool_result_max)]


def _written(message: ContextMessage, most: int) -> Iterator[str]:
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
    elif text := _as_user(message):
        yield f"[User]: {text}"


def _as_user(message: ContextMessage) -> str:
    """Return a message as the model gets it from the user; "" if it gets none."""
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
    # Like pi, write half a surrogate pair as U+FFFD.
    return f"{head.decode('utf-16-le', 'replace')}\n\n[... {more} more characters truncated]"


def _call(call: ToolCall) -> str:
    """Write a call as `name(key=JSON, …)`; arguments that are not an object are named `input`."""
    parsed = arguments(call)
    if parsed is None:
        return f"{call.name}()"
    pairs = parsed.items() if isinstance(parsed, dict) else [("input", parsed)]
    inside = (f"{replace_surrogates(key)}={js_json(value)}" for key, value in pairs)
    return f"{call.name}({', '.join(inside)})"


def js_json(value: Any) -> str:
    """Write a value as JSON.stringify does; null for one nested too deeply."""
    if isinstance(value, Clipped):
        return value
    if isinstance(value, dict) and any(isinstance(item, Clipped) for item in value.values()):
        pairs = [joined([js_json(key), ":", js_json(item)]) for key, item in value.items()]
        return joined(["{", joined(pairs, ","), "}"])
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return "null"
    return replace_surrogates(text)
