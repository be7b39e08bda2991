"""All sessions there are, in files and in databases, and what agents keep beside them.

It remembers, for each database, how far it looked. What cannot be read is named, and hides
nothing of what can.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from indexerd.errors import SessionUnreadableError
from indexerd.meta.reader import DIGEST_SUFFIX
from indexerd.sources.codex_names import Names
from indexerd.sources.opencode_db import Database
from indexerd.sources.opencode_tree import Tree
from indexerd.sources.scan import Found, ScanResult, scan
from indexerd.sources.stores import SUFFIXES, Kind, Store

# Seconds between two looks at a database: a turn writes to it many times a second, and each time
# the sessions it touched are read anew.
PAUSE = 0.5
_INDEX = "session_index.jsonl"  # Codex's names, which stand among no sessions


@dataclass(slots=True)
class Hinted:
    """What hints come to: files to look at, sessions to compare, sessions with another name."""

    paths: list[str] = field(default_factory=list)
    sessions: list[Found] = field(default_factory=list)
    titled: set[str] = field(default_factory=set)


class SessionDiscovery:
    """Looks where sessions are. One thread uses this."""

    def __init__(self) -> None:
        self.troubles: dict[str, SessionUnreadableError] = {}  # by database: why it is not read
        self.late: set[str] = set()  # databases that were hinted at within the last PAUSE
        self._metas: frozenset[str] = frozenset()
        self._databases: dict[str, Database | Tree] = {}
        self._names: dict[str, Names] = {}
        self._looked: dict[str, float] = {}
        self._others: set[str] = set()  # databases that came beside those we look into

    def renew(self, stores: list[Store]) -> None:
        """The stores are these now."""
        self._metas = frozenset(one.meta for one in stores)
        held = self._databases
        self._databases = {
            one.sessions: held.get(one.sessions) or _database(one)
            for one in stores
            if one.kind is not Kind.FILES
        }
        self._others -= self._databases.keys()
        self.troubles = {key: bad for key, bad in self.troubles.items() if key in self._databases}
        roots = {one.beside for one in stores if one.agent == "codex"}
        self._names = {root: self._names.get(root) or Names(root) for root in sorted(roots)}

    def title(self, agent: str, session_id: str) -> str | None:
        """The name that an agent keeps beside a session; empty where it took one back."""
        if agent != "codex":
            return None
        found = [names.name(session_id) for names in self._names.values()]
        return max((name for name in found if name is not None), key=bool, default=None)

    def named(self, titles: Iterable[tuple[str, str, str | None]]) -> None:
        """What (agent, session) was called when we last ran: a name may be gone since."""
        known = {one: title for agent, one, title in titles if agent == "codex" and title}
        for names in self._names.values():
            names.remember(known)

    def retitled(self) -> set[str]:
        """The sessions whose name beside them is another than at the last call."""
        return set().union(*(names.refresh() for names in self._names.values()))

    def scan(self, stores: list[Store]) -> ScanResult:
        """Every session of every store."""
        result = scan([one.sessions for one in stores if one.kind is Kind.FILES], SUFFIXES)
        result.files = [one for one in result.files if not self._is_ours(one.path)]
        for path, held in self._databases.items():
            place = path.rpartition("/")[0] if isinstance(held, Database) else path
            sessions = self._sessions(path)
            if not sessions and not os.path.isdir(place):  # noqa: PTH112 - paths here are text
                result.missing.append(place)  # moved, or not mounted: that tells nothing
            elif sessions is None:
                result.unreadable.append(path)
            else:
                result.files += sessions
        return result

    def arrived(self, paths: Iterable[str]) -> bool:
        """Whether a database came that a look at the stores may find; said once of each."""
        databases = [key for key, held in self._databases.items() if isinstance(held, Database)]
        places = {one.rpartition("/")[0] for one in databases}
        came = {one for one in paths if one.endswith(".db") and one.rpartition("/")[0] in places}
        came -= self._others | self._databases.keys()
        self._others |= came
        return bool(came)

    def hinted(self, paths: Iterable[str]) -> Hinted:
        """Make something of a watcher's hints."""
        made = Hinted()
        databases, roots = dict.fromkeys(self.late), dict[str, None]()
        for path in paths:
            where, _, name = path.rpartition("/")
            if self._is_ours(path):
                continue
            if path.endswith(SUFFIXES) and name != _INDEX:
                made.paths.append(path)
            elif where in self._names:
                roots[where] = None
            else:
                databases |= dict.fromkeys(one for one in self._databases if _about(path, one))
        for root in roots:
            made.titled |= self._names[root].refresh()
        now = time.monotonic()
        self.late = {one for one in databases if now - self._looked.get(one, -PAUSE) < PAUSE}
        for path in databases.keys() - self.late:
            self._looked[path] = now
            made.sessions += self._touched(path)
        return made

    def _is_ours(self, path: str) -> bool:
        """Whether a file among sessions is one of our digests: meta files may lie there, too."""
        return path.endswith(DIGEST_SUFFIX) and path.rpartition("/")[0] in self._metas

    def _sessions(self, path: str) -> list[Found] | None:
        """All sessions of a database; None where it cannot be read."""
        try:
            found = self._databases[path].sessions()
        except FileNotFoundError:
            found = []
        except SessionUnreadableError as bad:
            self.troubles[path] = bad.with_traceback(None)
            return None
        self.troubles.pop(path, None)
        return found

    def _touched(self, path: str) -> list[Found]:
        held = self._databases.get(path)
        try:
            return held.touched() if held else []
        except (SessionUnreadableError, FileNotFoundError):
            return []  # the next scan says what is wrong


def _database(store: Store) -> Database | Tree:
    return Database(store.sessions) if store.kind is Kind.DATABASE else Tree(store.beside)


def _about(path: str, held: str) -> bool:
    """Whether a changed file says something of a database, or of a tree's sessions."""
    if path.startswith((held + "-", held + "/")) or path == held:
        return True
    return held.endswith("/session") and path.startswith(held.removesuffix("session"))
