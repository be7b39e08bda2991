"""Compaction by pi's rules: where a session is cut and what is summarized.

Rules and constants are pi's (those of 0.81 where it has them, else of 0.87). Tokens are estimated
as a fourth of the UTF-16 units, rounded up for each message. Real numbers win: the context is as
large as the newest answer reports, plus an estimate of what came later, unless that answer failed
or an edit or a compaction came after it. For agents other than pi, messages that a compaction keeps
instead of history are summarized again with what followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from indexerd.entries import Entry, Kind, ToolCall
from indexerd.sessions.clipped import arguments, units
from indexerd.sessions.context import ContextEntry, ContextMessage, js_json
from indexerd.sessions.facts import FileLists, file_lists

KEEP_RECENT = 20_000  # tokens at the end that stay as they are
IMAGE_UNITS = 4_800

_TURNS = frozenset({"user", "bashExecution", "custom", "branchSummary", "compactionSummary"})
_CUTS = _TURNS | {"assistant"}
_PROMPTS = frozenset({"system", "developer"})  # parts of the prompt, not of the conversation
_ESTIMATED = _CUTS | _PROMPTS | {"toolResult"}


def estimate_tokens(*messages: ContextMessage) -> int:
    return sum(-(-_units(message) // 4) for message in messages if message.role in _ESTIMATED)


def _units(message: ContextMessage) -> int:
    ran = message.entry.ran
    if message.role == "bashExecution" and ran is not None:
        return units(ran.command) + units(ran.output)
    size = sum(map(units, (*message.texts, *message.thinking)))
    for call in message.calls:
        values = arguments(call)
        size += units(call.name) + (0 if values is None else units(js_json(values)))
    size += 0 if message.role == "assistant" else IMAGE_UNITS * message.images
    if message.role == "system" and (prompt := message.entry.prompt):
        sections, tools = prompt.get("sections"), prompt.get("toolsAdded")
        parts = sections.values() if isinstance(sections, dict) else ()
        size += sum(units(part) for part in parts if isinstance(part, str))
        size += 0 if tools is None else units(js_json(tools))
    return size


def context_tokens(entries: Sequence[ContextEntry]) -> tuple[int, int]:
    """Return a context's tokens, and how many of them the newest answer's model counted."""
    edits = (entry.place for entry in entries if entry.entry.type == "context_edit")
    changed = max([*edits, *(e.place for e in entries if _is_compaction(e))], default=-1)
    for at in reversed(range(len(entries))):
        if used := _usage(entries[at]):
            if entries[at].place <= changed:
                break
            # An answer's count never includes the tool results on its own line.
            trailing = (message for entry in entries[at + 1 :] for message in entry.speeches)
            return used + estimate_tokens(*entries[at].speeches[1:], *trailing), used
    return sum(estimate_tokens(*entry.speeches) for entry in entries), 0


def _usage(entry: ContextEntry) -> int:
    tokens = entry.entry.tokens
    spoke = any(message.role == "assistant" for message in entry.speeches)
    if not spoke or tokens is None or entry.entry.stop_reason in ("aborted", "error"):
        return 0
    return tokens.total or tokens.input + tokens.output + tokens.cache_read + tokens.cache_write


class Cut(NamedTuple):
    """Where a context is cut, as places in the list of entries."""

    first_kept: int
    turn_start: int  # of the turn that the cut splits; -1: it splits none


def find_cut(entries: Sequence[ContextEntry], start: int, end: int, keep: int = KEEP_RECENT) -> Cut:
    """Find where to cut the entries from `start` up to `end` to keep about `keep` tokens.

    The cut is never before a tool's result, which must follow its call.
    """
    places = [at for at in range(start, end) if _has(entries[at], _CUTS)]
    if not places:
        return Cut(start, -1)
    cut, total = places[0], 0
    for at in range(end - 1, start - 1, -1):
        tokens = estimate_tokens(*entries[at].speeches)
        total += tokens
        if tokens and total >= keep:
            cut = next((place for place in places if place >= at), places[-1])
            break
    while cut > start and not entries[cut - 1].speeches and not _is_compaction(entries[cut - 1]):
        cut -= 1
    if _has(entries[cut], _TURNS):
        return Cut(cut, -1)
    return Cut(cut, next((at for at in range(cut, start - 1, -1) if _has(entries[at], _TURNS)), -1))


def _has(entry: ContextEntry, roles: frozenset[str]) -> bool:
    return not _is_compaction(entry) and any(message.role in roles for message in entry.speeches)


def _is_compaction(entry: ContextEntry) -> bool:
    return entry.entry.kind is Kind.COMPACTION


class Prepared(NamedTuple):
    """The parts of a context that a compaction summarizes and keeps."""

    first_kept_id: str | None  # id of the first entry that stays
    history: tuple[ContextMessage, ...]  # summarized together with the previous summary
    turn_prefix: tuple[ContextMessage, ...]  # of a turn whose end stays: summarized separately
    split: bool
    tokens_before: int
    previous_summary: str | None
    files: FileLists  # of the summarized calls, and those named by the previous summary


def prepare(entries: Sequence[ContextEntry], keep: int = KEEP_RECENT) -> Prepared | None:
    """Decide which part of a context to summarize, keeping `keep` tokens.

    None if nothing is left to summarize, or nothing came since the last compaction.
    """
    newest = max(entries, key=lambda entry: entry.place, default=None)
    if newest is None or _is_compaction(newest):
        return None
    compactions = [at for at, entry in enumerate(entries) if _is_compaction(entry)]
    last = max(compactions, key=lambda at: entries[at].place, default=-1)
    at = last if last >= 0 and entries[last].speeches else -1  # -1: the model does not see it
    cut = find_cut(entries, at + 1, len(entries), keep)
    if cut.first_kept >= len(entries) or not entries[cut.first_kept].entry.id:
        return None
    split = cut.turn_start >= 0
    end = cut.turn_start if split else cut.first_kept
    history, prefix = entries[at + 1 : end], entries[end : cut.first_kept]
    old, new = _conversation(history), _conversation(prefix)
    if not old and not new:
        return None
    previous = entries[at].entry if at >= 0 else None
    return Prepared(
        first_kept_id=entries[cut.first_kept].entry.id,
        history=(*(beside_summary(entries[at]) if previous else ()), *old),
        turn_prefix=new,
        split=split,
        tokens_before=context_tokens(entries)[0],
        previous_summary=None if previous is None else "".join(previous.texts),
        files=files_of([*history, *prefix], [previous] if previous else []),
    )


def _conversation(entries: Iterable[ContextEntry]) -> tuple[ContextMessage, ...]:
    spoken = (entry.speeches for entry in entries if not _is_compaction(entry))
    return tuple(m for messages in spoken for m in messages if m.role not in _PROMPTS)


def beside_summary(entry: ContextEntry) -> tuple[ContextMessage, ...]:
    """Return the messages that a compaction keeps next to its summary."""
    summary = "".join(entry.entry.texts)
    return tuple(
        message
        for message in entry.speeches
        if message.role not in (*_PROMPTS, "compactionSummary")
        and not (summary and summary in "".join(message.texts))
    )


def files_of(entries: Iterable[ContextEntry], summaries: Iterable[Entry]) -> FileLists:
    calls = list[ToolCall]()
    for entry in entries:
        if not _is_compaction(entry):
            calls += (call for message in entry.speeches for call in message.calls)
            calls += (call for call in entry.entry.tools if not call.name)  # records of past edits
    return file_lists([*summaries, Entry("", Kind.CALL, "", None, "", tools=tuple(calls))])


def file_blocks(files: FileLists) -> str:
    blocks = (("read-files", files.read), ("modified-files", files.modified))
    return "".join(
        f"\n\n<{name}>\n" + "\n".join(paths) + f"\n</{name}>" for name, paths in blocks if paths
    )
