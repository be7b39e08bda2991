"""The name that Claude Code itself keeps for a session (formats.md 2.6).

Newest of its kind, best kind first: the user's title, the model's, the agent's name, an older
version's summary, what `/rename` was told, the heading of the plan that it carries out. Title
lines are repeated over and over; a blank one clears its own kind alone. A summary names the
message that it was made at, and counts only where that message stands in this file: most describe
another session.
"""

from __future__ import annotations

import re

from indexerd.agents.claude.lines import Line, blocks
from indexerd.agents.claude.memory import Memory
from indexerd.agents.lines import safe_line
from indexerd.sessions.state import SessionState

SUMMARIES_KEPT = 200  # of messages that were not met yet
LOOKED_AT = 1024  # characters of a title or a local command

_KINDS = ("custom", "ai", "agent", "summary", "rename", "plan")
_RENAME = re.compile(r"<command-name>\s*/?rename\s*</command-name>")
_ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)


def note(state: SessionState, memory: Memory, line: Line) -> None:
    """Take in a bookkeeping line, if it is a title."""
    if line.type == "custom-title":
        _set(state, memory, "custom", line.custom_title)
    elif line.type == "ai-title":
        _set(state, memory, "ai", line.ai_title)
    elif line.type == "agent-name":
        _set(state, memory, "agent", line.agent_name)
    elif line.type == "summary" and line.summary and line.leaf_uuid:
        if line.leaf_uuid.encode("utf-8", "replace") in state.index:
            _set(state, memory, "summary", line.summary)
        else:
            memory.summaries[line.leaf_uuid] = line.summary[:LOOKED_AT]
            while len(memory.summaries) > SUMMARIES_KEPT:
                del memory.summaries[next(iter(memory.summaries))]


def met(state: SessionState, memory: Memory, uuid: str) -> None:
    """A message stands in this file: a summary made at it is the session's."""
    if memory.summaries and uuid in memory.summaries:
        _set(state, memory, "summary", memory.summaries.pop(uuid))


def commanded(state: SessionState, memory: Memory, line: Line) -> None:
    """Take in a local command, if it gives the session a name."""
    content = line.message.content if line.message else line.content
    text = "\n".join(block.text for block in blocks(content))[:LOOKED_AT]
    told = _ARGUMENTS.search(text) if _RENAME.search(text) else None
    if told and told[1].strip():
        _set(state, memory, "rename", told[1])


def planned(state: SessionState, memory: Memory, heading: str) -> None:
    """Take in the heading of the plan with which the session begins."""
    _set(state, memory, "plan", heading)


def _set(state: SessionState, memory: Memory, kind: str, text: str | None) -> None:
    if text is None:
        return
    title = safe_line(text[:LOOKED_AT])
    if title:
        memory.titles[kind] = title
    else:
        memory.titles.pop(kind, None)
    state.name = next((memory.titles[one] for one in _KINDS if one in memory.titles), None)
