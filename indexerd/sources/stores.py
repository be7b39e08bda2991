"""Where each agent keeps its sessions, and where their meta files go.

Every root is taken by its real path; a root may be missing now and appear later. A store pairs
a place of sessions, a directory of files or one database, with the meta directory that belongs
to it: pi's beside its sessions, the other agents' in our own data directory.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from indexerd.agents import pi
from indexerd.paths import places, within
from indexerd.settings import Agent, Settings

SUFFIXES = (".jsonl", ".jsonl.zst")
DATABASE_FILES = 50  # of one directory; there is one, or one a release channel


class Kind(Enum):
    """What the sessions of a store are kept in."""

    FILES = "files"  # one file a session, or more
    DATABASE = "database"
    TREE = "tree"  # many small files a session


@dataclass(frozen=True, slots=True)
class Store:
    """One place of sessions of one agent."""

    agent: str
    sessions: str  # a directory, or a database's file
    meta: str
    kind: Kind = Kind.FILES
    archive: bool = False  # the agent moves here what its user archived
    beside: str = ""  # a directory whose own files say more of these sessions
    variables: str = ""  # a shell's assignments that have the agent look here, if it would not

    def holds(self, path: str) -> bool:
        """Whether a path lies here, by its words; one with `..` or `//` in it does not."""
        plain = path.rstrip("/") or "/"
        return within(path, self.sessions) and os.path.normpath(plain) == plain

    def takes(self, path: str) -> bool:
        """Whether a path can be a session's of this store."""
        if not self.holds(path):
            return False
        if self.kind is Kind.DATABASE:
            return path.rpartition("/")[0] == self.sessions
        return path.endswith(SUFFIXES if self.kind is Kind.FILES else ".json")


def stores(settings: Settings, env: Mapping[str, str], home: Path) -> list[Store]:
    """Every store, from the settings or the agents' own rules.

    One that lies inside another is dropped, and so are repeats.
    """
    agents = settings.agents
    data = str(places(env, home=home).data_dir)
    found = [
        *_pi(_Chosen("pi", agents.pi, env, str(home), data)),
        *_claude(_Chosen("claude", agents.claude, env, str(home), data)),
        *_codex(_Chosen("codex", agents.codex, env, str(home), data)),
        *_opencode(_Chosen("opencode", agents.opencode, env, str(home), data)),
    ]
    kept: list[Store] = []
    for store in sorted(found, key=lambda one: len(one.sessions)):
        if not any(other.holds(store.sessions) for other in kept):
            kept.append(store)
    return kept


def watched(found: Iterable[Store]) -> tuple[list[str], list[str]]:
    """Directories to watch with all below them, and those whose own files matter."""
    stores = list(found)
    trees = [one.sessions for one in stores if one.kind is not Kind.DATABASE]
    return trees, [path for one in stores for path in (one.meta, one.beside) if path]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What was set for an agent, and where we are."""

    agent: str
    section: Agent
    env: Mapping[str, str]
    home: str
    data: str

    def real(self, path: str) -> str:
        """A path without links; a tilde is home."""
        tilde = path == "~" or path.startswith("~/")
        return os.path.realpath(self.home + path[1:] if tilde else path)

    def roots(self, *usual: str) -> list[str]:
        """The roots that were set, or else these."""
        return [self.real(one) for one in self.section.roots or usual]

    def variables(self, name: str, value: str, *usual: str) -> str:
        """The assignment that an agent needs to find what was set here, unless it would anyway."""
        if not self.section.roots or value in map(self.real, usual):
            return ""
        return f"{name}={shlex.quote(value)} "

    def meta(self, usual: str = "") -> str:
        """Where the meta files go."""
        usual = usual or f"{self.data}/sessions-meta/{self.agent}"
        return self.real(self.section.meta_dir or usual)

    def xdg(self, name: str, usual: str) -> str:
        """A directory of the user's; one that is not absolute does not count."""
        named = self.env.get(name, "")
        return named if named.startswith("/") else f"{self.home}/{usual}"


def _pi(chosen: _Chosen) -> Iterator[Store]:
    dirs = [
        chosen.real(one) for one in chosen.section.roots or pi.agent_dirs(chosen.env, chosen.home)
    ]
    for root in dirs:
        yield Store("pi", chosen.real(f"{root}/sessions"), chosen.meta(f"{root}/sessions-meta"))
    flat = chosen.env.get("PI_CODING_AGENT_SESSION_DIR", "")
    if flat and not chosen.section.roots:
        yield Store("pi", chosen.real(flat), chosen.meta(f"{dirs[0]}/sessions-meta"))


def _claude(chosen: _Chosen) -> Iterator[Store]:
    named = chosen.env.get("CLAUDE_CONFIG_DIR", "")
    config = chosen.xdg("XDG_CONFIG_HOME", ".config")
    usual = [named] if named else ["~/.claude", f"{config}/claude"]
    for root in chosen.roots(*usual):
        needs = chosen.variables("CLAUDE_CONFIG_DIR", root, *usual)
        yield Store("claude", chosen.real(f"{root}/projects"), chosen.meta(), variables=needs)


def _codex(chosen: _Chosen) -> Iterator[Store]:
    usual = chosen.env.get("CODEX_HOME", "") or "~/.codex"
    for root in chosen.roots(usual):
        needs = chosen.variables("CODEX_HOME", root, usual)
        for name, archive in (("sessions", False), ("archived_sessions", True)):
            place = chosen.real(f"{root}/{name}")
            yield Store("codex", place, chosen.meta(), Kind.FILES, archive, root, needs)


def _opencode(chosen: _Chosen) -> Iterator[Store]:
    """Databases, and the older tree beside them; both may be there, and both are read."""
    data = f"{chosen.xdg('XDG_DATA_HOME', '.local/share')}/opencode"
    named = "" if chosen.section.roots else chosen.env.get("OPENCODE_DB", "")
    for root in chosen.roots(data):
        databases: list[str] = []
        if os.path.isfile(root):  # noqa: PTH113 - paths here are text with surrogate escapes
            databases = [root]
        elif not named:
            databases = _databases(root)
        elif named != ":memory:":
            whole = named.startswith(("/", "~/"))
            databases = [chosen.real(named if whole else f"{root}/{named}")]
        for path in databases:
            needs = chosen.variables("OPENCODE_DB", path, f"{data}/opencode.db")
            store = Store("opencode", path, chosen.meta(), Kind.DATABASE, variables=needs)
            yield replace(store, beside=path.rpartition("/")[0])
        if databases != [root]:
            storage = chosen.real(f"{root}/storage")
            yield Store("opencode", f"{storage}/session", chosen.meta(), Kind.TREE, beside=storage)


def _databases(directory: str) -> list[str]:
    """The databases of a data directory; the one name that is usual where there is none yet."""
    try:
        names = sorted(os.listdir(directory))  # noqa: PTH208 - as above
    except OSError:
        names = []
    found = [one for one in names if one.startswith("opencode") and one.endswith(".db")]
    return [f"{directory}/{one}" for one in found[:DATABASE_FILES] or ["opencode.db"]]
