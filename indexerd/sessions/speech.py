"""A conversation as a summariser gets it: who said what, with thoughts, calls and results.

In: a session's state and a way to read a row in full. Out: steps, one for each entry of the
context, or of any rows; and speeches, what a model sees of them. Which entries these are, in what
order, in what role and with which texts is said by sessions/context.py, so that the texts of all
steps are those of its messages. It differs in what has no text: a call or a thought on a line of
its own is a speech of the assistant, and each result of a tool is a speech, wherever it is kept.

An edit replaces all that its target says, not its texts alone. What surprised us: opencode keeps
results within the answer that asked for them, and shows its model a note in place of old ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from indexerd.errors import ContextTooLargeError
from indexerd.events import Entry, Kind, ToolCall, ToolResult
from indexerd.sessions.context import Part, Read, edited, edits_of, messages_of, parts_of, role_of
from indexerd.sessions.session import SessionState

TEXT_MAX = 50_000_000  # characters of all texts together; results of tools are most of them
CLEARED = "[Old tool result content cleared]"  # opencode's words for a result that it took away


@dataclass(frozen=True, slots=True)
class Speech:
    """What one speaker says at one place.

    `role` is one of user, assistant, toolResult, bashExecution, custom, branchSummary,
    compactionSummary, system; or as an agent calls one of its own (developer).
    """

    role: str
    entry: Entry  # where it comes from
    texts: tuple[str, ...] = ()  # as the model gets them
    thinking: tuple[str, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    images: int = 0
    result: ToolResult | None = None  # what the texts are, where the agent tells results apart


@dataclass(frozen=True, slots=True)
class Step:
    """One entry on its way to the model."""

    row: int
    entry: Entry
    speeches: tuple[Speech, ...] = ()  # empty: the model does not see it
    place: int = 0  # on the path, from 0; tells what is older than a compaction that keeps it


def steps_of(state: SessionState, read: Read) -> list[Step]:
    """The context at the state's leaf: its newest compaction, what that keeps, what came later.

    A compaction's step holds what it brings along: a system message, what humans said, a tail.
    ContextTooLargeError where the texts are beyond all bounds.
    """
    seen: dict[int, Entry] = {}

    def once(row: int) -> Entry:
        if row not in seen:
            seen[row] = read(row)
        return seen[row]

    return list(_steps(state, parts_of(state, once), once))


def raw_steps(
    state: SessionState, read: Read, rows: Iterable[int], *, edits: bool = True
) -> list[Step]:
    """These rows one by one, in their order: a compaction among them replaces nothing.

    ContextTooLargeError where the texts are beyond all bounds.
    """
    entries = [(row, read(row)) for row in rows]
    new = edits_of(entry for _, entry in entries) if edits else {}
    parts = (Part(row, at, one, new.get(one.id)) for at, (row, one) in enumerate(entries))
    return list(_steps(state, parts, read))


def speeches_of(state: SessionState, read: Read, rows: Iterable[int]) -> list[Speech]:
    """What is said on these rows of a path, with every compaction's and branch's summary."""
    return [speech for step in raw_steps(state, read, rows) for speech in step.speeches]


def _steps(state: SessionState, parts: Iterable[Part], read: Read) -> Iterator[Step]:
    size = 0
    for part in parts:
        speeches = tuple(_speeches(state, part, read))
        size += sum(len(text) for one in speeches for text in (*one.texts, *one.thinking))
        if size > TEXT_MAX:
            raise ContextTooLargeError(
                f"what is to be summed up is longer than {TEXT_MAX} characters",
                hint="name an earlier entry with --leaf, where there is that option",
            )
        yield Step(part.row, part.entry, speeches, part.place)


def _speeches(state: SessionState, part: Part, read: Read) -> Iterator[Speech]:
    entry, edit = part.entry, part.edit
    if entry.kind is Kind.COMPACTION:
        for one in messages_of(state, part, read):
            row = None if one.entry_id == entry.id else state.row(one.entry_id)
            yield Speech(one.role, entry if row is None else read(row), (one.text,))
        return
    if entry.kind is Kind.CALL or (entry.kind is Kind.OTHER and role_of(entry) is None):
        yield from _beside(entry)
        return
    for message in messages_of(state, part, read):
        if edit is not None and edited(entry, edit):
            yield _edited(entry, message.role, edit.details)
        else:
            yield from _said(entry, message.role)


def _beside(entry: Entry) -> Iterator[Speech]:
    """A part of an answer that stands on a line of its own: its calls, or what it thought."""
    calls = tuple(call for call in entry.tools if call.name) if entry.kind is Kind.CALL else ()
    thinking = entry.thinking if entry.role == "assistant" else ()
    if (calls or thinking) and not entry.details.get("unseen"):
        yield Speech("assistant", entry, thinking=thinking, calls=calls)


def _edited(entry: Entry, role: str, details: dict[str, Any]) -> Speech:
    return Speech(
        role,
        entry,
        tuple(details["replacement"]),
        tuple(details.get("newThinking", ())),
        tuple(details.get("newCalls", ())),
        details.get("newImages", 0),
    )


def _said(entry: Entry, role: str) -> Iterator[Speech]:
    texts = tuple(entry.details.get("sent", entry.texts))
    if role == "toolResult":
        yield from _results(entry, texts)
        return
    calls = tuple(call for call in entry.tools if call.name)
    if role != "assistant":
        yield Speech(role, entry, texts, images=entry.images)
        return
    yield Speech(role, entry, texts, entry.thinking, calls, 0 if entry.results else entry.images)
    yield from _several(entry, entry.images)


def _results(entry: Entry, texts: tuple[str, ...]) -> Iterator[Speech]:
    """A line of results: what else is said on it, and then one by one what the tools gave."""
    whole = "".join(texts)
    held = "".join(one.text for one in entry.results)
    if not entry.results or not whole.endswith(held):
        yield Speech("toolResult", entry, texts, images=entry.images)
        return
    rest = whole[: len(whole) - len(held)]
    if rest:
        yield Speech("toolResult", entry, (rest,))
    yield from _several(entry, entry.images)


def _several(entry: Entry, images: int) -> Iterator[Speech]:
    for one in entry.results:
        yield Speech(
            "toolResult", entry, (CLEARED if one.cleared else one.text,), images=images, result=one
        )
        images = 0  # which of several results they belong to is not said: they count once
