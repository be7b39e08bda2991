"""Finds all sessions, in files and databases, and the names that agents keep beside them."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable

from indexerd.errors import SessionUnreadableError
from indexerd.meta.reader import DIGEST_SUFFIX
from indexerd.sources import opencode_tree
from indexerd.sources.codex_names import INDEX, Names
from indexerd.sources.opencode_db import Database
from indexerd.sources.scan import ScanResult, scan
from indexerd.sources.stores import SUFFIXES, Kind, Store

PAUSE = 0.5  # seconds between two looks at a database, to which a turn writes many times a second


class SessionDiscovery:
    """The stores as of the last look. One thread uses this."""

    def __init__(self) -> None:
        self.troubles: dict[str, SessionUnreadableError] = {}  # by database that cannot be read
        self.again_at = math.inf  # when to call `hinted` without hints, by `monotonic`
        self._late: set[str] = set()  # databases that were hinted at within the last PAUSE
        self._databases: dict[str, Database] = {}
        self._names: dict[str, Names] = {}
        self._looked: dict[str, float] = {}

    def renew(self, stores: list[Store]) -> None:
        """Take the stores as they are now."""
        paths = [one.sessions for one in stores if one.kind is Kind.DATABASE]
        self._databases = {one: self._databases.get(one) or Database(one) for one in paths}
        self.troubles = {key: bad for key, bad in self.troubles.items() if key in self._databases}
        roots = {one.beside for one in stores if one.agent == "codex"}
        self._names = {root: self._names.get(root) or Names(root) for root in sorted(roots)}

    def title(self, agent: str, session_id: str) -> str | None:
        """The name that an agent keeps beside a session; empty where it was cleared."""
        if agent != "codex":
            return None
        found = [names.name(session_id) for names in self._names.values()]
        return max((name for name in found if name is not None), key=bool, default=None)

    def retitled(self) -> set[str]:
        """The sessions whose name beside them changed since the last call."""
        return set().union(*(names.refresh() for names in self._names.values()))

    def scan(
        self, stores: list[Store], enter: Callable[[str], object] = lambda _path: None
    ) -> ScanResult:
        """Find every session; call `enter(path)` before a directory is listed."""
        result = scan([one.sessions for one in stores if one.kind is Kind.FILES], SUFFIXES, enter)
        for path in [one for one in result.files if one.endswith(DIGEST_SUFFIX)]:
            del result.files[path]  # meta directories may be among sessions
        tree = scan([one.sessions for one in stores if one.kind is Kind.TREE], (".json",), enter)
        looks = ((path, opencode_tree.look(path)) for path in tree.files)
        result.files |= {path: look for path, look in looks if look}
        result.missing += tree.missing
        result.unreadable += tree.unreadable
        for path, database in self._databases.items():
            self.troubles.pop(path, None)
            try:
                result.files |= database.sessions()
            except FileNotFoundError:
                place = path.rpartition("/")[0]
                if not os.path.isdir(place):  # noqa: PTH112 - paths here are text
                    result.missing.append(place)
            except SessionUnreadableError as bad:
                self.troubles[path] = bad.with_traceback(None)
                result.unreadable.append(path)
        return result

    def hinted(self, paths: Iterable[str]) -> tuple[list[str], set[str]]:
        """Turn a watcher's hints into paths of sessions, and ids of sessions with a new name."""
        found, databases, titled = list[str](), self._late.copy(), set[str]()
        for path in paths:
            where, _, name = path.rpartition("/")
            base = path.removesuffix("-wal")
            if where in self._names and (name == INDEX or not path.endswith(SUFFIXES)):
                titled |= self._names[where].refresh()
            elif base in self._databases:
                databases.add(base)
            elif not path.endswith(DIGEST_SUFFIX):
                found.append(path)
        now = time.monotonic()
        self._late = {one for one in databases if now - self._looked.get(one, -PAUSE) < PAUSE}
        self.again_at = now + PAUSE if self._late else math.inf
        for path in databases - self._late:
            self._looked[path] = now
            try:
                found += self._databases[path].touched()
            except (SessionUnreadableError, FileNotFoundError, KeyError):
                continue  # the next scan says what is wrong
        return found, titled
