"""A session's tree as a story: entries as nodes, depth first, and beats over them.

A beat is a stretch of neighbours in that list: one ask, one compaction, one summary of a branch, or
the work between them, reduced to how much it was. A straight chain keeps its depth, however long;
depth grows at branches alone. Pure, linear in entries; nothing recurses; texts are cut, not parsed.

What surprised us: results of tools often hang beside what came next, so that half of the branch
points of a real session are none. What nobody said anything below is no branch: it is put right
after its parent, and belongs to the work there. A tree of more than `NODES_MAX` entries keeps the
newest, and the newest half of its path at least; what hung below others hangs below the nearest
one kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from indexerd.events import JS_SPACE, TURN_MASK, TURN_SHIFT, Entry, Kind, ToolCall, Turn
from indexerd.privacy.sanitize import clean_line, replace_surrogates
from indexerd.sessions.state import NOWHERE, ROOT, SessionState
from indexerd.sessions.tree import WORD_MAX, is_displayed, is_quiet, outline, shown_word
from indexerd.times import iso_ms

NODES_MAX = 50_000
LINE_MAX, LABEL_MAX, DETAIL_MAX, NAME_MAX, ID_MAX = 160, 400, 500, 64, 256  # characters
CALLS_MAX = 50  # of one node
TOOLS_MAX = 40  # names of tools that a beat counts apart
ARGUMENTS_MAX = 5  # of a call that are shown, where nothing of it is notable

_BEATS = {"user": "ask", "compaction": "compaction", "branch_summary": "branch-summary"}
_SPOKEN = frozenset({"user", "assistant", "bash", "compaction"})
_WORK = frozenset({"assistant", "tool", "call"})
_QUIET = frozenset({"setting", "label", "name", "other", "system"})

Cut = Callable[[str, int], str]  # a text, made fit for its reader, of at most so many characters


class Node(msgspec.Struct, omit_defaults=True, rename="camel"):
    """One entry, as its JSON has it: a field with a default is left out where it says nothing."""

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
    length: int = 0  # characters of the whole text, where it was cut
    calls: tuple[tuple[str, str], ...] = ()  # (tool, what for)
    results: tuple[tuple[str, str], ...] = ()  # (tool, text) that stand on the same line
    tool: str = ""  # the tool whose result this is
    thinking: str = ""
    model: str = ""
    tokens: dict[str, Any] = msgspec.field(default_factory=dict)
    failed: int = 0  # calls, or the answer itself, that came to nothing
    images: int = 0
    quiet: bool = False  # no more than calls, or said by nobody
    hidden: bool = False  # its author wants it hidden from people
    label: str | None = None
    active: bool = False  # on the path to the leaf
    answer: str = ""  # what names the answer whose tokens these are


class Beat(msgspec.Struct, omit_defaults=True, rename="camel"):
    """The nodes `first` to `last`, both included. `ms` is from what came before to its end."""

    kind: str  # ask, work, compaction, branch-summary
    first: int
    last: int
    depth: int
    text: str = ""
    active: bool = False
    begins: bool = False  # a branch
    answers: int = 0
    calls: dict[str, int] = msgspec.field(default_factory=dict)
    failed: int = 0
    tokens: int = 0  # that models wrote
    ms: int = 0
    quiet: bool = False  # settings and the like alone
    labels: list[int] = msgspec.field(default_factory=list)  # nodes in it that have one
    gist: str = ""  # of the branch that begins here
    gist_source: str = ""


@dataclass(slots=True)
class Story:
    """The whole of it."""

    nodes: list[Node]
    beats: list[Beat]
    leaf: int  # the place of the leaf, or ROOT
    places: dict[int, int]  # row -> place
    dropped: int = 0  # entries that are left out


# -- nodes ---------------------------------------------------------------------------------------


def rows_of(state: SessionState) -> set[int]:
    """The rows of a session's entries: one for each id."""
    return {state.index.get(one, at) for at, one in enumerate(state.ids)}


def kept_rows(state: SessionState) -> set[int]:
    """The rows that a story has nodes of: no more than `NODES_MAX`."""
    rows = rows_of(state)
    if len(rows) <= NODES_MAX:
        return rows
    kept = set(state.path()[-NODES_MAX // 2 :])
    return kept.union(sorted(rows - kept)[len(kept) - NODES_MAX :])


def node_of(
    state: SessionState, row: int, entry: Entry, room: int, *, cut: Cut, names: dict[str, str]
) -> Node:
    """The node of an entry, with at most `room` characters of what was said and done there.

    `names` takes in the names of calls by their ids, and gives them to results that lack one.
    """
    turn = Turn((state.codes[row] & TURN_MASK) >> TURN_SHIFT)
    answer, whole = entry.kind is Kind.ASSISTANT, "".join(entry.texts)
    names.update((call.id, call.name) for call in entry.tools if call.id)
    wrong = answer and (turn is Turn.FAILED or entry.stop_reason in ("error", "aborted"))
    text = cut(whole, room)
    node = Node(
        id=replace_surrogates(entry.id[:ID_MAX]),
        row=row,
        kind=entry.kind.name.lower(),
        type=shown_word(entry.type),
        time=shown_word(entry.timestamp),
        text=cut(entry.error, DETAIL_MAX) if wrong and not text else text,
        role=shown_word(entry.role) if entry.role else None,
        length=len(whole) if len(whole) > room else 0,
        model=one_line(entry.model, WORD_MAX) if entry.model else "",
        failed=len(entry.failed) or int(wrong),
        images=entry.images,
        quiet=is_quiet(entry, turn, whole.strip(JS_SPACE) if answer else ""),
        hidden=not is_displayed(entry),
    )
    if entry.tokens is not None:
        used = entry.tokens
        counts = {"input": used.input, "output": used.output, "cacheRead": used.cache_read}
        counts["cacheWrite"], node.answer = used.cache_write, used.answer
        node.tokens = {k: v for k, v in (counts | {"costUsd": used.cost_usd}).items() if v}
    room -= len(text)
    tools = [
        cut(one.name or names.get(one.call, ""), NAME_MAX) for one in entry.results[:CALLS_MAX]
    ]
    if tools and entry.kind is Kind.TOOL:
        node.tool = tools[0]
    else:  # results that stand beside what was said, and are no part of it
        for tool, one in zip(tools, entry.results, strict=False):
            if (given := cut(one.text, max(0, room))) and one.text not in whole:
                node.results += ((tool, given),)
                room -= len(given)
    for call in entry.tools[:CALLS_MAX]:
        detail = one_line(cut(_purpose(call), max(0, min(room, DETAIL_MAX))), DETAIL_MAX)
        room -= len(detail)
        if call.name or detail:
            node.calls += ((one_line(call.name, NAME_MAX), detail),)
    node.thinking = cut("\n\n".join(entry.thinking), max(0, room))
    return node


def _purpose(call: ToolCall) -> str:
    """What a call was for: what is notable of it, or its first few arguments."""
    if call.detail or not isinstance(call.arguments, dict):
        return call.detail
    pairs = ((k, v) for k, v in call.arguments.items() if isinstance(v, str | int))
    texts = (f"{key}: {value}" for key, value in islice(pairs, ARGUMENTS_MAX))
    return ", ".join(one[: 2 * DETAIL_MAX] for one in texts)


def one_line(text: str, limit: int) -> str:
    """A text as one line."""
    return clean_line(text[: 4 * limit], limit)


# -- the story -----------------------------------------------------------------------------------


def story_of(
    state: SessionState,
    nodes: Mapping[int, Node],
    labels: Mapping[str, str],
    gists: Mapping[int, tuple[str, str]],
) -> Story:
    """The story of a state's tree, seen from its leaf; `nodes` has one for each of `kept_rows`.

    `gists`: by the row of a branch's last entry what the branch was about, and who says so.
    """
    parents, begins = _ordered(state, nodes)
    places = {row: place for place, row in enumerate(parents)}
    listed, depths = list[Node](), list[int]()
    for row, parent in parents.items():
        node, label = nodes[row], labels.get(state.id(row))
        node.above = above = places.get(parent, ROOT)
        node.parent_id = None if above == ROOT else listed[above].id
        node.label = one_line(label, LABEL_MAX) if label else None
        node.ordinal, node.active = state.ordinals[row], False
        depths.append((depths[above] if above >= 0 else 0) + (row in begins))
        listed.append(node)
    leaf = place = ROOT if state.leaf == NOWHERE else places.get(state.leaf, ROOT)
    while place >= 0:
        listed[place].active = True
        place = listed[place].above
    beats = _beats(listed, depths, {places[row] for row in begins}, leaf)
    starts = {beat.first: beat for beat in beats if beat.begins}
    passed: set[int] = set()
    for tip, gist in gists.items():
        place = places.get(tip, ROOT)
        while place >= 0 and place not in passed and listed[place].row not in begins:
            passed.add(place)
            place = listed[place].above
        if place in starts and not starts[place].gist:
            starts[place].gist, starts[place].gist_source = gist
    return Story(listed, beats, leaf, places, dropped=len(rows_of(state)) - len(listed))


def _ordered(state: SessionState, nodes: Mapping[int, Node]) -> tuple[dict[int, int], set[int]]:
    """The kept rows, depth first, each with the nearest kept one above; and where branches begin.

    What nobody said anything below comes before what is a branch.
    """
    parents: dict[int, int] = {}
    nearest: dict[int, int] = {ROOT: ROOT}  # row -> itself, or the next one above that is kept
    for row, above, _ in outline(state, lambda row: iso_ms(nodes[row].time) if row in nodes else 0):
        if row not in nearest:
            over = nearest.get(above, ROOT)
            nearest[row] = row if row in nodes else over
            if row in nodes:
                parents[row] = over
    spoken = {row for row in parents if nodes[row].kind in _SPOKEN}
    for row in reversed(parents):  # children stand after their parents
        if row in spoken:
            spoken.add(parents[row])
    children: defaultdict[int, list[int]] = defaultdict(list)
    for row, above in parents.items():
        children[above].append(row)
    begins: set[int] = set()
    for rows in children.values():
        rows.sort(key=spoken.__contains__)  # stable: oldest first all the same
        if len(rows) > 1 and rows[-2] in spoken:
            begins |= spoken.intersection(rows)
    ordered, stack = dict[int, int](), children[ROOT][::-1]
    while stack:
        row = stack.pop()
        ordered[row] = parents[row]
        stack += children.get(row, ())[::-1]
    return ordered, begins


def _beats(nodes: list[Node], depths: list[int], begins: set[int], leaf: int) -> list[Beat]:
    beats: list[Beat] = []
    start, answers = 0, dict[str, int]()  # of a beat of work: when it began, tokens by answer
    for place, node in enumerate(nodes):
        kind = _BEATS.get(node.kind, "work")
        beat = beats[-1] if beats else None
        if (
            beat is None
            or not kind == beat.kind == "work"
            or place in begins
            or node.above == ROOT
            or leaf in (beat.last, node.above)
        ):
            beat = Beat(kind, place, place, depths[place], begins=place in begins, quiet=True)
            beats.append(beat)
            start, answers = iso_ms((nodes[node.above] if node.above >= 0 else node).time), {}
            if kind != "work" and not node.hidden:
                beat.text = one_line(node.text, LINE_MAX)
        beat.last = place
        beat.active |= node.active
        beat.quiet &= node.kind in _QUIET
        if node.label:
            beat.labels.append(place)
        if kind == "work":
            _count(beat, node, start, answers)
    return beats


def _count(beat: Beat, node: Node, start: int, answers: dict[str, int]) -> None:
    """Add what was done at a node to its beat of work."""
    if node.kind == "assistant" and not node.failed and node.text.strip():
        beat.answers += 1
        beat.text = one_line(node.text, LINE_MAX)  # the last one tells best what came of it
    for name, _ in node.calls:
        if name and (name in beat.calls or len(beat.calls) < TOOLS_MAX):
            beat.calls[name] = beat.calls.get(name, 0) + 1
    beat.failed += node.failed
    if output := node.tokens.get("output", 0):  # lines of one answer each repeat its tokens
        counted = answers.get(node.answer, 0) if node.answer else 0
        answers[node.answer] = max(counted, output)
        beat.tokens += max(0, output - counted)
    if start and node.kind in _WORK:  # a setting may come days later
        beat.ms = max(beat.ms, iso_ms(node.time) - start)
