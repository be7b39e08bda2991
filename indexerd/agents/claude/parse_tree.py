"""The lines of a Claude Code session as a tree; `tree.py` says where each belongs.

One file is one session, and its id is the file's name: the session id in the lines is that of the
session which wrote them first, or a sub-agent's parent's. The file becomes a session at its first
line of a conversation. A sub-agent's lines stand in a file of its own, or (until 2.0) among its
parent's: there they are rows, but never on the path.

What surprised us: `--fork-session`, `/branch`, a hand-off to the background and 1.0's `--resume`
write the whole history into a new file, with the ids and times of the old one. To tell the copy
from its origin, `born_ms` is larger for the copy: the time of a line without an id is the file's
own; what names another session, in `requestSessionId` or `sessionId`, was copied; a background
session counts as just after its first line.
"""

from __future__ import annotations

import re
from dataclasses import replace

from indexerd.agents.base import NOWHERE, PATH_MAX, PROMPT, PROMPTED, WORD_MAX, Said, Tree
from indexerd.agents.claude.human import content_of, plan_of, preview, said, words
from indexerd.agents.claude.tree import TALK, Memory, end_turn, put, put_aside
from indexerd.agents.json_lines import Fields, as_blocks, as_dict, safe_line, scan_lines, string
from indexerd.events import Header, Kind
from indexerd.privacy.sanitize import replace_surrogates
from indexerd.times import iso_ms

_ID_MAX = 512
_BRANCH_MAX = 256  # characters of a branch's name
_TITLE_MAX = 1024  # characters of a title that are looked at
_TYPES = ("user", "assistant", "system", "attachment")
_SUMMARIES_KEPT = 200  # of messages that were not met yet
_TITLE_LINES = {"custom-title": "customTitle", "ai-title": "aiTitle", "agent-name": "agentName"}
# The best first; the newest of its kind counts, and a blank one clears its kind alone.
_TITLES = (*_TITLE_LINES, "summary", "rename", "plan")
_RENAME = re.compile(r"<command-name>\s*/?rename\s*</command-name>")
_ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)


def scan(tree: Tree, data: bytes, base: int) -> None:
    """Take in whole lines that stand at file offset `base`."""
    memory = tree.memory if isinstance(tree.memory, Memory) else Memory()
    tree.memory, tree.split_answers = memory, True
    stem = replace_surrogates(tree.file.rpartition("/")[2].removesuffix(".jsonl"))
    for line, offset, length in scan_lines(tree, data, base):
        _take(tree, memory, stem, line, (offset, length))


def parent_of(file: str) -> str:
    """The session whose sub-agent a file is, as far as its path says; "" for others."""
    above, mark, _ = file.rpartition("/subagents/")
    return above.rpartition("/")[2] if mark else ""


def _take(tree: Tree, memory: Memory, stem: str, line: Fields, place: tuple[int, int]) -> None:
    kind, own, stamp = line.get("type"), string(line.get("uuid")), string(line.get("timestamp"))
    at = iso_ms(stamp) if stamp else 0
    if at and not memory.begun:
        memory.begun = stamp[:WORD_MAX]
    said_here = kind in ("user", "assistant") and isinstance(line.get("message"), dict)
    queued = as_dict(line.get("attachment")).get("type") == "queued_command"
    proves = own and string(line.get("sessionId")) and (kind in _TYPES or stamp)
    # Old versions gave some entries no id.
    if not (own or said_here or queued) or not (tree.header or said_here or proves):
        if at and not own and tree.header is None and not memory.own_ms:
            memory.own_ms = at
        _titled(tree, memory, line)
        tree.seen += 1
        return
    if tree.header is None:
        tree.header = _header(tree, memory, stem, line)
        tree.born_ms = memory.own_ms or at + (line.get("sessionKind") == "bg" and at > 0)
    if not tree.header.cwd:
        tree.header = replace(tree.header, cwd=string(line.get("cwd"))[:PATH_MAX])
    aside = line.get("isSidechain") is True
    if kind in ("user", "assistant") and not memory.main:
        _whose(tree, memory, stem, line, aside=aside)
    child = tree.header.subagent
    if at and not child:
        _copied(tree, memory, stem, line, at)
    if not (tree.first or child or aside) and kind in ("user", "assistant"):
        tree.first = own[:_ID_MAX]
    branch = string(line.get("gitBranch"))[:_BRANCH_MAX]
    tree.git_branch = branch if branch not in ("", "HEAD") else tree.git_branch
    if aside and not child:
        put_aside(tree, line, place)
        return
    what = said(line, child=child)
    row = put(tree, memory, line, what, place)
    if what.kind in (Kind.USER, Kind.ASSISTANT):
        tree.activity_ms = max(tree.activity_ms, at)
    if what.code == PROMPT == tree.codes[row] and not tree.first_user:
        tree.first_user = preview(what.text)
    if own in memory.summaries:
        _entitle(tree, memory, "summary", memory.summaries.pop(own))
    if what.code == PROMPTED and not child and not tree.first_user:
        _planned(tree, memory, line)
    if line.get("subtype") == "turn_duration":
        end_turn(tree)
    _renamed(tree, memory, line, what)


def _header(tree: Tree, memory: Memory, stem: str, line: Fields) -> Header:
    """The header: Claude Code writes none, so the first line that proves a session makes it."""
    header = Header(
        session_id=(stem or string(line.get("sessionId")))[:_ID_MAX],
        cwd="",
        created_at=memory.begun,
        version=1,  # the lines name the program's version, not their format's
    )
    named = bool(parent_of(tree.file)) or stem.startswith("agent-")
    return _subagents(header, tree.file, line) if named else header


def _subagents(header: Header, file: str, line: Fields) -> Header:
    """The header of a sub-agent's file: its path or its lines name the parent's session."""
    parent = (parent_of(file) or string(line.get("sessionId")))[:_ID_MAX]
    parent_id = parent if parent and parent != header.session_id else None
    return replace(header, subagent=True, parent_id=parent_id)


def _whose(tree: Tree, memory: Memory, stem: str, line: Fields, *, aside: bool) -> None:
    """Whether the file is a sub-agent's, as far as its conversation tells, if not its name."""
    header = tree.header
    if header is None or parent_of(tree.file) or stem.startswith("agent-"):
        return
    memory.main = not aside
    if aside and not header.subagent:
        tree.header = _subagents(header, tree.file, line)
    elif memory.main and header.subagent:  # it seemed to be one
        for row in range(len(tree)):
            if tree.kind(row) in TALK:
                tree.recode(row, Kind.OTHER)
        tree.leaf = memory.tail = memory.opener = NOWHERE
        tree.header = replace(header, subagent=False, parent_id=None)


def _copied(tree: Tree, memory: Memory, stem: str, line: Fields, at: int) -> None:
    """A file is younger than all that was copied into it, as far as lines name their session."""
    asked, writer = string(line.get("requestSessionId")), string(line.get("sessionId"))
    if asked and asked != writer:
        tree.born_ms = max(tree.born_ms, at)
    if writer and writer != stem:
        memory.foreign_ms = max(memory.foreign_ms, at)
    elif memory.foreign_ms:
        tree.born_ms = max(tree.born_ms, memory.foreign_ms)
        memory.foreign_ms = 0


def _titled(tree: Tree, memory: Memory, line: Fields) -> None:
    """Take in a bookkeeping line, if it is a title; a summary is one where its message is here."""
    kind = string(line.get("type"))
    if kind in _TITLE_LINES:
        text = line.get(_TITLE_LINES[kind])
        if isinstance(text, str):
            _entitle(tree, memory, kind, text)
    elif kind == "summary":
        summary, leaf = string(line.get("summary")), string(line.get("leafUuid"))
        if summary and leaf in tree.index:
            _entitle(tree, memory, kind, summary)
        elif summary and leaf:
            memory.summaries[leaf] = summary[:_TITLE_MAX]
            while len(memory.summaries) > _SUMMARIES_KEPT:
                del memory.summaries[next(iter(memory.summaries))]


def _renamed(tree: Tree, memory: Memory, line: Fields, what: Said) -> None:
    """Take in what was typed after /rename, which old versions store nowhere else."""
    if what.kind in (Kind.CUSTOM, Kind.SYSTEM) and line.get("subtype") in (None, "local_command"):
        found = content_of(line) or as_blocks(line.get("content"))
        text = "\n".join(words(found))[:_TITLE_MAX]
        given = _ARGUMENTS.search(text) if _RENAME.search(text) else None
        if given and given[1].strip():
            _entitle(tree, memory, "rename", given[1])


def _planned(tree: Tree, memory: Memory, line: Fields) -> None:
    """Take in what a plan says of the session that begins with it, before a human says anything."""
    (heading, parent), header = plan_of(line), tree.header
    if heading:
        _entitle(tree, memory, "plan", heading)
    if parent and header is not None and not header.parent_id and parent != header.session_id:
        tree.header = replace(header, parent_id=parent)


def _entitle(tree: Tree, memory: Memory, kind: str, text: str) -> None:
    memory.titles[kind] = safe_line(text[:_TITLE_MAX])
    tree.name = next(filter(None, map(memory.titles.get, _TITLES)), None)
