"""The state of all sessions, kept up to date with their files. Only the reader thread changes it.

    scan, hinted -> files.queue -> step: read, store (cursor, row: one transaction) -> Update

The event loop gets each `Update` once it is in the store. While our own disk is full or locked
(StateError) the changes stay here, and the next step tries again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from indexerd.daemon.event_bus import EventBus
from indexerd.daemon.files import Files, Update
from indexerd.errors import NotFoundError, StateError
from indexerd.meta.cache import TOPIC, MetaCache
from indexerd.meta.session_row import Row, Rows
from indexerd.meta.sidecar import read_all
from indexerd.paths import Places
from indexerd.privacy.exclusions import Exclusions
from indexerd.privacy.redact import OwnSecrets, StoredRow
from indexerd.search.index import TextIndex
from indexerd.search.text_indexer import TextIndexer
from indexerd.sessions.facts import RowFacts, SessionUsage
from indexerd.sessions.info import SessionInfo
from indexerd.settings import Settings
from indexerd.sources.projects import Projects
from indexerd.sources.roots import SUFFIXES, SessionRoot, session_roots
from indexerd.sources.scan import ScanResult, SessionDiscovery
from indexerd.sources.tail import Look, Verdict
from indexerd.store.store import StateStore

STEP_BYTES = 4 << 20  # read in one step, before other work gets its turn
CHANGES_MAX = 16  # sessions changed in one step: newer hints wait for it
FIRST_CHANGES_MAX = 64  # in the first scan, when nobody waits for a single session
ROWS_MAX = 200  # in one transaction


class Library:
    """Session files, meta files, store and text index; passes changes from one to the next."""

    def __init__(
        self,
        places: Places,
        settings: Callable[[], Settings],
        env: Mapping[str, str],
        home: Path,
        bus: EventBus,
    ) -> None:
        def damaged(path: Path, why: str) -> None:
            bus.log("cache.damaged", {"path": str(path), "reason": why})

        store = self.store = StateStore(places.store, damaged)
        index = self.index = TextIndex(places.search, store, damaged)
        self._settings, self._env, self._home = settings, env, home
        self.metas = MetaCache(
            store, lambda key, why: bus.log("meta.invalid", {"session": key, "reason": why})
        )
        self.discovery = SessionDiscovery()
        files = self.files = Files(
            since=self.metas.since,
            title=self.discovery.title,
            exclusions=Exclusions(lambda: settings().privacy.exclude),
            defect=lambda path, bug: bus.defect("session.quarantined", "", bug, path=path),
        )
        self.projects = Projects(places.state_dir)
        self._rows = Rows(files, self.metas, store, self.projects)
        self._secrets = OwnSecrets(lambda: settings().redact.extra_patterns)
        publish = self._publish_facts
        self.texts = TextIndexer(
            files, index, publish, self.reread, secrets=self._secrets, is_fork=self._is_fork
        )
        self.last_scan: ScanResult | None = None
        self.changed = 0  # grows whenever `files.problems()` may have changed
        self._first_scan = True

    def load(self) -> list[Update]:
        """Load the stored state; no session file is opened."""
        self.find_roots()
        self.files.load(self.store.files())
        self.metas.load()
        self._open_index()
        self.reconsider()
        infos = list(self.files.owners.infos())
        for info in infos:
            self._rows.parents.put(info.session_id, info)
        with suppress(StateError):  # the first step tries again
            self.flush()
        self.changed += 1
        return [Update(i.session_id, i) for i in infos]

    @property
    def damaged(self) -> bool:
        """Whether a cache must be rebuilt, which the next start does."""
        return self.store.damaged or self.index.damaged

    def close(self) -> None:
        """Store what is possible; the rest is read again at the next start."""
        with suppress(StateError):
            self.flush()
        with suppress(StateError):
            self.index.commit()
        if self.index.damaged:
            with suppress(StateError):
                self.store.note("index", "name", None)
        self.index.close()
        self.store.close()

    def find_roots(self) -> list[SessionRoot]:
        """Find the directories and databases of sessions, which may appear and disappear."""
        self.files.roots = session_roots(self._settings(), self._env, self._home)
        self.discovery.renew(self.files.roots)
        return self.files.roots

    def meta_dir(self, info: SessionInfo) -> str:
        """Return the directory where a session's meta file belongs."""
        root = self.files.root_of(info.path)
        if root is None:
            raise NotFoundError("the session's directory is no longer a root")
        return root.meta

    def home(self, session_id: str) -> str | None:
        """Return the directory where a session's meta file and sidecar are, or belong."""
        stat = self.metas.get(session_id)
        if home := stat.directory if stat else self._meta_home(session_id):
            return home
        row = self.store.get(session_id) or {}  # its file may be gone
        root = self.files.root_of(row.get("sessionFile", ""))
        return root.meta if root and "machine" not in row else None

    def _meta_home(self, session_id: str) -> str | None:
        info = self.files.info(session_id)
        root = self.files.root_of(info.path) if info else None
        return root.meta if root else None

    # -- finding changes

    def scan(self, enter: Callable[[str], object] = lambda _path: None) -> None:
        """Compare every session and meta file with the known state; queue those that differ.

        Calls `enter(path)` before it lists a directory.
        """
        result = self.discovery.scan(self.files.roots, enter)
        homes = dict.fromkeys(root.meta for root in self.files.roots)
        self.files.recount(self.metas.sweep(homes, self._meta_home))
        self.files.recount(self.discovery.retitled())
        self.reconsider()
        self._add_prompts(result.files)
        self.texts.want(self.texts.unreadable)  # a database may have been locked for a moment
        self.texts.unreadable.clear()
        self.files.compare(result.files, result.unseen)
        result.files = {}  # a tenth of the daemon's memory, and not used again
        self.last_scan = result

    def _add_prompts(self, files: dict[str, Look]) -> None:
        """Add the sessions that are not excluded and of which we have nothing but prompts."""
        left = {
            session_id: (path, seen)
            for path, file, session_id, cwd, seen in self.discovery.prompts_only(files)
            if not (self.metas.since(session_id) or self.files.hides(session_id, file, cwd))
        }
        sql = "SELECT id, file FROM session WHERE id IN (SELECT value FROM json_each(?))"
        known = dict(self.store.select(sql, json.dumps([*left])) if left else ())
        for session_id, (path, seen) in left.items():
            history = path.rpartition("/")[0]
            if known.get(session_id, history) == history:
                files[path] = seen

    def end_first_scan(self) -> list[Update]:
        """Drop stored rows of sessions that no root has any more, as all files are now read."""
        self._first_scan = False
        bad, scan = self.files.problems(), self.last_scan
        self.files.mark(
            session_id
            for session_id, path, _ in self.store.shown()
            if not (self.files.info(session_id) or path in bad or (scan and scan.unseen(path)))
        )
        return self.flush()

    def hinted(self, paths: Iterable[str]) -> list[Update]:
        """Queue the paths that the watcher hinted at, and read some of the files."""
        metas, sessions = {root.meta for root in self.files.roots}, list[str]()
        for path in paths:
            if path.rpartition("/")[0] in metas and not path.endswith(SUFFIXES):
                touched = self.metas.touched(path)
                self.files.recount([touched] if touched else [])
            else:
                sessions.append(path)
        changed, titled = self.discovery.hinted(sessions)
        self.files.recount(titled)
        self.files.hint(changed)
        return self.step()

    def reconsider(self) -> None:
        """Apply settings that may have changed: exclusions, and patterns of secrets.

        If the patterns changed, all rows are rebuilt and all texts read again.
        """
        if self.files.exclusions.renew():
            self.files.renew_exclusions()
            self.files.mark(self._excluded())
        self._secrets.renew()
        if self._secrets.mark != self.index.patterns:
            self._open_index()
            self.store.fold()

    def _open_index(self) -> None:
        """Open the index, and queue the sessions that it lacks, newest first."""
        self.index.open(self._secrets.mark)
        self.files.mark(self.index.behind - self.store.elsewhere())
        self.texts.resume(sorted(self.files.owners.infos(), key=lambda info: -info.modified_ms))

    def _excluded(self) -> list[str]:
        """Return sessions whose file is gone and whose directory is now excluded."""
        excluded = self.files.exclusions.match
        known = self.store.directories().items()
        gone = (key for key, cwd in known if excluded("", cwd, key))
        return [key for key in gone if self.files.info(key) is None]

    def rewrite(self, session_ids: Iterable[str]) -> list[Update]:
        """Write the rows of sessions again."""
        self.files.mark(session_ids)
        return self.flush()

    def written(self, session_id: str, directory: str) -> list[Update]:
        """Read a session's meta file or sidecar after our own writer wrote it."""
        self.metas.reread(session_id, directory)
        self.files.recount([session_id])
        with suppress(StateError):  # the next step tries again
            return self.flush()
        return []

    def reread(self, session_id: str) -> bool:
        """Read what is new in a session's file; return whether it had changed."""
        owner, before = self.files.owners.get(session_id), self.files.info(session_id)
        while owner is not None and self.files.refresh(owner.path).more:
            pass
        return self.files.info(session_id) != before

    def only(self, agent: str, file: str, session_id: str) -> None:
        """Read only one session and its meta file."""
        roots = [root for root in self.find_roots() if root.agent == agent]
        in_database = any(root.sessions == file for root in roots)
        path = f"{file}/{session_id}" if in_database else file
        for meta in dict.fromkeys(root.meta for root in roots if root.accepts(path)):
            self.metas.reread(session_id, meta)
        if agent == "codex":  # its history may begin in another file
            for other in self.discovery.scan(roots).files:
                self.files.note_there(other)
        self.files.queue[path] = None
        while self.files.busy:
            self.step()

    # -- reading and storing

    def step(self) -> list[Update]:
        """Read some of the queued files; store and return the changes."""
        most = FIRST_CHANGES_MAX if self._first_scan else CHANGES_MAX
        self.files.read_some(STEP_BYTES, most)
        self.changed += 1
        return self.flush()

    def flush(self) -> list[Update]:
        """Store the changes in one transaction, and return them."""
        files, info = self.files, self.files.info
        # In the first scan, the file of a session known only by its meta file may still be queued.
        waits = self._first_scan and files.queue
        changed = files.changed.items()
        ready = ((key, new) for key, new in changed if new.old or not waits or info(key))
        updates = dict(islice(ready, ROWS_MAX))
        if not (updates or files.unstored or self.metas.unstored):
            return []
        for session_id in updates:  # rows of their relatives are written by a later flush
            files.mark(self._rows.parents.put(session_id, info(session_id)))
        with self.store.batch():
            self.store.put_files({path: files.stored(path) for path in files.unstored})
            for session_id, packed in self.metas.unstored.items():
                self.store.note(TOPIC, session_id, packed)
            rows = self._put_rows(updates, self.store.get_many(updates))
        files.unstored.clear()
        self.metas.unstored.clear()
        for session_id in updates:
            del files.changed[session_id]
        self.changed += 1
        self.texts.want(filter(info, updates))
        updated = updates.items()
        self.texts.rewritten |= {key for key, new in updated if new.verdict is Verdict.RESTART}
        return [
            replace(update, info=info(key), row=rows.get(key)) for key, update in updates.items()
        ]

    def _is_fork(self, info: SessionInfo) -> bool:
        """Return whether what a session copied counts in another: its origin, if that is here."""
        origin = self._rows.parents.parent(info).session_id or ""
        return info.subagent or self.files.info(origin) is not None

    def _put_rows(
        self, ids: Iterable[str], known: dict[str, Row], facts: RowFacts | None = None
    ) -> dict[str, Row]:
        """Write the rows of sessions; `facts` are new ones, if it is a single session."""
        rows = list[StoredRow]()
        for session_id in ids:
            old = known.get(session_id)
            if old and old.get("machine") and self._stays(session_id, old):
                continue
            written = self._rows.of(session_id, old, facts)
            if written is None:
                purged = session_id in self.files.exclusions.forgotten
                self.index.forget(session_id, wholly=purged)
            else:
                rows.append(self._secrets.written(written))
        self.index.put_rows(rows)
        return {row["sessionId"]: row for row, *_ in rows}

    def _stays(self, session_id: str, row: Row) -> bool:
        """Whether a row of another machine is still right: no file or exclusion replaces it."""
        hidden = self.files.hides(session_id, row["sessionFile"], row["cwd"])
        return self.files.info(session_id) is None and not hidden

    def shared(self, session_id: str) -> tuple[StoredRow, Row] | None:
        """Return what other machines get of a session: its row and texts, and its documents.

        All redacted. None if it is not shared, as it is excluded, or another machine's.
        """
        row = self.store.get(session_id)
        written = self._rows.of(session_id, row) if row and not row.get("machine") else None
        if written is None:
            return None
        documents = read_all(session_id, self.home(session_id))
        kept = {key: documents[key] for key in ("meta", "labels", "tags", "digest")}
        redact_all = self._secrets.redact_all
        return StoredRow(*redact_all(self._secrets.written(written))), redact_all(kept)

    def _publish_facts(self, session_id: str, facts: RowFacts, usage: SessionUsage) -> None:
        if self.files.info(session_id) is not None and (old := self.store.get(session_id)):
            self._put_rows([session_id], {session_id: old}, facts)
            self.store.put_usage(session_id, usage)
