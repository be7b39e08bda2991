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
from indexerd.settings import Settings

SUFFIXES = (".jsonl", ".jsonl.zst")


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
        if not self.holds(path):
            return False
        if self.kind is Kind.DATABASE:
            return path.rpartition("/")[0] == self.sessions
        return path.endswith(SUFFIXES if self.kind is Kind.FILES else ".json")


def stores(settings: Settings, env: Mapping[str, str], home: Path) -> list[Store]:
    """Every store, from the settings or the agents' own rules.

    One that lies inside another is dropped, and so are repeats.
    """
    kept: list[Store] = []
    user = _User(settings, env, home)
    found = [*_pi(user), *_claude(user), *_codex(user), *_opencode(user)]
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
class _User:
    """What was set, and where we are."""

    settings: Settings
    env: Mapping[str, str]
    home: Path

    def real(self, path: str) -> str:
        """A path without links; a tilde is home."""
        tilde = path == "~" or path.startswith("~/")
        return os.path.realpath(f"{self.home}{path[1:]}" if tilde else path)

    def roots(self, agent: str, usual: Iterable[str]) -> list[str]:
        """The roots that were set for an agent, or else these."""
        return [self.real(one) for one in getattr(self.settings.agents, agent).roots or usual]

    def variables(self, agent: str, name: str, value: str, usual: Iterable[str]) -> str:
        """The assignment that an agent needs to find what was set here, unless it would anyway."""
        if not getattr(self.settings.agents, agent).roots or value in map(self.real, usual):
            return ""
        return f"{name}={shlex.quote(value)} "

    def meta(self, agent: str, usual: str = "") -> str:
        own = f"{places(self.env, home=self.home).data_dir}/sessions-meta/{agent}"
        return self.real(getattr(self.settings.agents, agent).meta_dir or usual or own)

    def xdg(self, name: str, usual: str) -> str:
        """A directory of the user's; one that is not absolute does not count."""
        named = self.env.get(name, "")
        return named if named.startswith("/") else f"{self.home}/{usual}"


def _pi(user: _User) -> Iterator[Store]:
    roots = user.roots("pi", pi.agent_dirs(user.env, str(user.home)))
    places = [(f"{root}/sessions", root) for root in roots]
    flat = user.env.get("PI_CODING_AGENT_SESSION_DIR", "")
    if flat and not user.settings.agents.pi.roots:
        places.append((flat, roots[0]))
    for place, root in places:
        yield Store("pi", user.real(place), user.meta("pi", f"{root}/sessions-meta"))


def _claude(user: _User) -> Iterator[Store]:
    named = user.env.get("CLAUDE_CONFIG_DIR", "")
    config = user.xdg("XDG_CONFIG_HOME", ".config")
    usual = [named] if named else ["~/.claude", f"{config}/claude"]
    for root in user.roots("claude", usual):
        needs = user.variables("claude", "CLAUDE_CONFIG_DIR", root, usual)
        yield Store("claude", user.real(f"{root}/projects"), user.meta("claude"), variables=needs)


def _codex(user: _User) -> Iterator[Store]:
    usual = [user.env.get("CODEX_HOME", "") or "~/.codex"]
    for root in user.roots("codex", usual):
        needs = user.variables("codex", "CODEX_HOME", root, usual)
        for name, archive in (("sessions", False), ("archived_sessions", True)):
            place, meta = user.real(f"{root}/{name}"), user.meta("codex")
            yield Store("codex", place, meta, Kind.FILES, archive, root, needs)


def _opencode(user: _User) -> Iterator[Store]:
    """Databases, and the older tree beside them; both may be there, and both are read."""
    data = f"{user.xdg('XDG_DATA_HOME', '.local/share')}/opencode"
    meta, set_ = user.meta("opencode"), user.settings.agents.opencode.roots
    named = "" if set_ else user.env.get("OPENCODE_DB", "")
    for root in user.roots("opencode", [data]):
        databases = [user.real(named if named.startswith(("/", "~/")) else f"{root}/{named}")]
        if os.path.isfile(root):  # noqa: PTH113 - paths here are text with surrogate escapes
            databases = [root]
        elif not named:
            databases = _databases(root)
        for path in databases if named != ":memory:" else ():
            needs = user.variables("opencode", "OPENCODE_DB", path, [f"{data}/opencode.db"])
            place = path.rpartition("/")[0]
            yield Store("opencode", path, meta, Kind.DATABASE, beside=place, variables=needs)
        if databases != [root]:
            storage = user.real(f"{root}/storage")
            yield Store("opencode", f"{storage}/session", meta, Kind.TREE, beside=storage)


def _databases(directory: str) -> list[str]:
    """The databases of a data directory; the one name that is usual where there is none yet."""
    try:
        names = sorted(os.listdir(directory))  # noqa: PTH208 - as above
    except OSError:
        names = []
    found = [one for one in names if one.startswith("opencode") and one.endswith(".db")]
    return [f"{directory}/{one}" for one in found or ["opencode.db"]]
