"""Turn the lines that `sources` makes of an opencode session into a tree.

The first line describes the session; each further one is a message in brief form, below the one
before. A revert hides messages from one on until the next prompt deletes them: the leaf moves
before it.
"""

from __future__ import annotations

import re
from hashlib import blake2b

import msgspec

from indexerd.agents.base import ANSWERS, PATH_MAX, PROMPT, PROMPTED, Said, Tree
from indexerd.agents.json_lines import Fields, as_dict, safe_line, scan_lines, string, time_ms
from indexerd.agents.opencode.parse_entry import SUMMARY, parts_of, said, words
from indexerd.events import Header, Kind, Turn
from indexerd.times import iso_of_ms

_DEFAULT = re.compile(r"(?:New|Child) session - \d{4}-\d\d-\d\dT[\d:.]{5,20}Z(?: \(fork #\d+\))?")
_FORK = re.compile(r"(.+) \(fork #(\d{1,6})\)", re.DOTALL)
_ATTACHED = "[Attached "  # what a copy of a prompt has in the place of its pictures
_SETTLES = frozenset({Kind.ASSISTANT, Kind.COMPACTION, Kind.BASH})


class Memory(msgspec.Struct):
    """Facts of earlier lines that later ones depend on."""

    shell: str = ""  # id of the newest note that the user ran a command
    prompt: str = ""  # digest of the newest prompt
    overflow: bool = False  # the newest compaction was asked for because a prompt did not fit
    copy: bool = False  # the next message may be that prompt's copy
    answer: int = -1  # row of the newest answer since the newest prompt
    unsettled: int = -1  # row from which on texts may still change
    revert: str = ""  # id of the message from which on the history is hidden
    within: bool = False  # the revert begins inside that message, which stays


def scan(tree: Tree, data: bytes, base: int) -> None:
    memory = tree.memory if isinstance(tree.memory, Memory) else Memory()
    tree.memory = memory
    for line, offset, length in scan_lines(tree, data, base):
        if tree.header is None:
            _header(tree, memory, line)
        elif line.get("type") == "message":
            _message(tree, memory, line, (offset, length), child=tree.header.subagent)
    reverted = tree.index.get(memory.revert, len(tree))
    tree.leaf = min(reverted - (not memory.within), len(tree) - 1)
    tree.unsettled = len(tree) - memory.unsettled if memory.unsettled >= 0 else 0


def _header(tree: Tree, memory: Memory, line: Fields) -> None:
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
    title = string(line.get("title"))[:PATH_MAX]
    if forked := _FORK.fullmatch(title):  # the title of its origin, with a number one higher
        before = int(forked[2]) - 1
        tree.fork_of = safe_line(forked[1] + (f" (fork #{before})" if before > 0 else ""))
    if not _DEFAULT.fullmatch(title):
        tree.name = safe_line(title) or None
    memory.revert = string(revert.get("messageID"))
    memory.within = bool(string(revert.get("partID")))


def _message(
    tree: Tree, memory: Memory, line: Fields, place: tuple[int, int], *, child: bool
) -> None:
    own, role = string(line.get("id")), line.get("role")
    shell = bool(memory.shell) and line.get("parentID") == memory.shell
    what = said(line, child=child, shell=shell)
    if role == "user":
        memory.shell = own if what.kind is Kind.CUSTOM else memory.shell
        what = _copied(memory, parts_of(line), what)
    else:
        memory.copy = what.code == SUMMARY and memory.overflow
    row = tree.leaf = tree.add_below(len(tree) - 1, own, what.code, *place)
    time, at = as_dict(line.get("time")), time_ms(line.get("at"))
    created = time_ms(time.get("created"))
    if what.kind in (Kind.USER, Kind.ASSISTANT):
        tree.activity_ms = max(tree.activity_ms, at, created, time_ms(time.get("completed")))
        memory.answer = row if what.kind is Kind.ASSISTANT else -1
    if what.kind is Kind.USER:
        tree.opened_by(row, lambda: safe_line(what.text))
        # A fork copies its messages under new ids, but with their times.
        tree.first = tree.first or _digest(f"{created or at}\n{what.text}")
    if not what.settled:
        memory.unsettled = row if memory.unsettled < 0 else memory.unsettled
    elif what.kind in _SETTLES or role == "idle":
        memory.unsettled = -1
    opened = memory.answer >= 0 and tree.codes[memory.answer] == ANSWERS[Turn.OPEN]
    if role == "idle" and opened:
        # The agent says that it stopped: whatever its last answer looks like, it is the last.
        ended = line.get("outcome") == "succeeded"
        tree.codes[memory.answer] = ANSWERS[Turn.ENDED if ended else Turn.FAILED]


def _copied(memory: Memory, parts: list[Fields], what: Said) -> Said:
    """Count a prompt that did not fit once: it is stored again after the compaction."""
    if what.kind is Kind.OTHER:  # a compaction is asked for
        memory.overflow = any(one.get("overflow") is True for one in parts)
    if what.code == PROMPT:
        texts = [text for text in words(parts) if not text.startswith(_ATTACHED)]
        digest = _digest("\n".join(texts))
        if memory.copy and digest == memory.prompt:
            what = Said(PROMPTED)
        memory.prompt = digest
    memory.copy = False
    return what


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
