"""A session's tree as a story: a list of nodes, depth first, and beats over them.

A beat is a run of adjacent nodes: one prompt, one compaction, one summary of a branch, or the work
between them. Depth grows only at branches.

Pitfalls: a tool result and the entry after it are often siblings, so half of the apparent branch
points of a real session are none. A child below which nobody said anything is therefore not a
branch: it comes right after its parent and belongs to the work there.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from indexerd.entries import JS_SPACE, TURN_MASK, TURN_SHIFT, Entry, Kind, Turn
from indexerd.privacy.sanitize import clean_line, replace_surrogates
from indexerd.sessions.state import NOWHERE, ROOT, SessionState
from indexerd.sessions.tree_answers import WORD_MAX, is_quiet, outline, shown_word
from indexerd.times import iso_ms

LABEL_MAX, DETAIL_MAX, NAME_MAX, ID_MAX = 400, 500, 64, 256  # characters
CALLS_MAX = 50  # of a node

_BEATS = {"user": "ask", "compaction": "compaction", "branch_summary": "branch-summary"}
_SPOKEN = frozenset({"user", "assistant", "bash", "compaction"})

Cut = Callable[[str, int], str]  # prepares a text for its reader: text, most characters


class Node(msgspec.Struct, omit_defaults=True, rename="camel"):
    """One entry, as JSON; fields with default values are left out."""

    id: str
    row: int
    kind: str
    type: str
    time: str
    text: str
    parent_id: str | None = None
    above: int = -2  # place of the parent in the list, or ROOT
    ordinal: int = -1
    role: str | None = None
    length: int = 0  # characters of the whole text, if it was cut
    calls: tuple[tuple[str, str], ...] = ()  # (tool, purpose)
    results: tuple[tuple[str, str], ...] = ()  # (tool, text) on the same line
    tool: str = ""  # the tool whose result this is
    thinking: str = ""
    model: str = ""
    failed: int = 0  # calls, or the answer itself
    images: int = 0
    quiet: bool = False  # only calls, or bookkeeping
    hidden: bool = False  # hidden from people by its author
    label: str | None = None
    active: bool = False  # on the path to the leaf


class Beat(msgspec.Struct, omit_defaults=True, rename="camel"):
    """The nodes `first` to `last`, both included."""

    kind: str  # ask, work, compaction, branch-summary
    first: int
    last: int
    depth: int
    active: bool = False
    begins: bool = False  # a branch begins here
    gist: str = ""  # of the branch that begins here
    gist_source: str = ""


class Story(NamedTuple):
    """A whole session."""

    nodes: list[Node]
    beats: list[Beat]
    leaf: int  # the place of the leaf, or ROOT
    places: dict[int, int]  # row -> place


def node_of(
    state: SessionState, row: int, entry: Entry, room: int, *, cut: Cut, names: dict[str, str]
) -> Node:
    """Make the node of an entry, with each text cut to `room` characters.

    `names` collects the tools of calls by call id, for results that do not name theirs.
    """
    turn = Turn((state.codes[row] & TURN_MASK) >> TURN_SHIFT)
    answer, whole = entry.kind is Kind.ASSISTANT, "".join(entry.texts)
    names.update((call.id, call.name) for call in entry.tools if call.id)
    wrong = answer and (turn is Turn.FAILED or entry.stop_reason in ("error", "aborted"))
    results = [
        (cut(result.name or names.get(result.call, ""), NAME_MAX), result.text)
        for result in entry.results[:CALLS_MAX]
    ]
    calls = list[tuple[str, str]]()  # (tool, purpose)
    for call in entry.tools[:CALLS_MAX]:
        shown = call.detail or call.arguments or ""
        text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
        calls.append((_one_line(call.name, NAME_MAX), _one_line(cut(text, DETAIL_MAX), DETAIL_MAX)))
    is_result = bool(results) and entry.kind is Kind.TOOL
    beside = [(tool, cut(text, room)) for tool, text in results if text not in whole]
    return Node(
        id=replace_surrogates(entry.id[:ID_MAX]),
        row=row,
        kind=entry.kind.name.lower(),
        type=shown_word(entry.type),
        time=shown_word(entry.timestamp),
        text=cut(whole, room) or (cut(entry.error, DETAIL_MAX) if wrong else ""),
        role=shown_word(entry.role) if entry.role else None,
        length=len(whole) if len(whole) > room else 0,
        calls=tuple(call for call in calls if any(call)),
        results=() if is_result else tuple(beside),
        tool=results[0][0] if is_result else "",
        thinking=cut("\n\n".join(entry.thinking), room),
        model=_one_line(entry.model, WORD_MAX) if entry.model else "",
        failed=len(entry.failed) or int(wrong),
        images=entry.images,
        quiet=is_quiet(entry, turn, whole.strip(JS_SPACE) if answer else ""),
        hidden=entry.display is False,
        ordinal=state.ordinals[row],
    )


def _one_line(text: str, limit: int) -> str:
    return clean_line(text[: 4 * limit], limit)


def story_of(
    state: SessionState,
    nodes: Mapping[int, Node],
    labels: Mapping[str, str],
    gists: Mapping[int, tuple[str, str]],
) -> Story:
    """Build the story of a tree, seen from its leaf; `nodes` has a node for each row shown.

    `gists` maps the row of a branch's last entry to the branch's summary and its source.
    """
    parents, begins = _ordered(state, nodes)
    places = {row: place for place, row in enumerate(parents)}
    listed, beats = list[Node](), list[Beat]()
    depths, branches = list[int](), list[int]()  # by place; a branch is the place where it begins
    leaf = ROOT if state.leaf == NOWHERE else places.get(state.leaf, ROOT)
    for place, (row, parent) in enumerate(parents.items()):
        node, label, above = nodes[row], labels.get(state.id(row)), places.get(parent, ROOT)
        node.above = above
        node.parent_id = None if above == ROOT else listed[above].id
        node.label = _one_line(label, LABEL_MAX) if label else None
        depth, branch = (0, ROOT) if above == ROOT else (depths[above], branches[above])
        depths.append(depth + (row in begins))
        branches.append(place if row in begins else branch)
        listed.append(node)
        kind = _BEATS.get(node.kind, "work")
        apart = not beats or not kind == beats[-1].kind == "work" or row in begins or above == ROOT
        if apart or leaf in (beats[-1].last, above):
            beats.append(Beat(kind, place, place, depths[place], begins=row in begins))
        beats[-1].last = place
    place = leaf
    while place >= 0:
        listed[place].active = True
        place = listed[place].above
    for beat in beats:
        beat.active = any(node.active for node in listed[beat.first : beat.last + 1])
    starts = {beat.first: beat for beat in beats if beat.begins}
    for tip, gist in gists.items():
        start = starts.get(branches[places[tip]]) if tip in places else None
        if start and not start.gist:
            start.gist, start.gist_source = gist
    return Story(listed, beats, leaf, places)


def _ordered(state: SessionState, nodes: Mapping[int, Node]) -> tuple[dict[int, int], set[int]]:
    """Map rows, depth first, to their parents; also return the rows where branches begin."""
    parents: dict[int, int] = {}
    for row, above, _ in outline(state, lambda row: iso_ms(nodes[row].time) if row in nodes else 0):
        if row in nodes:
            parents.setdefault(row, above if above in parents else ROOT)
    spoken = {row for row in parents if nodes[row].kind in _SPOKEN}
    for row in reversed(parents):  # children come after their parents
        if row in spoken:
            spoken.add(parents[row])
    children: defaultdict[int, list[int]] = defaultdict(list)
    for row, above in parents.items():
        children[above].append(row)
    begins: set[int] = set()
    for rows in children.values():
        rows.sort(key=spoken.__contains__)  # stable: oldest first within both kinds
        if len(rows) > 1 and rows[-2] in spoken:
            begins |= spoken.intersection(rows)
    ordered, stack = dict[int, int](), children[ROOT][::-1]
    while stack:
        row = stack.pop()
        ordered[row] = parents[row]
        stack += children.get(row, ())[::-1]
    return ordered, begins
