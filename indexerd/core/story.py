"""A session's tree as a story: what was asked, how much work followed, where it parted.

In: a session's state, and of each row a `Node` (made by `node_of`, or by whoever has other texts).
Out: `Story`: the nodes, depth first, and the beats over them. A beat is a stretch of neighbours in
that list: one ask, one compaction, one summary of a branch, or the work between them, folded into
how much it was. A straight chain keeps its depth, however long; depth grows where it parts alone.

Pure, deterministic, linear in entries; nothing recurses. Texts are cut, never parsed.

What surprised us: results of tools often hang beside what came next, so that half of the branch
points of a real session are none. What nobody said anything below is no branch: it is put right
after its parent, and belongs to the work there. A tree of more than `NODES_MAX` entries keeps the
newest, and the newest half of its path at least; what hung below others hangs below the nearest
one kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from indexerd.core.clean import clean_line, scrub
from indexerd.core.session import NOWHERE, ROOT, SessionState
from indexerd.core.times import iso_ms
from indexerd.core.tree import WORD_MAX, outline, sketch
from indexerd.events import TURN_MASK, TURN_SHIFT, Entry, Kind, Tokens, ToolCall, Turn

NODES_MAX = 50_000
LINE_MAX = 160  # characters of a beat's text
CALLS_MAX = 50  # of one node
DETAIL_MAX = 500  # characters of what a call was for
NAME_MAX = 64  # characters of a tool's name
LABEL_MAX = 400
ARGUMENTS_MAX = 5  # of a call that are shown, where nothing of it is notable
TOOLS_MAX = 40  # names of tools that a beat counts apart
ID_MAX = 256

Cut = Callable[[str, int], str]  # a text, made fit for its reader, of at most so many characters

_SAID = frozenset({Kind.USER, Kind.ASSISTANT, Kind.BASH, Kind.COMPACTION})
_BEATS = {Kind.USER: "ask", Kind.COMPACTION: "compaction", Kind.BRANCH_SUMMARY: "branch-summary"}
_DONE = frozenset({Kind.ASSISTANT, Kind.TOOL, Kind.CALL})
_BOOKS = frozenset({Kind.SETTING, Kind.LABEL, Kind.NAME, Kind.OTHER, Kind.SYSTEM})


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
    quiet: bool = False  # as core/tree.py has it: no more than calls, or said by nobody
    hidden: bool = False  # its author wants it hidden from people (S1.32)
    label: str | None = None
    ordinal: int = 0
    above: int = ROOT  # the place of its parent in the list
    active: bool = False
    _brief: str | None = field(default=None, compare=False, repr=False)

    def brief(self) -> str:
        """The text as a beat says it; made once, for a story that goes on is told often."""
        if self._brief is None:
            self._brief = _line(self.text, LINE_MAX)
        return self._brief


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

    def path(self, leaf: int | None = None) -> list[int]:
        """Places from the root to one of them (by default the leaf)."""
        found: list[int] = []
        place = self.leaf if leaf is None else leaf
        while place >= 0:
            found.append(place)
            place = self.nodes[place].above
        found.reverse()
        return found


# -- one entry -----------------------------------------------------------------------------------


def node_of(
    entry: Entry, turn: Turn, room: int, cut: Cut, names: dict[str, str] | None = None
) -> Node:
    """The node of an entry, with at most `room` characters of what was said and done there.

    `names` takes in the names of calls by their ids, and gives them to results that lack one.
    """
    shown = sketch(entry, turn)
    whole = "".join(entry.texts)
    text, length = cut(whole, room), len(whole) if len(whole) > room else 0
    room -= len(text)
    known = {} if names is None else names
    known |= {call.id: call.name for call in entry.tools if call.id}
    results, calls = list[tuple[str, str]](), list[tuple[str, str]]()
    told = [(cut(one.name or known.get(one.call, ""), NAME_MAX), one) for one in entry.results]
    for name, one in told[:CALLS_MAX] if entry.kind is not Kind.TOOL else ():
        if (given := cut(one.text, max(0, room))) and one.text not in whole:
            results.append((name, given))
            room -= len(given)
    for call in entry.tools[:CALLS_MAX]:
        detail = _line(cut(_what(call), max(0, min(room, DETAIL_MAX))), DETAIL_MAX)
        calls.append((_line(call.name, NAME_MAX), detail))
        room -= len(detail)
    went_wrong = entry.kind is Kind.ASSISTANT and _wrong(entry, turn)
    if went_wrong and not text:
        text = cut(str(entry.details.get("errorMessage", "")), DETAIL_MAX)
    return Node(
        id=scrub(entry.id[:ID_MAX]),
        kind=entry.kind,
        type=shown.type,
        role=shown.role,
        time=shown.timestamp,
        text=text,
        length=length,
        results=tuple(results),
        calls=tuple(one for one in calls if one[0] or one[1]),
        tool=told[0][0] if told and entry.kind is Kind.TOOL else "",
        thinking=cut("\n\n".join(entry.thinking), max(0, room)),
        model=_line(entry.model or "", WORD_MAX),
        tokens=entry.tokens,
        failed=len(entry.failed) or int(went_wrong),
        images=entry.images,
        quiet=shown.quiet,
        hidden=not shown.display,
    )


def _what(call: ToolCall) -> str:
    """What a call was for: what is notable of it, or else its first few arguments."""
    if call.detail or not isinstance(call.arguments, dict):
        return call.detail
    told = (f"{key}: {one}" for key, one in call.arguments.items() if isinstance(one, str | int))
    return ", ".join(one[: 2 * DETAIL_MAX] for one in islice(told, ARGUMENTS_MAX))


def _wrong(entry: Entry, turn: Turn) -> bool:
    return turn is Turn.FAILED or entry.details.get("stopReason") in ("error", "aborted")


def _line(text: str, limit: int) -> str:
    return clean_line(text[: 4 * limit], limit)


def turn_of(state: SessionState, row: int) -> Turn:
    """The mark of a row."""
    return Turn((state.codes[row] & TURN_MASK) >> TURN_SHIFT)


def kept_rows(state: SessionState) -> set[int]:
    """The rows that a story has nodes of: one for each id, and no more than `NODES_MAX`."""
    rows = dict.fromkeys(state.index.get(one, at) for at, one in enumerate(state.ids))
    if len(rows) <= NODES_MAX:
        return set(rows)
    kept = set(state.path()[-NODES_MAX // 2 :])
    for row in sorted(rows, reverse=True):
        if len(kept) >= NODES_MAX:
            break
        kept.add(row)
    return kept


# -- the whole -----------------------------------------------------------------------------------


def story_of(
    state: SessionState,
    drafts: Mapping[int, Node],
    labels: Mapping[str, str],
    gists: Mapping[int, tuple[str, str]] | None = None,
) -> Story:
    """The story of a state's tree, seen from its leaf. `drafts`: a node for each of `kept_rows`.

    The drafts become the story's nodes; they may be told again, once this story is done with.
    `gists`: by the row of a branch's last entry what the branch was about, and who says so.
    """
    tree = _Tree(state, drafts)
    nodes = [drafts[row] for row in tree.rows]
    places = {row: place for place, row in enumerate(tree.rows)}
    for row, place in places.items():
        label = labels.get(state.id(row))
        nodes[place].label = _line(label, LABEL_MAX) if label else None
        nodes[place].ordinal = state.ordinals[row]
        nodes[place].active = False  # of a draft that was in a story before, nothing stays
    leaf = ROOT if state.leaf == NOWHERE else places.get(state.leaf, ROOT)
    rows = len({state.index.get(one, at) for at, one in enumerate(state.ids)})
    found = Story(nodes, [], leaf, places, dropped=rows - len(nodes))
    for place in found.path():
        nodes[place].active = True
    told = {places[row]: gist for row, gist in (gists or {}).items() if row in places}
    found.beats = _Beats(nodes, tree, leaf).all(_heads(tree, told))
    return found


class _Tree:
    """The kept rows, depth first; what nobody said anything below comes before what is a branch."""

    def __init__(self, state: SessionState, drafts: Mapping[int, Node]) -> None:
        order, above = _outlined(state, drafts)
        self.said = _said_below(order, above, drafts)
        below: dict[int, list[int]] = {}
        for row in order:
            below.setdefault(above[row], []).append(row)
        for rows in below.values():
            rows.sort(key=lambda row: self.said[row])  # stable: oldest first all the same
        self.rows: list[int] = []
        stack = below.get(ROOT, [])[::-1]
        while stack:
            row = stack.pop()
            self.rows.append(row)
            stack.extend(reversed(below.get(row, ())))
        self.parts = {row for row, rows in below.items() if sum(self.said[one] for one in rows) > 1}
        self._set_above(above, drafts)

    def _set_above(self, above: Mapping[int, int], drafts: Mapping[int, Node]) -> None:
        places = {row: place for place, row in enumerate(self.rows)}
        self.depths: list[int] = []
        self.heads: list[bool] = []  # by place: a branch begins here
        for row in self.rows:
            over = above[row]
            place = drafts[row].above = places.get(over, ROOT)
            head = over in self.parts and self.said[row]
            self.heads.append(head)
            self.depths.append((self.depths[place] if place >= 0 else 0) + head)


def _outlined(state: SessionState, drafts: Mapping[int, Node]) -> tuple[list[int], dict[int, int]]:
    """Rows in their order, each once, and what each hangs below, of those that are kept."""
    order: list[int] = []
    above: dict[int, int] = {}
    nearest: dict[int, int] = {ROOT: ROOT}  # row -> itself, or the next one above that is kept

    def date(row: int) -> int:
        return iso_ms(drafts[row].time) if row in drafts else 0

    for row, over, _depth in outline(state, date):
        if row in nearest:
            continue
        nearest[row] = row if row in drafts else nearest.get(over, ROOT)
        if row in drafts:
            order.append(row)
            above[row] = nearest.get(over, ROOT)
    return order, above


def _said_below(
    order: Sequence[int], above: Mapping[int, int], drafts: Mapping[int, Node]
) -> dict[int, bool]:
    """Of each row: whether somebody said something there or below it."""
    said = {row: drafts[row].kind in _SAID for row in order}
    for row in reversed(order):  # children stand after their parents
        if said[row] and above[row] != ROOT:
            said[above[row]] = True
    return said


def _heads(
    tree: _Tree, gists: Mapping[int, tuple[str, str]]
) -> Callable[[list[Node]], dict[int, tuple[str, str]]]:
    """Where the branches begin that these gists are of; each node is passed once a tip at most."""

    def find(nodes: list[Node]) -> dict[int, tuple[str, str]]:
        found: dict[int, tuple[str, str]] = {}
        passed: set[int] = set()
        for tip, gist in gists.items():
            place = tip
            while place >= 0 and place not in passed and not tree.heads[place]:
                passed.add(place)
                place = nodes[place].above
            if place >= 0 and tree.heads[place]:
                found.setdefault(place, gist)
        return found

    return find


class _Beats:
    """The nodes, told as beats."""

    def __init__(self, nodes: list[Node], tree: _Tree, leaf: int) -> None:
        self._nodes, self._tree, self._leaf = nodes, tree, leaf
        self._answers: dict[str, int] = {}  # ids of answers of this beat -> tokens counted

    def all(self, heads: Callable[[list[Node]], dict[int, tuple[str, str]]]) -> list[Beat]:
        """Every beat, in order."""
        gists = heads(self._nodes)
        found: list[Beat] = []
        for place, node in enumerate(self._nodes):
            kind = _BEATS.get(node.kind, "work")
            beat = found[-1] if found else None
            if beat is None or not self._goes_on(beat, place, kind):
                self._answers = {}
                depth, begins = self._tree.depths[place], self._tree.heads[place]
                beat = Beat(kind, place, place, depth, begins=begins)
                beat.gist, beat.gist_source = gists.get(place, ("", "")) if begins else ("", "")
                said = kind != "work" and not node.hidden
                beat.text = node.brief() if said else ""
                found.append(beat)
            self._take(beat, place, node)
        return found

    def _goes_on(self, beat: Beat, place: int, kind: str) -> bool:
        return (
            kind == beat.kind == "work"
            and not self._tree.heads[place]
            and self._nodes[place].above != ROOT
            and self._leaf not in (beat.last, self._nodes[place].above)
        )

    def _take(self, beat: Beat, place: int, node: Node) -> None:
        beat.last = place
        beat.active = beat.active or node.active
        beat.quiet = (place == beat.first or beat.quiet) and node.kind in _BOOKS
        if node.label:
            beat.labels.append(place)
        if beat.kind != "work":
            return
        if node.kind is Kind.ASSISTANT and not node.failed and node.text.strip():
            beat.answers += 1
            beat.text = node.brief()  # the last one tells best what came of it
        for name, _ in node.calls:
            if name and (name in beat.calls or len(beat.calls) < TOOLS_MAX):
                beat.calls[name] = beat.calls.get(name, 0) + 1
        beat.failed += node.failed
        if node.tokens is not None:
            self._spend(beat, node.tokens)
        before = self._nodes[beat.first].above
        start = iso_ms(self._nodes[before if before >= 0 else beat.first].time)
        end = iso_ms(node.time) if node.kind in _DONE else 0  # a setting may come days later
        if start and end:
            beat.ms = max(beat.ms, end - start)

    def _spend(self, beat: Beat, tokens: Tokens) -> None:
        had = self._answers.get(tokens.answer, 0) if tokens.answer else 0
        if tokens.answer:
            self._answers[tokens.answer] = max(had, tokens.output)
        beat.tokens += max(0, tokens.output - had)
