"""A session's tree as a story: what was asked, how much work followed, where it branched.

A `Node` is one entry, with what a reader wants of it, within bounds. A `Beat` is a stretch of
neighbours in the list of nodes (depth first): one ask, one compaction, one summary of a branch, or
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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from indexerd.sessions.state import NOWHERE, ROOT, SessionState
from indexerd.sessions.tree import WORD_MAX, is_displayed, is_quiet, outline, shown_word
from indexerd.times import iso_ms

NODES_MAX = 50_000
LINE_MAX = 160  # characters of a beat's text
LABEL_MAX = 400
CALLS_MAX = 50  # of one node
TOOLS_MAX = 40  # names of tools that a beat counts apart
DETAIL_MAX = 500  # characters of what a call was for
NAME_MAX = 64  # characters of a tool's name
ARGUMENTS_MAX = 5  # of a call that are shown, where nothing of it is notable
ID_MAX = 256

_SPOKEN = frozenset({Kind.USER, Kind.ASSISTANT, Kind.BASH, Kind.COMPACTION})
_BEATS = {Kind.USER: "ask", Kind.COMPACTION: "compaction", Kind.BRANCH_SUMMARY: "branch-summary"}
_WORK = frozenset({Kind.ASSISTANT, Kind.TOOL, Kind.CALL})
_QUIET = frozenset({Kind.SETTING, Kind.LABEL, Kind.NAME, Kind.OTHER, Kind.SYSTEM})

Cut = Callable[[str, int], str]  # a text, made fit for its reader, of at most so many characters


@dataclass(slots=True)
class Node:
    """One entry. `above` is the place of its parent in the story's list, or ROOT."""

    id: str
    row: int
    kind: Kind
    type: str
    time: str
    role: str | None = None
    text: str = ""
    length: int = 0  # characters of the whole text, where it was cut
    calls: tuple[tuple[str, str], ...] = ()  # (tool, what for)
    results: tuple[tuple[str, str], ...] = ()  # (tool, text) that stand on the same line
    tool: str = ""  # the tool whose result this is
    thinking: str = ""
    model: str = ""
    tokens: Tokens | None = None
    failed: int = 0  # calls, or the answer itself, that came to nothing
    images: int = 0
    quiet: bool = False  # no more than calls, or said by nobody
    hidden: bool = False  # its author wants it hidden from people (S1.32)
    label: str | None = None
    ordinal: int = 0
    above: int = ROOT
    active: bool = False  # on the path to the leaf
    ms: int = 0  # its time since the epoch


@dataclass(slots=True)
class Beat:
    """A stretch of the story: the nodes `first` to `last`, both included.

    `ms` is from what came before the work to its end; `tokens` are those that models wrote.
    """

    kind: str  # ask, work, compaction, branch-summary
    first: int
    last: int
    depth: int
    active: bool = False
    begins: bool = False  # a branch
    text: str = ""
    answers: int = 0
    calls: dict[str, int] = field(default_factory=dict)
    failed: int = 0
    tokens: int = 0
    ms: int = 0
    quiet: bool = False  # settings and the like alone
    labels: list[int] = field(default_factory=list)  # nodes in it that have one
    gist: str = ""  # of the branch that begins here
    gist_source: str = ""


@dataclass(slots=True)
class Story:
    """The whole of it. Places are those of `nodes`."""

    nodes: list[Node]
    beats: list[Beat]
    leaf: int  # the place of the leaf, or ROOT
    places: dict[int, int]  # row -> place
    dropped: int = 0  # entries that are left out


# -- nodes ---------------------------------------------------------------------------------------


def kept_rows(state: SessionState) -> set[int]:
    """The rows that a story has nodes of: one for each id, and no more than `NODES_MAX`."""
    rows = _rows(state)
    if len(rows) <= NODES_MAX:
        return set(rows)
    kept = set(state.path()[-NODES_MAX // 2 :])
    newest = (row for row in sorted(rows, reverse=True) if row not in kept)
    return kept.union(islice(newest, NODES_MAX - len(kept)))


def _rows(state: SessionState) -> Collection[int]:
    return dict.fromkeys(state.index.get(one, at) for at, one in enumerate(state.ids))


def node_of(
    state: SessionState, row: int, entry: Entry, room: int, *, cut: Cut, names: dict[str, str]
) -> Node:
    """The node of an entry, with at most `room` characters of what was said and done there.

    `names` takes in the names of calls by their ids, and gives them to results that lack one.
    """
    turn = Turn((state.codes[row] & TURN_MASK) >> TURN_SHIFT)
    kind, whole = entry.kind, "".join(entry.texts)
    names.update((call.id, call.name) for call in entry.tools if call.id)
    node = Node(
        id=scrub(entry.id[:ID_MAX]),
        row=row,
        kind=kind,
        type=shown_word(entry.type),
        time=shown_word(entry.timestamp),
        role=shown_word(entry.role) if entry.role else None,
        text=cut(whole, room),
        length=len(whole) if len(whole) > room else 0,
        model=one_line(entry.model, WORD_MAX) if entry.model else "",
        tokens=entry.tokens,
        images=entry.images,
        quiet=is_quiet(entry, turn, whole.strip(JS_SPACE) if kind is Kind.ASSISTANT else ""),
        hidden=not is_displayed(entry),
        ms=iso_ms(entry.timestamp),
    )
    room -= len(node.text)
    if entry.results and kind is Kind.TOOL:
        node.tool = _tool_of(entry.results[0], names, cut)
    elif entry.results:
        node.results = tuple(_results(entry, whole, room, names, cut))
        room -= sum(len(text) for _, text in node.results)
    node.calls = tuple(_calls(entry.tools, room, cut))
    room -= sum(len(detail) for _, detail in node.calls)
    if entry.thinking:
        node.thinking = cut("\n\n".join(entry.thinking), max(0, room))
    wrong = turn is Turn.FAILED or entry.stop_reason in ("error", "aborted")
    wrong = wrong and kind is Kind.ASSISTANT
    if wrong and not node.text:
        node.text = cut(entry.error, DETAIL_MAX)
    node.failed = len(entry.failed) or int(wrong)
    return node


def _tool_of(result: ToolResult, names: Mapping[str, str], cut: Cut) -> str:
    return cut(result.name or names.get(result.call, ""), NAME_MAX)


def _results(
    entry: Entry, whole: str, room: int, names: Mapping[str, str], cut: Cut
) -> Iterator[tuple[str, str]]:
    """Results that stand beside what was said, and are no part of it."""
    for one in entry.results[:CALLS_MAX]:
        if (text := cut(one.text, max(0, room))) and one.text not in whole:
            yield _tool_of(one, names, cut), text
            room -= len(text)


def _calls(tools: Sequence[ToolCall], room: int, cut: Cut) -> Iterator[tuple[str, str]]:
    """What was called, and for what: what is notable of it, or its first few arguments."""
    for call in tools[:CALLS_MAX]:
        what = call.detail
        if not what and isinstance(call.arguments, dict):
            pairs = ((k, v) for k, v in call.arguments.items() if isinstance(v, str | int))
            texts = (f"{key}: {value}" for key, value in islice(pairs, ARGUMENTS_MAX))
            what = ", ".join(one[: 2 * DETAIL_MAX] for one in texts)
        detail = one_line(cut(what, max(0, min(room, DETAIL_MAX))), DETAIL_MAX)
        room -= len(detail)
        if call.name or detail:
            yield one_line(call.name, NAME_MAX), detail


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
    tree = _Tree(state, nodes)
    listed = [nodes[row] for row in tree.rows]
    for row, node, above in zip(tree.rows, listed, tree.above, strict=True):
        label = labels.get(state.id(row))
        node.label = one_line(label, LABEL_MAX) if label else None
        node.ordinal, node.above, node.active = state.ordinals[row], above, False
    leaf = ROOT if state.leaf == NOWHERE else tree.places.get(state.leaf, ROOT)
    place = leaf
    while place >= 0:
        listed[place].active = True
        place = listed[place].above
    beats = list(_beats(listed, tree, leaf))
    starts = {beat.first: beat for beat in beats if beat.begins}
    passed: set[int] = set()
    for tip, gist in gists.items():
        place = tree.places.get(tip, ROOT)
        while place >= 0 and place not in passed and not tree.begins[place]:
            passed.add(place)
            place = listed[place].above
        if place in starts and not starts[place].gist:
            starts[place].gist, starts[place].gist_source = gist
    return Story(listed, beats, leaf, tree.places, dropped=len(_rows(state)) - len(listed))


class _Tree:
    """The kept rows, depth first; what nobody said anything below comes before what is a branch."""

    def __init__(self, state: SessionState, nodes: Mapping[int, Node]) -> None:
        order, parents = _kept(state, nodes)
        spoken = {row: nodes[row].kind in _SPOKEN for row in order}
        for row in reversed(order):  # children stand after their parents
            if spoken[row] and parents[row] != ROOT:
                spoken[parents[row]] = True
        children: defaultdict[int, list[int]] = defaultdict(list)
        for row in order:
            children[parents[row]].append(row)
        for rows in children.values():
            rows.sort(key=spoken.__getitem__)  # stable: oldest first all the same
        branched = {row for row, rows in children.items() if sum(spoken[one] for one in rows) > 1}
        self.rows: list[int] = []
        stack = children[ROOT][::-1]
        while stack:
            self.rows.append(row := stack.pop())
            stack += children.get(row, ())[::-1]
        self.places = {row: place for place, row in enumerate(self.rows)}
        self.above = [self.places.get(parents[row], ROOT) for row in self.rows]
        self.begins = [parents[row] in branched and spoken[row] for row in self.rows]
        self.depths: list[int] = []
        for above, begins in zip(self.above, self.begins, strict=True):
            self.depths.append((self.depths[above] if above >= 0 else 0) + begins)


def _kept(state: SessionState, nodes: Mapping[int, Node]) -> tuple[list[int], dict[int, int]]:
    """Kept rows in their order, each once, and the nearest kept row above each."""
    parents: dict[int, int] = {}
    nearest: dict[int, int] = {ROOT: ROOT}  # row -> itself, or the next one above that is kept
    for row, above, _depth in outline(state, lambda row: nodes[row].ms if row in nodes else 0):
        if row in nearest:
            continue
        over = nearest.get(above, ROOT)
        nearest[row] = row if row in nodes else over
        if row in nodes:
            parents[row] = over
    return list(parents), parents


def _beats(nodes: Sequence[Node], tree: _Tree, leaf: int) -> Iterator[Beat]:
    beat: Beat | None = None
    work = _Work(0)
    for place, node in enumerate(nodes):
        kind = _BEATS.get(node.kind, "work")
        goes_on = (
            beat is not None
            and kind == beat.kind == "work"
            and not tree.begins[place]
            and node.above != ROOT
            and leaf not in (beat.last, node.above)
        )
        if beat is None or not goes_on:
            if beat is not None:
                yield beat
            beat = Beat(kind, place, place, tree.depths[place], begins=tree.begins[place])
            beat.quiet = True
            work = _Work(nodes[node.above].ms if node.above >= 0 else node.ms)
            if kind != "work" and not node.hidden:
                beat.text = one_line(node.text, LINE_MAX)
        beat.last = place
        beat.active |= node.active
        beat.quiet &= node.kind in _QUIET
        if node.label:
            beat.labels.append(place)
        if kind == "work":
            work.add(beat, node)
    if beat is not None:
        yield beat


@dataclass(slots=True)
class _Work:
    """What is counted of the work of one beat, which began at `start`."""

    start: int
    answers: dict[str, int] = field(default_factory=dict)  # ids of answers -> tokens counted

    def add(self, beat: Beat, node: Node) -> None:
        """Count one node."""
        if node.kind is Kind.ASSISTANT and not node.failed and node.text.strip():
            beat.answers += 1
            beat.text = one_line(node.text, LINE_MAX)  # the last one tells best what came of it
        for name, _ in node.calls:
            if name and (name in beat.calls or len(beat.calls) < TOOLS_MAX):
                beat.calls[name] = beat.calls.get(name, 0) + 1
        beat.failed += node.failed
        if node.tokens is not None:  # lines of one answer each repeat its tokens
            answer, output = node.tokens.answer, node.tokens.output
            counted = self.answers.get(answer, 0) if answer else 0
            self.answers[answer] = max(counted, output)
            beat.tokens += max(0, output - counted)
        if self.start and node.ms and node.kind in _WORK:  # a setting may come days later
            beat.ms = max(beat.ms, node.ms - self.start)
