"""Turn the lines of a Claude Code session into a tree.

One file is one session, and its id is the file's name: lines name the session that first wrote
them, or a sub-agent's parent. The file becomes a session at its first line of a conversation.
Before 2.0 a sub-agent's lines were mixed with its parent's: these are rows, but never on the path.

Pitfalls: `--fork-session`, `/branch`, a hand-off to the background and 1.0's `--resume` copy the
whole history into a new file, with its ids and times. `born_ms` is larger for the copy: lines
without an id have the file's own time; lines that name another session, in `requestSessionId` or
`sessionId`, were copied; a background session is as old as its first line. After `/clear` some
releases write a session's hooks under another id, between its answers. The client's own sub-agents,
such as the one that summarizes, copy the history of their parent, and only the last prompt is new;
a fork copies the answer that starts it.

Following `parentUuid` alone loses half a conversation: one answer is several lines, the results of
parallel tools are children of different ones, and the next line names only one of these siblings.
Only a human makes a real branch. So:

- an answer, a result, a notice or a queued prompt that names a row on the path goes to the path's
  end; one that names a row off the path continues that other branch;
- a typed prompt goes below the row it names, unless that row is in the current turn: then it goes
  to the path's end;
- an unknown parent stands for the row that was the leaf when it was first named, or for a newer
  boundary, and a line of type `progress` for the row above it; if no line names a parent, lines
  follow each other in file order;
- `compact_boundary`, a summary without one, and the prompt of a plan that begins a new context go
  below the row they follow, which a boundary names if it is not the path's end;
- an id that repeats in the same place is the same line; one that repeats elsewhere (kept messages
  are logged again) gets a new id, and counts only if the first is not on its path, as does a
  prompt that was recorded twice.

Every parent precedes its child and ids are unique, so a walk cannot loop. Walks are bounded: a row
too far up counts as on the path.
"""

from __future__ import annotations

import re
from dataclasses import replace
from zlib import crc32

import msgspec

from indexerd.agents.base import (
    ANSWERS,
    NOWHERE,
    PATH_KEPT,
    PROMPT,
    PROMPTED,
    ROOT,
    WORD_MAX,
    ContextUse,
    LineClass,
    Tree,
)
from indexerd.agents.claude.human import (
    NOTICE,
    RESULTS,
    content_of,
    directive,
    heading_of,
    is_notice,
    plan_of,
    preview,
    said,
    shown,
    summary_of,
    words,
)
from indexerd.agents.json_lines import (
    Fields,
    as_blocks,
    as_dict,
    safe_line,
    scan_lines,
    string,
)
from indexerd.agents.recaps import goal_in, recap
from indexerd.agents.replies import question_in
from indexerd.entries import EXTRA, KIND_MASK, TURN_MASK, Header, Kind, Turn, code
from indexerd.privacy.sanitize import replace_surrogates
from indexerd.times import iso_ms

_ID_MAX = 512
_TITLE_MAX = 1024  # characters of a title that are read
_FAR = 1024  # steps of one walk
_PROMPTS_KEPT = 64
_WINDOW = 200_000  # tokens, also of models with a million, unless the user asks for that
_OWN_LINE = [2, 1, 97]  # the first version in which every queued prompt has a line of its own
_NOT_TYPED = (*NOTICE, '{"task_id":')  # some versions put notices of tasks into the queue as JSON
_TITLE_LINES = {"custom-title": "customTitle", "ai-title": "aiTitle", "agent-name": "agentName"}
# The best kind first; of each kind the newest counts, and a blank title clears only its kind. A
# person gave a custom title; an agent's name alone may be made up.
_TITLES = (*_TITLE_LINES, "summary", "plan")
_RENAME = re.compile(r"<command-name>\s*/?rename\s*</command-name>")
_ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)
_COPYING = re.compile(r".*/agent-a(?:compact|prompt_suggestion|side_question)-")
_OBSERVING = "-claude-mem-observer-sessions/"  # in which a plug-in follows another session
_ASKING, _PLANNING = "AskUserQuestion", "ExitPlanMode"  # tools that wait for the user
_TALK = frozenset({Kind.USER, Kind.ASSISTANT, Kind.TOOL, Kind.COMPACTION})  # these move the leaf
Place = tuple[int, int]  # offset and length of a line in the file


class Prompt(msgspec.Struct, array_like=True):
    """A counted prompt, with the facts by which a second record of it is recognised."""

    digest: int
    timestamp: str
    queued: bool  # recorded as typed while the agent worked
    waited: bool  # queued, or sent after it had waited
    row: int
    turn: int


class Queued(msgspec.Struct, array_like=True):
    """A prompt that waits, typed while the agent works, and where its line is."""

    text: str
    timestamp: str
    place: Place


class Memory(msgspec.Struct):
    """The scan's state between two blocks of lines; rows, -1 for none."""

    begun: str = ""  # the file's first timestamp
    own_ms: int = 0  # time of the first line without an id, if before any entry: forks copy entries
    foreign_ms: int = 0  # newest time on a line with another session's id
    answered: bool = False  # an answer has the session's own id: no copies follow
    settled: bool = False  # it is known whether the file is a sub-agent's
    chained: bool = False  # some line has named a parent
    tail: int = -1  # the newest row of the main conversation, whatever its kind
    opener: int = -1  # the row that opened the current turn
    boundary: int = -1  # the newest compact_boundary's row
    again: dict[str, str] = msgspec.field(default_factory=dict)  # repeated id -> its newest new id
    lost: dict[str, int] = msgspec.field(default_factory=dict)  # id without a row -> its stand-in
    prompts: list[Prompt] = msgspec.field(default_factory=list)  # the newest
    turns: int = 0  # turns that have ended
    version: str = ""  # of the program that wrote the newest entry
    queue: list[Queued] = msgspec.field(default_factory=list)  # oldest first
    sent: str = ""  # what left it last
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
        if own and line.get("type") == "progress":  # what names it goes below the row above it
            memory.lost[own] = _above(tree, memory, line, LineClass(Kind.OTHER))
        elif entry and (tree.header or talks or (own and string(line.get("sessionId")))):
            _entry(tree, memory, line, (offset, length), at)
            continue
        if not own and tree.header is None:
            memory.own_ms = memory.own_ms or at
        if line.get("type") == "queue-operation" and tree.header:
            _queue(tree, memory, line, (offset, length))
        _titled(tree, memory, line)
        tree.seen += 1


def parent_of(file: str) -> str:
    """Return the parent session that a sub-agent's path names; "" for any other path."""
    above, mark, _ = file.rpartition("/subagents/")
    return above.rpartition("/")[2] if mark else ""


def _entry(tree: Tree, memory: Memory, line: Fields, place: Place, at: int) -> None:
    own = string(line.get("uuid"))
    if tree.header is None:
        tree.header = _header_of(tree, memory, line, at)
        memory.settled = tree.header.subagent
    memory.version = string(line.get("version"))[:WORD_MAX] or memory.version
    talks = line.get("type") in ("user", "assistant")
    if talks and not memory.settled:
        _whose(tree, memory, tree.header, line)
    if not tree.header.cwd:
        tree.header = replace(tree.header, cwd=string(line.get("cwd"))[:PATH_KEPT])
    child, aside = tree.header.subagent, line.get("isSidechain") is True
    if at and not child:
        _date_copies(tree, memory, tree.header, line, at)
    if not (tree.first or child or aside) and talks:
        tree.first = own[:_ID_MAX]
    branch = string(line.get("gitBranch"))[:PATH_KEPT]
    tree.git_branch = branch if branch not in ("", "HEAD") else tree.git_branch
    if aside and not child:
        _put_aside(tree, line, place)
        return
    what = said(line, child=child)
    prompted = at and what.code == PROMPTED
    if prompted and (_COPYING.match(tree.file) or (child and directive(content_of(line)))):
        # All lines above are copies.
        stamp = string(line.get("timestamp"))[:WORD_MAX]
        tree.born_ms, tree.header = at, replace(tree.header, created_at=stamp)
        tree.openings.clear()
    row = _put(tree, memory, line, what, place)
    if what.kind in (Kind.USER, Kind.ASSISTANT) or (what.kind is Kind.TOOL and what.code & EXTRA):
        tree.activity_ms = max(tree.activity_ms, at)
    if what.code == ANSWERS[Turn.OPEN] and (asked := _asked(content_of(line))):
        tree.asking, tree.asked = row, asked
    if (what.code == PROMPT or what.text) and what.code == tree.codes[row]:
        tree.opened_by(row, lambda: preview(what.text))
    if what.code == PROMPTED and not child:
        _planned(tree, memory, line)
    last = tree.codes[tree.leaf] & (KIND_MASK | TURN_MASK) if tree.leaf >= 0 else Kind.OTHER
    if line.get("subtype") == "turn_duration" and last == Kind.ASSISTANT:
        tree.codes[tree.leaf] = ANSWERS[Turn.ENDED]  # old versions store no stop reason
    if line.get("subtype") == "away_summary":  # for a user who comes back
        told = string(line.get("content")).removesuffix("(disable recaps in /config)")
        tree.recap = row, recap(told)
    elif what.kind is Kind.COMPACTION and (goal := goal_in("\n".join(words(content_of(line))))):
        tree.recap = row, goal
    _commanded(tree, memory, line, what)


def _compacted(tree: Tree, about: Fields) -> None:
    """Note how large the window is: the client compacts by itself when it is nearly full."""
    before = about.get("preTokens")
    if about.get("trigger") == "auto" and type(before) is int:
        tree.context = ContextUse(window=_WINDOW if 0 < before <= _WINDOW else 0)


def _queue(tree: Tree, memory: Memory, line: Fields, place: Place) -> None:
    """Follow the queue of prompts; before `_OWN_LINE` it alone tells what is sent within a turn."""
    operation, text = line.get("operation"), string(line.get("content"))
    if operation == "enqueue":
        others = [one for one in memory.queue if one.text != text or not text]
        waiting = Queued(text, string(line.get("timestamp")), place)
        memory.queue = [*others, waiting][-_PROMPTS_KEPT:]
    elif operation == "popAll":  # the user took them back
        memory.queue.clear()
    elif memory.queue:  # without a text: the oldest that is the user's
        fits = [at for at, one in enumerate(memory.queue) if text in ("", one.text)]
        typed = [at for at in fits if not memory.queue[at].text.startswith(_NOT_TYPED)]
        sent = memory.queue.pop(next(iter(typed or fits), 0))
        memory.sent = sent.text.strip()
        version = [int(number) for number in re.findall(r"\d+", memory.version)]
        if operation == "remove" and version < _OWN_LINE:
            _sent_within_turn(tree, memory, sent)


def _leave_queue(memory: Memory, what: LineClass, content: list[Fields]) -> None:
    """Drop what a user's line shows to have left the queue; not every version says so."""
    text = "\n".join(words(content)).strip()
    same = next((at for at, one in enumerate(memory.queue) if one.text.strip() == text), None)
    if same is not None:
        del memory.queue[0 if what.code == PROMPT else same : same + 1]
    elif what.code == PROMPT and text != memory.sent:  # a new turn: none waited any more
        memory.queue.clear()


def _sent_within_turn(tree: Tree, memory: Memory, sent: Queued) -> None:
    """Add a prompt that left the queue, unless it is none or has a line since it was queued."""
    line = {"type": "queue-operation", "content": sent.text, "timestamp": sent.timestamp}
    what = said(line)
    digest = crc32(what.text.encode("utf-8", "replace"))
    since = (one for one in memory.prompts if tree.offsets[one.row] > sent.place[0])
    known = any(one.digest == digest for one in since)
    if what.code == PROMPT and not (known or sent.text.startswith(_NOT_TYPED)):
        row = _put(tree, memory, line, what, sent.place)
        tree.activity_ms = max(tree.activity_ms, iso_ms(sent.timestamp))
        if tree.codes[row] == PROMPT:
            tree.opened_by(row, lambda: preview(what.text))


def _asked(content: list[Fields]) -> str:
    for block in content:
        name, given = block.get("name"), as_dict(block.get("input"))
        if name == _ASKING:
            return question_in(given)
        if name == _PLANNING:
            plan = safe_line(heading_of(string(given.get("plan"))))
            return f"Carry out this plan? {plan}".strip()
    return ""


def _header_of(tree: Tree, memory: Memory, line: Fields, at: int) -> Header:
    """Make the header from the file's name and its first entry, and date the file."""
    writer, begun, created = string(line.get("sessionId")), iso_ms(memory.begun), memory.begun
    tree.born_ms = memory.own_ms or begun + (line.get("sessionKind") == "bg" and begun > 0)
    name = tree.file.rpartition("/")[2].removesuffix(".zst")  # of the copy in our archive
    stem = replace_surrogates(name.removesuffix(".jsonl"))
    own, parent = (stem or writer)[:_ID_MAX], parent_of(tree.file)
    if 0 < at < begun and writer == own:  # the file of a resumed session may be a new one
        created = string(line.get("timestamp"))[:WORD_MAX]
    child = bool(parent) or stem.startswith("agent-") or _OBSERVING in tree.file
    above = (parent or writer)[:_ID_MAX] if child else own
    # Lines state the version of the program, not of the format.
    header = Header(own, cwd="", created_at=created, version=1, subagent=child)
    return replace(header, parent_id=above if above not in ("", own) else None)


def _whose(tree: Tree, memory: Memory, header: Header, line: Fields) -> None:
    """Decide whether a file is a sub-agent's: it is while all its conversation lines are."""
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
        tree.openings.clear()
        tree.header = replace(header, subagent=False, parent_id=None)


def _date_copies(tree: Tree, memory: Memory, header: Header, line: Fields, at: int) -> None:
    """Date a file later than the lines that were copied into it."""
    writer = string(line.get("sessionId"))
    if string(line.get("requestSessionId")) not in ("", writer):
        tree.born_ms = max(tree.born_ms, at + 1)
    foreign = writer not in ("", header.session_id)
    if foreign and not memory.answered:
        memory.foreign_ms = max(memory.foreign_ms, at)
    elif memory.foreign_ms and not foreign:
        tree.born_ms, memory.foreign_ms = max(tree.born_ms, memory.foreign_ms + 1), 0
    memory.answered |= not foreign and line.get("type") == "assistant"


def _titled(tree: Tree, memory: Memory, line: Fields) -> None:
    """Read a title line; a summary is a title if it names a message before it."""
    kind = string(line.get("type"))
    text, leaf = line.get(_TITLE_LINES.get(kind, kind)), string(line.get("leafUuid"))
    titles = kind in _TITLE_LINES or (kind == "summary" and text and leaf in tree.index)
    if titles and isinstance(text, str):
        _entitle(tree, memory, kind, text)


def _commanded(tree: Tree, memory: Memory, line: Fields, what: LineClass) -> None:
    """Read /rename's argument, which old versions store nowhere else, and the first command.

    A message to a member of a team names its session.
    """
    if what.code == PROMPTED and what.text and not tree.name:
        tree.name = safe_line(summary_of(content_of(line))) or None
    if what.kind in (Kind.CUSTOM, Kind.SYSTEM) and line.get("subtype") in (None, "local_command"):
        content = content_of(line) or as_blocks(line.get("content"))
        text = "\n".join(words(content))[:_TITLE_MAX]
        if text.startswith("<command-message>"):  # those that the client expands to a prompt
            tree.command = tree.command or preview(shown(text))
        title = _ARGUMENTS.search(text) if _RENAME.search(text) else None
        if title and title[1].strip():
            _entitle(tree, memory, "custom-title", title[1])


def _planned(tree: Tree, memory: Memory, line: Fields) -> None:
    """Take the title and the parent of a session that begins with a plan from the plan."""
    (heading, parent), header = plan_of(line), tree.header
    if not (heading or parent) or tree.first_prompt:
        return
    if heading:
        _entitle(tree, memory, "plan", heading)
    if parent and header is not None and not header.parent_id and parent != header.session_id:
        tree.header = replace(header, parent_id=parent)


def _entitle(tree: Tree, memory: Memory, kind: str, text: str) -> None:
    memory.titles[kind] = safe_line(text[:_TITLE_MAX])
    tree.name = next(filter(None, map(memory.titles.get, _TITLES)), None)
    tree.named_by_person = bool(memory.titles.get("custom-title"))


def _put(tree: Tree, memory: Memory, line: Fields, what: LineClass, place: Place) -> int:
    """Add a line, or replace an earlier copy of it. Returns its row."""
    if memory.queue and line.get("type") == "user":
        _leave_queue(memory, what, content_of(line))
    own = string(line.get("uuid"))
    boundary = line.get("subtype") == "compact_boundary" and what.kind is Kind.SYSTEM
    key = own or _free(tree, f"L{tree.seen}")
    above = _before_boundary(tree, memory, line) if boundary else _above(tree, memory, line, what)
    old = tree.index.get(key)
    if old is not None:
        same = not line.get("parentUuid") or above == tree.parents[old]
        if same or (_follows(what) and old > memory.boundary):
            return _replace(tree, memory, old, what, place)
        what = LineClass(Kind.OTHER) if _reaches(tree, above, old) else what
        key = memory.again[own] = _free(tree, f"{own}~{tree.seen}")
    elif what.code == PROMPT and _recorded_before(tree, memory, line, what, above):
        what = LineClass(Kind.OTHER)
    (offset, length), before = place, memory.boundary
    if what.code == Kind.COMPACTION and length and before >= 0:
        start = tree.offsets[before]
        if start + tree.lengths[before] + 1 == offset:
            place = start, offset + length - start  # read together with its boundary's line
    memory.tail = row = tree.add_below(above, key, what.code, *place)
    if boundary:
        memory.boundary = row
        _compacted(tree, as_dict(line.get("compactMetadata")))
    _lead(tree, memory, row, what)
    return row


def _put_aside(tree: Tree, line: Fields, place: Place) -> None:
    """Add a sub-agent's line in its parent's file, never on the path."""
    key = _free(tree, string(line.get("uuid")) or f"L{tree.seen}")
    packed = code(Kind.OTHER, extra=line.get("type") == "assistant")  # its cost counts
    tree.add_below(tree.index.get(string(line.get("parentUuid")), ROOT), key, packed, *place)


def _lead(tree: Tree, memory: Memory, row: int, what: LineClass) -> None:
    if what.kind in _TALK:
        tree.leaf, above = row, tree.parents[row]
        # A tool's result may be followed by a text that the tool has the client add, as of a skill.
        added = what.code == PROMPTED and above >= 0 and tree.codes[above] in RESULTS.values()
        if what.code in (PROMPT, PROMPTED, Kind.COMPACTION) and not (what.queued or added):
            memory.opener = row
        memory.turns += what.kind is Kind.ASSISTANT and what.code & TURN_MASK > 0


def _free(tree: Tree, name: str) -> str:
    while name in tree.index:
        name += "~"
    return name


def _follows(what: LineClass) -> bool:
    """Return whether a line continues the current request, whatever parent it names."""
    return what.kind is Kind.ASSISTANT or what.code in RESULTS.values() or what.queued


def _above(tree: Tree, memory: Memory, line: Fields, what: LineClass) -> int:
    leaf, named = tree.leaf, string(line.get("parentUuid"))
    follows = _follows(what) or (what.code == PROMPTED and is_notice(line))
    if not named:
        if not memory.chained:
            return memory.tail
        # Before 2.0 summaries have no boundary, and a plan may be carried out in a new context.
        goes_on = follows or what.code in (Kind.COMPACTION, PROMPTED)
        return leaf if goes_on or "parentUuid" not in line else ROOT
    memory.chained = True
    above = tree.index.get(memory.again.get(named, named))
    if above is None:  # after a boundary, this is often the answer to a summary that comes later
        above = memory.lost.setdefault(named, max(leaf, memory.boundary))
    if what.code == Kind.COMPACTION and string(line.get("uuid")) not in tree.index:
        return leaf if leaf > above == memory.boundary else above  # the answer came first
    if what.kind not in _TALK or what.code == Kind.COMPACTION or leaf < 0:
        return above
    place = _anchor(tree, memory, above)
    if place == ROOT:
        return leaf if follows else above
    if place == leaf and above != leaf:
        return above
    if place != leaf:
        if not follows and place < memory.opener:
            return above  # the human went back
        if not _reaches(tree, leaf, place):
            return above
    return leaf


def _before_boundary(tree: Tree, memory: Memory, line: Fields) -> int:
    """Find the row that a compaction follows: the path's end, or the row that the line names.

    That is on another branch, to which the human went back, or bookkeeping below the path's end.
    """
    named = tree.index.get(string(line.get("logicalParentUuid")), tree.leaf)
    place = _anchor(tree, memory, named)
    return tree.leaf if place != tree.leaf and _reaches(tree, tree.leaf, place) else named


def _anchor(tree: Tree, memory: Memory, row: int) -> int:
    """Find the nearest row of the conversation, at or above a row; a boundary counts as one."""
    for _ in range(_FAR):
        if row < 0 or row == memory.boundary or tree.codes[row] & KIND_MASK in _TALK:
            break
        row = tree.parents[row]
    return row


def _reaches(tree: Tree, row: int, target: int) -> bool:
    """Return whether a row is the target or below it, or the target is too far up to be found."""
    for _ in range(_FAR):
        if row <= target:
            break
        row = tree.parents[row]
    return row >= target


def _replace(tree: Tree, memory: Memory, row: int, what: LineClass, place: Place) -> int:
    tree.seen += 1
    tree.offsets[row], tree.lengths[row] = place
    if tree.codes[row] != Kind.OTHER:
        tree.codes[row] = what.code
        if row > tree.leaf:
            _lead(tree, memory, row, what)
    return row


def _recorded_before(tree: Tree, memory: Memory, line: Fields, what: LineClass, above: int) -> bool:
    """Return whether a prompt is already on the path: queued and then sent, or replayed."""
    digest = crc32(what.text.encode("utf-8", "replace"))
    stamp = string(as_dict(line.get("attachment")).get("timestamp") or line.get("timestamp"))
    late = what.queued or line.get("promptSource") == "queued"  # its turn may have ended meanwhile
    new = Prompt(digest, stamp, what.queued, late, len(tree), memory.turns)
    for at, earlier in enumerate(memory.prompts):
        near = earlier.waited and new.turn - earlier.turn <= late
        twice = earlier.queued != new.queued and near
        same = twice or (earlier.timestamp and earlier.timestamp == new.timestamp)
        if earlier.digest == digest and same and _reaches(tree, above, earlier.row):
            del memory.prompts[at]
            return True
    memory.prompts = [*memory.prompts, new][-_PROMPTS_KEPT:]
    return False
