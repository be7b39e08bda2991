"""List a session's tree: in what order its entries come, how deep, and which are shown.

The nodes of docs/PROTOCOL.md: depth first, children oldest first, roots in the file's order.

What surprised us, all of it pi's own way: an entry whose parent is unknown, or is the entry itself,
is a root. Children are sorted by date, stably; a missing date equals every other. An id that
repeats names its last line, and stands in the tree once for each of them, with all that is below
it: that can double again and again, so from some length on a repeat is shown alone. Where parents
run in a circle pi hangs; here nothing is shown below itself, and a circle that no root leads to
stands at the end, opened at its first entry.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import cmp_to_key
from sys import intern
from typing import Any, NamedTuple

from indexerd.events import JS_SPACE, Entry, Kind, Turn
from indexerd.privacy.sanitize import clean_line
from indexerd.sessions.context import Read
from indexerd.sessions.state import ROOT, SessionState
from indexerd.times import iso_ms

FILTERS = ("default", "no-tools", "user-only", "labeled-only", "all")
TEXT_MAX = 200  # characters of a node's text
WORD_MAX = 64  # characters of a type, a role, a time
NODES_MAX = 20_000  # of one answer
LOOKED_AT = 800  # characters of a text: more never show
SEARCHED = 65_536  # characters of a text that a search goes through

_WENT_WELL = ("", "stop", "toolUse", "tool-calls")
_BOOKKEEPING = frozenset({Kind.LABEL, Kind.NAME, Kind.SETTING})
_BOOKKEEPING_TYPES = frozenset({"custom", "context_edit", "attachment"})

Date = Callable[[int], int]  # of a row: ms since the epoch, 0 where it has none


def is_quiet(entry: Entry, turn: Turn, plain: str) -> bool:
    """Return whether an entry only calls tools, or no one said it; `plain` is its text."""
    if entry.kind is Kind.OTHER:
        return entry.role in ("user", "assistant")
    if entry.kind is not Kind.CALL and (plain or entry.kind is not Kind.ASSISTANT):
        return False
    return turn is not Turn.FAILED and entry.stop_reason in _WENT_WELL


def is_displayed(entry: Entry) -> bool:
    return entry.display is not False


def shown_word(text: str) -> str:
    word = text[:WORD_MAX]
    return word if word.isascii() and word.isprintable() else clean_line(word, WORD_MAX)


def _without_words(entry: Entry) -> str:
    """Describe an entry without a text by its error, or by its calls."""
    calls = (f"{call.name[:WORD_MAX]}: {call.detail[:TEXT_MAX]}" for call in entry.tools[:10])
    return entry.error or " ".join(f"[{call.removesuffix(': ')}]" for call in calls)


class Place(NamedTuple):
    """A row's position in the list."""

    row: int
    above: int  # the row above it, or ROOT
    depth: int


def outline(state: SessionState, date: Date) -> Iterator[Place]:
    """Yield every entry's place, depth first. `date` is asked for entries that have siblings."""
    below = _children(state)
    seen = bytearray(len(state))
    open_rows: set[int] = set()  # above the place that is shown, where parents may run in a circle
    length, enough = 0, 2 * len(state)  # from this length on, repeats are shown alone
    circles = [row for one in state.cycles() if (row := state.row(one)) is not None]
    stack = [Place(row, ROOT, 0) for row in reversed(below(ROOT))]
    while stack or circles:
        if not stack:
            row = circles.pop(0)
            stack += [] if seen[row] else [Place(row, ROOT, 0)]
            continue
        place = stack.pop()
        row = place.row
        if row < 0:  # all below it was shown
            open_rows.discard(~row)
            continue
        if row in open_rows:
            continue
        again, seen[row] = seen[row], True
        length += 1
        yield place
        if again and length > enough:
            continue
        if not state.orderly:
            stack.append(Place(~row, ROOT, 0))
            open_rows.add(row)
        children = below(row)
        if len(children) > 1:
            _sort_by_date(children, date)
        stack.extend(Place(one, row, place.depth + 1) for one in reversed(children))


def _children(state: SessionState) -> Callable[[int], list[int]]:
    """Give the rows below a row, in the file's order; those below ROOT are the roots."""
    index, ids = state.index if state.repeats else {}, state.ids
    first, after = array("i", [ROOT]) * (len(ids) + 1), array("i", [ROOT]) * len(ids)
    for line in reversed(range(len(ids))):
        above = state.parent(line)
        above = ROOT if above == index.get(ids[line], line) else above
        first[above], after[line] = line, first[above]

    def below(row: int) -> list[int]:
        found, line = list[int](), first[row]
        while line != ROOT:
            found.append(index.get(ids[line], line))  # of an id the last line counts
            line = after[line]
        return found

    return below


def _sort_by_date(rows: list[int], date: Date) -> None:
    dates = {row: date(row) for row in rows}

    def compare(one: int, other: int) -> int:
        return dates[one] - dates[other] if dates[one] and dates[other] else 0

    rows.sort(key=cmp_to_key(compare))


def _takes(mode: str, kind: Kind, entry: Entry, label: str | None, *, quiet: bool) -> bool:
    """Return whether a filter shows an entry; the leaf is never `quiet`."""
    if mode == "all":
        return True
    if entry.type == "usage" or quiet:
        return False
    if mode == "user-only":
        return kind is Kind.USER
    if mode == "labeled-only":
        return label is not None
    if mode == "no-tools" and kind in (Kind.TOOL, Kind.CALL):
        return False
    return kind not in _BOOKKEEPING and entry.type not in _BOOKKEEPING_TYPES


def nodes(
    state: SessionState,
    read: Read,
    labels: Mapping[str, str],
    mode: str = "all",
    search: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the nodes of the answer, as the state's leaf sees them.

    `mode` is one of FILTERS; a node must have all words of `search`. `depth` counts the ancestors
    that are shown; `parentId` is the real parent, shown or not.
    """
    active, tokens = bytearray(len(state)), (search or "").lower().split()
    for row in state.up(state.leaf):
        active[row] = True
    depths = array("i")  # by real depth: shown ancestors of a node below
    for row, above, depth in outline(state, lambda row: iso_ms(read(row).timestamp)):
        entry, label = read(row), labels.get(state.id(row))
        plain = "".join(entry.texts).strip(JS_SPACE)
        text = clean_line((plain or _without_words(entry))[:LOOKED_AT], TEXT_MAX)
        quiet = row != state.leaf and is_quiet(entry, state.turn_of(row), plain)
        shown = _takes(mode, state.kind(row), entry, label, quiet=quiet)
        if tokens and shown:
            said = f"{label or ''} {entry.role or entry.type} {entry.custom_type or ''}"
            whole = f"{said} {plain[:SEARCHED] or text}".lower()
            shown = all(token in whole for token in tokens)
        del depths[depth:]
        before = depths[-1] if depths else 0
        depths.append(before + shown)
        if not shown:
            continue
        node = {
            "ordinal": state.ordinals[row],
            "depth": before,
            "type": intern(shown_word(entry.type)),
            "role": intern(shown_word(entry.role)) if entry.role else None,
            "label": label,
            "text": text,
            "timestamp": shown_word(entry.timestamp),
            "active": bool(active[row]),
            "display": None if is_displayed(entry) else False,
        }
        places = {"id": state.id(row), "parentId": None if above == ROOT else state.id(above)}
        yield places | {key: value for key, value in node.items() if value is not None}
