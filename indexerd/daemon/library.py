"""All that is known of sessions, kept up to date with their files. Only the reader thread uses it.

    scan, hinted -> queue of paths -> step: read, store (cursor, row: one transaction) -> Update

The loop is given each `Update` after the store shows what it says. Where our own disk is full or
locked the loop is given it all the same; what the store lacks stays noted here, `trouble` says
why, and the next step tries again. Text for search is read from the same lines, later.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import Any

import msgspec

from indexerd.daemon.files import Files, known_file
from indexerd.errors import NotFoundError, StateError
from indexerd.meta.cache import TOPIC, MetaCache, MetaStat
from indexerd.meta.session_row import Rows
from indexerd.privacy.own_secrets import OwnSecrets
from indexerd.search.index import TextIndex
from indexerd.search.session_texts import Texts
from indexerd.sessions.facts import Facts
from indexerd.sessions.info import SessionInfo
from indexerd.sources.discovery import PAUSE, SessionDiscovery
from indexerd.sources.scan import ScanResult
from indexerd.sources.session_file import Change
from indexerd.sources.stores import SUFFIXES, Store
from indexerd.store.store import StateStore

STEP_BYTES = 4 << 20  # that one step reads before others get their turn
FILE_BYTES = 64 * 1024  # that opening a file counts for
QUEUE_TURN = 8
AT_ONCE = 32  # changes of one step: to publish one takes the loop a fifth of a millisecond
SETTLE_SECONDS = 0.02  # from a hint at a file that is not there to the look that believes it


class Update(msgspec.Struct, frozen=True):
    """What the loop learns of one session; the store shows it already, unless there is trouble."""

    session_id: str
    info: SessionInfo | None
    meta: MetaStat | None
    change: Change | None = None
    row: dict[str, Any] | None = None


class Library:
    """Everything that is known of sessions, and how it becomes known."""

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
        """`patterns()`: of the user's own secrets, which are not to be searched."""
        self.store = store
        self.index = index
        self._find_stores = stores
        self._stores: list[Store] = []
        self.metas = MetaCache(store, report)
        self.discovery = SessionDiscovery()
        files = self.files = Files(
            since=self.metas.since, title=self.discovery.title, exclude=exclude, defect=defect
        )
        self._secrets = OwnSecrets(patterns)
        self.texts = Texts(
            self.files,
            index,
            self._publish_facts,
            self.reread,
            secrets=self._secrets,
        )
        self.scanned: ScanResult | None = None
        self.changed = 0  # counts up wherever `problems` of files may be others than before
        self.trouble: StateError | None = None  # why the store lacks something
        self._rows = Rows(files.info, files.hides, self.metas, store, self.stores)
        self._hinted: dict[str, None] = {}  # paths to look at
        self._queue: dict[str, None] = {}  # likewise, after those
        self._late: dict[str, float] = {}  # paths that were not there, and when to believe it
        self._changes: dict[str, Change | None] = {}  # by session, since the last step
        self._unshown: dict[str, None] = {}  # sessions whose row the store lacks
        self._taken = 0  # of these
        self._first = False  # the first scan is under way
        self._alone: list[str] = []  # meta files that it found, and no session of theirs yet
        self._swept = b""  # the exclusions that gone sessions were compared with

    # -- life ----------------------------------------------------------------------------

    def load(self) -> list[Update]:
        """Take over what the store knows; no session file is opened."""
        self.find_stores()
        self.files.load(self.store.files(known_file))
        self.metas.load()
        infos = list(self.files.owners.infos())
        for info in infos:
            self._rows.parents.put(info.session_id, info)
        self.index.open(self._secrets.mark)
        excluded = self._unfollowed(lambda _: True)
        self._show([*self.files.hidden, *self._gone_and_excluded(), *excluded])
        if not self.store.ids():
            self._show({info.session_id for info in infos} | set(self.metas.ids()))
        self._resume_words()
        self.changed += 1
        return [Update(info.session_id, info, self.metas.get(info.session_id)) for info in infos]

    @property
    def damaged(self) -> bool:
        """Whether a cache is to be made anew, which a new start does."""
        return self.store.damaged or self.index.damaged

    def close(self) -> None:
        """Store everything that can be stored, and let go: what cannot is read anew."""
        with suppress(StateError):
            self.step(0)
        with suppress(StateError):
            self.index.commit()
        if self.index.damaged:
            with suppress(StateError):
                self.store.note("index", "name", None)
        self.index.close()
        self.store.close()

    # -- what is known -------------------------------------------------------------------

    def stores(self) -> list[Store]:
        """Where sessions are, as of the last look."""
        return self._stores

    def find_stores(self) -> list[Store]:
        """Look again where sessions are: roots come, go, and are pointed elsewhere."""
        self._stores = self._find_stores()
        self.files.use(self._stores)
        self.discovery.renew(self._stores)
        return self._stores

    def meta_dir(self, info: SessionInfo) -> str:
        """Where a session's meta file belongs."""
        store = next((one for one in self.stores() if one.holds(info.path)), None)
        if store is None:
            raise NotFoundError("the session's directory is no root any more")
        return store.meta

    def home(self, session_id: str) -> str | None:
        """The directory in which a session's meta file and sidecar are, or belong."""
        stat, info = self.metas.get(session_id), self.files.info(session_id)
        if stat is not None:
            return stat.directory
        return self.meta_dir(info) if info else None

    def _resume_words(self) -> None:
        """Find what the index lacks: rows, which are made again, and words, the newest first."""
        self._show(self.index.behind)
        self.store.renamed += 1  # rows were stored, and nobody was told
        infos = self.files.owners.infos()
        self.texts.resume(sorted(infos, key=lambda one: -one.modified_ms))

    # -- what is to be looked at -----------------------------------------------------------

    def scan(self, enter: Callable[[str], object] = lambda _path: None) -> None:
        """Compare every session and meta file with what is known; what differs is queued.

        `enter(path)` is called ahead of each directory that is listed.
        """
        stores, first = self._stores, self.scanned is None
        result = self.discovery.scan(stores, enter)
        self._first = first
        self._compare_metas()
        if first:  # a crash may have come between a meta file and the store
            self._mark(
                one.session_id
                for one in self.files.owners.infos()
                if one.since != self.metas.since(one.session_id)
            )
        self.reconsider()
        self._mark(self.discovery.retitled())
        found = self.files.differing(result.files)
        found.sort(key=lambda path: -result.files[path].mtime_ns)
        gone = self.files.missing(result.files, result.unseen)
        self._queue |= dict.fromkeys([*found, *gone])
        result.files = {}  # a tenth of all memory, and not asked for
        self.scanned = result

    def hinted(self, paths: Iterable[str]) -> list[Update]:
        """Look at the paths of a watcher's hints; where nothing is, there may be in a moment."""
        places, sessions, now = {store.meta for store in self._stores}, list[str](), monotonic()
        for path in paths:
            if path.rpartition("/")[0] in places and not path.endswith(SUFFIXES):
                self._mark(filter(None, [self.metas.touched(path)]))
            elif _is_blank(path) and self.files.store_of(path) is not None:
                self._late.setdefault(path, now + SETTLE_SECONDS)
            else:
                sessions.append(path)
        ready = [path for path, when in self._late.items() if when <= now]
        for path in ready:
            del self._late[path]
        found, titled = self.discovery.hinted([*sessions, *filter(None, ready)])
        if self.discovery.late:  # of databases
            self._late.setdefault("", now + PAUSE)
        self._mark(titled)
        self._hinted |= dict.fromkeys(found)
        return self.step()

    @property
    def late(self) -> float:
        """When `hinted` is to be called again whether or not there are hints, by `monotonic`."""
        return min(self._late.values(), default=math.inf)

    def read_words(self) -> tuple[bool, bool]:
        """Read some words; whether there is more in this pass, and at all."""
        more = self.texts.some()
        return more, self.texts.due

    @property
    def busy(self) -> bool:
        """Whether there is anything for `step` to do."""
        waiting = self._hinted or self._queue or self._changes or self.files.due
        return bool(waiting or self.files.woken or self._first)

    @property
    def scanning(self) -> bool:
        """Whether what the last scan found is not all read yet."""
        return bool(self._queue) or self._first

    def reconsider(self) -> None:
        """The exclusions may have changed: drop what the user does not want read any more.

        So may the patterns of secrets: then all rows are made and all words are read again.
        """
        self._note(self.files.reconsider())
        self._secrets.renew()
        if self._secrets.mark != self.index.patterns:
            self.index.open(self._secrets.mark)
            self._resume_words()
            self.store.fold()
        self._changes = dict.fromkeys(self._gone_and_excluded()) | self._changes

    def written(self, session_id: str, directory: str) -> list[Update]:
        """Our own writer has just written a session's meta file or sidecar."""
        self.metas.reread(session_id, directory)
        self._mark([session_id])
        return self.step(0)

    def reread(self, session_id: str) -> bool:
        """Look at a session's file again, which is not what was read; whether that helps."""
        owner = self.files.owners.get(session_id)
        changes, more = list[Change](), owner is not None
        while more and owner is not None:
            found, _, more = self.files.refresh(owner.path)
            changes += found
        self._note(changes)
        return bool(changes)

    def only(self, agent: str, file: str, session_id: str) -> None:
        """Read one session and its meta file, and no other."""
        stores = [one for one in self.find_stores() if one.agent == agent]
        boxed = any(one.sessions == file for one in stores)
        path = f"{file}/{session_id}" if boxed else file
        for meta in dict.fromkeys(one.meta for one in stores if one.takes(path)):
            self.metas.reread(session_id, meta)
        if agent == "codex":  # its history may begin in another file
            for one in self.discovery.scan(stores).files:
                self.files.acquaint(one)
        self._queue[path] = None
        while self.busy:
            self.step()

    # -- taking changes in -----------------------------------------------------------------

    def step(self, size: int = STEP_BYTES) -> list[Update]:
        """Read some of what is queued, store what changed, and say what did."""
        gone: list[str] = []
        while size > 0 and len(self._changes) < AT_ONCE and (path := self._next()) is not None:
            if not self.files.is_there(path):
                gone.append(path)
                size -= FILE_BYTES // 16
                continue
            size -= FILE_BYTES + self._look(path)
        if gone and (self._hinted or self.files.due):  # first what is there: it may be the same
            self._queue = dict.fromkeys(gone) | self._queue
        else:
            for path in gone:
                for other in filter(self.files.is_there, self.files.elsewhere(path)):
                    self._look(other)
                if not self.files.is_there(path):  # it may be back since
                    self._note(self.files.vanish(path))
        if self._first and not self._queue:
            self._end_first_scan()
        return self._flush()

    def _next(self) -> str | None:
        """The next path; now and then one that was not hinted at, however many hints there are."""
        self._taken += 1
        queues = [self._hinted, self.files.due, self._queue]
        for queue in reversed(queues) if self._taken % QUEUE_TURN == 0 else queues:
            if queue:
                path = next(iter(queue))
                del queue[path]
                return path
        return None

    def _look(self, path: str) -> int:
        changes, size, more = self.files.refresh(path)
        self.changed += 1
        if more:  # after all that was hinted
            self._queue[path] = None
        self._note(changes)
        return size

    def _end_first_scan(self) -> None:
        """Only now is it known which root a session belongs to, and which were not met."""
        self._first = False
        self._compare_metas()
        bad, result = self.files.problems(), self.scanned
        unseen = result.unseen if result else bool
        lost = self._unfollowed(lambda path: path in bad or bool(unseen(path)))
        alone, self._alone = self._alone, []
        self._changes = dict.fromkeys([*lost, *alone]) | self._changes

    def _compare_metas(self) -> None:
        """Compare every meta file with what is remembered of it."""

        def belongs(session_id: str) -> str | None:
            info = self.files.info(session_id)
            with suppress(NotFoundError):  # a root that is none any more
                return self.meta_dir(info) if info else None
            return None

        homes = dict.fromkeys(one.meta for one in self._stores)
        self._mark(self.metas.sweep(homes, belongs))

    def _mark(self, session_ids: Iterable[str]) -> None:
        """What lies beside these sessions is another."""
        for session_id in list(session_ids):
            if self._first and self.files.info(session_id) is None:
                self._alone.append(session_id)
                continue
            change = self.files.recount(session_id)
            if change is not None or session_id not in self._changes:
                self._changes[session_id] = change

    def _note(self, changes: Iterable[Change]) -> None:
        for one in changes:
            before = self._changes.get(one.session_id)
            if before is not None and before.was is not None:  # two in one step
                one = replace(one, was=before.was)  # noqa: PLW2901
            self._changes[one.session_id] = one

    def _flush(self) -> list[Update]:
        """Store all that changed, in one transaction, and say what did."""
        woken, self.files.woken = self.files.woken, []
        self._note(woken)
        changes, self._changes = self._changes, {}
        self.changed += bool(changes)
        kin: set[str] = set()
        for session_id, change in changes.items():
            kin |= self._rows.parents.put(session_id, self.files.info(session_id))
            if change is not None and change.info is not None:
                self.texts.want([session_id])
        owed = self._unshown
        ids = owed | changes | dict.fromkeys(kin)
        rows: dict[str, dict[str, Any]] = {}
        if ids or self.files.unstored or self.metas.unstored:
            try:
                rows = self._store(ids)
                self.trouble, self._unshown = None, {}
            except StateError as bad:
                self.trouble, self._unshown, owed = bad, ids, {}
        return [
            Update(one, self.files.info(one), self.metas.get(one), changes.get(one), rows.get(one))
            for one in owed | changes
        ]

    def _store(self, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """One transaction: what is known of files and meta files, and these sessions' rows."""
        files = {path: self.files.stored(path) for path in self.files.unstored}
        metas = dict(self.metas.unstored)
        with self.store.batch():
            self.store.forget_files(path for path, held in files.items() if held is None)
            self.store.put_files((path, *held) for path, held in files.items() if held)
            for session_id, packed in metas.items():
                self.store.note(TOPIC, session_id, packed)
            rows = self._put_rows(ids)
        self.files.unstored.clear()
        self.metas.unstored.clear()
        return rows

    # -- rows ------------------------------------------------------------------------------

    def _put_rows(self, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        rows: list[tuple[dict[str, Any], str, tuple[str, ...]]] = []
        for session_id in ids:
            written = self._rows.of(session_id)
            if written is None:
                purged = session_id in self.files.exclusions.forgotten
                self.index.forget(session_id, wholly=purged)
            else:
                written = self._secrets.written(written)
                rows.append((written.row, written.summary, written.aliases))
        self.index.put(rows)
        return {row["sessionId"]: row for row, _, _ in rows}

    def _show(self, ids: Iterable[str]) -> None:
        """Make these sessions' rows anew."""
        if not (ids := list(ids)):
            return
        self._unshown |= dict.fromkeys(ids)
        try:
            self._store(self._unshown)
            self._unshown = {}
        except StateError as bad:
            self.trouble = bad

    def _publish_facts(self, session_id: str, facts: Facts) -> None:
        """Put what a session did into its row."""
        written = self._rows.of(session_id, facts)
        if written is not None and self.store.get(session_id) is not None:
            written = self._secrets.written(written)
            self.index.put([(written.row, written.summary, written.aliases)])

    def _gone_and_excluded(self) -> list[str]:
        """Sessions whose file is gone, in a directory that the user does not want read."""
        exclusions, swept = self.files.exclusions, self._swept
        if exclusions.packed() == swept:
            return []
        gone = [one for one in self.store.names() if not one.live and exclusions.match("", one.cwd)]
        self._swept = exclusions.packed()
        return [one.session_id for one in gone if self.files.info(one.session_id) is None]

    def _unfollowed(self, unseen: Callable[[str], bool]) -> list[str]:
        """Sessions that the store shows, and that nobody follows.

        A crash came before the store knew them, and then their file went, or was excluded.
        """
        info, excluded = self.files.info, self.files.exclusions.match
        return [
            one
            for one, path, cwd in self.store.shown()
            if info(one) is None and (excluded(path, cwd, one) or not unseen(path))
        ]


def _is_blank(path: str) -> bool:
    """Whether there is nothing at a path, or nothing in it."""
    try:
        return os.stat(path).st_size == 0  # noqa: PTH116 - paths here are text
    except OSError:
        return True
