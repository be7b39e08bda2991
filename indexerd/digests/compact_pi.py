"""When pi compacts a session, where it cuts it, and what it then sums up; nothing is written.

In: entries (sessions/context.py): `context_entries` of what is compacted, or `entries_of` a branch.
Out: token counts, a cut, and a preparation: what a model is to sum up, what stays, which files the
summary names. Rules and constants are pi's (0.81's where it answered, else 0.87's).

**Tokens** are estimated without a tokenizer: a fourth of the UTF-16 units, rounded up for each
message, of texts, thoughts, the names of calls and the JSON of their arguments; a picture beside
them counts as 4,800 units. Real numbers win: the context is as large as the newest answer says
that it was, and what came after it is estimated; unless that answer failed, or an edit or a
compaction came after it.

For other agents than pi: what a compaction brings along in the place of history (a tail, what
humans said) is summed up again with what followed it; and an answer that stands on several lines
is not cut in two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from indexerd.digests.serialize import arguments, js_json, units
from indexerd.events import Entry, Kind, Tokens, ToolCall
from indexerd.sessions.clipped import joined
from indexerd.sessions.context import ContextEntry, ContextMessage, role_of
from indexerd.sessions.history import FileLists, file_lists

RESERVE = 16_384  # tokens of the window that stay free for the answer
KEEP_RECENT = 20_000  # tokens at the end that stay as they are
IMAGE_UNITS = 4_800

_UNITS = 4  # UTF-16 units to a token
_TURNS = frozenset({"user", "bashExecution", "custom", "branchSummary", "compactionSummary"})
_CUTS = _TURNS | {"assistant"}
_ESTIMATED = _CUTS | {"toolResult", "system", "developer"}
_PROMPTS = frozenset({"system", "developer"})  # state of the prompt, and no conversation
_OWN = frozenset({"read", "write", "edit"})  # pi's tools for files
_FAILED = frozenset({"aborted", "error"})


# -- tokens --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ContextSize:
    """How large a context is, in tokens."""

    tokens: int
    usage_tokens: int  # as the newest answer's model counted; 0 where none did
    trailing_tokens: int  # estimated, of what came after that; of all where none did


def estimate_tokens(speech: ContextMessage) -> int:
    """About how many tokens a speech is; never a model's own count."""
    if speech.role not in _ESTIMATED:
        return 0
    ran = speech.entry.details.get("ran")
    if speech.role == "system":
        size = _prompt_units(joined(speech.texts), _prompt(speech))
    elif speech.role == "bashExecution" and ran is not None:
        size = units(ran["command"]) + units(ran["output"])
    else:
        size = sum(map(units, speech.texts)) + sum(map(units, speech.thinking))
        size += sum(map(_call_units, speech.calls))
        size += 0 if speech.role == "assistant" else IMAGE_UNITS * speech.images
    return -(-size // _UNITS)


def _call_units(call: ToolCall) -> int:
    given = arguments(call)
    return units(call.name) + (0 if given is None else units(js_json(given)))


def context_tokens(steps: Sequence[ContextEntry]) -> ContextSize:
    """The size of a context: what the newest answer says, and estimates of what came after it."""
    at = next((at for at in reversed(range(len(steps))) if _usage(steps[at])), None)
    changed = max((step.place for step in steps if _changes(step.entry)), default=-1)
    if at is not None and steps[at].place > changed:
        used = _usage(steps[at])
        # Results that an answer itself brings are known to no count of its own.
        trailing = sum(map(estimate_tokens, steps[at].speeches[1:]))
        trailing += sum(_step_tokens(step) for step in steps[at + 1 :])
        return ContextSize(used + trailing, used, trailing)
    said = [speech for step in steps for speech in step.speeches]
    total = sum(estimate_tokens(speech) for speech in said if speech.role != "system")
    total += _prompt_tokens([speech for speech in said if speech.role == "system"])
    return ContextSize(total, 0, total)


def _prompt_tokens(said: Sequence[ContextMessage]) -> int:
    """About how large the prompt is that all these system messages together make."""
    sections: dict[str, Any] = {}
    tools: dict[str, Any] = {}
    for prompt in map(_prompt, said):
        sections |= _mapping(prompt.get("sections"))
        for name in _named(prompt.get("toolsRemoved")):
            tools.pop(name, None)
        tools |= _named(prompt.get("toolsAdded"))
    texts = [joined(speech.texts, "\n") for speech in said]
    whole = {"sections": sections} | ({"toolsAdded": [*tools.values()]} if tools else {})
    size = _prompt_units(joined([text for text in texts if text], "\n\n"), whole)
    return -(-size // _UNITS)


def _prompt(speech: ContextMessage) -> dict[str, Any]:
    return _mapping(speech.entry.details.get("prompt"))


def _mapping(held: Any) -> dict[str, Any]:
    return held if isinstance(held, dict) else {}


def _named(tools: Any) -> dict[str, Any]:
    listed = tools if isinstance(tools, list) else []
    return {str(one.get("name")): one for one in listed if isinstance(one, dict)}


def _prompt_units(text: str, prompt: dict[str, Any]) -> int:
    parts = (part for part in _mapping(prompt.get("sections")).values() if isinstance(part, str))
    tools = prompt.get("toolsAdded")
    return units(text) + sum(map(units, parts)) + (0 if tools is None else units(js_json(tools)))


def _usage(step: ContextEntry) -> int:
    entry = step.entry
    spoke = any(speech.role == "assistant" for speech in step.speeches)
    if not spoke or entry.tokens is None or entry.details.get("stopReason") in _FAILED:
        return 0
    return _total(entry.tokens)


def _total(tokens: Tokens) -> int:
    parts = tokens.input + tokens.output + tokens.cache_read + tokens.cache_write
    return tokens.total or parts


def _changes(entry: Entry) -> bool:
    """Whether counts from before it hold no more."""
    return entry.kind is Kind.COMPACTION or entry.type == "context_edit"


def _step_tokens(step: ContextEntry) -> int:
    return sum(map(estimate_tokens, step.speeches))


def should_compact(tokens: int, window: int, reserve: int = RESERVE) -> bool:
    """Whether a context leaves less than the reserve of a model's window."""
    return tokens > window - reserve


# -- the cut -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a context is cut. Numbers are places in the list of steps."""

    first_kept: int
    turn_start: int  # of the turn that the cut splits; -1 where it splits none
    split: bool


def find_cut(steps: Sequence[ContextEntry], start: int, end: int, keep: int = KEEP_RECENT) -> Cut:
    """Where to cut the steps from `start` up to `end`, so that about `keep` tokens stay.

    Never before a tool's result: it has to follow its call.
    """
    places = [at for at in range(start, end) if _may_cut(steps, at)]
    if not places:
        return Cut(start, -1, split=False)
    cut, total = places[0], 0
    for at in range(end - 1, start - 1, -1):
        tokens = _step_tokens(steps[at])
        total += tokens
        if tokens and total >= keep:
            cut = next((one for one in places if one >= at), places[-1])
            cut += _only_omitted(steps[cut + 1 : end])
            break
    while cut > start and not steps[cut - 1].speeches and not _is_compaction(steps[cut - 1]):
        cut -= 1
    turn = -1
    if not _starts_turn(steps[cut]):
        turn = next((at for at in range(cut, start - 1, -1) if _starts_turn(steps[at])), -1)
    return Cut(cut, turn, split=turn != -1)


def _may_cut(steps: Sequence[ContextEntry], at: int) -> bool:
    return _has(steps[at], _CUTS) and not _goes_on(steps, at)


def _goes_on(steps: Sequence[ContextEntry], at: int) -> bool:
    """Whether a step is more of the answer before it, which its agent stored line by line."""
    entry = steps[at].entry
    answer = entry.tokens.answer if entry.tokens else ""
    if entry.kind is not Kind.CALL and not answer:
        return False
    before = next((steps[one] for one in range(at - 1, -1, -1) if steps[one].speeches), None)
    if before is None or not any(one.role == "assistant" for one in before.speeches):
        return False
    if entry.kind is Kind.CALL:
        return True
    return before.entry.tokens is not None and before.entry.tokens.answer == answer


def _starts_turn(step: ContextEntry) -> bool:
    return _has(step, _TURNS)


def _has(step: ContextEntry, roles: frozenset[str]) -> bool:
    """Whether anything of a step that is no compaction is said in one of these roles."""
    return not _is_compaction(step) and any(one.role in roles for one in step.speeches)


def _is_compaction(step: ContextEntry) -> bool:
    return step.entry.kind is Kind.COMPACTION


def _only_omitted(rest: Sequence[ContextEntry]) -> bool:
    """Whether after a cut there is only what edits left out, an answer among it.

    So an agent recovers from an answer that failed: nothing is left to keep whole there.
    """
    omitted = [step for step in rest if _is_omitted(step)]
    ids = {step.entry.id for step in omitted}
    return (
        any(step.entry.kind is Kind.ASSISTANT for step in omitted)
        and not any(_is_compaction(step) or step.speeches for step in rest)
        and not any(_replaces_other(step.entry, ids) for step in rest)
    )


def _is_omitted(step: ContextEntry) -> bool:
    silent = step.entry.kind is Kind.BRANCH_SUMMARY and not step.entry.texts
    return not step.speeches and not silent and role_of(step.entry) is not None


def _replaces_other(entry: Entry, ids: set[str]) -> bool:
    """Whether an edit puts something in the place of an entry that is not one of these."""
    new = entry.details.get("replacement")
    return (
        entry.type == "context_edit"
        and new is not None
        and entry.details.get("targetId") not in ids
    )


# -- preparation ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a compaction sums up, and what stays."""

    first_kept_id: str  # of the first entry that stays
    history: tuple[ContextMessage, ...]  # to be summed up, together with the previous summary
    turn_prefix: tuple[
        ContextMessage, ...
    ]  # the beginning of a turn whose end stays: summed up apart
    split: bool
    tokens_before: int
    previous_summary: str | None
    files: FileLists  # of all that is summed up, and those that the previous summary names
    previous: Entry | None = None  # the compaction that the previous summary is of


def prepare(steps: Sequence[ContextEntry], keep: int = KEEP_RECENT) -> Prepared | None:
    """What to sum up of a context; None where nothing is left to, or nothing came since the last.

    `keep` is in tokens.
    """
    newest = max(steps, key=lambda step: step.place, default=None)
    if newest is None or _is_compaction(newest):
        return None
    at = _newest_compaction(steps)
    cut = find_cut(steps, at + 1, len(steps), keep)
    if cut.first_kept >= len(steps) or not steps[cut.first_kept].entry.id:
        return None
    end = cut.turn_start if cut.split else cut.first_kept
    history, prefix = steps[at + 1 : end], steps[end : cut.first_kept]
    old, new = tuple(_spoken(history)), tuple(_spoken(prefix))
    if not old and not new:
        return None
    previous = steps[at].entry if at >= 0 else None
    brought = _brought(steps[at]) if at >= 0 else ()
    return Prepared(
        first_kept_id=steps[cut.first_kept].entry.id,
        history=(*brought, *old),
        turn_prefix=new,
        split=cut.split,
        tokens_before=context_tokens(steps).tokens,
        previous_summary=None if previous is None else "".join(previous.texts),
        files=files_of([*history, *prefix], [previous] if previous else []),
        previous=previous,
    )


def reach(steps: Sequence[ContextEntry]) -> int:
    """About how many tokens there are since the newest compaction, among which a cut is looked for.

    Where `prepare` finds nothing to do, it tells why: is it more than was to be kept, then there
    is no place for a cut.
    """
    return sum(_step_tokens(step) for step in steps[_newest_compaction(steps) + 1 :])


def _newest_compaction(steps: Sequence[ContextEntry]) -> int:
    """The newest, where the model is told of it; -1 where there is none."""
    places = {step.place: at for at, step in enumerate(steps) if _is_compaction(step)}
    at = places[max(places)] if places else -1
    return at if at >= 0 and steps[at].speeches else -1


def _spoken(steps: Iterable[ContextEntry]) -> Iterator[ContextMessage]:
    for step in steps:
        if not _is_compaction(step):
            yield from (one for one in step.speeches if one.role not in _PROMPTS)


def _brought(step: ContextEntry) -> tuple[ContextMessage, ...]:
    """What stood for history beside the summary, which is told apart from it."""
    summary = "".join(step.entry.texts)
    return tuple(
        one
        for one in step.speeches
        if one.role not in _PROMPTS and not (summary and "".join(one.texts).endswith(summary))
        if one.role != "compactionSummary"
    )


def files_of(steps: Iterable[ContextEntry], summaries: Iterable[Entry]) -> FileLists:
    """Files of the calls that are summed up, and those that these summaries name."""
    calls = [
        Entry("", Kind.CALL, "", None, "", tools=tuple(_calls(step)))
        for step in steps
        if not _is_compaction(step)
    ]
    return file_lists([*summaries, *calls])


def _calls(step: ContextEntry) -> Iterator[ToolCall]:
    """What is said of calls; and records of what they did, which say nothing to the model."""
    for speech in step.speeches:
        yield from (call for call in speech.calls if not _unknown_to_pi(call))
    yield from (call for call in step.entry.tools if not call.name)


def _unknown_to_pi(call: ToolCall) -> bool:
    """Whether a call of pi's own tools names its file as other agents do: pi passes over it."""
    given = call.arguments
    return (
        call.name in _OWN
        and isinstance(given, dict)
        and "file_path" in given
        and "path" not in given
    )


def file_blocks(files: FileLists) -> str:
    """What stands below a summary: the files, one a line; nothing where there are none."""
    blocks = (("read-files", files.read), ("modified-files", files.modified))
    return "".join(
        f"\n\n<{name}>\n" + "\n".join(paths) + f"\n</{name}>" for name, paths in blocks if paths
    )
