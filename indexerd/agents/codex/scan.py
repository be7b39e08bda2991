"""Scan: every line of a Codex file is read once, and only its place and kind are kept.

Nothing a file holds raises: a line that is no JSON object is counted and passed over. Rows are
messages, calls and their outputs, settings, compactions and records of changed or shown files. Of
what is stored twice, one is passed over, and so is what tells nothing of the conversation; the
newest sum of tokens is noted, and how full the context is. A roll-back moves the leaf.

A codex file is a linear history, so a row hangs from the leaf. Its id is the item's own, else
`L` and the line's ordinal, else `L` and the number of objects before it that are no headers,
which is the same in a copy of the history. No two rows get one id.

**What a human said, once.** Codex stores it as an item that the model sees, and as an event. In a
file without such events the items count, less those that only give context. In a file that has
them an item counts if an event confirms it, whichever comes first; an event without an item counts
itself. Some files have events of a few turns alone: of a turn in which no event tells of a message,
an item counts once it is answered. A file shows by its first event that it has them: the items of
that turn are doubted. What is asked in a sub-agent's or a review's thread was asked by a program;
the first of it names the thread, unless it was copied from the parent's.

**Turns.** A turn is known by its id, and its rows are marked with it: whatever codex does to its
files, the turn's id stays. How a turn ended is said by its last answer. Only where it ended
without a word after its last question or tool, the line of its end gets a row, as an answer that is
empty and counts as none. Where a file does not say where turns end, an answer ends one if no call
waits for its output. A roll-back takes the newest turns back: the leaf moves to before them.

**Copies.** Older forks, and sub-agents that were given their parent's context, open with a copy of
another thread's lines. What these tell belongs to the path, and what they did and cost is the
parent's. Ids of threads and turns tell when they were made: a turn that is older than the thread
was copied, and the first that is younger is its own. Where ids do not tell, the times of lines do:
a copy is written at once, and each of its lines bears that time, or the older one that it had. That
counts only where a file says that it holds a copy: it names what it was forked from, or its second
line is another thread's header. The migration to the newest dialect drops such headers.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import msgspec

from indexerd.agents.base import ANSWERS, PATH_MAX, PROMPT, ContextUse, Tree
from indexerd.agents.codex import human, lines
from indexerd.agents.codex.human import likeness, preview, said_by_event
from indexerd.agents.codex.lines import Fields, Item, Line, Named, name_of, payload_of
from indexerd.agents.codex.read import changed, failed, shown
from indexerd.agents.json_lines import (
    as_blocks,
    as_dict,
    number,
    safe_line,
    scan_lines,
    string,
)
from indexerd.events import MESSAGE, Header, Kind, Turn, code
from indexerd.times import iso_ms

_ORDINAL_MAX = 1 << 32
_AT_ONCE_MS = 1000  # between the first line of a copy and its last
_TIMED = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7", re.IGNORECASE)  # a UUID of version 7
_BY_TIME, _BY_TURN = 1, 2  # how it is known that what is read now was copied
_UNANSWERED = frozenset({"web_search_call", "image_generation_call"})  # calls without an output
_TALKS = frozenset({Kind.USER, Kind.ASSISTANT, Kind.TOOL})
_ASKS = frozenset({Kind.USER, Kind.CUSTOM})  # a human, or another agent
_LEADS = frozenset({Kind.SETTING, Kind.SYSTEM, Kind.OTHER})  # what a turn begins with
_TOOL_FAILED = code(Kind.TOOL, turn=Turn.FAILED)
_PROGRAM = code(Kind.CUSTOM, message=True)
_Sums = tuple[int, int, int]  # tokens given, of these from a cache, made


class Memory(msgspec.Struct):
    """What is remembered of one file; a file that goes on another's history begins anew."""

    start: int = 0  # the first row of this file
    thread: str = ""  # the session whose file this is
    first_ms: int = 0  # the time of this file's first line
    copies: int = 0  # _BY_TIME or _BY_TURN while copied lines are read
    # tokens: codex goes on counting where a fork's history ends, or starts again
    total: _Sums = (0, 0, 0)  # the newest sum
    before: _Sums = (0, 0, 0)  # what others spent of it
    past: _Sums = (0, 0, 0)  # spent before it started again
    # turns
    turn: str = ""  # id of the turn under way, where it has one
    open: bool = False  # a turn is under way
    ended: str = ""  # id of the newest turn that ended
    began: int = 0  # the first row of the turn under way, or after the last one
    failed: bool = False  # an error was reported in this turn
    tasks: bool = False  # the file says where turns begin and end
    pending: int = 0  # calls without an output
    said: tuple[int, int] | None = None  # the turn's newest answer: row, likeness
    # what a human said
    events: bool = False  # the file says it in events, too
    since: int = 0  # the first row of the turn, or after an answer that ended one
    told: bool = False  # an event told of a message since then
    doubted: tuple[int, int, str] | None = None  # an item that none did: row, likeness, preview
    asked: tuple[int, int] | None = None  # the newest item: row, likeness
    event: int | None = None  # likeness of an event whose item may still come
    first: int | None = None  # likeness of the first of all
    aborted: bool = False  # a notice of an interruption came since


def scan(tree: Tree, data: bytes, base: int) -> None:
    """Take in whole lines that stand at file offset `base`."""
    scanner = _Scanner(tree)
    for line, offset, text in scan_lines(tree, data, base, lines.decode):
        scanner.take(line, offset, len(text), text)
    tree.memory = scanner.memory


class _Scanner:
    """A tree, and the line that it takes in."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.memory = tree.memory if isinstance(tree.memory, Memory) else Memory()

    def take(self, line: Line, offset: int, length: int, text: bytes) -> None:
        """Take in one line; what makes no row of it counts as an object all the same."""
        tree, kind, item = self.tree, line.type, line.payload
        self.line, self.place, self.text = line, (offset, length), text
        named = kind == "session_meta" or (kind is None and tree.header is None)
        meta = lines.meta_of(line, text) if named else None
        if meta is not None:
            self._meta(meta)
        else:
            if self.memory.copies == _BY_TIME:
                at = iso_ms(line.timestamp or "")
                if not at or at > self.memory.first_ms + _AT_ONCE_MS:
                    self.memory.copies = 0
            rows = len(tree.ids)
            if tree.header is not None or self._known():
                if item is None:  # the oldest files have the item itself on the line
                    self._item(lines.decode_item(text))
                else:
                    self._take_payload(kind, item)
            tree.seen += len(tree.ids) == rows
        if self.memory.copies:  # all that was read so far was copied
            self.memory.before, self.memory.past = self.memory.total, (0, 0, 0)
            self._borrowed()

    def _take_payload(self, kind: str | None, item: Item) -> None:
        match kind:
            case "response_item" | "request_item":
                self._item(item)
            case "event_msg":
                self._event(item)
            case "turn_context":  # what holds in a turn: its model, its directory
                self._under_way(item.turn_id)
                self._in_directory(item.cwd or "")
                self._add(Kind.SETTING)
            case "compacted":
                self._compacted()
            case "inter_agent_communication":
                self._add(Kind.CUSTOM)

    def _add(self, kind: int, own_id: str | None = None) -> int:
        """A row for the line."""
        tree, ordinal = self.tree, self.line.ordinal
        name = name_of(own_id)
        if not name or name in tree.index:
            known = ordinal is not None and 0 <= ordinal < _ORDINAL_MAX
            name = f"L{ordinal if known else tree.seen}"
            name = name if name not in tree.index else f"{name}.{len(tree)}"
        tree.leaf = row = tree.add_below(tree.leaf, name, kind, *self.place)
        if self.memory.turn:
            tree.marks[self.memory.turn] = row
        return row

    # -- whose file it is --------------------------------------------------------------------

    def _meta(self, meta: Fields) -> None:
        """Take in a header: the first is the file's own, others may bring news of it."""
        tree, header, own = self.tree, self.tree.header, string(meta.get("id"))
        branch = string(as_dict(meta.get("git")).get("branch"))[:PATH_MAX]
        if header is None:
            self._identify(lines.header_of(meta, self.line, tree.file), branch)
            if string(meta.get("forked_from_id")) and not as_dict(meta.get("history_base")):
                self.memory.copies = _BY_TIME
        elif own == header.session_id:
            tree.header = replace(header, cwd=string(meta.get("cwd")) or header.cwd)
            tree.git_branch = branch or tree.git_branch
        else:
            if len(tree) == self.memory.start:
                self.memory.copies = _BY_TIME
                if not header.parent_id:
                    # Before forks named their origin, only the copy of its header told of it.
                    tree.header = replace(header, parent_id=own or None)
            return
        tree.provider = name_of(meta.get("model_provider")) or tree.provider

    def _known(self) -> bool:
        """Whether this is a session; the file's name says so where no header does."""
        thread = lines.id_in(self.tree.file)
        self._identify(lines.header_of({"id": thread}, self.line, "") if thread else None, "")
        return self.tree.header is not None

    def _identify(self, header: Header | None, branch: str) -> None:
        tree, old = self.tree, self.memory
        tree.foreign = header is None
        if header is None:
            return
        tree.header, tree.git_branch, start = header, branch, len(tree)
        new = Memory(start=start, began=start, since=start, thread=header.session_id)
        new.total = new.before = old.total
        if old.thread == new.thread:  # a revert
            new.before, new.past = old.before, old.past
        else:
            tree.name = None  # of the session whose history this one goes on from
            self._borrowed()
        new.first_ms = iso_ms(self.line.timestamp or "")
        self.memory = new

    def _borrowed(self) -> None:
        tree = self.tree
        tree.copied, tree.tokens = len(tree), None
        if tree.header is not None and tree.header.subagent:
            tree.first_user = ""  # it goes by what it was asked itself

    def _in_directory(self, cwd: str) -> None:
        """A line tells the working directory; it counts where the header does not."""
        header = self.tree.header
        if header is not None and not header.cwd and cwd:
            self.tree.header = replace(header, cwd=cwd)

    # -- items -------------------------------------------------------------------------------

    def _item(self, item: Item) -> None:
        """Take in what the model gets, or gave."""
        kind, memory = item.type or "", self.memory
        if kind == "message" or (not kind and item.role is not None):
            if item.role == "user":
                self._user_item(item)
            elif item.role == "assistant":
                self._answer(item)
            else:
                self._add(Kind.SYSTEM, item.id)
        elif kind.endswith("_call"):
            self._answered()
            memory.pending += kind not in _UNANSWERED
            if not memory.tasks and memory.said is not None:
                self._ends_with(memory.said[0], Turn.OPEN)
            self._add(Kind.CALL, item.id)
        elif kind.endswith(("_output", "_result")):
            memory.pending = max(0, memory.pending - 1)
            late = memory.tasks and not memory.open  # then it opens no turn again
            came = _TOOL_FAILED if failed(item.output) else Kind.TOOL
            self._add(Kind.CALL if late else came, item.id)
        elif kind == "agent_message":
            self._agents_item(item)
        elif kind == "reasoning" and bytes(item.summary).strip() not in (b"", b"[]", b"null"):
            self._add(Kind.OTHER, item.id)  # what the model let be seen of its thoughts

    def _content(self) -> list[Fields]:
        return as_blocks(payload_of(self.text).get("content"))

    def _answer(self, item: Item) -> None:
        memory = self.memory
        if b"compaction_output" in bytes(self.line.metadata):
            self._add(Kind.OTHER, item.id)  # the summary, which the compaction tells as well
            return
        said_by_events = memory.tasks and memory.open
        ends = not said_by_events and not memory.pending and item.phase != "commentary"
        self._answered()
        row = self._add(ANSWERS[Turn.ENDED if ends else Turn.OPEN], item.id)
        if ends and not memory.tasks:
            memory.since, memory.told = row + 1, False
        memory.said = (row, likeness("".join(lines.texts_of(self._content()))))
        self._active()

    def _active(self) -> None:
        self.tree.activity_ms = max(self.tree.activity_ms, iso_ms(self.line.timestamp or ""))

    def _compacted(self) -> None:
        memory, message = self.memory, payload_of(self.text).get("message")
        summary = human.summary_of(string(message))
        if summary and memory.said is not None and memory.said[1] == likeness(summary):
            self.tree.recode(memory.said[0], Kind.OTHER)  # the summary was an answer, too
            memory.said = None
        self._add(Kind.COMPACTION)

    # -- what a human said -------------------------------------------------------------------

    def _user_item(self, item: Item) -> None:
        """Take in a message under the user's role, unless it is known from its event."""
        memory, said = self.memory, human.said_in(self._content())
        if not said.text or (said.notices and memory.first is not None):
            self._add(Kind.OTHER, item.id)
            self._in_directory(said.cwd)
            memory.aborted |= said.aborted
            return
        like = likeness(said.text)
        if memory.event == like:
            memory.event = None
            return
        # After an interruption codex itself asks the first question again.
        again = memory.aborted and memory.first == like
        doubted = memory.events or again
        row = self._add(Kind.OTHER if doubted else self._asks(), item.id)
        memory.asked, memory.aborted = (row, like), False
        if not doubted:
            self._counts(row, like, said.text)
        elif not (again or memory.told or human.is_tagged(said.text)):
            memory.doubted = (row, like, preview(said.text))

    def _agents_item(self, item: Item) -> None:
        """Take in a message of another agent; the task that it gives is what was asked here."""
        task, name = human.task_in(lines.texts_of(self._content()))
        if (task or name) and self._asks() == _PROGRAM:
            row = self._add(_PROGRAM, item.id)
            self._counts(row, likeness(task), task or name)
        else:
            self._add(Kind.CUSTOM, item.id)

    def _answered(self) -> None:
        """The model answers: it was asked, even where no event tells of it."""
        if self.memory.doubted is not None:
            doubted, self.memory.doubted = self.memory.doubted, None
            self.tree.recode(doubted[0], self._asks())
            self._counts(*doubted)

    def _user_event(self, event: Fields, own_id: str | None, turn_id: str | None) -> None:
        """Take in an event of what a human said, unless its item is there already."""
        text = said_by_event(event)
        if not text:
            return
        self._under_way(turn_id)
        memory, like = self.memory, likeness(text)
        memory.told, memory.doubted = True, None
        if not memory.events:
            self._doubt_items()
        if memory.asked is not None and memory.asked[1] == like:
            row, memory.asked = memory.asked[0], None
            self.tree.recode(row, self._asks())
        else:
            memory.event = like
            row = self._add(self._asks(), own_id)
        self._counts(row, like, text)

    def _asks(self) -> int:
        header = self.tree.header
        return _PROGRAM if header is not None and header.subagent else PROMPT

    def _doubt_items(self) -> None:
        tree, memory, asks = self.tree, self.memory, self._asks()
        memory.events = True
        for row in range(memory.since, len(tree)):
            if tree.codes[row] == asks:
                tree.recode(row, Kind.OTHER)
        if asks not in tree.codes[memory.start : memory.since]:
            memory.first = None
        if asks not in tree.codes[: memory.since]:
            tree.first_user = ""

    def _counts(self, row: int, like: int, text: str) -> None:
        """A row counts as what a human said."""
        tree, memory = self.tree, self.memory
        memory.pending, memory.said = 0, None
        if memory.first is None:
            memory.first = like
        if not tree.first_user:
            tree.first_user = preview(text)
        if not memory.turn and tree.marks:
            tree.marks[tree.ids[row]] = row  # what follows is of no turn, and not of the last one
        self._active()

    # -- events ------------------------------------------------------------------------------

    def _event(self, event: Item) -> None:
        match event.type:
            case "item_completed":
                self._completed(event)
            case "token_count":
                self._counted(event)
            case "user_message":
                self._user_event(payload_of(self.text), event.id, None)
            case "task_started" | "turn_started":
                self._started(event)
            case "task_complete" | "turn_complete" | "turn_aborted":
                self._ended(event)
            case "error":  # it ends the work; the turn's own end may still come
                self.memory.failed = True
                self._say_end(Turn.FAILED)
            case "thread_rolled_back":
                self._rolled_back(event.num_turns or 0)
            case "thread_name_updated" if (event.thread_id or "") in ("", self.memory.thread):
                self.tree.name = safe_line(event.thread_name or "") or None
            case "patch_apply_end":
                self._add(Kind.CALL)
            case "exec_command_end" if shown(payload_of(self.text)):
                self._add(Kind.CALL, event.id)

    def _completed(self, event: Item) -> None:
        """Take in an item of the newest dialect; most of them double a response item."""
        own = event.item or Named()
        kind = own.type.lower()
        if kind not in ("usermessage", "filechange", "commandexecution"):
            return
        item = as_dict(payload_of(self.text).get("item"))
        if kind == "usermessage":
            self._user_event(item, own.id, event.turn_id)
        elif shown(item) if kind == "commandexecution" else changed(item) is not None:
            self._add(Kind.CALL, own.id)

    def _counted(self, event: Item) -> None:
        """Take in how many tokens codex counts by now, and how many for the last call."""
        info, memory = as_dict(event.info), self.memory
        total, last = info.get("total_token_usage"), info.get("last_token_usage")
        self._context(as_dict(last).get("total_tokens"), info.get("model_context_window"))
        if not isinstance(total, dict):
            return
        sums = _sums(total)
        falls = any(new < old for new, old in zip(sums, memory.total, strict=True))
        newest = _sums(last) if isinstance(last, dict) else None
        if falls or (sums == newest and sums != memory.total):
            # A count that falls, or is all the last call's, began at nothing: `exec resume`.
            memory.past, memory.before = self._spent(), (0, 0, 0)
        memory.total = sums
        given, cached, made = self._spent()
        self.tree.tokens = max(0, given - cached), made, cached, 0

    def _spent(self) -> _Sums:
        past, before, total = self.memory.past, self.memory.before, self.memory.total
        given, cached, made = (past[at] + total[at] - before[at] for at in range(3))
        return given, cached, made

    def _context(self, used: Any, window: Any) -> None:
        """Note how full the model's context is, and how large; what is no number says nothing."""
        held, new, size = self.tree.context, number(used), number(window)
        if new or size:
            at = len(self.tree) - 1 if new else held.at
            self.tree.context = ContextUse(new or held.used, at, size or held.window)

    # -- turns -------------------------------------------------------------------------------

    def _started(self, event: Item) -> None:
        """A turn begins."""
        name = name_of(event.turn_id)
        if not name or name != self.memory.turn:
            self._begin(name)
        self.memory.tasks = True
        self._context(None, event.model_context_window)
        self._add(Kind.SETTING)

    def _under_way(self, turn_id: str | None) -> None:
        """A line names its turn: it is under way, unless it ended already."""
        name = name_of(turn_id)
        if name and name not in (self.memory.turn, self.memory.ended):
            self._begin(name)

    def _begin(self, name: str) -> None:
        memory, header = self.memory, self.tree.header
        born, made = _made_ms(memory.thread), _made_ms(name)
        if header is not None and header.parent_id and born and made and made != born:
            memory.copies = _BY_TURN if made < born else 0
        memory.turn, memory.open, memory.failed = name, True, False
        memory.began = memory.since = len(self.tree)
        memory.said, memory.told, memory.doubted = None, False, None

    def _ended(self, event: Item) -> None:
        """A turn ends; with an error, if one was reported or it was broken off."""
        memory, name = self.memory, name_of(event.turn_id)
        if name and (name == memory.ended or (memory.turn and name != memory.turn)):
            return
        wrong = event.type == "turn_aborted" or memory.failed or event.error is not None
        memory.turn = memory.turn or name
        self._say_end(Turn.FAILED if wrong else Turn.ENDED)
        ended, leaf = memory.turn, self.tree.leaf
        if ended and leaf >= memory.began:
            self.tree.marks[ended] = leaf
        self._begin("")
        memory.open, memory.ended, memory.pending = False, ended, 0

    def _say_end(self, turn: Turn) -> None:
        """Let the last answer of the turn say how it ended, or else a row of the line's own."""
        tree = self.tree
        for row in tree.up(tree.leaf):
            if row < self.memory.began:
                return
            if tree.kind(row) in _TALKS:
                if tree.kind(row) is Kind.ASSISTANT:
                    self._ends_with(row, turn)
                else:
                    self._add(code(Kind.ASSISTANT, turn=turn))
                return

    def _ends_with(self, row: int, turn: Turn) -> None:
        """Say how the turn stands after an answer."""
        message = self.tree.codes[row] & MESSAGE
        self.tree.recode(row, code(Kind.ASSISTANT, turn=turn) | message)

    def _rolled_back(self, count: int) -> None:
        """The newest turns are taken back: the leaf moves to before them, at most to the start."""
        tree = self.tree
        asked = [row for row in tree.up(tree.leaf) if tree.kind(row) in _ASKS] if count > 0 else []
        if not asked:
            return
        ends = set(tree.marks.values())
        above = tree.parent(asked[min(count, len(asked)) - 1])
        while above >= 0 and tree.kind(above) in _LEADS and above not in ends:
            above = tree.parent(above)
        tree.leaf = above
        self._begin("")
        self.memory.open, self.memory.pending = False, 0
        self.memory.asked = self.memory.event = None


def _sums(counts: Fields) -> _Sums:
    names = ("input_tokens", "cached_input_tokens", "output_tokens")
    given, cached, made = (number(counts.get(name)) for name in names)
    return given, cached, made


def _made_ms(name: str) -> int:
    """When an id was made; 0 where it does not tell."""
    found = _TIMED.match(name)
    return int(found[1] + found[2], 16) if found else 0
