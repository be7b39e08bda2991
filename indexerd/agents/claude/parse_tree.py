"""Turn the lines of a Claude Code session into a tree; `tree.py` finds each line's place in it.

One file is one session, and its id is the file's name: lines name the session that wrote them
first, or a sub-agent's parent. The file becomes a session at its first line of a conversation.
Until 2.0 a sub-agent's lines stood among its parent's: there they are rows, but never on the path.

What surprised us: `--fork-session`, `/branch`, a hand-off to the background and 1.0's `--resume`
copy the whole history into a new file, with its ids and times. `born_ms` is larger for the copy:
lines without an id have the file's own time; lines that name another session, in
`requestSessionId` or `sessionId`, were copied; a background session is as old as its first line.
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
_TITLE_MAX = 1024  # characters of a title that are looked at
_SUMMARIES_KEPT = 200  # of messages that have not come yet
_TITLE_LINES = {"custom-title": "customTitle", "ai-title": "aiTitle", "agent-name": "agentName"}
# The best first; the newest of its kind counts, and a blank one clears its kind alone.
_TITLES = (*_TITLE_LINES, "summary", "rename", "plan")
_RENAME = re.compile(r"<command-name>\s*/?rename\s*</command-name>")
_ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)


def scan(tree: Tree, data: bytes, base: int) -> None:
    memory = tree.memory if isinstance(tree.memory, Memory) else Memory()
    tree.memory, tree.split_answers = memory, True
    stem = replace_surrogates(tree.file.rpartition("/")[2].removesuffix(".jsonl"))
    for line, offset, length in scan_lines(tree, data, base):
        _take(tree, memory, stem, line, (offset, length))


def parent_of(file: str) -> str:
    """Return the session that a sub-agent's path names; "" for any other path."""
    above, mark, _ = file.rpartition("/subagents/")
    return above.rpartition("/")[2] if mark else ""


def _take(tree: Tree, memory: Memory, stem: str, line: Fields, place: tuple[int, int]) -> None:
    kind, own, stamp = line.get("type"), string(line.get("uuid")), string(line.get("timestamp"))
    at = iso_ms(stamp) if stamp else 0
    if at and not memory.begun:
        memory.begun = stamp[:WORD_MAX]
    talks = kind in ("user", "assistant")
    said_here = talks and isinstance(line.get("message"), dict)
    # Old versions gave some entries no id.
    entry = own or said_here or as_dict(line.get("attachment")).get("type") == "queued_command"
    if not entry or not (tree.header or said_here or (own and string(line.get("sessionId")))):
        if not own and tree.header is None:
            memory.own_ms = memory.own_ms or at
        _titled(tree, memory, line)
        tree.seen += 1
        return
    if tree.header is None:
        own_id = (stem or string(line.get("sessionId")))[:_ID_MAX]
        # The lines name the program's version, not their format's.
        tree.header = Header(own_id, cwd="", created_at=memory.begun, version=1)
        tree.born_ms = memory.own_ms or at + (line.get("sessionKind") == "bg" and at > 0)
    if not tree.header.cwd:
        tree.header = replace(tree.header, cwd=string(line.get("cwd"))[:PATH_MAX])
    if not memory.settled:
        _whose(tree, memory, stem, line, talks=talks)
    child, aside = tree.header.subagent, line.get("isSidechain") is True
    if at and not child:
        _copied(tree, memory, stem, line, at)
    if not (tree.first or child or aside) and talks:
        tree.first = own[:_ID_MAX]
    branch = string(line.get("gitBranch"))[:PATH_MAX]
    tree.git_branch = branch if branch not in ("", "HEAD") else tree.git_branch
    if aside and not child:
        put_aside(tree, line, place)
        return
    what = said(line, child=child)
    row = put(tree, memory, line, what, place)
    if what.kind in (Kind.USER, Kind.ASSISTANT):
        tree.activity_ms = max(tree.activity_ms, at)
    if what.code == PROMPT == tree.codes[row]:
        tree.opened_by(row, lambda: preview(what.text))
    if own in memory.summaries:
        _entitle(tree, memory, "summary", memory.summaries.pop(own))
    if what.code == PROMPTED and not child and not tree.first_user:
        _planned(tree, memory, line)
    if line.get("subtype") == "turn_duration":
        end_turn(tree)
    _renamed(tree, memory, line, what)


def _whose(tree: Tree, memory: Memory, stem: str, line: Fields, *, talks: bool) -> None:
    """Decide whether a file is a sub-agent's: by its name, else by its first conversation lines."""
    parent, header = parent_of(tree.file), tree.header
    named, aside = bool(parent) or stem.startswith("agent-"), line.get("isSidechain") is True
    if header is None or not (named or talks):
        return
    memory.settled = named or not aside
    if not memory.settled or named:
        above = (parent or string(line.get("sessionId")))[:_ID_MAX]
        above_id = above if above != header.session_id else ""
        tree.header = replace(header, subagent=True, parent_id=header.parent_id or above_id or None)
    elif header.subagent:  # it seemed to be one
        for row in range(len(tree)):
            if tree.kind(row) in TALK:
                tree.codes[row] = Kind.OTHER
        tree.leaf = memory.tail = memory.opener = NOWHERE
        tree.header = replace(header, subagent=False, parent_id=None)


def _copied(tree: Tree, memory: Memory, stem: str, line: Fields, at: int) -> None:
    """Make a file younger than the lines that were copied into it and name their session."""
    asked, writer = string(line.get("requestSessionId")), string(line.get("sessionId"))
    if asked and asked != writer:
        tree.born_ms = max(tree.born_ms, at)
    if writer and writer != stem:
        memory.foreign_ms = max(memory.foreign_ms, at)
    elif memory.foreign_ms:
        tree.born_ms = max(tree.born_ms, memory.foreign_ms)
        memory.foreign_ms = 0


def _titled(tree: Tree, memory: Memory, line: Fields) -> None:
    """Read a title line; a summary is a title if the message that it names is in this file."""
    kind = string(line.get("type"))
    if kind in _TITLE_LINES:
        text = line.get(_TITLE_LINES[kind])
        if isinstance(text, str):
            _entitle(tree, memory, kind, text)
    elif kind == "summary":
        summary, leaf = string(line.get("summary")), string(line.get("leafUuid"))
        if summary and leaf in tree.index:
            _entitle(tree, memory, kind, summary)
        elif summary and leaf and len(memory.summaries) < _SUMMARIES_KEPT:
            memory.summaries[leaf] = summary[:_TITLE_MAX]


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
