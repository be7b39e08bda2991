"""One package per agent: a line of its session files becomes entries of a tree. Pure."""

from __future__ import annotations

from indexerd.agents import claude, codex, opencode, pi
from indexerd.agents.base import Adapter

ADAPTERS: dict[str, Adapter] = {
    "pi": pi.ADAPTER,
    "claude": claude.ADAPTER,
    "codex": codex.ADAPTER,
    "opencode": opencode.ADAPTER,
}
