"""Where each agent keeps its sessions, and where their meta files go.

Every root is taken by its real path; a root may be missing now and appear later. A store pairs
a directory of session files with the meta directory that belongs to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from indexerd.agents import pi
from indexerd.paths import within
from indexerd.settings import Settings


@dataclass(frozen=True, slots=True)
class Store:
    """One directory tree of session files of one agent."""

    agent: str
    sessions: str
    meta: str

    def holds(self, path: str) -> bool:
        """Whether a file belongs here."""
        return within(path, self.sessions)


def stores(settings: Settings, env: Mapping[str, str], home: Path) -> list[Store]:
    """Every store, from the settings or the agents' own rules."""
    return _distinct(_pi(settings, env, str(home)))


def _pi(settings: Settings, env: Mapping[str, str], home: str) -> Iterable[Store]:
    chosen = settings.agents.pi
    dirs = [_expand(root, home) for root in chosen.roots] or pi.agent_dirs(env, home)
    for root in dirs:
        real = os.path.realpath(root)
        meta = _expand(chosen.meta_dir, home) if chosen.meta_dir else f"{real}/sessions-meta"
        yield Store(pi.NAME, os.path.realpath(f"{real}/sessions"), os.path.realpath(meta))
    flat = env.get("PI_CODING_AGENT_SESSION_DIR", "")
    if flat and not chosen.roots:
        meta = _expand(chosen.meta_dir, home) if chosen.meta_dir else f"{dirs[0]}/sessions-meta"
        yield Store(pi.NAME, os.path.realpath(_expand(flat, home)), os.path.realpath(meta))


def _expand(path: str, home: str) -> str:
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def _distinct(found: Iterable[Store]) -> list[Store]:
    """Drop a store that lies inside another, and repeats."""
    kept: list[Store] = []
    for store in sorted(found, key=lambda one: len(one.sessions)):
        if not any(other.holds(store.sessions) for other in kept):
            kept.append(store)
    return kept
