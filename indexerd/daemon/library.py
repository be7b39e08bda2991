"""All that is known of sessions, kept up to date with their files. Only the reader thread uses it.

    scan, hinted -> files.queue -> step: read, store (cursor, row: one transaction) -> Update

The event loop gets each `Update` once the store shows it. While our own disk is full or locked
(StateError) the changes stay here, and the next step tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

import msgspec

from indexerd.daemon.files import Files
from indexerd.errors import NotFoundError, StateError
from indexerd.meta.cache import TOPIC, MetaCache, MetaStat
from indexerd.meta.session_row import Rows
from indexerd.privacy.redact import OwnSecrets
from indexerd.search.index import TextIndex
from indexerd.search.session_texts import Texts
from indexerd.sessions.facts import Facts
from indexerd.sessions.info import SessionInfo
from indexerd.sources.scan import ScanResult, SessionDiscovery
from indexerd.sources.session_file import Change
from indexerd.sources.stores import SUFFIXES, Store
from indexerd.store.store import StateStore

STEP_BYTES = 4 << 20  # that one step reads before others get their turn
FILE_BYTES = 64 * 1024  # that opening a file counts for
CHANGES_MAX = 16  # sessions of one step: what is hinted meanwhile waits for it
ROWS_MAX = 200  # of one transaction
SETTLE_SECONDS = 0.02  # between the two looks after which a missing file counts as gone


class Update(msgspec.Struct, frozen=True):
    """What changed of one session."""

    session_id: str
    info: SessionInfo | None
    meta: MetaStat | None
    change: Change | None = None
    row: dict[str, Any] | None = None


class Library:
    """Session files, meta files, store and text index, and how changes go from one to the next."""

    def __init__(
        self,
        store: StateStore,
        index: TextIndex,
        *,
        stores: Callable[[], list[Store]],
        exclude: Callable[[], list[str]],
        report: Callable[[str, str], None],
        defect: Callable[[str, Exception], None],
        patterns: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """`patterns()` gives those of the user's own secrets."""
        self.store = store
        self.index = index
        self._find_stores = stores
        self.metas = MetaCache(store, report)
        self.discovery = SessionDiscovery()
        files = self.files = Files(
            since=self.metas.since, title=self.discovery.title, exclude=exclude, defect=defect
        )
        self._rows = Rows(files.info, files.hides, self.metas, store, self.stores)
        self._secrets = OwnSecrets(patterns)
        publish = self._publish_facts
        self.texts = Texts(files, index, publish, self.reread, secrets=self._secrets)
        self.last_scan: ScanResult | None = None
        self.changed = 0  # grows whenever `files.problems()` may have changed
        self._changed: dict[str, Change | None] = {}  # sessions whose row is out of date
        self._first_scan = True
        self._missing: set[str] = set()  # files that were gone when looked at once

    def load(self) -> list[Update]:
        """Load what the store knows; no session file is opened."""
        self.find_stores()
        self.files.load(self.store.files())
        self.metas.load()
        infos = list(self.files.owners.infos())
        for info in infos:
            self._rows.parents.put(info.session_id, info)
        self._mark([*self.files.hidden, *self._excluded()])
        self._open_index()
        if not self.store.ids():
            self._mark([*(info.session_id for info in infos), *self.metas.ids()])
        with suppress(StateError):  # the first step tries again
            self.flush()
        self.changed += 1
        return [Update(info.session_id, info, self.metas.get(info.session_id)) for info in infos]

    @property
    def damaged(self) -> bool:
        """Whether a cache must be rebuilt, which a new start does."""
        return self.store.damaged or self.index.damaged

    def close(self) -> None:
        """Store what can be stored; the rest is read again at the next start."""
        with suppress(StateError):
            self.flush()
        with suppress(StateError):
            self.index.commit()
        if self.index.damaged:
            with suppress(StateError):
                self.store.note("index", "name", None)
        self.index.close()
        self.store.close()

    def stores(self) -> list[Store]:
        return self.files.stores

    def find_stores(self) -> list[Store]:
        """Find the directories and databases of sessions, which come and go."""
        self.files.stores = self._find_stores()
        self.discovery.renew(self.files.stores)
        return self.files.stores

    def meta_dir(self, info: SessionInfo) -> str:
        store = next((one for one in self.stores() if one.holds(info.path)), None)
        if store is None:
            raise NotFoundError("the session's directory is no root any more")
        return store.meta

    def home(self, session_id: str) -> str | None:
        """The directory where a session's meta file and sidecar are, or belong."""
        stat = self.metas.get(session_id)
        return stat.directory if stat else self._meta_home(session_id)

    def _meta_home(self, session_id: str) -> str | None:
        info = self.files.info(session_id)
        with suppress(NotFoundError):
            return self.meta_dir(info) if info else None
        return None

    # -- finding changes

    @property
    def busy(self) -> bool:
        return bool(self.files.queue or self._missing or self._changed or self.files.found)

    def scan(self, enter: Callable[[str], object] = lambda _path: None) -> None:
        """Compare every session and meta file with what is known; queue what differs.

        Calls `enter(path)` before it lists a directory.
        """
        result = self.discovery.scan(self.stores(), enter)
        homes = dict.fromkeys(one.meta for one in self.stores())
        self._recount(self.metas.sweep(homes, self._meta_home))
        self._recount(self.discovery.retitled())
        self.reconsider()
        self.files.compare(result.files, result.unseen)
        result.files = {}  # a tenth of all memory, and not used again
        self.last_scan = result

    def end_first_scan(self) -> list[Update]:
        """Drop stored rows of sessions that no root has any more, now that all files were read."""
        self._first_scan = False
        bad, scan = self.files.problems(), self.last_scan
        self._mark(
            one
            for one, path, _ in self.store.shown()
            if not (self.files.info(one) or path in bad or (scan and scan.unseen(path)))
        )
        return self.flush()

    def hinted(self, paths: Iterable[str]) -> list[Update]:
        """Take a watcher's hints, and read some of the files."""
        metas, sessions = {store.meta for store in self.stores()}, list[str]()
        for path in paths:
            if path.rpartition("/")[0] in metas and not path.endswith(SUFFIXES):
                self._recount(filter(None, [self.metas.touched(path)]))
            else:
                sessions.append(path)
        found, titled = self.discovery.hinted(sessions)
        self._recount(titled)
        self.files.hint(found)
        return self.step()

    def reconsider(self) -> None:
        """Apply settings that may have changed: exclusions, and patterns of secrets.

        Other patterns make all rows again, and read all texts again.
        """
        if self.files.exclusions.renew():
            self._note(self.files.renew_exclusions())
            self._mark(self._excluded())
        self._secrets.renew()
        if self._secrets.mark != self.index.patterns:
            self._open_index()
            self.store.fold()

    def _open_index(self) -> None:
        """Open the index, and queue what it lacks, newest first."""
        self.index.open(self._secrets.mark)
        self._mark(self.index.behind)
        self.texts.resume(sorted(self.files.owners.infos(), key=lambda one: -one.modified_ms))

    def _excluded(self) -> list[str]:
        """Sessions whose file is gone and whose directory is excluded now."""
        excluded = self.files.exclusions.match
        gone = (one for one in self.store.names() if excluded("", one.cwd, one.session_id))
        return [one.session_id for one in gone if self.files.info(one.session_id) is None]

    def written(self, session_id: str, directory: str) -> list[Update]:
        """Read a session's meta file or sidecar, which our own writer has just written."""
        self.metas.reread(session_id, directory)
        self._recount([session_id])
        with suppress(StateError):  # the next step tries again
            return self.flush()
        return []

    def reread(self, session_id: str) -> bool:
        """Read what is new in a session's file; whether it had changed."""
        owner = self.files.owners.get(session_id)
        changes, more = list[Change](), owner is not None
        while more and owner is not None:
            found, _, more = self._refresh(owner.path)
            changes += found
        self._note(changes)
        return bool(changes)

    def only(self, agent: str, file: str, session_id: str) -> None:
        """Read one session and its meta file, and no other."""
        self.files.exclusions.renew()
        stores = [one for one in self.find_stores() if one.agent == agent]
        boxed = any(one.sessions == file for one in stores)
        path = f"{file}/{session_id}" if boxed else file
        for meta in dict.fromkeys(one.meta for one in stores if one.takes(path)):
            self.metas.reread(session_id, meta)
        if agent == "codex":  # its history may begin in another file
            for one in self.discovery.scan(stores).files:
                self.files.note_there(one)
        self.files.queue[path] = None
        while self.busy:
            self.step()

    def _recount(self, session_ids: Iterable[str]) -> None:
        """A meta file, a sidecar or the agent's name of these sessions changed."""
        for session_id in list(session_ids):
            if change := self.files.recount(session_id):
                self._note([change])
            else:
                self._mark([session_id])

    def _mark(self, session_ids: Iterable[str]) -> None:
        for session_id in session_ids:
            self._changed.setdefault(session_id, None)

    def _note(self, changes: Iterable[Change]) -> None:
        for one in changes:
            before = self._changed.get(one.session_id)
            was = before.was if before and before.was else one.was  # of two since the last flush
            self._changed[one.session_id] = replace(one, was=was)

    # -- reading and storing

    def step(self) -> list[Update]:
        """Read some of what is queued, store what changed, and return that."""
        queue, size, changes = self.files.queue, 0, 0
        if self._missing and not queue:
            time.sleep(SETTLE_SECONDS)
            queue |= dict.fromkeys(self._missing)
        while queue and size < STEP_BYTES and changes < CHANGES_MAX:
            path = next(iter(queue))
            del queue[path]
            found, read, more = self._refresh(path)
            if more:
                queue[path] = None
            self._note(found)
            size, changes = size + FILE_BYTES + read, changes + len(found)
            self.changed += 1
        return self.flush()

    def _refresh(self, path: str) -> tuple[list[Change], int, bool]:
        """As `Files.refresh`; a missing file is forgotten at the second look.

        At the first one it may be moved, or written again.
        """
        was_missing = path in self._missing
        self._missing.discard(path)
        try:
            return self.files.refresh(path)
        except FileNotFoundError:
            if was_missing:
                return self.files.vanish(path), 0, False
        self._missing.add(path)
        self.files.queue |= dict.fromkeys(self.files.in_archive(path))
        return [], 0, False

    def flush(self) -> list[Update]:
        """Store all that changed, in one transaction, and return it."""
        self._note(self.files.found)
        self.files.found = []
        ready = (one for one in self._changed if not self._may_come(one))
        changes = {one: self._changed[one] for one in islice(ready, ROWS_MAX)}
        if not (changes or self.files.unstored or self.metas.unstored):
            return []
        info, meta = self.files.info, self.metas.get
        relatives = set[str]()
        for session_id in changes:
            relatives |= self._rows.parents.put(session_id, info(session_id))
        done = changes.keys() | (relatives - self._changed.keys())
        self._mark(relatives)
        with self.store.batch():
            self.store.put_files({path: self.files.stored(path) for path in self.files.unstored})
            for session_id, packed in self.metas.unstored.items():
                self.store.note(TOPIC, session_id, packed)
            rows = self._put_rows([*changes, *(relatives - changes.keys())])
        self.files.unstored.clear()
        self.metas.unstored.clear()
        for one in done:
            del self._changed[one]
        self.changed += 1
        self.texts.want(one for one, change in changes.items() if change and change.info)
        return [
            Update(one, info(one), meta(one), change, rows.get(one))
            for one, change in changes.items()
        ]

    def _may_come(self, session_id: str) -> bool:
        """Whether a session known only by its meta file may have a file that was not read yet."""
        waits = self._first_scan and self.files.queue and not self._changed[session_id]
        return bool(waits and self.files.info(session_id) is None)

    def _put_rows(
        self, ids: Sequence[str], facts: Facts | None = None
    ) -> dict[str, dict[str, Any]]:
        """Write the rows of sessions; `facts`: those just gathered, where it is one session."""
        rows, known = list[tuple[dict[str, Any], str, tuple[str, ...]]](), self.store.get_many(ids)
        for session_id in ids:
            written = self._rows.of(session_id, known.get(session_id), facts)
            if written is None:
                purged = session_id in self.files.exclusions.forgotten
                self.index.forget(session_id, wholly=purged)
            else:
                written = self._secrets.written(written)
                rows.append((written.row, written.summary, written.aliases))
        self.index.put(rows)
        return {row["sessionId"]: row for row, _, _ in rows}

    def _publish_facts(self, session_id: str, facts: Facts) -> None:
        if self.files.info(session_id) is not None and self.store.get(session_id) is not None:
            self._put_rows([session_id], facts)
