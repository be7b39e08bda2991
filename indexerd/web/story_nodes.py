"""One entry of a session as a node of its story: what a reader wants of it, within bounds.

In: an entry, how much it may say, and how a text is made fit for its reader (`Cut`). Out: a `Node`,
whose place in the story is set by web/story.py. Pure; texts are cut, never parsed. A session is
told again for each entry that comes, its old nodes being the same ones: what costs more than a
glance is worked out once and kept in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from indexerd.events import (
    JS_SPACE,
    TURN_MASK,
    TURN_SHIFT,
    Entry,
    Kind,
    Tokens,
    ToolCall,
    ToolResult,
    Turn,
)
from indexerd.privacy.sanitize import clean_line, scrub
from indexerd.sessions.state import ROOT, SessionState
from indexerd.sessions.tree import WORD_MAX, is_displayed, is_quiet, shown_word
from indexerd.times import iso_ms

LINE_MAX = 160  # characters of a beat's text
CALLS_MAX = 50  # of one node
DETAIL_MAX = 500  # characters of what a call was for
NAME_MAX = 64  # characters of a tool's name
ARGUMENTS_MAX = 5  # of a call that are shown, where nothing of it is notable
ID_MAX = 256

Cut = Callable[[str, int], str]  # a text, made fit for its reader, of at most so many characters


@dataclass(slots=True)
class Node:
    """One entry, as far as a reader wants it. Texts are bounded together by `node_of`'s room."""

    id: str
    kind: Kind
    type: str
    role: str | None
    time: str
    text: str = ""
    length: int = 0  # characters of the whole text, where it was cut
    results: tuple[tuple[str, str], ...] = ()  # (tool, text) that stand on the same line
    calls: tuple[tuple[str, str], ...] = ()  # (tool, what for)
    tool: str = ""  # the name of the tool whose result this is
    thinking: str = ""
    model: str = ""
    tokens: Tokens | None = None
    failed: int = 0  # calls, or the answer itself, that came to nothing
    images: int = 0
    quiet: bool = False  # as sessions/tree.py has it: no more than calls, or said by nobody
    hidden: bool = False  # its author wants it hidden from people (S1.32)
    label: str | None = None
    ordinal: int = 0
    above: int = ROOT  # the place of its parent in the list
    active: bool = False
    _brief: str | None = field(default=None, compare=False, repr=False)
    _ms: int = field(default=-1, compare=False, repr=False)

    def ms(self) -> int:
        """Its time in milliseconds since the epoch, or 0; worked out once."""
        if self._ms < 0:
            self._ms = iso_ms(self.time)
        return self._ms

    def brief(self) -> str:
        """The text as a beat says it; made once, for a story that goes on is told often."""
        if self._brief is None:
            self._brief = line(self.text, LINE_MAX)
        return self._brief


def node_of(
    entry: Entry, turn: Turn, room: int, cut: Cut, names: dict[str, str] | None = None
) -> Node:
    """The node of an entry, with at most `room` characters of what was said and done there.

    `names` takes in the names of calls by their ids, and gives them to results that lack one.
    """
    kind, whole = entry.kind, "".join(entry.texts)
    text, length = cut(whole, room), len(whole) if len(whole) > room else 0
    room -= len(text)
    known = {} if names is None else names
    known.update((call.id, call.name) for call in entry.tools if call.id)
    results, tool = tuple[tuple[str, str], ...](), ""
    if entry.results and kind is Kind.TOOL:
        tool = _whose(entry.results[0], known, cut)
    elif entry.results:
        results = _results(entry, whole, room, known, cut)
        room -= sum(len(given) for _, given in results)
    calls = _calls(entry.tools, room, cut) if entry.tools else ()
    room -= sum(len(detail) for _, detail in calls)
    went_wrong = kind is Kind.ASSISTANT and _wrong(entry, turn)
    if went_wrong and not text:
        text = cut(str(entry.details.get("errorMessage", "")), DETAIL_MAX)
    said = whole.strip(JS_SPACE) if kind is Kind.ASSISTANT else ""
    return Node(
        id=scrub(entry.id[:ID_MAX]),
        kind=kind,
        type=shown_word(entry.type),
        role=shown_word(entry.role) if entry.role else None,
        time=shown_word(entry.timestamp),
        text=text,
        length=length,
        results=results,
        calls=calls,
        tool=tool,
        thinking=cut("\n\n".join(entry.thinking), max(0, room)) if entry.thinking else "",
        model=line(entry.model, WORD_MAX) if entry.model else "",
        tokens=entry.tokens,
        failed=len(entry.failed) or int(went_wrong),
        images=entry.images,
        quiet=is_quiet(entry, turn, said),
        hidden=not is_displayed(entry),
    )


def _whose(result: ToolResult, known: Mapping[str, str], cut: Cut) -> str:
    """The name of the tool that a result is of."""
    return cut(result.name or known.get(result.call, ""), NAME_MAX)


def _results(
    entry: Entry, whole: str, room: int, known: Mapping[str, str], cut: Cut
) -> tuple[tuple[str, str], ...]:
    """Results that stand beside what was said, and are no part of it."""
    found = list[tuple[str, str]]()
    for one in entry.results[:CALLS_MAX]:
        if (given := cut(one.text, max(0, room))) and one.text not in whole:
            found.append((_whose(one, known, cut), given))
            room -= len(given)
    return tuple(found)


def _calls(tools: Sequence[ToolCall], room: int, cut: Cut) -> tuple[tuple[str, str], ...]:
    """What was called, and for what."""
    found = list[tuple[str, str]]()
    for call in tools[:CALLS_MAX]:
        detail = line(cut(_what(call), max(0, min(room, DETAIL_MAX))), DETAIL_MAX)
        found.append((line(call.name, NAME_MAX), detail))
        room -= len(detail)
    return tuple(one for one in found if one[0] or one[1])


def _what(call: ToolCall) -> str:
    """What a call was for: what is notable of it, or else its first few arguments."""
    if call.detail or not isinstance(call.arguments, dict):
        return call.detail
    told = (f"{key}: {one}" for key, one in call.arguments.items() if isinstance(one, str | int))
    return ", ".join(one[: 2 * DETAIL_MAX] for one in islice(told, ARGUMENTS_MAX))


def _wrong(entry: Entry, turn: Turn) -> bool:
    return turn is Turn.FAILED or entry.details.get("stopReason") in ("error", "aborted")


def line(text: str, limit: int) -> str:
    """A text as one line."""
    return clean_line(text[: 4 * limit], limit)


def turn_of(state: SessionState, row: int) -> Turn:
    """The mark of a row."""
    return Turn((state.codes[row] & TURN_MASK) >> TURN_SHIFT)
