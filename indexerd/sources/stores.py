"""Where each agent keeps its sessions, and where their meta files go.

Every root is taken by its real path; a root may be missing now and appear later. A store pairs
a place of sessions, a directory of files or one database, with the meta directory that belongs
to it: pi's beside its sessions, the other agents' in our own data directory.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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
        """Whether a path lies here, by its words; one with `..` or `//` in it does not (X12)."""
        plain = path.rstrip("/") or "/"
        return within(path, self.sessions) and os.path.normpath(plain) == plain

    def takes(self, path: str) -> bool:
        """Whether a path can be a session's of this store."""
        if not self.holds(path):
            return False
        if self.kind is Kind.DATABASE:
            return path.rpartition("/")[0] == self.sessions
        return path.endswith(SUFFIXES if self.kind is Kind.FILES else ".json")

    @property
    def watched(self) -> tuple[str, ...]:
        """Directories to watch with all that is below them."""
        if self.kind is Kind.DATABASE:
            return ()
        return (self.sessions, *((f"{self.beside}/message",) if self.kind is Kind.TREE else ()))


def stores(settings: Settings, env: Mapping[str, str], home: Path) -> list[Store]:
    """Every store, from the settings or the agents' own rules."""
    place, agents = str(home), settings.agents
    data = str(places(env, home=home).data_dir)
    found = [
        *_pi(agents.pi, env, place),
        *_claude(_Chosen("claude", agents.claude, place, data), env),
        *_codex(_Chosen("codex", agents.codex, place, data), env),
        *_opencode(_Chosen("opencode", agents.opencode, place, data), env),
    ]
    return _distinct(found)


def watched(found: Iterable[Store]) -> tuple[list[str], list[str]]:
    """Directories to watch with all below them, and those whose own files matter."""
    stores = list(found)
    roots = [path for store in stores for path in (*store.watched, store.meta)]
    return roots, [store.beside for store in stores if store.beside]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What was set for an agent, and where we are."""

    agent: str
    section: Agent
    home: str
    data: str

    def roots(self, *default: str) -> list[str]:
        """The roots that were set, or else these, by their real paths."""
        given = self.section.roots or [one for one in default if one]
        return [os.path.realpath(_expand(one, self.home)) for one in given]

    def variables(self, name: str, value: str, *default: str) -> str:
        """The assignment that an agent needs to find what was set here, unless it would anyway."""
        usual = (os.path.realpath(_expand(one, self.home)) for one in default if one)
        if not self.section.roots or value in usual:
            return ""
        return f"{name}={shlex.quote(value)} "

    @property
    def meta(self) -> str:
        """Where the meta files go."""
        chosen = self.section.meta_dir
        return os.path.realpath(
            _expand(chosen, self.home) if chosen else f"{self.data}/sessions-meta/{self.agent}"
        )


def _pi(chosen: Agent, env: Mapping[str, str], home: str) -> Iterable[Store]:
    dirs = [_expand(root, home) for root in chosen.roots] or pi.agent_dirs(env, home)
    for root in dirs:
        real = os.path.realpath(root)
        meta = _expand(chosen.meta_dir, home) if chosen.meta_dir else f"{real}/sessions-meta"
        yield Store("pi", os.path.realpath(f"{real}/sessions"), os.path.realpath(meta))
    flat = env.get("PI_CODING_AGENT_SESSION_DIR", "")
    if flat and not chosen.roots:
        meta = _expand(chosen.meta_dir, home) if chosen.meta_dir else f"{dirs[0]}/sessions-meta"
        yield Store("pi", os.path.realpath(_expand(flat, home)), os.path.realpath(meta))


def _claude(chosen: _Chosen, env: Mapping[str, str]) -> Iterator[Store]:
    named = env.get("CLAUDE_CONFIG_DIR", "")
    config = _config_home(env, chosen.home)
    usual = [named] if named else ["~/.claude", f"{config}/claude"]
    for root in chosen.roots(*usual):
        needs = chosen.variables("CLAUDE_CONFIG_DIR", root, *usual)
        sessions = os.path.realpath(f"{root}/projects")
        yield Store(chosen.agent, sessions, chosen.meta, variables=needs)


def _codex(chosen: _Chosen, env: Mapping[str, str]) -> Iterator[Store]:
    usual = env.get("CODEX_HOME", "") or "~/.codex"
    for root in chosen.roots(usual):
        needs = chosen.variables("CODEX_HOME", root, usual)
        live, archive = (os.path.realpath(f"{root}/{one}") for one in ("sessions", _ARCHIVED))
        yield Store(chosen.agent, live, chosen.meta, beside=root, variables=needs)
        yield Store(chosen.agent, archive, chosen.meta, archive=True, beside=root, variables=needs)


_ARCHIVED = "archived_sessions"


def _opencode(chosen: _Chosen, env: Mapping[str, str]) -> Iterator[Store]:
    """Databases, and the older tree beside them; both may be there, and both are read."""
    base = env.get("XDG_DATA_HOME", "")
    data = f"{base if base.startswith('/') else chosen.home + '/.local/share'}/opencode"
    roots = chosen.roots(data)
    named = "" if chosen.section.roots else env.get("OPENCODE_DB", "")
    for root in roots:
        if os.path.isfile(root):  # noqa: PTH113 - paths here are text with surrogate escapes
            yield _database(chosen, root, data)
            continue
        if named and named != ":memory:":
            path = _expand(named, chosen.home)
            there = path if path.startswith("/") else f"{root}/{path}"
            yield _database(chosen, os.path.realpath(there), data)
        elif not named:
            yield from (_database(chosen, one, data) for one in _databases(root))
        storage = os.path.realpath(f"{root}/storage")
        session = f"{storage}/session"
        yield Store(chosen.agent, session, chosen.meta, kind=Kind.TREE, beside=storage)


def _database(chosen: _Chosen, path: str, usual: str) -> Store:
    beside = path.rpartition("/")[0]
    needs = chosen.variables("OPENCODE_DB", path, f"{usual}/opencode.db")
    return Store(
        chosen.agent, path, chosen.meta, kind=Kind.DATABASE, beside=beside, variables=needs
    )


def _databases(directory: str) -> list[str]:
    """The databases of a data directory; the one name that is usual where there is none yet."""
    try:
        names = sorted(
            name
            for name in os.listdir(directory)  # noqa: PTH208 - as above
            if name.startswith("opencode") and name.endswith(".db")
        )
    except OSError:
        names = []
    return [f"{directory}/{name}" for name in names[:DATABASE_FILES]] or [
        f"{directory}/opencode.db"
    ]


def _config_home(env: Mapping[str, str], home: str) -> str:
    named = env.get("XDG_CONFIG_HOME", "")
    return named if named.startswith("/") else f"{home}/.config"


def _expand(path: str, home: str) -> str:
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def _distinct(found: Iterable[Store]) -> list[Store]:
    """Drop a store that lies inside another, and repeats."""
    kept: list[Store] = []
    for store in sorted(found, key=lambda one: len(one.sessions)):
        if not any(other.holds(store.sessions) for other in kept):
            kept.append(store)
    return kept
