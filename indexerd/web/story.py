"""A session's tree as a story: a list of nodes, depth first, and beats over them.

A beat is a run of adjacent nodes: one prompt, one compaction, one summary of a branch, or the work
between them. Depth grows only at branches.

Pitfalls: a tool result and the entry after it are often siblings, so half of the apparent branch
points of a real session are none. A child below which nobody said anything is therefore not a
branch: it comes right after its parent and belongs to the work there.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from indexerd.agents.claude.human import as_seen, carries_out_plan
from indexerd.agents.json_lines import as_dict, as_list, own_words, string
from indexerd.agents.replies import is_rejection, questions_in
from indexerd.entries import JS_SPACE, Entry, Kind, ToolCall, Turn
from indexerd.privacy.redact import Redactor
from indexerd.privacy.sanitize import clean_line, replace_surrogates
from indexerd.protocol.limits import PATH_MAX
from indexerd.sessions.clipped import arguments, beside_results
from indexerd.sessions.edits import FileEdit, edits_of, since, text_of, with_patch
from indexerd.sessions.state import NOWHERE, ROOT, SessionState
from indexerd.sessions.tree_answers import (
    WORD_MAX,
    is_quiet,
    kind_of,
    outline,
    replies,
    shown_word,
)
from indexerd.times import iso_ms

LABEL_MAX, DETAIL_MAX, LINE_MAX, NAME_MAX, ID_MAX = 400, 500, 200, 64, 256  # characters
CALLS_MAX = 1000  # of a node; no client writes so many

_BEATS = {"compaction": "compaction", "branch_summary": "branch-summary"}
_BEATS |= dict.fromkeys(("user", "task", "plan"), "ask")
_OUTLINE = re.compile(  # of Spec Kit
    r"(?m)^## (?:Outline|Goal)\s{1,9}(?:\d\. )?(?:Goal: )?(.{1,300})"
)
_OUTLINED = 4000  # characters that are searched for it
_MARK_MAX = 40  # characters of a mark such as "## My request for Codex:", not worth a note
_SPOKEN = frozenset({"user", "reply", "task", "plan", "assistant", "bash", "compaction"})

Cut = Callable[[str, int], str]  # prepares a text for its reader: text, most characters


class Call(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A call of a tool."""

    tool: str
    detail: str = ""  # one line
    id: str = ""
    failed: str = ""  # or rejected
    edits: list[FileEdit] = []
    input: Any = None  # all arguments; else as text, unless `detail` has all


class Result(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A tool's result."""

    call: str  # id of the call
    tool: str = ""
    text: str = ""
    length: int = 0  # characters of the whole text, if it was cut


class Image(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A picture that the entry's line holds."""

    type: str
    size: int  # bytes
    data: str = ""  # base64, if it is part of the document


class Node(msgspec.Struct, omit_defaults=True, rename="camel"):
    """One entry, as JSON; fields with default values are left out."""

    id: str
    row: int
    kind: str
    type: str
    time: str
    text: str  # of a tool's only result: its text
    sent: str = ""  # what the model got in place of a prompt's text
    ended: str = ""  # when it was finished, if later
    parent_id: str | None = None
    above: int = -2  # place of the parent in the list, or ROOT
    ordinal: int = -1
    role: str | None = None
    length: int = 0  # characters of the whole text, if it was cut
    left_out: int = 0  # characters that a program put around a prompt: only in `sent`
    calls: list[Call] = []
    results: list[Result] = []
    thinking: str = ""
    model: str = ""
    failed: int = 0  # calls, or the answer itself
    images: int = 0
    pictures: list[Image] = []  # those of the images that can be shown
    attached: list[str] = []  # names of other files, whose contents are left out
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


@dataclass
class Room:
    """How the texts of entries become those of nodes, and what was cut."""

    cut: Cut
    most: int  # characters of each text
    redact: Redactor | None = None
    whole: bool = False  # with all arguments of calls
    lost: list[dict[str, Any]] = field(default_factory=list)  # each text that was cut
    tools: dict[str, str] = field(default_factory=dict)  # by call id; results may not name theirs
    failed: dict[str, str] = field(default_factory=dict)  # failed or rejected, by call id
    patches: dict[str, tuple[str, ...]] = field(default_factory=dict)  # diffs that agents stored

    def fit(self, entry: Entry, name: str, text: str) -> str:
        shown = self.cut(text, self.most)
        if len(text) > self.most:
            entry_id = replace_surrogates(entry.id[:ID_MAX])
            found = {"entryId": entry_id, "field": name, "length": len(text), "kept": len(shown)}
            self.lost.append(found)
        return shown

    def fit_all(self, entry: Entry, name: str, value: Any) -> Any:
        """Fit every text in a value; `name` is its field."""
        if isinstance(value, str):
            return self.fit(entry, name, value)
        if isinstance(value, list):
            return [self.fit_all(entry, f"{name}.{at}", item) for at, item in enumerate(value)]
        if isinstance(value, Mapping):
            named = ((self.cut(key, PATH_MAX), item) for key, item in value.items())
            return {key: self.fit_all(entry, f"{name}.{key}", item) for key, item in named}
        return value


def node_of(
    state: SessionState, row: int, entry: Entry, room: Room, pictures: Sequence[Image] = ()
) -> Node:
    """Make the node of an entry.

    A sub-agent's first prompt, its parent's, is a `task`; the client's for a plan is a `plan`.
    """
    entry = entry if room.whole else as_seen(entry)
    turn, kind = state.turn_of(row), kind_of(state, row, entry)
    kind = "plan" if kind != "task" and carries_out_plan(entry) else kind
    answer, whole, cut = entry.kind is Kind.ASSISTANT, "".join(entry.texts), room.cut
    whole, left_out = (whole, 0) if room.whole else _readable(entry, whole)
    room.tools.update((call.id, call.name) for call in entry.tools if call.id)
    room.patches.update((result.call, result.patch) for result in entry.results if result.patch)
    rejected = {one.call for one in entry.results if is_rejection(one.text)}
    ends = {call: "rejected" if call in rejected else "failed" for call in entry.failed}
    room.failed |= ends
    wrong = answer and (turn is Turn.FAILED or entry.stop_reason in ("error", "aborted"))
    results = _results(entry, room)
    if replies(entry) and not room.whole:
        whole, results = entry.reply, []
    elif entry.kind is Kind.TOOL and results:
        before = beside_results(entry, entry.texts)
        whole = whole if before is None or len(results) == 1 else before
    text = room.fit(entry, "text", whole)
    asks = room.whole and entry.kind is Kind.USER and entry.sent is not None
    return Node(
        id=replace_surrogates(entry.id[:ID_MAX]),
        row=row,
        kind=kind,
        type=shown_word(entry.type),
        time=shown_word(entry.timestamp),
        ended=shown_word(entry.ended),
        text=text or (cut(entry.error, DETAIL_MAX) if wrong else ""),
        sent=room.fit(entry, "sent", "\n".join(entry.as_sent)) if asks or left_out else "",
        role=shown_word(entry.role) if entry.role else None,
        length=len(whole) if len(whole) > room.most else 0,
        left_out=left_out,
        calls=_calls(entry, room),
        results=results if room.whole else results[:CALLS_MAX],
        thinking=room.fit(entry, "thinking", "\n\n".join(entry.thinking)),
        model=_one_line(entry.model, WORD_MAX) if entry.model else "",
        failed=[*ends.values()].count("failed") or int(wrong),
        images=entry.images,
        pictures=[*pictures],
        attached=[_one_line(cut(name, LINE_MAX), LINE_MAX) for name in entry.attached[:CALLS_MAX]],
        quiet=kind != "task" and is_quiet(entry, turn, whole.strip(JS_SPACE)),
        hidden=entry.display is False,
        ordinal=state.ordinals[row],
    )


def _readable(entry: Entry, text: str) -> tuple[str, int]:
    """Add what is asked and replied to a text; of a prompt, keep what a person typed.

    Also return how many characters of the prompt are left out.
    """
    left_out = 0
    if entry.kind is Kind.USER:
        typed = own_words(text).strip()
        whole = text if entry.sent is None else "\n".join(entry.sent)
        left_out = max(0, len(whole.strip()) - len(typed))
        text = (typed or _outline(whole)) if left_out else text
        left_out = left_out if left_out > _MARK_MAX or not typed else 0
    reply = f"**You:**\n\n{entry.reply}" if entry.reply else ""
    return "\n\n".join(filter(None, (text, *map(asked, entry.tools), reply))), left_out


def asked(call: ToolCall) -> str:
    """Write what a call asks the user, as Markdown; "" for other calls."""
    if call.name == "ExitPlanMode":
        return string(as_dict(arguments(call)).get("plan"))
    lines = list[str]()
    for one in questions_in(arguments(call)):
        options = [as_dict(option) for option in as_list(one.get("options"))]
        lines += ["", string(one["question"]), ""]
        texts = ((string(o.get("label")), string(o.get("description"))) for o in options)
        lines += [f"- {': '.join(filter(None, text))}" for text in texts]
    return "\n".join(lines).strip()


def _outline(text: str) -> str:
    """Return what a command without words of its user does, as far as its text says that."""
    found = _OUTLINE.search(text[:_OUTLINED])
    return f"Command: {found[1].replace('**', '')}" if found else ""


def _calls(entry: Entry, room: Room) -> list[Call]:
    most = sys.maxsize if room.whole else CALLS_MAX
    return [
        _call(entry, at, call, room)
        for at, call in enumerate(entry.tools[:most])
        if call.name or call.detail or _is_only_record(call, room)
    ]


def _is_only_record(call: ToolCall, room: Room) -> bool:
    """Return whether it records changes that no call before it has: a script made them."""
    return bool(call.arguments) and as_dict(call.arguments).get("call") not in room.tools


def _call(entry: Entry, at: int, call: ToolCall, room: Room) -> Call:
    given = arguments(call)
    if room.redact:  # before a diff takes the lines of a secret apart
        given = _redacted(given, room.redact)
    shown = call.detail or _steps(given) or ("" if asked(call) else given) or ""
    text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
    edits, written = edits_of(call.name, given), _written(given)
    if edits or asked(call) or (written == text and len(text) <= LINE_MAX):
        written = ""
    for edit in edits:
        lines = edit.diff.count("\n")
        edit.diff = room.fit(entry, f"calls.{at}.edits", edit.diff)
        edit.cut += lines - edit.diff.count("\n")
        edit.path, edit.moved_to = (room.cut(one, PATH_MAX) for one in (edit.path, edit.moved_to))
    return Call(
        tool=_one_line(call.name or "apply_patch" * bool(edits), NAME_MAX),  # within a script
        detail=_one_line(room.cut(text, DETAIL_MAX), DETAIL_MAX),
        id=replace_surrogates(call.id[:ID_MAX]),
        edits=edits,
        input=room.fit_all(entry, f"calls.{at}.input", given if room.whole else written),
    )


def _written(given: Any) -> str:
    """Write arguments as text, each with its name, but one alone without."""
    if not isinstance(given, Mapping):
        return given if isinstance(given, str) else ""
    texts = dict[str, str]()
    for name, value in given.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        texts[name] = f"\n{text}" if "\n" in text else f" {text}"
    lines = [f"{name}:{text}" for name, text in texts.items()]
    return "\n".join(lines) if len(texts) > 1 else "".join(texts.values()).strip()


def _steps(given: Any) -> str:
    """Say how far the steps are that a call lists, and which is next; "" for other calls."""
    fields = as_dict(given)
    listed = (as_dict(one) for one in as_list(fields.get("todos") or fields.get("plan")))
    steps = [(string(one.get("content") or one.get("step")), one.get("status")) for one in listed]
    done = sum(state in ("completed", "cancelled") for _, state in steps)
    now = next((f": {what}" for what, state in steps if state == "in_progress"), "")
    return f"{done} of {len(steps)} steps done{now}" if steps and all(map(all, steps)) else ""


def _redacted(value: Any, redact: Redactor, key: str = "") -> Any:
    """Redact every text in a value; that of a field as what is assigned to its name."""
    if isinstance(value, str):
        before, clean = f"{key}=" if key else "", redact(value).text
        assigned = redact(before + clean).text
        return assigned.removeprefix(before) if assigned.startswith(before) else assigned
    if isinstance(value, list):
        return [_redacted(item, redact, key) for item in value]
    if isinstance(value, Mapping):
        return {name: _redacted(item, redact, name) for name, item in value.items()}
    return value


def add_results(state: SessionState, nodes: Mapping[int, Node], room: Room) -> None:
    """Mark the calls that failed, and show the diffs that agents stored or that can be made."""
    for call in (call for node in nodes.values() for call in node.calls):
        call.failed = room.failed.get(call.id, "")
        if len(call.edits) == 1 and (patch := room.patches.get(call.id)):
            text = "\n".join(patch)
            text = room.redact(text).text if room.redact else text
            (edit,) = call.edits = [with_patch(call.edits[0], text.split("\n"))]
            edit.diff = room.cut(edit.diff, room.most)
    _compare_writes(state, nodes, room.patches)


def _compare_writes(state: SessionState, nodes: Mapping[int, Node], stored: Container[str]) -> None:
    """Show a file that is written whole again as what changed, if nothing edited it between."""
    known = dict[str, tuple[int, list[str]]]()  # path -> row of the newest edit, lines it wrote
    for row, node in nodes.items():
        for call in (call for call in node.calls if not call.failed):
            for at, edit in enumerate(call.edits):
                (above, before), lines = known.get(edit.path, (ROOT, [])), text_of(edit)
                known[edit.path] = row, lines
                if before and lines and call.id not in stored and state.leads_to(above, row):
                    call.edits[at] = since(before, edit)


def _results(entry: Entry, room: Room) -> list[Result]:
    """Make the results of an entry; the only one of a tool's entry is the text of its node."""
    alone = entry.kind is Kind.TOOL and len(entry.results) == 1
    found = list[Result]()
    for at, result in enumerate(entry.results):
        tool = room.cut(result.name or room.tools.get(result.call, ""), NAME_MAX)
        made = Result(call=replace_surrogates(result.call[:ID_MAX]), tool=tool)
        if not alone:
            made.text = room.fit(entry, f"results.{at}.text", result.text)
            made.length = len(result.text) if len(result.text) > room.most else 0
        found.append(made)
    return found


def _one_line(text: str, limit: int) -> str:
    return clean_line(text[: 4 * limit], limit)


def story_of(
    state: SessionState,
    nodes: Mapping[int, Node],
    labels: Mapping[str, str],
    gists: Mapping[int, tuple[str, str]],
) -> Story:
    """Build the story of a tree, seen from its leaf; `nodes` has a node for each row shown.

    `gists` maps the row of a branch's last entry to the branch's summary, as one line, and its
    source.
    """
    parents, begins = _ordered(state, nodes)
    places = {row: place for place, row in enumerate(parents)}
    listed, beats = list[Node](), list[Beat]()
    depths, branches = list[int](), list[int]()  # by place; a branch is the place where it begins
    leaf = ROOT if state.leaf == NOWHERE else places.get(state.leaf, ROOT)
    for place, (row, parent) in enumerate(parents.items()):
        node, label, above = nodes[row], labels.get(state.ids[row]), places.get(parent, ROOT)
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
