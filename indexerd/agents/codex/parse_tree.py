"""Turn the lines of a Codex file into a tree: a linear history, without what is stored twice.

What surprised us: codex stores what a human said as an item that the model sees, and as an event.
In a file without such events the items count, less those that only give context; in a file that
has them an item counts if an event confirms it, and an event without an item counts by itself. What
is asked in a sub-agent's thread was asked by a program.

Older forks, and sub-agents that were given their parent's context, open with a copy of another
thread's lines, whose actions and cost belong to the parent. A turn whose id is older than the
thread's was copied. Where ids do not tell, times do: a copy's lines have one time. That counts only
where a file names what it was forked from, or its second line is another thread's header.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from indexerd.agents.base import ANSWERS, PATH_MAX, PROMPT, ContextUse, Tree
from indexerd.agents.codex import human, session_meta
from indexerd.agents.codex.human import likeness
from indexerd.agents.codex.parse_entry import changed, failed, shown
from indexerd.agents.codex.session_meta import name_of
from indexerd.agents.codex.turns import BY_TIME, Memory, TurnTracker
from indexerd.agents.json_lines import (
    Fields,
    as_blocks,
    as_dict,
    number,
    safe_line,
    scan_lines,
    string,
)
from indexerd.events import Header, Kind, Turn, code
from indexerd.times import iso_ms

_AT_ONCE_MS = 1000  # between the first line of a copy and its last
_UNANSWERED = frozenset({"web_search_call", "image_generation_call"})  # calls without an output
_TOOL_FAILED = code(Kind.TOOL, turn=Turn.FAILED)
_PROGRAM = code(Kind.CUSTOM, message=True)


def scan(tree: Tree, data: bytes, base: int) -> None:
    scanner = _Scanner(tree)
    for line, offset, length in scan_lines(tree, data, base):
        scanner.take(line, (offset, length))
    tree.memory = scanner.memory


class _Scanner(TurnTracker):
    def take(self, line: Fields, place: tuple[int, int]) -> None:
        """Add one line; one that gets no row counts as an object all the same."""
        tree, kind = self.tree, string(line.get("type"))
        self.line, self.place, self.at = line, place, iso_ms(string(line.get("timestamp")))
        header = kind == "session_meta" or ("type" not in line and tree.header is None)
        if header and (meta := session_meta.meta_of(line)):
            self._meta(meta)
        else:
            memory, rows = self.memory, len(tree.ids)
            if memory.copies == BY_TIME and not 0 < self.at <= memory.first_ms + _AT_ONCE_MS:
                memory.copies = 0
            if tree.header is not None or self._named_by_file():
                payload = line.get("payload")
                if isinstance(payload, dict):
                    self._payload(kind, payload)
                else:  # the oldest files have the item itself on the line
                    self._item(line)
            tree.seen += len(tree.ids) == rows
        if self.memory.copies:  # all that was read so far was copied
            self.memory.spent = (0, 0, 0)
            self._borrowed()

    def _payload(self, kind: str, item: Fields) -> None:
        match kind:
            case "response_item" | "request_item":
                self._item(item)
            case "event_msg":
                self._event(item)
            case "turn_context":  # a turn's model and directory
                self.under_way(name_of(item.get("turn_id")))
                self._in_directory(string(item.get("cwd")))
                self.add(Kind.SETTING)
            case "compacted":
                memory, summary = self.memory, human.summary_of(string(item.get("message")))
                if summary and memory.said >= 0 and memory.answer == likeness(summary):
                    self.tree.codes[memory.said] = Kind.OTHER  # the summary was an answer, too
                    memory.said = -1
                self.add(Kind.COMPACTION)
            case "inter_agent_communication":
                self.add(Kind.CUSTOM)

    def _meta(self, meta: Fields) -> None:
        """Read a header: the first is the file's own, later ones may update it."""
        tree, header, own = self.tree, self.tree.header, string(meta.get("id"))
        branch = string(as_dict(meta.get("git")).get("branch"))[:PATH_MAX]
        if header is None:
            self._identify(session_meta.header_of(meta, self.line, tree.file), branch)
            if string(meta.get("forked_from_id")) and not as_dict(meta.get("history_base")):
                self.memory.copies = BY_TIME
        elif own == header.session_id:
            tree.header = replace(header, cwd=string(meta.get("cwd")) or header.cwd)
            tree.git_branch = branch or tree.git_branch
        else:
            if len(tree) == self.memory.start:
                self.memory.copies = BY_TIME
                # Forks did not name their origin at first: only the copy of its header did.
                tree.header = replace(header, parent_id=header.parent_id or own or None)
            return
        tree.provider = name_of(meta.get("model_provider")) or tree.provider

    def _named_by_file(self) -> bool:
        """Identify a session without a header by its file's name; False for any other file."""
        thread = session_meta.id_in(self.tree.file)
        self._identify(session_meta.header_of({"id": thread}, self.line, ""), "")
        return bool(thread)

    def _identify(self, header: Header | None, branch: str) -> None:
        tree, old = self.tree, self.memory
        tree.foreign = header is None
        if header is None:
            return
        tree.header, tree.git_branch, start = header, branch, len(tree)
        self.memory = Memory(
            start, header.session_id, first_ms=self.at, total=old.total, began=start, since=start
        )
        if old.thread == header.session_id:  # a revert
            self.memory.spent = old.spent
        else:
            tree.name = None  # of the session whose history this one continues
            self._borrowed()

    def _borrowed(self) -> None:
        tree = self.tree
        tree.copied, tree.tokens = len(tree), None
        if tree.header is not None and tree.header.subagent:
            tree.openings.clear()  # it is named by what it was asked itself

    def _in_directory(self, cwd: str) -> None:
        """Note a working directory; it counts where the header names none."""
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
                self.add(Kind.SYSTEM, own)
        elif kind.endswith("_call"):
            self._answered()
            memory.pending += kind not in _UNANSWERED
            if not memory.tasks and memory.said >= 0:
                self.ends_with(memory.said, Turn.OPEN)
            self.add(Kind.CALL, own)
        elif kind.endswith(("_output", "_result")):
            memory.pending = max(0, memory.pending - 1)
            late = memory.tasks and not memory.open  # then it opens no turn again
            came = _TOOL_FAILED if failed(item.get("output")) else Kind.TOOL
            self.add(Kind.CALL if late else came, own)
        elif kind == "agent_message":  # another agent's; its task is what was asked here
            task, name = human.task_in(human.texts_of(as_blocks(item.get("content"))))
            if (task or name) and self._asks() == _PROGRAM:
                self._asked(self.add(_PROGRAM, own), task or name)
            else:
                self.add(Kind.CUSTOM, own)
        elif kind == "reasoning" and item.get("summary"):
            self.add(Kind.OTHER, own)  # the thoughts that the model shows

    def _answer(self, item: Fields) -> None:
        memory = self.memory
        if as_dict(self.line.get("metadata")).get("compaction_output") is True:
            self.add(Kind.OTHER, item.get("id"))  # the summary, which the compaction repeats
            return
        events_tell = memory.tasks and memory.open
        ends = not events_tell and not memory.pending and item.get("phase") != "commentary"
        self._answered()
        memory.said = self.add(ANSWERS[Turn.ENDED if ends else Turn.OPEN], item.get("id"))
        memory.answer = likeness("".join(human.texts_of(as_blocks(item.get("content")))))
        if ends and not memory.tasks:
            memory.since, memory.told = memory.said + 1, False
        self.tree.activity_ms = max(self.tree.activity_ms, self.at)

    def _answered(self) -> None:
        """Count the item that the model answers, though no event of the turn confirmed it."""
        if self.memory.doubted is not None:
            (row, text), self.memory.doubted = self.memory.doubted, None
            self._asked(row, text)

    def _user_item(self, item: Fields) -> None:
        """Add a message in the user's role, unless its event was added."""
        memory, said = self.memory, human.said_in(as_blocks(item.get("content")))
        if not said.text or (said.notices and memory.first is not None):
            self.add(Kind.OTHER, item.get("id"))
            self._in_directory(said.cwd)
            memory.aborted |= said.aborted
            return
        like = likeness(said.text)
        if memory.event == like:
            memory.event = None
            return
        # After an interruption codex itself asks the first question again.
        again = memory.aborted and memory.first == like
        row = self.add(Kind.OTHER, item.get("id"))
        memory.asked, memory.aborted = (row, like), False
        if not (memory.events or again):
            self._asked(row, said.text)
        elif not (again or memory.told or human.is_tagged(said.text)):
            memory.doubted = (row, said.text)

    def _user_event(self, event: Fields, turn: str) -> None:
        """Add an event of what a human said, or let it confirm its item."""
        text, memory = human.said_by_event(event), self.memory
        if not text:
            return
        self.under_way(turn)
        memory.told, memory.doubted = True, None
        like = likeness(text)
        if not memory.events:
            self._doubt_items()
        if memory.asked is not None and memory.asked[1] == like:
            row, memory.asked = memory.asked[0], None
        else:
            memory.event = like
            row = self.add(Kind.OTHER, event.get("id"))
        self._asked(row, text)

    def _asks(self) -> int:
        header = self.tree.header
        return _PROGRAM if header is not None and header.subagent else PROMPT

    def _doubt_items(self) -> None:
        """Take back this turn's items: the file's first event confirms none of them."""
        tree, memory, asks = self.tree, self.memory, self._asks()
        memory.events = True
        for row in range(memory.since, len(tree)):
            if tree.codes[row] == asks:
                tree.codes[row] = Kind.OTHER
                tree.openings.pop(row, None)
        if asks not in tree.codes[memory.start : memory.since]:
            memory.first = None

    def _asked(self, row: int, text: str) -> None:
        tree, memory = self.tree, self.memory
        tree.codes[row] = self._asks()
        memory.pending, memory.said = 0, -1
        if memory.first is None:
            memory.first = likeness(text)
        tree.opened_by(row, lambda: safe_line(text))
        if not memory.turn and tree.marks:
            tree.marks[tree.ids[row]] = row  # what follows is of no turn, and not of the last one
        tree.activity_ms = max(tree.activity_ms, self.at)

    def _event(self, event: Fields) -> None:
        turn, kind = name_of(event.get("turn_id")), string(event.get("type"))
        if kind == "item_completed":  # in the newest dialect; most double a response item
            event = as_dict(event.get("item"))
            kind = string(event.get("type")).lower()
        match kind:
            case "user_message" | "usermessage":
                self._user_event(event, turn)
            case "exec_command_end" | "commandexecution" if shown(event):
                self.add(Kind.CALL, event.get("id"))
            case "filechange" | "patch_apply_end":
                if kind != "filechange" or changed(event) is not None:
                    self.add(Kind.CALL, event.get("id"))
            case "token_count":
                info = as_dict(event.get("info"))
                last = as_dict(info.get("last_token_usage"))
                self._context(last.get("total_tokens"), info.get("model_context_window"))
                if total := as_dict(info.get("total_token_usage")):
                    self.counted(total, last)
            case "task_started" | "turn_started":
                self.started(turn)
                self.add(Kind.SETTING)
                self._context(None, event.get("model_context_window"))
            case "task_complete" | "turn_complete":
                self.ended(turn, failed=event.get("error") is not None)
            case "turn_aborted":
                self.ended(turn, failed=True)
            case "error":  # it ends the work; the turn's own end may still come
                self.memory.failed = True
                self.say_end(Turn.FAILED)
            case "thread_rolled_back":
                self.roll_back(number(event.get("num_turns")))
            case "thread_name_updated":
                if string(event.get("thread_id")) in ("", self.memory.thread):
                    self.tree.name = safe_line(string(event.get("thread_name"))) or None

    def _context(self, used: Any, window: Any) -> None:
        """Note how full the model's context is, and how large, where numbers say it."""
        held, new, size = self.tree.context, number(used), number(window)
        if new or size:
            at = len(self.tree) - 1 if new else held.at
            self.tree.context = ContextUse(new or held.used, at, size or held.window)
