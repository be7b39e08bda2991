"""Scan: every line of a Claude Code session is read once, and only its place and kind are kept.

One file is one session, and its id is the file's name; the session id in the lines is that of
the session which wrote them first, or a sub-agent's parent's. Nothing a file holds raises: a
line that is no JSON object is counted and passed over. A file becomes a session at its first
line of a conversation; bookkeeping alone (titles, queue, snapshots) does not make one.

The lines of a sub-agent stand in a file of its own, or (until 2.0) among its parent's: there
they are rows, but never on the path, and no message of theirs counts.

**Whose file it is.** Claude Code writes no header. One is made at the first line that proves a
session, and mended by later ones where that line lacked something. Files are copied:
`--fork-session`, `/branch`, a hand-off to the background and 1.0's `--resume` write the whole
history into a new file, with the ids and times of the old one. `born_ms` is smaller for the origin
than for the copy, as far as they can be told apart:

- lines without an id are not copied, so the time of one that stands before the history is the
  file's own (the queue's, with `-p`);
- a copied answer names its session in `requestSessionId` (2.1.330), any line that 1.0 copied in
  `sessionId`: a file is younger than all that it copied;
- a background session says so on every line, copied or not: it counts as just after its first.

Where none of these is there, both are as old as their first line.

**Its name**. Newest of its kind, best kind first: the user's title, the model's,
the agent's name, an older version's summary, what `/rename` was told, the heading of the plan that
it carries out. Title lines are repeated over and over; a blank one clears its own kind alone. A
summary names the message that it was made at, and counts only where that message stands in this
file: most describe another session.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from indexerd.agents.base import NOWHERE, PATH_MAX, PROMPT, PROMPTED, WORD_MAX, Tree
from indexerd.agents.claude.human import OTHER, Said, plan_of, preview, said
from indexerd.agents.claude.lines import Line, blocks, decode
from indexerd.agents.claude.tree import TALK, Memory, end_turn, put, put_aside
from indexerd.agents.json_lines import parse_object, safe_line, scan_lines, string
from indexerd.events import Header, Kind
from indexerd.privacy.sanitize import replace_surrogates
from indexerd.times import iso_ms

_ID_MAX = 512
_BRANCH_MAX = 256  # characters of a branch's name
_SUMMARIES_KEPT = 200  # of messages that were not met yet
_TITLE_MAX = 1024  # characters of a title or a local command that are looked at
_TYPES = frozenset({"user", "assistant", "system", "attachment"})
_TITLES = ("custom", "ai", "agent", "summary", "rename", "plan")  # the best first
_TITLE_LINES = {
    "custom-title": ("custom", "customTitle"),
    "ai-title": ("ai", "aiTitle"),
    "agent-name": ("agent", "agentName"),
}
_RENAME = re.compile(r"<command-name>\s*/?rename\s*</command-name>")
_ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)


def scan(tree: Tree, data: bytes, base: int) -> None:
    """Take in whole lines that stand at file offset `base`."""
    scanner = _Scanner(tree)
    for line, offset, text in scan_lines(tree, data, base, decode):
        scanner.take(line, offset, len(text), text)


def parent_of(file: str) -> str:
    """The session whose sub-agent a file is, as far as its path says; "" for others."""
    above, mark, _ = file.rpartition("/subagents/")
    return above.rpartition("/")[2] if mark else ""


class _Scanner:
    """Takes lines into a tree, with the memory of those before."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        held = tree.memory
        self.memory = tree.memory = held if isinstance(held, Memory) else Memory()
        self._stem = replace_surrogates(tree.file.rpartition("/")[2].removesuffix(".jsonl"))
        tree.split_answers = True

    def take(self, line: Line, offset: int, length: int, text: bytes) -> None:
        """Take in one line."""
        tree, memory = self._tree, self.memory
        at = iso_ms(line.timestamp) if line.timestamp else 0
        if at and not memory.begun:
            memory.begun = line.timestamp[:WORD_MAX]
            if tree.header is not None:
                tree.header = replace(tree.header, created_at=memory.begun)
        talks = line.type in ("user", "assistant")
        said_here = talks and line.message is not None
        queued = line.attachment is not None and line.attachment.type == "queued_command"
        proves = line.uuid and line.session_id and (line.type in _TYPES or line.timestamp)
        # Old versions gave some entries no id.
        if not (line.uuid or said_here or queued) or not (tree.header or said_here or proves):
            if at and not line.uuid and tree.header is None and not memory.own_ms:
                memory.own_ms = at
            self._titled(line.type, text)
            tree.seen += 1
            return
        copied = line.request_session_id or memory.foreign_ms or line.session_id != self._stem
        if copied or tree.header is None or not (tree.header.cwd and tree.born_ms):
            self._identify(line, at)
        if talks and not (memory.main and tree.first):
            self._whose(line)
        if line.git_branch and line.git_branch != "HEAD":
            tree.git_branch = line.git_branch[:_BRANCH_MAX]
        if line.is_sidechain and not memory.child:
            put_aside(tree, line, (offset, length))
            return
        what = said(line, child=memory.child)
        row = put(tree, memory, line, what, (offset, length))
        self._noticed(line, what, row, at)

    def _noticed(self, line: Line, what: Said, row: int, at: int) -> None:
        """What else a line of the main conversation says."""
        tree, memory = self._tree, self.memory
        if memory.summaries and line.uuid in memory.summaries:
            self._entitle("summary", memory.summaries.pop(line.uuid))
        if what.kind in (Kind.USER, Kind.ASSISTANT):
            tree.activity_ms = max(tree.activity_ms, at)
        if what.code == PROMPT == tree.codes[row] and not tree.first_user:
            tree.first_user = preview(what.text)
        if what.code == PROMPTED and not memory.child and not tree.first_user:
            self._planned(line)
        if line.subtype == "turn_duration":
            end_turn(tree)
        elif what.kind in (Kind.CUSTOM, Kind.SYSTEM) and line.subtype in ("local_command", ""):
            content = line.message.content if line.message else line.content
            text = "\n".join(block.text for block in blocks(content))[:_TITLE_MAX]
            given = _ARGUMENTS.search(text) if _RENAME.search(text) else None
            if given and given[1].strip():
                self._entitle("rename", given[1])

    def _planned(self, line: Line) -> None:
        """What a plan says of the session that begins with it, before a human says anything."""
        plan, header = plan_of(line), self._tree.header
        if plan is None or header is None:
            return
        heading, parent = plan
        self._entitle("plan", heading)
        if parent and not header.parent_id and parent != header.session_id:
            self._tree.header = replace(header, parent_id=parent)

    # -- whose file it is --------------------------------------------------------------------

    def _identify(self, line: Line, at: int) -> None:
        """Make the header, or mend it; and say how old the file is."""
        tree, memory = self._tree, self.memory
        if tree.header is None:
            parent = parent_of(tree.file)
            memory.named_child = memory.child = bool(parent) or self._stem.startswith("agent-")
            tree.header = Header(
                session_id=(self._stem or line.session_id)[:_ID_MAX],
                cwd=line.cwd[:PATH_MAX],
                created_at=memory.begun,
                version=1,  # the lines name the program's version, not their format's
                parent_id=parent[:_ID_MAX] or None,
                subagent=memory.child,
            )
            if memory.child:
                self._is_child(line)
            tree.born_ms = memory.own_ms or at + (line.session_kind == "bg" and at > 0)
        elif line.cwd and not tree.header.cwd:
            tree.header = replace(tree.header, cwd=line.cwd[:PATH_MAX])
        tree.born_ms = tree.born_ms or at
        if memory.child or not at:
            return
        if line.request_session_id and line.request_session_id != line.session_id:
            tree.born_ms = max(tree.born_ms, at)
        if line.session_id and line.session_id != self._stem:
            memory.foreign_ms = max(memory.foreign_ms, at)
        elif memory.foreign_ms:
            tree.born_ms = max(tree.born_ms, memory.foreign_ms)
            memory.foreign_ms = 0

    def _whose(self, line: Line) -> None:
        """Whether the file is a sub-agent's, as far as its conversation tells."""
        tree, memory = self._tree, self.memory
        if not line.is_sidechain and not memory.main and not memory.named_child:
            memory.main = True
            if memory.child:  # it seemed to be one
                for row in range(len(tree)):
                    if tree.kind(row) in TALK:
                        tree.recode(row, OTHER)
                tree.leaf = memory.tail = memory.opener = NOWHERE
                memory.child = False
                if tree.header is not None:
                    tree.header = replace(tree.header, subagent=False, parent_id=None)
        elif line.is_sidechain and not memory.main and not memory.child:
            memory.child = True
            self._is_child(line)
        if line.uuid and not memory.child and not line.is_sidechain and not tree.first:
            tree.first = line.uuid[:_ID_MAX]

    def _is_child(self, line: Line) -> None:
        """The file is a sub-agent's: its lines name the parent's session."""
        header = self._tree.header
        if header is not None:
            named = line.session_id[:_ID_MAX]
            parent = header.parent_id or (named if named != header.session_id else None)
            self._tree.header = replace(header, subagent=True, parent_id=parent or None)

    # -- its name ----------------------------------------------------------------------------

    def _titled(self, kind: str, text: bytes) -> None:
        """Take in a bookkeeping line, if it is a title."""
        if kind not in _TITLE_LINES and kind != "summary":
            return
        held, summaries = parse_object(text), self.memory.summaries
        if kind != "summary":
            title, field = _TITLE_LINES[kind]
            self._entitle(title, held.get(field))
            return
        summary, leaf = string(held.get("summary")), string(held.get("leafUuid"))
        if summary and leaf in self._tree.index:
            self._entitle("summary", summary)
        elif summary and leaf:
            summaries[leaf] = summary[:_TITLE_MAX]
            while len(summaries) > _SUMMARIES_KEPT:
                del summaries[next(iter(summaries))]

    def _entitle(self, kind: str, text: Any) -> None:
        if not isinstance(text, str):
            return
        titles, title = self.memory.titles, safe_line(text[:_TITLE_MAX])
        titles[kind] = title
        if not title:
            del titles[kind]
        self._tree.name = next((titles[one] for one in _TITLES if one in titles), None)
