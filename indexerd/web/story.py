"""A session's tree as a story: what was asked, how much work followed, where it parted.

In: a session's state, and of each row a `Node` (made by `node_of` of web/story_nodes.py, or by
whoever has other texts). Out: `Story`: the nodes, depth first, and the beats over them. A beat is
a stretch of neighbours in that list: one ask, one compaction, one summary of a branch, or the work
between them, folded into how much it was. A straight chain keeps its depth, however long; depth
grows where it parts alone.

Pure, deterministic, linear in entries; nothing recurses. Texts are cut, never parsed.

What surprised us: results of tools often hang beside what came next, so that half of the branch
points of a real session are none. What nobody said anything below is no branch: it is put right
after its parent, and belongs to the work there. A tree of more than `NODES_MAX` entries keeps the
newest, and the newest half of its path at least; what hung below others hangs below the nearest
one kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from indexerd.events import Kind, Tokens
from indexerd.sessions.state import NOWHERE, ROOT, SessionState
from indexerd.sessions.tree import outline, sort_by_date
from indexerd.web.story_nodes import Cut, Node, line, node_of, turn_of

__all__ = ["Beat", "Cut", "Node", "Story", "kept_rows", "node_of", "story_of", "turn_of"]

NODES_MAX = 50_000
LABEL_MAX = 400
TOOLS_MAX = 40  # names of tools that a beat counts apart

_SAID = frozenset({Kind.USER, Kind.ASSISTANT, Kind.BASH, Kind.COMPACTION})
_BEATS = {Kind.USER: "ask", Kind.COMPACTION: "compaction", Kind.BRANCH_SUMMARY: "branch-summary"}
_DONE = frozenset({Kind.ASSISTANT, Kind.TOOL, Kind.CALL})
_BOOKS = frozenset({Kind.SETTING, Kind.LABEL, Kind.NAME, Kind.OTHER, Kind.SYSTEM})


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


# -- which entries ---------------------------------------------------------------------------------


def kept_rows(state: SessionState) -> set[int]:
    """The rows that a story has nodes of: one for each id, and no more than `NODES_MAX`."""
    rows = _rows(state)
    if len(rows) <= NODES_MAX:
        return set(rows)
    kept = set(state.path()[-NODES_MAX // 2 :])
    for row in sorted(rows, reverse=True):
        if len(kept) >= NODES_MAX:
            break
        kept.add(row)
    return kept


def _rows(state: SessionState) -> Collection[int]:
    """One row for each id, the one that counts."""
    if state.orderly:
        return range(len(state))
    return dict.fromkeys(state.index.get(one, at) for at, one in enumerate(state.ids))


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
    for row, node in zip(tree.rows, nodes, strict=True):
        label = labels.get(state.id(row)) if labels else None
        node.label = line(label, LABEL_MAX) if label else None
        node.ordinal = state.ordinals[row]
        node.active = False  # of a draft that was in a story before, nothing stays
    places = tree.places
    leaf = ROOT if state.leaf == NOWHERE else places.get(state.leaf, ROOT)
    found = Story(nodes, [], leaf, places, dropped=len(_rows(state)) - len(nodes))
    for place in found.path():
        nodes[place].active = True
    told = {places[row]: gist for row, gist in (gists or {}).items() if row in places}
    found.beats = _Beats(nodes, tree, leaf).all(_heads(tree, told))
    return found


class _Tree:
    """The kept rows, depth first; what nobody said anything below comes before what is a branch."""

    def __init__(self, state: SessionState, drafts: Mapping[int, Node]) -> None:
        if state.orderly and len(drafts) == len(state):
            order: Sequence[int] = range(len(state))  # parents stand before their children
            above: Mapping[int, int] = dict(enumerate(state.parents))
            below = _below(order, above)
            for over, rows in below.items():
                if over != ROOT and len(rows) > 1:
                    sort_by_date(rows, lambda row: drafts[row].ms())
        else:
            order, above = _outlined(state, drafts)
            below = _below(order, above)
        self.said = _said_below(order, above, drafts)
        for rows in below.values():
            if len(rows) > 1:
                rows.sort(key=lambda row: self.said[row])  # stable: oldest first all the same
        self.parts = {
            row
            for row, rows in below.items()
            if len(rows) > 1 and sum(self.said[one] for one in rows) > 1
        }
        self.rows = _depth_first(below)
        self.places = {row: place for place, row in enumerate(self.rows)}
        self._set_above(above, drafts)

    def _set_above(self, above: Mapping[int, int], drafts: Mapping[int, Node]) -> None:
        self.depths: list[int] = []
        self.heads: list[bool] = []  # by place: a branch begins here
        depths, heads, parts, places = self.depths, self.heads, self.parts, self.places
        for row in self.rows:
            over = above[row]
            place = drafts[row].above = places.get(over, ROOT)
            head = over in parts and self.said[row]
            heads.append(head)
            depths.append((depths[place] if place >= 0 else 0) + head)


def _below(order: Sequence[int], above: Mapping[int, int]) -> dict[int, list[int]]:
    """Each row's children, in this order."""
    below: dict[int, list[int]] = {}
    for row in order:
        over = above[row]
        if over in below:
            below[over].append(row)
        else:
            below[over] = [row]
    return below


def _depth_first(below: Mapping[int, Sequence[int]]) -> list[int]:
    """The rows below ROOT, each after its parent."""
    found: list[int] = []
    stack = list(reversed(below.get(ROOT, ())))
    while stack:
        row = stack.pop()
        found.append(row)
        if row in below:
            stack.extend(reversed(below[row]))
    return found


def _outlined(state: SessionState, drafts: Mapping[int, Node]) -> tuple[list[int], dict[int, int]]:
    """Rows in their order, each once, and what each hangs below, of those that are kept."""
    order: list[int] = []
    above: dict[int, int] = {}
    nearest: dict[int, int] = {ROOT: ROOT}  # row -> itself, or the next one above that is kept

    def date(row: int) -> int:
        return drafts[row].ms() if row in drafts else 0

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
        self._start = 0  # of this beat's work, in ms

    def all(self, heads: Callable[[list[Node]], dict[int, tuple[str, str]]]) -> list[Beat]:
        """Every beat, in order."""
        gists = heads(self._nodes)
        depths, begun = self._tree.depths, self._tree.heads
        found: list[Beat] = []
        beat: Beat | None = None
        for place, node in enumerate(self._nodes):
            kind = _BEATS.get(node.kind, "work")
            if beat is None or not self._goes_on(beat, place, kind):
                beat = Beat(kind, place, place, depths[place], begins=begun[place], quiet=True)
                found.append(beat)
                if beat.begins:
                    beat.gist, beat.gist_source = gists.get(place, ("", ""))
                if kind == "work":
                    self._begin(node)
                elif not node.hidden:
                    beat.text = node.brief()
            beat.last = place
            beat.active = beat.active or node.active
            beat.quiet = beat.quiet and node.kind in _BOOKS
            if node.label:
                beat.labels.append(place)
            if kind == "work":
                self._work(beat, node)
        return found

    def _goes_on(self, beat: Beat, place: int, kind: str) -> bool:
        return (
            kind == beat.kind == "work"
            and not self._tree.heads[place]
            and self._nodes[place].above != ROOT
            and self._leaf not in (beat.last, self._nodes[place].above)
        )

    def _begin(self, node: Node) -> None:
        """The work of another beat, which begins with this node."""
        self._answers = {}
        self._start = (self._nodes[node.above] if node.above >= 0 else node).ms()

    def _work(self, beat: Beat, node: Node) -> None:
        """What was done there."""
        answered = node.kind is Kind.ASSISTANT and not node.failed
        if answered and node.text and not node.text.isspace():
            beat.answers += 1
            beat.text = node.brief()  # the last one tells best what came of it
        for name, _ in node.calls:
            if name and (name in beat.calls or len(beat.calls) < TOOLS_MAX):
                beat.calls[name] = beat.calls.get(name, 0) + 1
        beat.failed += node.failed
        if node.tokens is not None:
            self._spend(beat, node.tokens)
        if self._start and node.kind in _DONE:  # a setting may come days later
            end = node.ms()
            beat.ms = max(beat.ms, end - self._start) if end else beat.ms

    def _spend(self, beat: Beat, tokens: Tokens) -> None:
        had = self._answers.get(tokens.answer, 0) if tokens.answer else 0
        if tokens.answer:
            self._answers[tokens.answer] = max(had, tokens.output)
        beat.tokens += max(0, tokens.output - had)
