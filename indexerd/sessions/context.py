"""What an agent would hand its model: the messages of one path, compactions and edits applied.

In: a session's state, whose leaf is the path's end, and a way to read a row in full. Out:
messages, model and thinking level. Rows that a compaction has replaced are not read, but for
settings, which hold however far back they were made (S1.18 to S1.20).

A provider that no entry names is the state's. The rules are pi's, and hold for
every agent that says the above. What surprised us: an older compaction in the range that a newer
one keeps is said again where it stands, as pi did up to 0.81 at least; pi 0.87 leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from indexerd.errors import ContextTooLargeError
from indexerd.events import Compaction, Edit, Entry, Kind, ToolCall, ToolResult
from indexerd.sessions.clipped import about, joined, length
from indexerd.sessions.state import SessionState

TEXT_MAX = 10_000_000  # characters of all messages together; no model takes as many
USERS_TOKENS = 20_000  # of the humans' messages that a compaction keeps; 4 bytes are a token
_TOKEN = 4  # bytes

ROLES = {
    Kind.USER: "user",
    Kind.ASSISTANT: "assistant",
    Kind.TOOL: "toolResult",
    Kind.BASH: "bashExecution",
    Kind.CUSTOM: "custom",
    Kind.COMPACTION: "compactionSummary",
    Kind.BRANCH_SUMMARY: "branchSummary",
}
_SPOKEN = frozenset({Kind.USER, Kind.ASSISTANT, Kind.TOOL, Kind.COMPACTION})
_EDITABLE = frozenset({Kind.USER, Kind.ASSISTANT, Kind.TOOL, Kind.CUSTOM})

Read = Callable[[int], Entry]  # a row in full


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the context, and the entry it comes from."""

    role: str
    text: str  # the text blocks, joined without anything between
    entry_id: str


@dataclass(frozen=True, slots=True)
class Part:
    """One entry of the context, whether it says anything or not."""

    row: int
    place: int  # on the path, from 0; what was found below its end counts on
    entry: Entry
    edit: Edit | None = None  # what replaces all that it says
    newest: bool = False  # the compaction that the context begins with


@dataclass(frozen=True, slots=True)
class Context:
    """What a model would get. `model`: {provider, modelId}."""

    messages: tuple[Message, ...]
    model: dict[str, str | None] | None
    thinking_level: str | None


def context_of(state: SessionState, read: Read, *, level: str | None = None) -> Context:
    """The context at the state's leaf; `level` is the thinking level where none was set.

    ContextTooLargeError where the texts are beyond all bounds.
    """
    path = state.path()
    said = (one for part in parts_of(state, read) for one in messages_of(state, part, read))
    messages = tuple(_bounded(said))
    model, thinking = _settings(state, path, read)
    return Context(messages, model, thinking or level)


def latest_compaction(state: SessionState, path: list[int]) -> int | None:
    """The place on a path of its newest compaction."""
    places = (at for at in reversed(range(len(path))) if state.kind(path[at]) is Kind.COMPACTION)
    return next(places, None)


def _bounded(messages: Iterator[Message]) -> Iterator[Message]:
    size = 0
    for one in messages:
        size += len(one.text)
        if size > TEXT_MAX:
            raise ContextTooLargeError(
                f"the context is longer than {TEXT_MAX} characters",
                hint="name an earlier entry with --leaf",
            )
        yield one


def parts_of(state: SessionState, read: Read) -> Iterator[Part]:
    """The entries of the context at the state's leaf, in the order in which a model gets them."""
    path = state.path()
    at = latest_compaction(state, path)
    places = list(range(len(path))) if at is None else _kept(state, path, at, read)
    rows = [path[place] for place in places]
    others = [read(row) for row in rows if state.kind(row) is Kind.OTHER]
    edits, below = edits_of(others), _trailing(state, path, read)
    moves = bool(below) or any(one.ahead for one in others)
    del others
    said: list[Part] = []  # since the newest answer
    for place, row in [*zip(places, rows, strict=True), *enumerate(below, len(path))]:
        entry = read(row)
        part = Part(row, place, entry, edits.get(entry.id), newest=place == at)
        if entry.kind is Kind.ASSISTANT or not moves:
            yield from _placed(said)
            said = []
        said.append(part)
    yield from _placed(said)


def messages_of(state: SessionState, part: Part, read: Read) -> Iterator[Message]:
    """What a part of the context says; of a compaction also what it brings along."""
    entry = part.entry
    if part.edit is not None and part.edit.removed:
        return
    if not part.newest:
        yield from _said(entry, part.edit)
        return
    if entry.compaction is not None and entry.compaction.keeps_users:
        path = state.path()
        yield from _users(state, path[: part.place], read)
    yield from _summary(entry)


def _trailing(state: SessionState, path: list[int], read: Read) -> list[int]:
    """Rows below the leaf that say what goes ahead of it, or of what follows: it stays the leaf."""
    found: list[int] = []
    below = {*path[-1:]}
    for row in range(path[-1] + 1 if path else len(state), len(state)):
        if state.parent(row) not in below:
            continue
        if state.kind(row) in _SPOKEN:
            break
        below.add(row)
        if state.kind(row) is Kind.OTHER and read(row).ahead:
            found.append(row)
    return found


def _placed(said: list[Part]) -> list[Part]:
    """What was said after an answer, in the order in which the model gets it."""
    if any(part.entry.ahead for part in said):
        said = sorted(said, key=lambda part: _place(part.entry))
    return said


def _place(entry: Entry) -> int:
    """Answers, results of tools, what goes ahead, and all else."""
    if entry.kind is Kind.ASSISTANT:
        return 0
    if entry.kind is Kind.TOOL and entry.sent_as is None:
        return 1
    return 2 if entry.ahead else 3


def _kept(state: SessionState, path: list[int], at: int, read: Read) -> list[int]:
    """Places of the context: the compaction, what stays of the earlier ones, the later ones."""
    held = read(path[at]).compaction or Compaction()
    first = at
    if held.retained is None and held.kept is not None:
        ids = [state.id(row) for row in path[:at]]
        first = ids.index(held.kept) if held.kept in ids else at
    stays = [place for place in range(first, at) if state.kind(path[place]) is not Kind.SYSTEM]
    return [at, *stays, *range(at + 1, len(path))]


def edits_of(entries: Iterable[Entry]) -> dict[str, Edit]:
    """What replaces the texts of entries, by their ids; of several edits the latest counts."""
    return {one.edit.target: one.edit for one in entries if one.edit is not None}


def _said(entry: Entry, edit: Edit | None) -> Iterator[Message]:
    role = role_of(entry)
    if role is None or (entry.kind is Kind.BRANCH_SUMMARY and not entry.texts):
        return
    if edit is not None and entry.kind in _EDITABLE:
        yield Message(role, "".join(edit.texts), entry.id)
    else:
        yield Message(role, joined(entry.as_sent), entry.id)


def _summary(entry: Entry) -> Iterator[Message]:
    held, role = entry.compaction or Compaction(), role_of(entry)
    if held.system is not None:
        yield Message("system", held.system, entry.id)
    if role is not None:
        yield Message(role, joined(entry.as_sent), entry.id)
    for one in held.retained or ():
        yield Message(one.role, one.text, entry.id)


def _users(state: SessionState, rows: list[int], read: Read) -> list[Message]:
    """What humans said on these rows, as far as compactions that keep only that leave it.

    Every such compaction went on from what the one before it had left, and so does this.
    """
    begun = (
        at
        for at in reversed(range(len(rows)))
        if state.kind(rows[at]) is Kind.COMPACTION and _retained(read(rows[at])) is not None
    )
    found: list[Message] = []
    for row in rows[next(begun, 0) :]:
        kind = state.kind(row)
        if kind is Kind.COMPACTION:
            held = _retained(read(row))
            found = newest_within_budget(found) if held is None else held
        elif kind in (Kind.USER, Kind.CUSTOM):
            entry = read(row)
            role = role_of(entry)
            if role is not None and entry.role == "user":
                # Context that stands around a human's words is not kept with them.
                texts = entry.texts if entry.kind is Kind.OTHER else entry.as_sent
                found.append(Message(role, joined(texts), entry.id))
    return newest_within_budget(found)


def _retained(entry: Entry) -> list[Message] | None:
    """What humans said of the messages that a compaction brings; None where it brings none."""
    held = entry.compaction.retained if entry.compaction else None
    if held is None:
        return None
    return [Message(one.role, one.text, entry.id) for one in held if one.human]


def newest_within_budget(messages: list[Message]) -> list[Message]:
    """The newest messages within USERS_TOKENS; of the first that is too long both ends."""
    found: list[Message] = []
    left = USERS_TOKENS
    for one in reversed(messages):
        if left <= 0:
            break
        data = one.text.encode("utf-8", "replace")
        size = length(one.text).bytes
        tokens = _tokens(size)
        found.append(one if tokens <= left else replace(one, text=_ends(data, size, left)))
        left -= tokens
    return found[::-1]


def _tokens(size: int) -> int:
    """About how many tokens so many bytes are."""
    return -(-size // _TOKEN)


def _ends(data: bytes, whole: int, tokens: int) -> str:
    """A text of `whole` bytes cut in its middle to so many tokens, with no character torn."""
    size = tokens * _TOKEN
    first = size // 2
    head = data[:first].decode("utf-8", "ignore")
    tail = data[len(data) - (size - first) :].decode("utf-8", "ignore")
    return f"{head}…{_tokens(whole - size)} tokens truncated…{tail}"


def role_of(entry: Entry) -> str | None:
    """The role in which a model sees an entry; None where it does not."""
    if entry.unseen:
        return None
    if entry.kind is Kind.COMPACTION:
        held = entry.compaction or Compaction()
        return None if held.whole else held.role
    if entry.sent_as is not None:
        return entry.sent_as
    if entry.kind is Kind.SYSTEM:
        return entry.role if entry.role in ("system", "developer") else None
    if entry.kind is Kind.OTHER:  # of whatever role: typed by nobody, and sent all the same
        return entry.role if entry.type == "message" else None
    return ROLES.get(entry.kind)


def _settings(
    state: SessionState, path: list[int], read: Read
) -> tuple[dict[str, str | None] | None, str | None]:
    """The newest model and thinking level of a path; only what may name one is read."""
    model: dict[str, str | None] | None = None
    level: str | None = None
    for row in reversed(path):
        kind = state.kind(row)
        if kind is not Kind.SETTING and not (kind is Kind.ASSISTANT and model is None):
            continue
        entry = read(row)
        named = entry.model or entry.next_model
        if model is None and named:
            model = {"provider": entry.provider or state.provider or None, "modelId": named}
        if level is None:  # empty: an entry says that there is none
            level = entry.thinking_level
        if model is not None and level is not None:
            break
    return model, level


ENTRIES_TEXT_MAX = 4_000_000  # characters of all texts together, as far as they are kept
CLEARED = "[Old tool result content cleared]"  # opencode's words for a result that it took away


@dataclass(frozen=True, slots=True)
class ContextMessage:
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
class ContextEntry:
    """One entry on its way to the model."""

    row: int
    entry: Entry
    speeches: tuple[ContextMessage, ...] = ()  # empty: the model does not see it
    place: int = 0  # on the path, from 0; tells what is older than a compaction that keeps it


def context_entries(state: SessionState, read: Read) -> list[ContextEntry]:
    """The context at the state's leaf: its newest compaction, what that keeps, what came later.

    A compaction's step holds what it brings along: a system message, what humans said, a tail.
    ContextTooLargeError where the texts are beyond all bounds.
    """
    return list(_within_bound(_steps(state, parts_of(state, read), read)))


def entries_of(
    state: SessionState, read: Read, rows: Iterable[int], *, edits: bool = True
) -> list[ContextEntry]:
    """These rows one by one, in their order: a compaction among them replaces nothing.

    ContextTooLargeError where the texts are beyond all bounds.
    """
    return list(_within_bound(_raw_steps(state, read, list(rows), edits=edits)))


def context_messages(state: SessionState, read: Read, rows: Iterable[int]) -> list[ContextMessage]:
    """What is said on these rows of a path, with every compaction's and branch's summary."""
    return [speech for step in entries_of(state, read, rows) for speech in step.speeches]


def passing_messages(
    state: SessionState, read: Read, rows: Sequence[int]
) -> Iterator[ContextMessage]:
    """The same one by one, however many they are: for whoever keeps none of them."""
    return (speech for step in _raw_steps(state, read, rows) for speech in step.speeches)


def _raw_steps(
    state: SessionState, read: Read, rows: Sequence[int], *, edits: bool = True
) -> Iterator[ContextEntry]:
    changes = (row for row in rows if edits and state.kind(row) is Kind.OTHER)
    new = edits_of(map(read, changes))
    entries = ((row, read(row)) for row in rows)
    parts = (Part(row, at, one, new.get(one.id)) for at, (row, one) in enumerate(entries))
    return _steps(state, parts, read)


def _steps(state: SessionState, parts: Iterable[Part], read: Read) -> Iterator[ContextEntry]:
    for part in parts:
        yield ContextEntry(part.row, part.entry, tuple(_speeches(state, part, read)), part.place)


def _within_bound(steps: Iterable[ContextEntry]) -> Iterator[ContextEntry]:
    size = 0
    for step in steps:
        speeches = step.speeches
        size += sum(len(text) for one in speeches for text in (*one.texts, *one.thinking))
        size += sum(
            about(call.arguments, ENTRIES_TEXT_MAX) for one in speeches for call in one.calls
        )
        if size > ENTRIES_TEXT_MAX:
            raise ContextTooLargeError(
                f"what is to be summed up is longer than {ENTRIES_TEXT_MAX} characters",
                hint="name an earlier entry with --leaf, where there is that option",
            )
        yield step


def _speeches(state: SessionState, part: Part, read: Read) -> Iterator[ContextMessage]:
    entry, edit = part.entry, part.edit
    if entry.kind is Kind.COMPACTION:
        for one in messages_of(state, part, read):
            row = None if one.entry_id == entry.id else state.row(one.entry_id)
            yield ContextMessage(one.role, entry if row is None else read(row), (one.text,))
        return
    if entry.kind is Kind.CALL or (entry.kind is Kind.OTHER and role_of(entry) is None):
        yield from _beside(entry)
        return
    for message in messages_of(state, part, read):
        if edit is not None and entry.kind in _EDITABLE:
            role = message.role
            yield ContextMessage(role, entry, edit.texts, edit.thinking, edit.calls, edit.images)
        else:
            yield from _spoken(entry, message.role)


def _beside(entry: Entry) -> Iterator[ContextMessage]:
    """A part of an answer that stands on a line of its own: its calls, or what it thought."""
    calls = tuple(call for call in entry.tools if call.name) if entry.kind is Kind.CALL else ()
    thinking = entry.thinking if entry.role == "assistant" else ()
    if (calls or thinking) and not entry.unseen:
        yield ContextMessage("assistant", entry, thinking=thinking, calls=calls)


def _spoken(entry: Entry, role: str) -> Iterator[ContextMessage]:
    texts = entry.as_sent
    if role == "toolResult":
        yield from _results(entry, texts)
        return
    calls = tuple(call for call in entry.tools if call.name)
    if role != "assistant":
        yield ContextMessage(role, entry, texts, images=entry.images)
        return
    yield ContextMessage(
        role, entry, texts, entry.thinking, calls, 0 if entry.results else entry.images
    )
    yield from _several(entry, entry.images)


def _results(entry: Entry, texts: tuple[str, ...]) -> Iterator[ContextMessage]:
    """A line of results: what else is said on it, and then one by one what the tools gave."""
    whole = "".join(texts)
    held = "".join(one.text for one in entry.results)
    if not entry.results or not whole.endswith(held):
        yield ContextMessage("toolResult", entry, texts, images=entry.images)
        return
    rest = whole[: len(whole) - len(held)]
    if rest:
        yield ContextMessage("toolResult", entry, (rest,))
    yield from _several(entry, entry.images)


def _several(entry: Entry, images: int) -> Iterator[ContextMessage]:
    for one in entry.results:
        yield ContextMessage(
            "toolResult", entry, (CLEARED if one.cleared else one.text,), images=images, result=one
        )
        images = 0  # which of several results they belong to is not said: they count once
