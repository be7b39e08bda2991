"""Scan: the lines that `sources` makes of an opencode session, keeping only where things are.

The first line says what the session is; each further one is a message, in brief form, in the
order in which they were said. The history is linear: each message stands below the one before.
A revert hides messages from one on (they stay until the next prompt): the leaf moves before it.
Nothing a line holds raises: one that is no JSON object is counted and passed over.
"""

from __future__ import annotations

import re
from hashlib import blake2b

import msgspec

from indexerd.agents.base import ANSWERS, PATH_MAX, PROMPT, PROMPTED, Tree
from indexerd.agents.json_lines import as_dict, parse_object, safe_line, scan_lines, string, time_ms
from indexerd.agents.opencode import human
from indexerd.agents.opencode.human import SUMMARY, Fields, Said
from indexerd.events import Header, Kind, Turn
from indexerd.times import iso_of_ms

_DEFAULT = re.compile(r"(?:New|Child) session - \d{4}-\d\d-\d\dT[\d:.]{5,20}Z(?: \(fork #\d+\))?")
_FORK = re.compile(r"(.+) \(fork #(\d{1,6})\)", re.DOTALL)
_ATTACHED = "[Attached "  # what a copy of a prompt has in the place of its pictures
_SETTLES = frozenset({Kind.ASSISTANT, Kind.COMPACTION, Kind.BASH})


class Memory(msgspec.Struct):
    """What must be known of earlier lines."""

    child: bool = False  # a sub-agent's session
    last: str | None = None  # id of the message before
    shell: str = ""  # id of the newest note that the user ran a command
    prompt: str = ""  # digest of the newest prompt
    overflow: bool = False  # the newest compaction was asked for because a prompt did not fit
    copy: bool = False  # the next message may be that prompt's copy
    answer: int = -1  # row of the newest answer since the newest prompt
    unsettled: int = -1  # row from which on texts may still change
    revert: str = ""  # id of the message from which on the history is hidden
    within: bool = False  # the revert begins inside that message, which stays
    hidden: bool = False  # that message was met
    leaf: str | None = None  # then: the newest message that is not hidden


def scan(tree: Tree, data: bytes, base: int) -> None:
    """Take in whole lines that stand at offset `base`."""
    held = tree.memory
    memory = tree.memory = held if isinstance(held, Memory) else Memory()
    for line, offset, text in scan_lines(tree, data, base, parse_object):
        if tree.header is None:
            _header(tree, memory, line)
        elif line.get("type") == "message":
            _message(tree, memory, line, offset, len(text))
        elif line.get("type") != "session":
            tree.seen += 1
    tree.unsettled = len(tree) - memory.unsettled if memory.unsettled >= 0 else 0


def _header(tree: Tree, memory: Memory, line: Fields) -> None:
    """The first line: what the session is, or this is none."""
    own, parent = string(line.get("id")), string(line.get("parentID"))
    if tree.foreign or line.get("type") != "session" or not own:
        tree.foreign = True
        return
    time, revert = as_dict(line.get("time")), as_dict(line.get("revert"))
    tree.born_ms = time_ms(time.get("created"))
    tree.archived = time_ms(time.get("archived")) > 0
    tree.header = Header(
        session_id=own[:PATH_MAX],
        cwd=string(line.get("directory"))[:PATH_MAX],
        created_at=iso_of_ms(tree.born_ms) if tree.born_ms else "",
        version=2 if line.get("schema") == 2 else 1,  # noqa: PLR2004 - the schema's number
        parent_id=(parent or string(line.get("forkID")))[:PATH_MAX] or None,
        subagent=bool(parent),
    )
    _title(tree, string(line.get("title"))[:PATH_MAX])
    memory.child = bool(parent)
    memory.revert = string(revert.get("messageID"))
    memory.within = bool(string(revert.get("partID")))


def _title(tree: Tree, title: str) -> None:
    """A session's name, unless it is the one that every session begins with.

    A fork's is that of the session it came from, with a number that is one more than there.
    """
    forked = _FORK.fullmatch(title)
    if forked:
        before = int(forked[2]) - 1
        tree.fork_of = safe_line(forked[1] + (f" (fork #{before})" if before > 0 else ""))
    if not _DEFAULT.fullmatch(title):
        tree.name = safe_line(title) or None


def _message(tree: Tree, memory: Memory, line: Fields, offset: int, length: int) -> None:
    entry_id = string(line.get("id"))
    shell = bool(memory.shell) and line.get("parentID") == memory.shell
    what = human.said(line, child=memory.child, shell=shell)
    if line.get("role") == "user":
        what = _copied(memory, line, what)
    else:
        memory.copy = what.code == SUMMARY and memory.overflow
    row = tree.add(entry_id, memory.last, what.code, offset, length)
    _noticed(tree, memory, line, what, row)
    if memory.revert and not memory.hidden and entry_id == memory.revert:
        memory.hidden = True
        memory.leaf = entry_id if memory.within else memory.last
    if memory.hidden:
        tree.move_leaf(memory.leaf)
    memory.last = entry_id


def _copied(memory: Memory, line: Fields, what: Said) -> Said:
    """A prompt that did not fit is stored once more after the compaction: it counts once."""
    parts = human.parts_of(line)
    if what.kind is Kind.CUSTOM and human.is_shell_note(parts):
        memory.shell = string(line.get("id"))
    if what.kind is Kind.OTHER:  # a compaction is asked for
        asked = (one for one in parts if one.get("type") == "compaction")
        memory.overflow = any(one.get("overflow") is True for one in asked)
    if what.code == PROMPT:
        same = [text for text in human.words(parts) if not text.startswith(_ATTACHED)]
        digest = _digest("\n".join(same))
        if memory.copy and digest == memory.prompt:
            what = Said(PROMPTED)
        memory.prompt = digest
    memory.copy = False
    return what


def _noticed(tree: Tree, memory: Memory, line: Fields, what: Said, row: int) -> None:
    """What else a message says."""
    kind, time = what.kind, as_dict(line.get("time"))
    at, created = time_ms(line.get("at")), time_ms(time.get("created"))
    if kind is Kind.USER or kind is Kind.ASSISTANT:
        tree.activity_ms = max(tree.activity_ms, at, created, time_ms(time.get("completed")))
        memory.answer = row if kind is Kind.ASSISTANT else -1
    if kind is Kind.USER:
        if not tree.first_user:
            tree.first_user = safe_line(what.text)
        # A fork copies its messages under new ids, but with their times.
        tree.first = tree.first or _digest(f"{created or at}\n{what.text}")
    if not what.settled:
        memory.unsettled = row if memory.unsettled < 0 else memory.unsettled
    elif kind in _SETTLES:
        memory.unsettled = -1
    if line.get("role") == "idle":
        # The agent says that it stopped: whatever its last answer looks like, it is the last.
        memory.unsettled = -1
        if memory.answer >= 0 and tree.codes[memory.answer] == ANSWERS[Turn.OPEN]:
            succeeded = line.get("outcome") == "succeeded"
            tree.recode(memory.answer, ANSWERS[Turn.ENDED if succeeded else Turn.FAILED])


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
