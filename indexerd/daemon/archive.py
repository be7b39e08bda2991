"""Keeps the archive up to date while `[archive] enabled`.

A session is copied once nothing was appended for `[archive] quiet_seconds`. When its file is gone,
its copy is read instead: the archive has a root of sessions for that (sources/roots.py).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from indexerd.archive.copies import GONE, LIVE, Archive, Source
from indexerd.daemon.pipeline import Pipeline
from indexerd.disk import hold
from indexerd.errors import IndexerdError
from indexerd.sessions.info import base_name
from indexerd.sources.roots import SUFFIXES

NEARLY_FULL = 0.9  # share of the limit from which `status` warns
GIGABYTE = 1e9
RESTLESS = 10  # times quiet_seconds after which a session is copied although it still grows
RETRY_SECONDS = 60.0
RATIO = 0.3  # of the size of a copy and its file, about: an estimate before it is made

Row = dict[str, Any]


@dataclass(eq=False)
class Keeper:
    """The archive, for one daemon."""

    pipeline: Pipeline
    archive: Archive
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    trouble: str = ""  # why the archive cannot be written now
    size: int = 0  # bytes of all copies
    skipped: int = 0  # sessions that did not fit
    _held: int = -1  # the lock: two daemons may share a data directory
    _swept: bool = False
    _due: dict[str, tuple[float, float]] = field(default_factory=dict)  # first, last change
    _lost: dict[str, str] = field(default_factory=dict)  # sessions whose file is gone: its path

    async def run(self) -> None:
        """Keep the archive until cancelled."""
        await self.pipeline.scanned.wait()
        self.pipeline.bus.subscribe(self._told)
        while True:
            self.wake.clear()
            try:
                await self._work()
                self.trouble = ""
            except (IndexerdError, OSError) as bad:
                why = str(bad) if isinstance(bad, IndexerdError) else os.strerror(bad.errno or 0)
                if why != self.trouble:
                    self.pipeline.bus.log("archive.failed", {"reason": why})
                self.trouble = why
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self.wake.wait()

    @property
    def _on(self) -> bool:
        return self.pipeline.settings.archive.enabled

    async def _work(self) -> None:
        if self._on and self._held < 0:
            self._held = await asyncio.to_thread(hold, self.archive.directory / "lock")
        if self._on and not self._swept:
            infos = await self.pipeline.read(lambda: [*self.pipeline.library.files.owners.infos()])
            self._due |= dict.fromkeys((info.session_id for info in infos), (0.0, 0.0))
            await asyncio.to_thread(self._sweep, {base_name(info.path) for info in infos})
            self._swept = True
        while self._lost:
            session_id = next(iter(self._lost))
            await self._let_go(session_id, self._lost[session_id])
            self._lost.pop(session_id)
        quiet, now = self.pipeline.settings.archive.quiet_seconds, monotonic()
        for session_id, (first, last) in [*self._due.items()] if self._on else ():
            if now >= min(last + quiet, first + RESTLESS * quiet):
                await self._copy(session_id)
                self._due.pop(session_id, None)

    def _pause(self) -> float | None:
        """Return how long to wait: until the next session is due; None: for an event."""
        if self.trouble:
            return RETRY_SECONDS
        if not (self._due and self._on):
            return None
        quiet = self.pipeline.settings.archive.quiet_seconds
        at = min(min(last + quiet, first + RESTLESS * quiet) for first, last in self._due.values())
        return max(0.05, at - monotonic())

    def _told(self, event: Row) -> None:
        """Note a session that changed, or whose file is gone."""
        session_id = event.get("sessionId")
        if event["event"] == "session.removed" and self.archive.directory.is_dir():
            self._due.pop(str(session_id), None)
            self._lost[str(session_id)] = event["sessionFile"]
            self.wake.set()
        elif event["event"] in ("session.created", "session.updated") and self._on:
            now = monotonic()
            if not self._due:
                self.wake.set()
            first, _ = self._due.get(str(session_id), (now, now))
            self._due[str(session_id)] = first, now

    def _sweep(self, alive: set[str]) -> None:
        """Find files that went while no daemon ran; `alive`: names of those that are there."""
        for source, _ in [*self.archive.entries(LIVE)]:
            if not source.path.endswith(".jsonl") or os.path.lexists(source.path):
                continue
            if base_name(source.path) in alive:  # in another place, as after archiving by its agent
                self.archive.remove(source)
            else:
                self.archive.publish(source)
        self.size = sum(s.st_size for kind in (LIVE, GONE) for _, s in self.archive.entries(kind))

    async def _let_go(self, session_id: str, path: str) -> None:
        """Let the copy of a file that is gone be read; remove that of an excluded one."""
        library = self.pipeline.library
        root = await self.pipeline.read(library.files.root_of, path)
        if root is None or root.kept:
            return
        if not await self.pipeline.read(library.store.get, session_id):  # excluded or purged
            await asyncio.to_thread(self.archive.remove, Source(root.sessions, path))
        elif await asyncio.to_thread(self.archive.publish, Source(root.sessions, path)):
            self.pipeline.rescan()

    # -- copies

    async def _copy(self, session_id: str) -> None:
        source, pinned = await self.pipeline.read(self._source, session_id)
        if source is not None:
            await asyncio.to_thread(self._copy_all, source, pinned)

    def _source(self, session_id: str) -> tuple[Source | None, set[str]]:
        """Return a session's file, if the archive is for it, and the files of pinned sessions."""
        library = self.pipeline.library
        info = library.files.info(session_id)
        root = library.files.root_of(info.path) if info else None
        if info is None or root is None or root.kept or not info.path.endswith(SUFFIXES):
            return None, set()
        rows = library.store.select("SELECT file FROM session WHERE pinned")
        return Source(root.sessions, info.path), {str(file) for (file,) in rows}

    def _copy_all(self, source: Source, pinned: set[str]) -> None:
        for each in (source, *self.archive.sides(source)):
            try:
                status = os.lstat(each.path)
            except FileNotFoundError:  # its removal has not been noticed yet
                continue
            newer = None if source.path in pinned else status.st_mtime_ns
            grown = max(0, status.st_size - self.archive.size_of(each))
            if not self._make_room(round(RATIO * grown), newer, pinned):
                self.skipped += 1
                return
            with suppress(FileNotFoundError):
                self.size += self.archive.copy(each)
            self._make_room(0, newer, pinned)

    def _make_room(self, need: int, newer: int | None, pinned: set[str]) -> bool:
        """Remove the oldest copies, but none as new as `newer`; return whether there is room."""
        most = self.pipeline.settings.archive.max_gb * GIGABYTE
        if self.size + need <= most:
            return True
        entries = [entry for kind in (LIVE, GONE) for entry in self.archive.entries(kind)]
        for source, status in sorted(entries, key=lambda entry: entry[1].st_mtime_ns):
            if self.size + need <= most or (newer is not None and status.st_mtime_ns >= newer):
                break
            if source.path not in pinned:
                self.archive.remove(source)
                self.size -= status.st_size
        return self.size + need <= most

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Find what the user should know: code, cause and cure."""
        limit = self.pipeline.settings.archive.max_gb
        if self._on and self.trouble:
            yield "archive_unwritable", self.trouble, "free some space; it is tried again"
        if self._on and (self.skipped or self.size > NEARLY_FULL * limit * GIGABYTE):
            cause = f"the archive has {self.size / GIGABYTE:.1f} of {limit:g} GB"
            cure = "raise [archive] max_gb, or pin what must stay: the oldest copies go first"
            yield "archive_full", cause, cure
