"""Turn the lines of a Codex file into a tree: a linear history, without duplicates.

The first session_meta of a file identifies it; later ones were copied from a parent, or update the
first. In newer sub-agents `session_id` is the parent's: `id` is always the session's own. In the
oldest files a line is the bare meta or item, without an envelope; the newest number their lines,
and their forks only point at the history that they share.

Pitfalls: codex stores a human's message as an item, which the model sees, and mostly as an event,
too. An item counts unless it is only context, one tag surrounds it, or the event of another one
follows; an event without an item counts by itself. In a sub-agent's thread the prompts are a
program's.

Older forks, and sub-agents that were given their parent's context, begin with a copy of another
thread's lines, whose actions and cost belong to the parent. A turn whose id is older than the
thread's was copied. Where ids cannot tell, times do: all lines of a copy have the same time. That
counts only if the file names its origin, or its second line is another thread's header.

A turn's rows are marked with its id, which survives every rewrite by codex. The way a turn ended is
stored at its last answer; without one, at a row for the line that ends it: an empty answer that is
not counted as a message. If a file does not record the ends of turns, an answer ends its turn when
no call is waiting for output.
"""

from __future__ import annotations

import re
from dataclasses import replace
from operator import add
from typing import Any

import msgspec

from indexerd.agents.base import ANSWERS, PATH_KEPT, PROMPT, WORD_MAX, ContextUse, Tree
from indexerd.agents.codex import parse_entry
from indexerd.agents.codex.parse_entry import changed, failed, files_read, likeness, name_of
from indexerd.agents.json_lines import (
    Fields,
    as_blocks,
    as_dict,
    number,
    parse_object,
    safe_line,
    scan_lines,
    string,
)
from indexerd.agents.replies import codex_answers, question_in
from indexerd.entries import MESSAGE, Base, Header, Kind, Turn, code
from indexerd.privacy.patterns import lazy_pattern
from indexerd.times import DAY_MS, iso_ms

_BY_TIME, _BY_TURN = 1, 2  # ways to recognise copied lines
_AT_ONCE_MS = 1000  # at most, between the first and the last line of a copy
_BARE, _LEGACY, _PAGINATED = 1, 2, 3  # dialects
_TIMED = lazy_pattern(r"([0-9a-f]{8})-([0-9a-f]{4})-7", re.IGNORECASE)  # a UUID of version 7
_TALKS = frozenset({Kind.USER, Kind.ASSISTANT, Kind.TOOL})
_ASKS = frozenset({Kind.USER, Kind.CUSTOM})  # prompts of a human or another agent
_LEADS = frozenset({Kind.SETTING, Kind.SYSTEM, Kind.OTHER})  # may precede the prompt in a turn
_COUNTS = ("input_tokens", "cached_input_tokens", "output_tokens")
_UNANSWERED = frozenset({"web_search_call", "image_generation_call"})  # calls without an output
_ASKING = "request_user_input"  # the tool that asks the user
_PROGRAM = code(Kind.CUSTOM, message=True)
Sums = tuple[int, int, int]  # tokens by _COUNTS


class Memory(msgspec.Struct):
    """The scan's state for one file; reset where a file continues another's history."""

    start: int = 0  # this file's first row
    thread: str = ""  # the session whose file this is
    asks: int = PROMPT  # the code of a prompt
    first_ms: int = 0  # time of this file's first line, or of the first copied one
    copies: int = 0  # _BY_TIME or _BY_TURN while the lines are copies
    # tokens: in a fork codex continues its parent's sums, or starts at 0
    total: Sums = (0, 0, 0)  # codex's newest sums
    outside: Sums | None = None  # those before a review, which has its own, while that runs
    model: str = ""
    # turns
    turn: str = ""  # id of the current turn, if it has one
    open: bool = False  # a turn has begun and not ended
    ended: str = ""  # id of the newest turn that ended
    began: int = 0  # first row of the current turn, or after the last
    failed: bool = False  # an error was reported in this turn
    tasks: bool = False  # the file records where turns begin and end
    pending: int = 0  # calls without an output
    answer_row: int = -1  # row of the turn's newest answer
    answer: int = 0  # likeness of that answer
    # a human's messages
    first: int | None = None  # likeness of the first message
    aborted: bool = False  # a notice of an interruption followed the newest item
    asked: dict[int, int] = {}  # items since the newest answer, call or event: rows by likeness
    event: int | None = None  # likeness of an event whose item may follow


def scan(tree: Tree, data: bytes, base: int) -> None:
    scanner = _Scanner(tree)
    for line, offset, length in scan_lines(tree, data, base):
        scanner.take(line, (offset, length))
    tree.memory = scanner.memory


def base(data: bytes) -> Base | None:
    """Find in a file's first line the history in another file that precedes its own."""
    try:
        history = as_dict(_meta_of(parse_object(data)).get("history_base"))
    except ValueError:
        return None
    thread, end = history.get("thread_id"), history.get("end_byte_offset")
    if not isinstance(thread, str) or type(end) is not int or end <= 0:
        return None
    return Base(name_of(thread), end)


def _meta_of(line: Fields) -> Fields:
    """Return a line's session_meta, in either form; {} for any other line."""
    if "type" in line:
        return as_dict(line.get("payload")) if line["type"] == "session_meta" else {}
    named = string(line.get("id")) and isinstance(line.get("timestamp"), str)
    return line if named and "payload" not in line and not string(line.get("role")) else {}


def _header_of(meta: Fields, line: Fields) -> Header | None:
    """Make the header from a file's first session_meta; None if there is no id."""
    own = string(meta.get("id"))
    if not own:
        return None
    source, dialect = meta.get("source"), _LEGACY if "payload" in line else _BARE
    agent = bool({"subagent", "internal"} & as_dict(source).keys())
    spawn = as_dict(as_dict(as_dict(source).get("subagent")).get("thread_spawn"))
    parents = (meta.get("forked_from_id"), meta.get("parent_thread_id"))
    parent = next(filter(None, map(string, (*parents, spawn.get("parent_thread_id")))), "")
    return Header(
        session_id=own[:PATH_KEPT],
        cwd=string(meta.get("cwd"))[:PATH_KEPT],
        created_at=(string(meta.get("timestamp")) or string(line.get("timestamp")))[:WORD_MAX],
        version=_PAGINATED if type(line.get("ordinal")) is int else dialect,
        parent_id=parent[:PATH_KEPT] or None,
        subagent=agent or string(meta.get("thread_source")) not in ("", "user", source),
    )


def _made_ms(name: str) -> int:
    match = _TIMED.match(name)
    return int(match[1] + match[2], 16) if match else 0


class _Scanner:
    """Adds lines to a tree, one by one."""

    line: Fields
    place: tuple[int, int]  # of the line: offset and length
    at: int  # its time

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.memory = tree.memory if isinstance(tree.memory, Memory) else Memory()

    def take(self, line: Fields, place: tuple[int, int]) -> None:
        """Add one line; a line without a row is also counted in `tree.seen`."""
        tree, kind = self.tree, string(line.get("type"))
        self.line, self.place, self.at = line, place, iso_ms(string(line.get("timestamp")))
        header = kind == "session_meta" or ("type" not in line and tree.header is None)
        if header and (meta := _meta_of(line)):
            self._meta(meta)
        else:
            memory, rows = self.memory, len(tree.ids)
            if memory.copies == _BY_TIME and not 0 < self.at <= memory.first_ms + _AT_ONCE_MS:
                memory.copies = 0
            if tree.header is not None:
                payload = line.get("payload")
                if isinstance(payload, dict):
                    self._payload(kind, payload)
                else:  # in the oldest files the line is the item
                    self._item(line)
            tree.seen += len(tree.ids) == rows
        if self.memory.copies:  # everything so far was copied
            self._mark_copied()

    def _payload(self, kind: str, item: Fields) -> None:
        match kind:
            case "response_item" | "request_item":
                self._item(item)
            case "event_msg":
                self._event(item)
            case "turn_context":  # a turn's model and directory
                self._under_way(name_of(item.get("turn_id")))
                self._in_directory(string(item.get("cwd")))
                self.memory.model = name_of(item.get("model")) or self.memory.model
                self._add(Kind.SETTING)
            case "compacted":
                memory, summary = self.memory, parse_entry.summary_of(string(item.get("message")))
                if summary and memory.answer_row >= 0 and memory.answer == likeness(summary):
                    self.tree.codes[memory.answer_row] = Kind.OTHER  # this answer is the summary
                    memory.answer_row = -1
                self._add(Kind.COMPACTION)
            case "inter_agent_communication":
                self._add(Kind.CUSTOM)

    def _meta(self, meta: Fields) -> None:
        """Read a session_meta: the first is the file's own, later ones may update it."""
        tree, header, own = self.tree, self.tree.header, string(meta.get("id"))
        branch = string(as_dict(meta.get("git")).get("branch"))[:PATH_KEPT]
        if header is None:
            if header := _header_of(meta, self.line):
                self._identify(header, branch)
            if string(meta.get("forked_from_id")) and not as_dict(meta.get("history_base")):
                self.memory.copies = _BY_TIME
        elif own == header.session_id:
            tree.header = replace(header, cwd=string(meta.get("cwd")) or header.cwd)
            tree.git_branch = branch or tree.git_branch
        else:
            if len(tree) == self.memory.start:
                self.memory.copies, self.memory.first_ms = _BY_TIME, self.at
                # Early forks name their origin only by the copy of its header, made seconds later.
                tree.header = replace(header, parent_id=header.parent_id or own or None)
            return
        tree.provider = name_of(meta.get("model_provider")) or tree.provider

    def _identify(self, header: Header, branch: str) -> None:
        tree, old = self.tree, self.memory
        tree.header, tree.git_branch, start = header, branch, len(tree)
        asks = _PROGRAM if header.subagent else PROMPT
        self.memory = Memory(
            start, header.session_id, asks, self.at, total=old.total, model=old.model
        )
        self.memory.began = start
        if old.thread != header.session_id:  # no revert
            tree.name, tree.named_by_person = None, False  # was the origin's
            self._mark_copied()

    def _mark_copied(self) -> None:
        tree = self.tree
        tree.copied = len(tree)
        tree.tokens_on.clear()
        if tree.header is not None and tree.header.subagent:
            tree.openings.clear()  # its own first prompt counts

    def _in_directory(self, cwd: str) -> None:
        """Set the header's working directory if it has none."""
        header = self.tree.header
        if header is not None and not header.cwd and cwd:
            self.tree.header = replace(header, cwd=cwd)

    def _item(self, item: Fields) -> None:
        kind, role, own = string(item.get("type")), item.get("role"), item.get("id")
        memory = self.memory
        if kind == "message" or (not kind and isinstance(role, str)):
            if role == "user":
                self._user_item(item)
            elif role == "assistant":
                self._answer(item)
            else:
                self._add(Kind.SYSTEM, own)
        elif kind.endswith("_call"):
            memory.asked = {}
            memory.pending += kind not in _UNANSWERED
            if not memory.tasks and memory.answer_row >= 0:
                self._ends_with(memory.answer_row, Turn.OPEN)
            row = self._add(Kind.CALL, own)
            if item.get("name") == _ASKING:
                asked = question_in(parse_entry.parsed(item.get("arguments")))
                self.tree.asking, self.tree.asked = row, asked
        elif kind.endswith(("_output", "_result")):
            memory.pending = max(0, memory.pending - 1)
            late = memory.tasks and not memory.open  # it does not reopen the turn
            output = item.get("output")
            turn = Turn.FAILED if failed(output) else Turn.OPEN
            replied = bool(codex_answers(string(output)))
            self._add(Kind.CALL if late else code(Kind.TOOL, turn=turn, extra=replied), own)
        elif kind == "agent_message":  # another agent's; a task is this thread's prompt
            task, name = parse_entry.task_in(parse_entry.texts_of(as_blocks(item.get("content"))))
            if (task or name) and self.memory.asks == _PROGRAM:
                self._asked(self._add(_PROGRAM, own), task or name)
            else:
                self._add(Kind.CUSTOM, own)
        elif kind == "reasoning" and item.get("summary"):
            self._add(Kind.OTHER, own)  # visible thoughts

    def _answer(self, item: Fields) -> None:
        memory = self.memory
        if as_dict(self.line.get("metadata")).get("compaction_output") is True:
            self._add(Kind.OTHER, item.get("id"))  # the compaction repeats this summary
            return
        turn_open = memory.tasks and memory.open
        ends = not turn_open and not memory.pending and item.get("phase") != "commentary"
        memory.asked = {}
        memory.answer_row = self._add(ANSWERS[Turn.ENDED if ends else Turn.OPEN], item.get("id"))
        memory.answer = likeness("".join(parse_entry.texts_of(as_blocks(item.get("content")))))
        self.tree.activity_ms = max(self.tree.activity_ms, self.at)

    def _user_item(self, item: Fields) -> None:
        tree, memory = self.tree, self.memory
        text, notices = parse_entry.said_in(as_blocks(item.get("content")))
        like = likeness(text)
        if text and memory.event == like:
            memory.event = None
            return
        after_result = tree.leaf >= 0 and tree.kind(tree.leaf) is Kind.TOOL
        looked_at = text == parse_entry.PICTURE and after_result  # by the agent
        row = self._add(Kind.OTHER, item.get("id"))
        if not text or looked_at or (notices and memory.first is not None):
            self._in_directory(parse_entry.cwd_in(notices))
            memory.aborted |= any(notice.startswith("<turn_aborted>") for notice in notices)
            return
        # After an interruption codex itself repeats the first prompt.
        again = memory.aborted and memory.first == like
        memory.asked[like], memory.aborted = row, False
        if not (again or parse_entry.is_tagged(text)):
            self._asked(row, text)

    def _user_event(self, event: Fields, turn: str) -> None:
        """Count the item that the event of a human's message repeats, or the event itself."""
        memory, text = self.memory, parse_entry.said_by_event(event)
        if not text:
            return
        self._under_way(turn)
        like = likeness(text)
        if memory.outside is not None and memory.event in (None, like):
            # The review's prompt is codex's own, and written twice.
            self._add(_PROGRAM if memory.event is None else Kind.OTHER, event.get("id"))
            memory.event = like
            return
        self._review(enters=False)  # an interrupted one may have no end
        row, asked = memory.asked.pop(like, None), memory.asked
        memory.asked = {}
        for other in asked.values():  # a program's, before the human's own
            self.tree.codes[other] = Kind.OTHER
            self.tree.openings.pop(other, None)
        if memory.first in asked:
            memory.first = None
        if row is None:
            memory.event = like
            row = self._add(Kind.OTHER, event.get("id"))
        self._asked(row, text)

    def _asked(self, row: int, text: str) -> None:
        tree, memory = self.tree, self.memory
        tree.codes[row] = self.memory.asks
        memory.pending, memory.answer_row = 0, -1
        if memory.first is None:
            memory.first = likeness(text)
        tree.opened_by(row, lambda: safe_line(text))
        if not memory.turn and tree.marks:
            tree.marks[tree.ids[row]] = row  # later rows belong to no turn, not to the last one
        tree.activity_ms = max(tree.activity_ms, self.at)

    def _event(self, event: Fields) -> None:
        turn, kind = name_of(event.get("turn_id")), string(event.get("type"))
        if kind == "item_completed":  # in the newest dialect; most repeat a response item
            event = as_dict(event.get("item"))
            kind = string(event.get("type")).lower()
        match kind:
            case "user_message" | "usermessage":
                self._user_event(event, turn)
            case "exec_command_end" | "commandexecution" if files_read(event):
                self._add(Kind.CALL, event.get("id"))
            case "filechange" | "patch_apply_end":
                if kind != "filechange" or changed(event) is not None:
                    self._add(Kind.CALL, event.get("id"))
            case "token_count":
                self._counted(as_dict(event.get("info")))
            case "task_started" | "turn_started":
                if not turn or turn != self.memory.turn:
                    self._begin(turn)
                self.memory.tasks = True
                self._add(Kind.SETTING)
                self._context(None, event.get("model_context_window"))
            case "task_complete" | "turn_complete" | "turn_aborted":
                self._ended(turn, failed=kind == "turn_aborted" or event.get("error") is not None)
            case "error":  # the turn's own end may still follow
                self.memory.failed = True
                self._say_end(Turn.FAILED)
            case "entered_review_mode" | "exited_review_mode":
                self._review(enters=kind.startswith("entered"))
            case "thread_rolled_back":
                self._roll_back(number(event.get("num_turns")))
            case "thread_name_updated":
                if string(event.get("thread_id")) in ("", self.memory.thread):
                    self.tree.name = safe_line(string(event.get("thread_name"))) or None
                    self.tree.named_by_person = self.tree.name is not None

    def _context(self, used: Any, window: Any) -> None:
        """Record the used and the total size of the model's context, if given as numbers."""
        old, new, size = self.tree.context, number(used), number(window)
        if new or size:
            at = len(self.tree) - 1 if new else old.at
            self.tree.context = ContextUse(new or old.used, at, size or old.window)

    def _add(self, kind: int, own_id: object = None) -> int:
        """Add a row for the line; its id is the item's, or made from the line's number."""
        tree, name = self.tree, name_of(own_id)
        if not name or name in tree.index:
            ordinal = self.line.get("ordinal")
            name = f"L{ordinal if type(ordinal) is int else tree.seen}"
            name = name if name not in tree.index else f"{name}.{len(tree)}"
        tree.leaf = row = tree.add_below(tree.leaf, name, kind, *self.place)
        if self.memory.turn:
            tree.marks[self.memory.turn] = row
        return row

    def _begin(self, name: str) -> None:
        memory, header = self.memory, self.tree.header
        thread_ms, turn_ms = _made_ms(memory.thread), _made_ms(name)
        forked = header is not None and header.parent_id
        if forked and thread_ms and turn_ms and turn_ms != thread_ms:
            memory.copies = _BY_TURN if turn_ms < thread_ms else 0
        memory.turn, memory.open, memory.failed = name, True, False
        memory.began, memory.answer_row = len(self.tree), -1

    def _under_way(self, name: str) -> None:
        """Begin the turn that a line names, unless it has already begun or ended."""
        if name and name not in (self.memory.turn, self.memory.ended):
            self._begin(name)

    def _ended(self, name: str, *, failed: bool) -> None:
        """End a turn; it failed if it was interrupted or an error was reported in it."""
        memory, tree = self.memory, self.tree
        if name and (name == memory.ended or (memory.turn and name != memory.turn)):
            return
        memory.turn = memory.turn or name
        self._say_end(Turn.FAILED if failed or memory.failed else Turn.ENDED)
        ended = memory.turn
        if ended and tree.leaf >= memory.began:
            tree.marks[ended] = tree.leaf
        self._begin("")
        memory.open, memory.ended, memory.pending = False, ended, 0

    def _say_end(self, turn: Turn) -> None:
        """Record how the turn ended: at its last answer, or else at a new row for the line."""
        tree = self.tree
        for row in tree.up(tree.leaf):
            if row < self.memory.began:
                return
            if tree.kind(row) is Kind.ASSISTANT:
                self._ends_with(row, turn)
                return
            if tree.kind(row) in _TALKS:
                self._add(code(Kind.ASSISTANT, turn=turn))
                return

    def _ends_with(self, row: int, turn: Turn) -> None:
        message = self.tree.codes[row] & MESSAGE
        self.tree.codes[row] = code(Kind.ASSISTANT, turn=turn) | message

    def _roll_back(self, count: int) -> None:
        """Undo the newest turns: move the leaf above them, at most to the root."""
        tree, memory = self.tree, self.memory
        prompts = [row for row in tree.up(tree.leaf) if count > 0 and tree.kind(row) in _ASKS]
        if not prompts:
            return
        ends = set(tree.marks.values())
        above = tree.parents[prompts[min(count, len(prompts)) - 1]]
        while above >= 0 and tree.kind(above) in _LEADS and above not in ends:
            above = tree.parents[above]
        tree.leaf = above
        self._begin("")
        memory.open, memory.pending, memory.asked, memory.event = False, 0, {}, None

    def _review(self, *, enters: bool) -> None:
        """Begin or end a review, which counts its tokens from 0."""
        memory = self.memory
        if enters:
            memory.outside, memory.total = memory.outside or memory.total, (0, 0, 0)
            memory.event = None
        elif memory.outside is not None:
            memory.total, memory.outside = memory.outside, None

    def _counted(self, info: Fields) -> None:
        """Add the tokens since codex's last count, from its sums and those of the last call."""
        last, total = as_dict(info.get("last_token_usage")), as_dict(info.get("total_token_usage"))
        self._context(last.get("total_tokens"), info.get("model_context_window"))
        if not total:
            return
        memory, sums, newest = self.memory, _sums(total), _sums(last)
        falls = any(new < old for new, old in zip(sums, memory.total, strict=True))
        # A sum that falls, or equals the last call's, started at 0: `exec resume`.
        starts = falls or (last and sums == newest and sums != memory.total)
        old = (0, 0, 0) if starts else memory.total
        sent, cached, output = (now - then for now, then in zip(sums, old, strict=True))
        memory.total, key = sums, (self.at // DAY_MS, memory.model)
        more, booked = (max(0, sent - cached), output, cached, 0), self.tree.tokens_on.get(key)
        self.tree.tokens_on[key] = tuple(map(add, more, booked)) if booked else more


def _sums(counts: Fields) -> Sums:
    sent, cached, output = (number(counts.get(name)) for name in _COUNTS)
    return sent, cached, output
