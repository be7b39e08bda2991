"""Find where each agent keeps its sessions, and where their meta files go.

Every root is resolved to its real path; it may be missing now and appear later. pi's meta files are
next to its sessions, the other agents' in our own data directory.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from glob import escape, glob
from pathlib import Path
from urllib.parse import quote

from indexerd.paths import Places, within
from indexerd.settings import Settings
from indexerd.sources.history import NAME as HISTORY

SUFFIXES = (".jsonl", ".jsonl.zst")


class Layout(Enum):
    """How a root keeps its sessions."""

    FILES = "files"  # one file per session, or more
    DATABASE = "database"
    TREE = "tree"  # many small files per session
    HISTORY = "history"  # one file with the prompts of all sessions
    COPIES = "copies"  # of a database's sessions, one file each: our archive's


SUFFIXES_OF = {Layout.FILES: SUFFIXES, Layout.TREE: (".json",), Layout.COPIES: (".zst",)}


@dataclass(frozen=True, slots=True)
class SessionRoot:
    """A directory or database with sessions of one agent."""

    agent: str
    sessions: str  # path of the directory or database
    meta: str
    layout: Layout = Layout.FILES
    archive: bool = False  # the agent moves archived sessions here
    data_dir: str = ""  # a directory with other files of the agent about these sessions
    variables: str = ""  # shell assignments with which the agent finds this root
    kept: str = ""  # another root; here are our archive's copies of its sessions that are gone

    def contains(self, path: str) -> bool:
        """Return whether a path is below this root; a path with `..` or `//` is not."""
        plain = path.rstrip("/") or "/"
        return within(path, self.sessions) and os.path.normpath(plain) == plain

    def accepts(self, path: str) -> bool:
        """Return whether a session of this root may have this path."""
        if not self.contains(path):
            return False
        if self.layout in (Layout.DATABASE, Layout.HISTORY):
            return path.rpartition("/")[0] == self.sessions
        return path.endswith(SUFFIXES_OF[self.layout])

    def original(self, path: str) -> str:
        """Return where a file was; of other roots than our archive's, the path itself."""
        below = path.removeprefix(self.sessions).removesuffix(".zst")
        return self.kept + below if self.kept else path


def session_roots(settings: Settings, env: Mapping[str, str], home: Path) -> list[SessionRoot]:
    """List every root, by the settings or the agents' own rules; none is inside another."""
    kept: list[SessionRoot] = []
    user = _User(settings, env, home)
    every = [*_pi(user), *_claude(user), *_codex(user), *_opencode(user)]
    every += [*_kept(user, every)]
    for root in sorted(every, key=lambda root: len(root.sessions)):
        if not any(other.contains(root.sessions) for other in kept):
            kept.append(root)
    return kept


def _kept(user: _User, roots: Iterable[SessionRoot]) -> Iterator[SessionRoot]:
    """Yield the archive's directories; it has one for each root."""
    archive = Places(user.env, home=user.home).archive
    for root in roots:
        name = quote(root.sessions, safe="", errors="surrogateescape")
        place = user.real(str(archive / "gone" / name))
        layout = {Layout.FILES: Layout.FILES, Layout.DATABASE: Layout.COPIES}.get(root.layout)
        if layout and os.path.isdir(place):  # noqa: PTH112 - never raises
            yield SessionRoot(root.agent, place, root.meta, layout, kept=root.sessions)


def watched(roots: list[SessionRoot]) -> tuple[list[str], list[str]]:
    """List directories to watch recursively, and directories to watch without subdirectories."""
    trees = [root.sessions for root in roots if root.layout in SUFFIXES_OF]
    return trees, [path for root in roots for path in (root.meta, root.data_dir) if path]


@dataclass(frozen=True, slots=True)
class _User:
    """The settings and the environment that determine roots."""

    settings: Settings
    env: Mapping[str, str]
    home: Path

    def real(self, path: str) -> str:
        """Resolve links and a leading tilde."""
        tilde = path == "~" or path.startswith("~/")
        return os.path.realpath(f"{self.home}{path[1:]}" if tilde else path)

    def roots(self, agent: str, usual: Iterable[str]) -> list[str]:
        """Return the agent's roots from the settings, or else the usual ones."""
        return [self.real(path) for path in getattr(self.settings.agents, agent).roots or usual]

    def variables(self, agent: str, name: str, root: str, usual: Iterable[str]) -> str:
        """Return the shell assignment with which an agent finds a root that the settings name."""
        if not getattr(self.settings.agents, agent).roots or root in map(self.real, usual):
            return ""
        return f"{name}={shlex.quote(root)} "

    def meta(self, agent: str, usual: str = "") -> str:
        own = f"{Places(self.env, home=self.home).data_dir}/sessions-meta/{agent}"
        return self.real(getattr(self.settings.agents, agent).meta_dir or usual or own)

    def xdg(self, name: str, usual: str) -> str:
        """Return an XDG directory; a relative path in the environment does not count."""
        named = self.env.get(name, "")
        return named if named.startswith("/") else f"{self.home}/{usual}"


def pi_dir(env: Mapping[str, str], home: str) -> str:
    """Find the directory of pi's settings and sessions by pi's own rule."""
    named = env.get("PI_CODING_AGENT_DIR", "") or f"{home}/.pi/agent"
    return home + named[1:] if named == "~" or named.startswith("~/") else named


def pi_folder(cwd: str) -> str:
    """Return the name that pi gives the folder of a directory's sessions."""
    return f"--{cwd.strip('/').replace('/', '-')}--"


def _pi(user: _User) -> Iterator[SessionRoot]:
    roots = user.roots("pi", [pi_dir(user.env, str(user.home))])
    places = [(f"{root}/sessions", root) for root in roots]
    flat = user.env.get("PI_CODING_AGENT_SESSION_DIR", "")
    if flat and not user.settings.agents.pi.roots:
        places.append((flat, roots[0]))
    for place, root in places:
        yield SessionRoot("pi", user.real(place), user.meta("pi", f"{root}/sessions-meta"))


def _claude(user: _User) -> Iterator[SessionRoot]:
    named = user.env.get("CLAUDE_CONFIG_DIR", "")
    config = user.xdg("XDG_CONFIG_HOME", ".config")
    usual = [named] if named else ["~/.claude", f"{config}/claude"]
    for root in user.roots("claude", usual):
        needs = user.variables("claude", "CLAUDE_CONFIG_DIR", root, usual)
        projects, meta = user.real(f"{root}/projects"), user.meta("claude")
        yield SessionRoot("claude", projects, meta, variables=needs)
        yield SessionRoot("claude", user.real(f"{root}/{HISTORY}"), meta, Layout.HISTORY)


def _codex(user: _User) -> Iterator[SessionRoot]:
    usual = [user.env.get("CODEX_HOME", "") or "~/.codex"]
    for root in user.roots("codex", usual):
        needs = user.variables("codex", "CODEX_HOME", root, usual)
        for name, archive in (("sessions", False), ("archived_sessions", True)):
            place, meta = user.real(f"{root}/{name}"), user.meta("codex")
            yield SessionRoot("codex", place, meta, Layout.FILES, archive, root, needs)


def _opencode(user: _User) -> Iterator[SessionRoot]:
    """Yield databases, and the older tree next to them; if both exist, both are read."""
    data = f"{user.xdg('XDG_DATA_HOME', '.local/share')}/opencode"
    meta, set_ = user.meta("opencode"), user.settings.agents.opencode.roots
    named = "" if set_ else user.env.get("OPENCODE_DB", "")
    for root in user.roots("opencode", [data]):
        databases = [user.real(named if named.startswith(("/", "~/")) else f"{root}/{named}")]
        if os.path.isfile(root):  # noqa: PTH113 - never raises
            databases = [root]
        elif not named:
            files = sorted(glob(f"{escape(root)}/opencode*.db"))  # noqa: PTH207 - never raises
            databases = files or [f"{root}/opencode.db"]
        for path in databases if named != ":memory:" else ():
            needs = user.variables("opencode", "OPENCODE_DB", path, [f"{data}/opencode.db"])
            place, layout = path.rpartition("/")[0], Layout.DATABASE
            yield SessionRoot("opencode", path, meta, layout, data_dir=place, variables=needs)
        if databases != [root]:
            storage = user.real(f"{root}/storage")
            yield SessionRoot("opencode", f"{storage}/session", meta, Layout.TREE, data_dir=storage)
