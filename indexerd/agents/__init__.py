"""One package per agent: a line of its session files becomes entries of a tree. Pure."""

from __future__ import annotations

import shlex

from indexerd.agents.base import Adapter
from indexerd.agents.claude import parse_entry as claude_entry
from indexerd.agents.claude import parse_tree as claude_tree
from indexerd.agents.codex import parse_entry as codex_entry
from indexerd.agents.codex import parse_tree as codex_tree
from indexerd.agents.codex import session_meta
from indexerd.agents.opencode import parse_entry as opencode_entry
from indexerd.agents.opencode import parse_tree as opencode_tree
from indexerd.agents.pi import parse_entry as pi_entry
from indexerd.agents.pi import parse_tree as pi_tree


def _resume_pi(_session_id: str, cwd: str, session_file: str, _variables: str = "") -> str:
    return _in_directory(cwd, "pi --session", session_file)


def _resume_claude(session_id: str, cwd: str, session_file: str, variables: str = "") -> str:
    wanted = claude_tree.parent_of(session_file) or session_id
    return _in_directory(cwd, f"{variables}claude --resume", wanted)


def _resume_codex(session_id: str, cwd: str, session_file: str, variables: str = "") -> str:
    back = f"{variables}codex unarchive {shlex.quote(session_id)} && "  # none is resumed from there
    archived = "/archived_sessions/" in session_file
    command = f"{back if archived else ''}{variables}codex resume"
    return _in_directory(cwd, command, session_id)


def _resume_opencode(session_id: str, cwd: str, _session_file: str, variables: str = "") -> str:
    return _in_directory(cwd, f"{variables}opencode --session", session_id)


def _in_directory(cwd: str, command: str, argument: str) -> str:
    there = f"cd {shlex.quote(cwd)} && " if cwd else ""
    return f"{there}{command} {shlex.quote(argument)}"


ADAPTERS: dict[str, Adapter] = {
    "pi": Adapter(pi_tree.scan, pi_entry.read, _resume_pi),
    "claude": Adapter(claude_tree.scan, claude_entry.read, _resume_claude),
    "codex": Adapter(codex_tree.scan, codex_entry.read, _resume_codex, session_meta.base),
    "opencode": Adapter(opencode_tree.scan, opencode_entry.read, _resume_opencode),
}
