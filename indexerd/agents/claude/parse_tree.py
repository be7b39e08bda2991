"""Turn the lines of a Claude Code session into a tree.

One file is one session, and its id is the file's name: lines name the session that wrote them
first, or a sub-agent's parent. The file becomes a session at its first line of a conversation.
Until 2.0 a sub-agent's lines stood among its parent's: there they are rows, but never on the path.

What surprised us: `--fork-session`, `/branch`, a hand-off to the background and 1.0's `--resume`
copy the whole history into a new file, with its ids and times. `born_ms` is larger for the copy:
lines without an id have the file's own time; lines that name another session, in
`requestSessionId` or `sessionId`, were copied; a background session is as old as its first line.

A walk by `parentUuid` alone loses half a conversation: one answer is several lines, with parallel
tools their results hang off different ones, and whichever sibling the next line names, the others
fall off. Only a human makes a real branch. So:

- an answer, a result or a queued prompt that names a row on the path goes to the path's end; one
  that names a row off the path continues that other branch;
- a typed prompt hangs where it says, unless that place lies within the turn that is its end;
- a parent that was never seen means what was the leaf when it was first named; with no parent
  named in the file at all, lines hang in file order;
- `compact_boundary` hangs below what it follows; but it is a root where it keeps no messages and
  a prompt was taken back before: what it names may then be on the branch that was left;
- an id that comes again in the same place is the same line; one that comes again elsewhere (kept
  messages are logged again) gets a name of its own, and counts only where the first is not on its
  path, as does a prompt that was recorded twice.

Every parent stands before its child and every id once, so that a walk cannot loop. Walks are
bounded: a row too far up counts as on the path.
"""

from __future__ import annotations

import re
from dataclasses import replace
from zlib import crc32

import msgspec

from indexerd.agents.base import (
    ANSWERS,
    NOWHERE,
    PATH_MAX,
    PROMPT,
    PROMPTED,
    ROOT,
    WORD_MAX,
    Said,
    Tree,
)
from indexerd.agents.claude.human import (
    FAILED_RESULT,
    RESULT,
    content_of,
    plan_of,
    preview,
    said,
    words,
)
from indexerd.agents.json_lines import (
    Fields,
    as_blocks,
    as_dict,
    as_list,
    safe_line,
    scan_lines,
    string,
)
from indexerd.events import KIND_MASK, TURN_MASK, Header, Kind, Turn
from indexerd.privacy.sanitize import replace_surrogates
from indexerd.times import iso_ms

_ID_MAX = 512
_TITLE_MAX = 1024  # characters of a title that are looked at
_FAR = 1024  # steps of one walk
_PROMPTS_KEPT = 64
_TITLE_LINES = {"custom-title": "customTitle", "ai-title": "aiTitle", "agent-name": "agentName"}
# The best first; the newest of its kind counts, and a blank one clears its kind alone.
_TITLES = (*_TITLE_LINES, "summary", "rename", "plan")
_RENAME = re.compile(r"<command-name>\s*/?rename\s*</command-name>")
_ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)
_TALK = frozenset({Kind.USER, Kind.ASSISTANT, Kind.TOOL, Kind.COMPACTION})  # these move the leaf
Place = tuple[int, int]  # offset and length of a line in the file


class Prompt(msgspec.Struct, array_like=True):
    """A prompt that was counted, with what a second record of it is recognised by."""

    digest: int
    timestamp: str
    queued: bool  # recorded as typed while the agent worked
    waited: bool  # so, or sent later, after it had waited
    row: int
    turn: int


class Memory(msgspec.Struct):
    """What the scan keeps from one block of lines to the next; rows, -1 for none."""

    begun: str = ""  # the file's first timestamp
    own_ms: int = 0  # first time on a line that a fork does not copy, before the first that it does
    foreign_ms: int = 0  # newest time on a line of another session id
    settled: bool = False  # whether the file is a sub-agent's
    chained: bool = False  # some line has named a parent
    tail: int = -1  # the newest row of the main conversation, whatever its kind
    opener: int = -1  # the row that opened the current turn
    rewound: bool = False  # a prompt was taken back since the newest compact_boundary
    boundary: int = -1  # the newest compact_boundary's row
    again: dict[str, str] = msgspec.field(default_factory=dict)  # repeated id -> its newest row's
    lost: dict[str, int] = msgspec.field(default_factory=dict)  # unknown parent -> its stand-in
    prompts: list[Prompt] = msgspec.field(default_factory=list)  # the newest
    turns: int = 0  # that have ended
    titles: dict[str, str] = msgspec.field(default_factory=dict)  # kind -> the newest


def scan(tree: Tree, data: bytes, base: int) -> None:
    memory = tree.memory if isinstance(tree.memory, Memory) else Memory()
    tree.memory, tree.split_answers = memory, True
    for line, offset, length in scan_lines(tree, data, base):
        own, stamp = string(line.get("uuid")), string(line.get("timestamp"))
        at = iso_ms(stamp) if stamp else 0
        if at and not memory.begun:
            memory.begun = stamp[:WORD_MAX]
        talks = line.get("type") in ("user", "assistant") and isinstance(line.get("message"), dict)
        # Old versions gave some entries no id.
        entry = own or talks or as_dict(line.get("attachment")).get("type") == "queued_command"
        if entry and (tree.header or talks or (own and string(line.get("sessionId")))):
            _entry(tree, memory, line, (offset, length), at)
            continue
        if not own and tree.header is None:
            memory.own_ms = memory.own_ms or at
        _titled(tree, memory, line)
        tree.seen += 1


def parent_of(file: str) -> str:
    """Return the session that a sub-agent's path names; "" for any other path."""
    above, mark, _ = file.rpartition("/subagents/")
    return above.rpartition("/")[2] if mark else ""


def _entry(tree: Tree, memory: Memory, line: Fields, place: Place, at: int) -> None:
    own, writer = string(line.get("uuid")), string(line.get("sessionId"))
    if tree.header is None:
        tree.header = _header_of(tree, memory, writer)
        tree.born_ms = memory.own_ms or at + (line.get("sessionKind") == "bg" and at > 0)
        memory.settled = tree.header.subagent
    talks = line.get("type") in ("user", "assistant")
    if talks and not memory.settled:
        _whose(tree, memory, tree.header, line)
    if not tree.header.cwd:
        tree.header = replace(tree.header, cwd=string(line.get("cwd"))[:PATH_MAX])
    child, aside = tree.header.subagent, line.get("isSidechain") is True
    if at and not child:  # a file is younger than the lines that were copied into it
        if string(line.get("requestSessionId")) not in ("", writer):
            tree.born_ms = max(tree.born_ms, at)
        if writer not in ("", tree.header.session_id):
            memory.foreign_ms = max(memory.foreign_ms, at)
        elif memory.foreign_ms:
            tree.born_ms, memory.foreign_ms = max(tree.born_ms, memory.foreign_ms), 0
    if not (tree.first or child or aside) and talks:
        tree.first = own[:_ID_MAX]
    branch = string(line.get("gitBranch"))[:PATH_MAX]
    tree.git_branch = branch if branch not in ("", "HEAD") else tree.git_branch
    if aside and not child:
        _put_aside(tree, line, place)
        return
    what = said(line, child=child)
    row = _put(tree, memory, line, what, place)
    if what.kind in (Kind.USER, Kind.ASSISTANT):
        tree.activity_ms = max(tree.activity_ms, at)
    if what.code == PROMPT == tree.codes[row]:
        tree.opened_by(row, lambda: preview(what.text))
    if what.code == PROMPTED and not child and not tree.first_user:
        _planned(tree, memory, line)
    last = tree.codes[tree.leaf] & (KIND_MASK | TURN_MASK) if tree.leaf >= 0 else Kind.OTHER
    if line.get("subtype") == "turn_duration" and last == Kind.ASSISTANT:
        tree.codes[tree.leaf] = ANSWERS[Turn.ENDED]  # old versions do not write why an answer ends
    _renamed(tree, memory, line, what)


def _header_of(tree: Tree, memory: Memory, writer: str) -> Header:
    stem = replace_surrogates(tree.file.rpartition("/")[2].removesuffix(".jsonl"))
    own, parent = (stem or writer)[:_ID_MAX], parent_of(tree.file)
    child = bool(parent) or stem.startswith("agent-")
    above = (parent or writer)[:_ID_MAX] if child else own
    # The lines name the program's version, not their format's.
    header = Header(own, cwd="", created_at=memory.begun, version=1, subagent=child)
    return replace(header, parent_id=above if above not in ("", own) else None)


def _whose(tree: Tree, memory: Memory, header: Header, line: Fields) -> None:
    """Call a file a sub-agent's while all its conversation lines are."""
    memory.settled = line.get("isSidechain") is not True
    if not memory.settled:
        above = string(line.get("sessionId"))[:_ID_MAX]
        parent = above if above != header.session_id else ""
        tree.header = replace(header, subagent=True, parent_id=header.parent_id or parent or None)
    elif header.subagent:
        for row in range(len(tree)):
            if tree.kind(row) in _TALK:
                tree.codes[row] = Kind.OTHER
        tree.leaf = memory.tail = memory.opener = NOWHERE
        tree.header = replace(header, subagent=False, parent_id=None)


def _titled(tree: Tree, memory: Memory, line: Fields) -> None:
    """Read a title line; a summary is a title if it names a message before it."""
    kind = string(line.get("type"))
    text, leaf = line.get(_TITLE_LINES.get(kind, kind)), string(line.get("leafUuid"))
    titles = kind in _TITLE_LINES or (kind == "summary" and text and leaf in tree.index)
    if titles and isinstance(text, str):
        _entitle(tree, memory, kind, text)


def _renamed(tree: Tree, memory: Memory, line: Fields, what: Said) -> None:
    """Read what was typed after /rename, which old versions store nowhere else."""
    if what.kind in (Kind.CUSTOM, Kind.SYSTEM) and line.get("subtype") in (None, "local_command"):
        found = content_of(line) or as_blocks(line.get("content"))
        text = "\n".join(words(found))[:_TITLE_MAX]
        given = _ARGUMENTS.search(text) if _RENAME.search(text) else None
        if given and given[1].strip():
            _entitle(tree, memory, "rename", given[1])


def _planned(tree: Tree, memory: Memory, line: Fields) -> None:
    """Read what a plan says of the session that begins with it, before a human says anything."""
    (heading, parent), header = plan_of(line), tree.header
    if heading:
        _entitle(tree, memory, "plan", heading)
    if parent and header is not None and not header.parent_id and parent != header.session_id:
        tree.header = replace(header, parent_id=parent)


def _entitle(tree: Tree, memory: Memory, kind: str, text: str) -> None:
    memory.titles[kind] = safe_line(text[:_TITLE_MAX])
    tree.name = next(filter(None, map(memory.titles.get, _TITLES)), None)


def _put(tree: Tree, memory: Memory, line: Fields, what: Said, place: Place) -> int:
    """Add a line, or let it replace an earlier copy. Returns its row."""
    own = string(line.get("uuid"))
    boundary = line.get("subtype") == "compact_boundary" and what.kind is Kind.SYSTEM
    key = own or _free(tree, f"L{tree.seen}")
    above = _before_boundary(tree, memory, line) if boundary else _above(tree, memory, line, what)
    old = tree.index.get(key)
    if old is not None:
        same = not line.get("parentUuid") or above == tree.parent(old)
        if same or (_follows(what) and old > memory.boundary):
            return _replace(tree, memory, old, what, place)
        what = Said(Kind.OTHER) if _reaches(tree, above, old) else what
        key = memory.again[own] = _free(tree, f"{own}~{tree.seen}")
    elif what.code == PROMPT and _recorded_before(tree, memory, line, what, above):
        what = Said(Kind.OTHER)
    (offset, length), before = place, memory.boundary
    if what.code == Kind.COMPACTION and length and before >= 0:
        start = tree.offsets[before]
        if start + tree.lengths[before] + 1 == offset:
            place = start, offset + length - start  # it is read with its boundary's line
    memory.tail = row = tree.add_below(above, key, what.code, *place)
    if boundary:
        memory.boundary = row
    _lead(tree, memory, row, what)
    return row


def _put_aside(tree: Tree, line: Fields, place: Place) -> None:
    """Add a sub-agent's line in its parent's file: never on the path."""
    key = string(line.get("uuid")) or _free(tree, f"L{tree.seen}")
    if key in tree.index:
        tree.seen += 1
        return
    tree.add_below(tree.index.get(string(line.get("parentUuid")), ROOT), key, Kind.OTHER, *place)


def _lead(tree: Tree, memory: Memory, row: int, what: Said) -> None:
    if what.kind in _TALK:
        tree.leaf = row
        if what.code in (PROMPT, PROMPTED, Kind.COMPACTION) and not what.queued:
            memory.opener = row
        memory.turns += what.kind is Kind.ASSISTANT and what.code & TURN_MASK > 0


def _free(tree: Tree, name: str) -> str:
    while name in tree.index:
        name += "~"
    return name


def _follows(what: Said) -> bool:
    """Return whether a line continues what was asked, wherever it says that it hangs."""
    return what.kind is Kind.ASSISTANT or what.code in (RESULT, FAILED_RESULT) or what.queued


def _above(tree: Tree, memory: Memory, line: Fields, what: Said) -> int:
    leaf, named, follows = tree.leaf, string(line.get("parentUuid")), _follows(what)
    if not named:
        if not memory.chained:
            return memory.tail
        return leaf if follows or "parentUuid" not in line else ROOT
    memory.chained = True
    found = tree.index.get(memory.again.get(named, named))
    if found is None:
        found = memory.lost.setdefault(named, leaf)
    if what.kind not in _TALK or what.code == Kind.COMPACTION or leaf < 0:
        return found
    place = _anchor(tree, memory, found)
    if place == ROOT:
        return leaf if follows else found
    if place == leaf and found != leaf:
        return found
    if place != leaf:
        if not follows and place < memory.opener:
            memory.rewound = True
            return found  # the human went back
        if not _reaches(tree, leaf, place):
            return found
    return leaf


def _before_boundary(tree: Tree, memory: Memory, line: Fields) -> int:
    """Find what a compaction follows, or ROOT where that is in doubt.

    The message that it names may be logged again below its summary, and not be there yet: then
    another of those kept stands for it.
    """
    held = as_dict(line.get("compactMetadata"))
    segment, messages = held.get("preservedSegment"), held.get("preservedMessages")
    keeps = isinstance(segment, dict) or isinstance(messages, dict)
    rewound, memory.rewound = memory.rewound, False
    if rewound and not keeps:
        return ROOT
    ids = [line.get("logicalParentUuid")]
    ids += reversed(as_list(as_dict(messages).get("uuids")))
    ids += [as_dict(segment).get("tailUuid"), as_dict(segment).get("headUuid")]
    leaf = tree.leaf
    for row in map(tree.index.get, map(string, ids)):
        if row is not None:
            ends = _anchor(tree, memory, row) == leaf or not _reaches(tree, leaf, row)
            return row if ends else leaf
    return ROOT if keeps else leaf


def _anchor(tree: Tree, memory: Memory, row: int) -> int:
    """Find the nearest row of the conversation, this one or above; a boundary counts as one."""
    for _ in range(_FAR):
        if row < 0 or row == memory.boundary or tree.codes[row] & KIND_MASK in _TALK:
            break
        row = tree.parents[row]
    return row


def _reaches(tree: Tree, row: int, target: int) -> bool:
    """Return whether a row is the target or below it, or has it too far up to be found."""
    for _ in range(_FAR):
        if row <= target:
            break
        row = tree.parents[row]
    return row >= target


def _replace(tree: Tree, memory: Memory, row: int, what: Said, place: Place) -> int:
    tree.seen += 1
    tree.offsets[row], tree.lengths[row] = place
    if tree.codes[row] != Kind.OTHER:
        tree.codes[row] = what.code
        if row > tree.leaf:
            _lead(tree, memory, row, what)
    return row


def _recorded_before(tree: Tree, memory: Memory, line: Fields, what: Said, above: int) -> bool:
    """Return whether a prompt is on the path already: queued and sent, or replayed."""
    digest, held = crc32(what.text.encode("utf-8", "replace")), as_dict(line.get("attachment"))
    stamp = string(held.get("timestamp") or line.get("timestamp"))
    late = what.queued or line.get("promptSource") == "queued"  # its turn may have ended meanwhile
    new = Prompt(digest, stamp, what.queued, late, len(tree), memory.turns)
    for at, one in enumerate(memory.prompts):
        near = one.waited and new.turn - one.turn <= late
        twice = one.queued != new.queued and near
        same = twice or (one.timestamp and one.timestamp == new.timestamp)
        if one.digest == digest and same and _reaches(tree, above, one.row):
            del memory.prompts[at]
            return True
    memory.prompts = [*memory.prompts, new][-_PROMPTS_KEPT:]
    return False
