"""Adapters, one module or package per agent: they turn session file lines into tree entries."""

from __future__ import annotations

import shlex

from indexerd.agents import opencode
from indexerd.agents.base import Adapter
from indexerd.agents.claude import parse_entry as claude_entry
from indexerd.agents.claude import parse_tree as claude_tree
from indexerd.agents.codex import parse_entry as codex_entry
from indexerd.agents.codex import parse_tree as codex_tree
from indexerd.agents.pi import parse as pi_parse
from indexerd.paths import is_session_id

ADAPTERS: dict[str, Adapter] = {
    "pi": Adapter(pi_parse.scan, pi_parse.read, "pi --session"),
    "claude": Adapter(claude_tree.scan, claude_entry.read, "claude --resume"),
    "codex": Adapter(codex_tree.scan, codex_entry.read, "codex resume", codex_tree.base),
    "opencode": Adapter(
        opencode.scan, opencode.read, "opencode --session", delete="opencode session delete"
    ),
}


def resume_command(agent: str, session_id: str, cwd: str, file: str, variables: str = "") -> str:
    """Make the shell command that reopens a session.

    `variables` tell the agent where its sessions are; pi is given the file itself.
    """
    target, before = session_id, f"cd {shlex.quote(cwd)} && " if cwd else ""
    if agent == "pi":
        target, variables = file, ""
    elif agent == "claude":
        above = claude_tree.parent_of(file) or ""
        target = above if is_session_id(above) else session_id
    elif agent == "codex" and "/archived_sessions/" in file:  # codex resumes none there
        before += f"{variables}codex unarchive {shlex.quote(session_id)} && "
    return f"{before}{variables}{ADAPTERS[agent].reopen} {shlex.quote(target)}"
