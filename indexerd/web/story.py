"""A session's tree as a story: entries as nodes, depth first, and beats over them.

A beat is a stretch of neighbours in that list: one ask, one compaction, one summary of a branch, or
the work between them. A straight chain keeps its depth, however long; depth grows at branches
alone. Pure, linear in entries; nothing recurses; texts are cut, not parsed.

What surprised us: results of tools often hang beside what came next, so that half of the branch
points of a real session are none. What nobody said anything below is no branch: it is put right
after its parent, and belongs to the work there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import islice

import msgspec

from indexerd.events import JS_SPACE, TURN_MASK, TURN_SHIFT, Entry, Kind, ToolCall, Turn
from indexerd.privacy.sanitize import clean_line, replace_surrogates
from indexerd.sessions.state import NOWHERE, ROOT, SessionState
from indexerd.sessions.tree import WORD_MAX, is_displayed, is_quiet, outline, shown_word
from indexerd.times import iso_ms

LABEL_MAX, DETAIL_MAX, NAME_MAX, ID_MAX = 400, 500, 64, 256  # characters
CALLS_MAX = 50  # of one node
ARGUMENTS_MAX = 5  # of a call that are shown, where nothing of it is notable

_BEATS = {"user": "ask", "compaction": "compaction", "branch_summary": "branch-summary"}
_SPOKEN = frozenset({"user", "assistant", "bash", "compaction"})

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
    failed: int = 0  # calls, or the answer itself, that came to nothing
    images: int = 0
    quiet: bool = False  # no more than calls, or said by nobody
    hidden: bool = False  # its author wants it hidden from people
    label: str | None = None
    active: bool = False  # on the path to the leaf


class Beat(msgspec.Struct, omit_defaults=True, rename="camel"):
    """The nodes `first` to `last`, both included."""

    kind: str  # ask, work, compaction, branch-summary
    first: int
    last: int
    depth: int
    active: bool = False
    begins: bool = False  # a branch
    gist: str = ""  # of the branch that begins here
    gist_source: str = ""


class Story(msgspec.Struct):
    """The whole of it."""

    nodes: list[Node]
    beats: list[Beat]
    leaf: int  # the place of the leaf, or ROOT
    places: dict[int, int]  # row -> place


def entry_rows(state: SessionState) -> list[int]:
    """One row for each id of a session."""
    return sorted({state.index.get(one, at) for at, one in enumerate(state.ids)})


def node_of(
    state: SessionState, row: int, entry: Entry, room: int, *, cut: Cut, names: dict[str, str]
) -> Node:
    """The node of an entry, each text of it cut to `room` characters.

    `names` takes in the names of calls by their ids, and gives them to results that lack one.
    """
    turn = Turn((state.codes[row] & TURN_MASK) >> TURN_SHIFT)
    answer, whole = entry.kind is Kind.ASSISTANT, "".join(entry.texts)
    names.update((call.id, call.name) for call in entry.tools if call.id)
    wrong = answer and (turn is Turn.FAILED or entry.stop_reason in ("error", "aborted"))
    results = [
        (cut(one.name or names.get(one.call, ""), NAME_MAX), one.text)
        for one in entry.results[:CALLS_MAX]
    ]
    is_result = bool(results) and entry.kind is Kind.TOOL
    calls = [
        (_one_line(call.name, NAME_MAX), _one_line(cut(_purpose(call), DETAIL_MAX), DETAIL_MAX))
        for call in entry.tools[:CALLS_MAX]
    ]
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
        calls=tuple(one for one in calls if any(one)),
        results=() if is_result else tuple(beside),
        tool=results[0][0] if is_result else "",
        thinking=cut("\n\n".join(entry.thinking), room),
        model=_one_line(entry.model, WORD_MAX) if entry.model else "",
        failed=len(entry.failed) or int(wrong),
        images=entry.images,
        quiet=is_quiet(entry, turn, whole.strip(JS_SPACE) if answer else ""),
        hidden=not is_displayed(entry),
        ordinal=state.ordinals[row],
    )


def _purpose(call: ToolCall) -> str:
    """What a call was for: what is notable of it, or its first few arguments."""
    if call.detail or not isinstance(call.arguments, dict):
        return call.detail
    pairs = ((k, v) for k, v in call.arguments.items() if isinstance(v, str | int))
    texts = (f"{key}: {value}" for key, value in islice(pairs, ARGUMENTS_MAX))
    return ", ".join(one[: 2 * DETAIL_MAX] for one in texts)


def _one_line(text: str, limit: int) -> str:
    return clean_line(text[: 4 * limit], limit)


def story_of(
    state: SessionState,
    nodes: Mapping[int, Node],
    labels: Mapping[str, str],
    gists: Mapping[int, tuple[str, str]],
) -> Story:
    """The story of a state's tree, seen from its leaf; `nodes` has one for each of `entry_rows`.

    `gists`: by the row of a branch's last entry what the branch was about, and who says so.
    """
    parents, begins = _ordered(state, nodes)
    places = {row: place for place, row in enumerate(parents)}
    listed, depths, branches = list[Node](), list[int](), list[int]()
    for row, parent in parents.items():
        node, label = nodes[row], labels.get(state.id(row))
        node.above = above = places.get(parent, ROOT)
        node.parent_id = None if above == ROOT else listed[above].id
        node.label = _one_line(label, LABEL_MAX) if label else None
        depth, branch = (depths[above], branches[above]) if above >= 0 else (0, ROOT)
        depths.append(depth + (row in begins))
        branches.append(places[row] if row in begins else branch)
        listed.append(node)
    leaf = place = ROOT if state.leaf == NOWHERE else places.get(state.leaf, ROOT)
    while place >= 0:
        listed[place].active = True
        place = listed[place].above
    beats = _beats(listed, depths, branches, leaf)
    starts = {beat.first: beat for beat in beats if beat.begins}
    for tip, gist in gists.items():
        beat = starts.get(branches[places[tip]]) if tip in places else None
        if beat and not beat.gist:
            beat.gist, beat.gist_source = gist
    return Story(listed, beats, leaf, places)


def _ordered(state: SessionState, nodes: Mapping[int, Node]) -> tuple[dict[int, int], set[int]]:
    """The rows, depth first, each with the one above; and where branches begin.

    What nobody said anything below comes before what is a branch.
    """
    parents: dict[int, int] = {}
    for row, above, _ in outline(state, lambda row: iso_ms(nodes[row].time) if row in nodes else 0):
        if row in nodes:
            parents.setdefault(row, above if above in parents else ROOT)
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


def _beats(nodes: list[Node], depths: list[int], branches: list[int], leaf: int) -> list[Beat]:
    beats: list[Beat] = []
    for place, node in enumerate(nodes):
        kind, begins = _BEATS.get(node.kind, "work"), branches[place] == place
        beat = beats[-1] if beats else None
        if (
            beat is None
            or not kind == beat.kind == "work"
            or begins
            or node.above == ROOT
            or leaf in (beat.last, node.above)
        ):
            beat = Beat(kind, place, place, depths[place], begins=begins)
            beats.append(beat)
        beat.last = place
        beat.active |= node.active
    return beats
