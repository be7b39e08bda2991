"""What a file says of itself: which session it is, where, since when, and whose.

Claude Code writes no header. One is made at the first line that proves a session, and mended
by later ones where that line lacked something.

Files are copied: `--fork-session`, `/branch`, a hand-off to the background and 1.0's `--resume`
write the whole history into a new file, with the ids and times of the old one. `born_ms` is
smaller for the origin than for the copy, as far as they can be told apart:

- lines without an id are not copied, so the time of one that stands before the history is the
  file's own (the queue's, with `-p`);
- a copied answer names its session in `requestSessionId` (2.1.330), any line that 1.0 copied in
  `sessionId`: a file is younger than all that it copied;
- a background session says so on every line, copied or not: it counts as just after its first.

Where none of these is there, both are as old as their first line.
"""

from __future__ import annotations

from dataclasses import replace

from indexerd.agents.claude.lines import Line
from indexerd.agents.claude.memory import Memory
from indexerd.events import Header
from indexerd.privacy.sanitize import scrub
from indexerd.sessions.state import SessionState

WORD_MAX = 64  # characters of a time that are kept
ID_MAX = 512
PATH_MAX = 8192

_VERSION = 1  # the lines name the program's version, not their format's
_CONVERSATION = frozenset({"user", "assistant"})
_TYPES = frozenset({"user", "assistant", "system", "attachment"})
_SUFFIX = ".jsonl"
_CHILDREN = "/subagents/"
_CHILD = "agent-"
_BACKGROUND = "bg"


def before(state: SessionState, memory: Memory, line: Line, at: int) -> None:
    """A line that is no entry, said at `at` ms: its time may be the file's own."""
    _begun(state, memory, line, at)
    if at and not line.uuid and state.header is None and not memory.own_ms:
        memory.own_ms = at


def known(state: SessionState, memory: Memory, line: Line, at: int) -> bool:
    """Whether the file is known for a session, at the latest by this line."""
    _begun(state, memory, line, at)
    if state.header is None:
        if not _proves(line):
            return False
        _begin(state, memory, line, at)
    elif line.cwd and not state.header.cwd:
        state.header = replace(state.header, cwd=scrub(line.cwd[:PATH_MAX]))
    _born(state, memory, line, at)
    return True


def child(state: SessionState, line: Line) -> None:
    """The file is a sub-agent's: its lines name the parent's session."""
    if state.header is not None:
        other = scrub(line.session_id[:ID_MAX])
        parent = other if other != state.header.session_id else None
        parent = state.header.parent_id or parent
        state.header = replace(state.header, subagent=True, parent_id=parent or None)


def came_from(state: SessionState, parent: str) -> None:
    """The session carries out a plan that was made in another one."""
    header = state.header
    if header is not None and parent and not header.parent_id and parent != header.session_id:
        state.header = replace(header, parent_id=parent)


def own(state: SessionState) -> None:
    """The file is no sub-agent's after all."""
    if state.header is not None:
        state.header = replace(state.header, subagent=False, parent_id=None)


def parent_of(file: str) -> str:
    """The session whose sub-agent a file is, as far as its path says; "" for others."""
    above, mark, _ = file.rpartition(_CHILDREN)
    return above.rpartition("/")[2] if mark else ""


def _begun(state: SessionState, memory: Memory, line: Line, at: int) -> None:
    if at and not memory.begun:
        memory.begun = scrub(line.timestamp[:WORD_MAX])
        if state.header is not None:
            state.header = replace(state.header, created_at=memory.begun)


def _proves(line: Line) -> bool:
    if line.type in _CONVERSATION and line.message is not None:
        return True
    return bool(line.uuid and line.session_id) and (line.type in _TYPES or bool(line.timestamp))


def _begin(state: SessionState, memory: Memory, line: Line, at: int) -> None:
    stem = _stem(state.file)
    parent = parent_of(state.file)
    memory.named_child = memory.child = bool(parent) or stem.startswith(_CHILD)
    state.header = Header(
        session_id=scrub((stem or line.session_id)[:ID_MAX]),
        cwd=scrub(line.cwd[:PATH_MAX]),
        created_at=memory.begun,
        version=_VERSION,
        parent_id=scrub(parent[:ID_MAX]) or None,
        subagent=memory.child,
    )
    if memory.child:
        child(state, line)
    state.born_ms = memory.own_ms or at + (line.session_kind == _BACKGROUND and at > 0)


def _born(state: SessionState, memory: Memory, line: Line, at: int) -> None:
    state.born_ms = state.born_ms or at
    if memory.child or not at:
        return
    if line.request_session_id and line.request_session_id != line.session_id:
        state.born_ms = max(state.born_ms, at)
    if line.session_id and line.session_id != _stem(state.file):
        memory.foreign_ms = max(memory.foreign_ms, at)
    elif memory.foreign_ms:
        state.born_ms = max(state.born_ms, memory.foreign_ms)
        memory.foreign_ms = 0


def _stem(file: str) -> str:
    return file.rpartition("/")[2].removesuffix(_SUFFIX)
