"""Session files, meta files and the store, kept in step. One thread uses this: the reader.

In: paths that something hinted at, or the time for a scan. Out: `Update` values for the loop,
each after the store shows what it says. Text for search is taken in as it is appended, or,
at a first start, session by session in the background. While our own disk is full or locked the
loop hears of every change all the same; rows and notes are owed then, `trouble` says so, and the
next scan pays, whether or not a session has grown (A3).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from indexerd.daemon.files import Change, Files
from indexerd.daemon.session_row import Rows
from indexerd.errors import NotFoundError, StateError
from indexerd.meta.cache import MetaCache, MetaStat
from indexerd.privacy.own_secrets import OwnSecrets
from indexerd.search.index import TextIndex
from indexerd.search.session_texts import Texts
from indexerd.sessions.duplicates import MARGIN_MS
from indexerd.sessions.facts import Facts
from indexerd.sessions.family import ParentIndex
from indexerd.sessions.info import SessionInfo
from indexerd.sources import taking
from indexerd.sources.census import Census
from indexerd.sources.scan import ScanResult
from indexerd.sources.stores import SUFFIXES, Store
from indexerd.store.store import StateStore


class Update(msgspec.Struct, frozen=True):
    """What the loop learns of one session; the store shows it already, unless it is owed."""

    session_id: str
    card: SessionInfo | None
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
        self._made = store.made
        self._find_stores = stores
        self._stores: list[Store] = []
        self.metas = MetaCache(store, report)
        self.census = Census()
        self.files = Files(
            store,
            stores=self.stores,
            since=self.metas.since,
            title=self.census.title,
            exclude=exclude,
            defect=defect,
        )
        self._secrets = OwnSecrets(patterns)
        self.texts = Texts(
            self.files,
            index,
            self._publish_facts,
            self.reread,
            secrets=self._secrets,
            show=self._show,
            moved=self.files.is_moved,
        )
        self.scanned: ScanResult | None = None
        self.changed = 0  # counts up wherever `problems` of files may be others than before
        self.absent: set[str] = set()  # paths of the last hints where nothing was
        self._kin = ParentIndex()
        self._rows = Rows(self.files, self.metas, store, self._kin, self.stores)
        self._unshown: dict[str, None] = {}  # sessions whose row is owed to the store
        self._bad: StateError | None = None  # why it is
        self._swept = b""  # the exclusions that gone sessions were compared with

    # -- what is known -------------------------------------------------------------------

    @property
    def trouble(self) -> StateError | None:
        """Why something that was read is not stored: then it is owed, and tried again."""
        return self._bad or self.files.owing.trouble or self.metas.owing.trouble

    def load(self) -> list[Update]:
        """Take over what the store knows; no session file is opened."""
        try:
            return self._load()
        except StateError:
            if not self.store.renew():
                raise
            return self._load()

    def _load(self) -> list[Update]:
        self.find_stores()
        self.files.load()
        self.metas.load()
        cards = list(self.files.owners.cards())
        self.census.named((one.agent, one.session_id, one.agent_title) for one in cards)
        for card in cards:
            self._kin.put(card.session_id, card)
        self._fill()
        self.changed += 1
        return [Update(card.session_id, card, self.metas.get(card.session_id)) for card in cards]

    def mend(self) -> bool:
        """Make a store or an index anew that turned out to be damaged; whether that was done."""
        self.store.renew()
        if self._made == self.store.made and not self.index.damaged:
            return False
        self._rows.drop()
        self._unshown, self._bad = {}, None
        self._fill()
        return True

    def _fill(self) -> None:
        """Have store and index show what is known."""
        new = self.index.open()
        excluded = self._unfollowed(lambda _: True)
        self._show([*self.files.hidden, *self._gone_and_excluded(), *excluded])
        if new or self._made != self.store.made or not self.store.count():
            ids = {card.session_id for card in self.files.owners.cards()} | set(self.metas.ids())
            self._show(ids)
        self._made = self.store.made
        self._show(self.store.unindexed())
        self.store.renamed += 1  # rows were stored, and nobody was told
        self.texts.resume(self._newest_cards())

    def _newest_cards(self) -> list[SessionInfo]:
        return sorted(self.files.owners.cards(), key=lambda one: -one.modified_ms)

    def stores(self) -> list[Store]:
        """Where sessions are, as of the last look."""
        return self._stores

    def find_stores(self) -> list[Store]:
        """Look again where sessions are: roots come, go, and are pointed elsewhere."""
        self._stores = self._find_stores()
        self._rows.drop()
        self.census.renew(self._stores)
        return self._stores

    def meta_dir(self, card: SessionInfo) -> str:
        """Where a session's meta file belongs."""
        store = next((one for one in self.stores() if one.holds(card.path)), None)
        if store is None:
            raise NotFoundError("the session's directory is no root any more")
        return store.meta

    def home(self, session_id: str) -> str | None:
        """The directory in which a session's meta file and sidecar are, or belong."""
        stat, card = self.metas.get(session_id), self.files.card(session_id)
        if stat is not None:
            return stat.directory
        return self.meta_dir(card) if card else None

    # -- taking changes in ---------------------------------------------------------------

    def scan(self) -> Iterator[list[Update]]:
        """Compare every session and meta file with what is known; newest files first."""
        self.mend()
        stores = self._stores
        result = self.census.scan(stores)
        homes = dict.fromkeys(one.meta for one in stores)
        moved = self.metas.sweep(homes, self._belongs)
        first = self.scanned is None
        if first:  # a crash may have come between a meta file and the store
            moved = list(dict.fromkeys([*moved, *self._miscounted()]))
        self.scanned = replace(result, files=[])  # a tenth of all memory, and not asked for
        self.texts.again()
        yield self._metas_changed(moved)
        yield self.reconsider()
        yield self._retitled(self.census.retitled())
        wanted = set(self.files.differing(result.files))
        changed = sorted(
            (one for one in result.files if one.path in wanted), key=lambda one: -one.mtime_ns
        )
        fresh = [one.path for one in changed]
        gone = self.files.missing(result.files, result.unseen)
        yield from self._files_changed([*fresh, *gone])
        if first and len(homes) > 1:  # only now is it known which root a session belongs to
            yield self._metas_changed(self.metas.sweep(homes, self._belongs))
        if first:
            bad = self.files.problems()
            lost = self._unfollowed(lambda path: path in bad or result.unseen(path))
            yield self._updates(dict.fromkeys(lost))
        self.files.owners.margin_ms = MARGIN_MS  # from now on an owner stays for a while

    def reconsider(self) -> list[Update]:
        """The exclusions may have changed: drop what the user does not want read any more.

        So may the patterns of secrets: what is stored is made anew then, step by step.
        """
        changes = {one.session_id: one for one in self.files.reconsider()}
        self._rows.drop()
        self.texts.reconsider(self._newest_cards)
        return self._updates(changes | dict.fromkeys(self._gone_and_excluded()))

    def _gone_and_excluded(self) -> list[str]:
        """Sessions whose file is gone, in a directory that the user does not want read."""
        exclusions, swept = self.files.exclusions, self._swept
        if exclusions.packed() == swept:
            return []
        excluded = exclusions.match
        gone = [one for one in self.store.names() if not one.live and excluded("", one.cwd)]
        self._swept = exclusions.packed()
        return [one.session_id for one in gone if self.files.card(one.session_id) is None]

    def _unfollowed(self, unseen: Callable[[str], bool]) -> list[str]:
        """Sessions that the store shows, and that nobody follows.

        A crash came before the store knew them, and then their file went, or was excluded.
        """
        card, excluded = self.files.card, self.files.exclusions.match
        return [
            one
            for one, path, cwd in self.store.shown()
            if card(one) is None and (excluded(path, cwd, one) or not unseen(path))
        ]

    def hinted(self, paths: Iterable[str], sudden: Iterable[str] = ()) -> Iterator[list[Update]]:
        """Look at the paths of a watcher's hints; of the `sudden` ones where something is.

        Where nothing is, or nothing in it, more may come in a moment: `absent` has these.
        """
        metas, sessions, sudden = [], [], set(sudden)
        self.absent = {path for path in sudden if _is_blank(path)}
        places = {store.meta for store in self._stores}
        for path in (*paths, *(sudden - self.absent)):
            if path.rpartition("/")[0] not in places or path.endswith(SUFFIXES):
                sessions.append(path)
            elif session_id := self.metas.touched(path):
                metas.append(session_id)
        if metas:
            yield self._metas_changed(metas)
        found = self.census.hinted(sessions)
        if found.titled:
            yield self._retitled(found.titled)
        yield from self._files_changed([*found.paths, *self.files.differing(found.sessions)])

    def only(self, agent: str, file: str, session_id: str) -> None:
        """Read one session and its meta file, and no other."""
        stores = [one for one in self.find_stores() if one.agent == agent]
        boxed = any(one.sessions == file for one in stores)
        path = f"{file}/{session_id}" if boxed else file
        for meta in dict.fromkeys(one.meta for one in stores if one.takes(path)):
            self.metas.reread(session_id, meta)
        if agent == "codex":  # its history may begin in another file
            self.files.acquaint(self.census.scan(stores).files)
        for _ in self._files_changed([path]):
            pass

    def written(self, session_id: str, directory: str) -> list[Update]:
        """Our own writer has just written a session's meta file or sidecar."""
        self.metas.reread(session_id, directory)
        return self._metas_changed([session_id])

    def _belongs(self, session_id: str) -> str | None:
        card = self.files.card(session_id)
        return self.meta_dir(card) if card else None

    def _miscounted(self) -> list[str]:
        """Sessions whose card was counted from another leaf than their meta file names."""
        return [
            card.session_id
            for card in self.files.owners.cards()
            if card.since != self.metas.since(card.session_id)
        ]

    def _metas_changed(self, ids: list[str]) -> list[Update]:
        changes = {session_id: self.files.recount(session_id) for session_id in ids}
        return self._updates(changes)

    def _retitled(self, ids: Iterable[str]) -> list[Update]:
        changes = {one: self.files.recount(one) for one in ids}
        return self._updates({one: change for one, change in changes.items() if change})

    def _files_changed(self, paths: list[str]) -> Iterator[list[Update]]:
        for changes in self.files.refresh(paths):
            self.changed += bool(paths)
            yield self._updates({change.session_id: change for change in changes})

    def _updates(self, changes: dict[str, Change | None]) -> list[Update]:
        others: set[str] = set()
        self.changed += bool(changes)
        for session_id, change in changes.items():
            others |= self._kin.put(session_id, self.files.card(session_id))
            if change is not None and change.card is not None:
                self.texts.want([session_id])
        owed, self._unshown = self._unshown, {}
        grown = {one for one, change in changes.items() if taking.only_grew(change)} - others
        rows = self._show(owed | changes, grown - owed.keys())
        related = self._show(others - changes.keys())  # their parent is known now, or another
        if rows is not None and related is not None:
            self._bad = None
        told = changes if rows is None else dict.fromkeys(owed) | changes
        rows = rows or {}
        return [
            Update(
                session_id,
                self.files.card(session_id),
                self.metas.get(session_id),
                change,
                rows.get(session_id),
            )
            for session_id, change in told.items()
        ]

    # -- rows ---------------------------------------------------------------------

    def _show(
        self, ids: Iterable[str], grown: Collection[str] = ()
    ) -> dict[str, dict[str, Any]] | None:
        """Bring rows up to date; None where the store takes none now, and they are owed.

        Of those that have only `grown`, a part of the row is made anew.
        """
        ids = dict.fromkeys(ids)
        if not ids:
            return {}
        try:
            return self._publish(ids, grown)
        except StateError as bad:
            self._rows.drop()
            self._bad = bad
            self._unshown |= ids
            return None

    def _publish(self, ids: Iterable[str], grown: Collection[str]) -> dict[str, dict[str, Any]]:
        """Bring the rows of these sessions up to date, in one transaction."""
        rows: list[tuple[dict[str, Any], str, tuple[str, ...]]] = []
        with self.store.batch():
            for session_id in ids:
                written = self._rows.of(session_id, grown=session_id in grown)
                if written is None:
                    purged = session_id in self.files.exclusions.forgotten
                    self.index.forget(session_id, wholly=purged)
                else:
                    written = self._secrets.written(written)
                    rows.append((written.row, written.summary, written.aliases))
            self.index.put(rows)
        return {row["sessionId"]: row for row, _, _ in rows}

    def _publish_facts(self, session_id: str, facts: Facts) -> None:
        """Put what a session did into its row."""
        written = self._rows.with_facts(session_id, facts)
        if written is not None:
            written = self._secrets.written(written)
            self.index.put([(written.row, written.summary, written.aliases)])

    def reread(self, session_id: str) -> bool:
        """Read a session anew, parsing every line; False where that was done before."""
        changes = self.files.reread(session_id)
        self.changed += 1
        self._show(change.session_id for change in changes)
        return bool(changes)

    # -- the store ----------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Make what was read survive a crash; raises StateError where something is owed still.

        A file is read again after a crash as long as the store does not show what was read.
        """
        if self._bad is None:
            self.files.checkpoint()
        self.metas.checkpoint()
        if self.trouble is not None:
            raise self.trouble

    def close(self) -> None:
        """Store everything that can be stored, and let go: what cannot is read anew (A3)."""
        with suppress(StateError):
            self.checkpoint()
        with suppress(StateError):
            self.index.commit()
        self.index.close()
        self.store.close()


def _is_blank(path: str) -> bool:
    """Whether there is nothing at a path, or nothing in it."""
    try:
        return os.stat(path).st_size == 0  # noqa: PTH116 - paths here are text
    except OSError:
        return True
