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
from pathlib import PurePath
from time import monotonic
from typing import Any

from indexerd.amounts import count
from indexerd.archive.copies import GONE, LIVE, SUFFIX, Archive, Source
from indexerd.daemon.pipeline import Pipeline
from indexerd.disk import hold
from indexerd.errors import IndexerdError, SessionUnreadableError
from indexerd.sessions.info import SessionInfo, base_name
from indexerd.sources.opencode_copy import rows_of
from indexerd.sources.roots import Layout

NEARLY_FULL = 0.9  # share of the limit from which `status` warns
LOWERED = 1.05  # times the limit: only a lower limit leaves so much, and that removes nothing
SLACK = 0.01  # share of the limit that is freed besides, so that not each copy looks at all others
GIGABYTE = 1e9
RESTLESS = 10  # times quiet_seconds after which a session is copied although it still grows
RETRY_SECONDS = 60.0

Row = dict[str, Any]


@dataclass(eq=False)
class Keeper:
    """The archive, for one daemon."""

    pipeline: Pipeline
    archive: Archive
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    trouble: tuple[str, str] | None = None  # why the archive cannot be written now, and the cure
    size: int = 0  # bytes of all copies
    skipped: set[Source] = field(default_factory=set)  # sessions' files that have no copy
    _held: int = -1  # the lock: two daemons may share a data directory
    _swept: bool = False  # all sessions were due since the start, or since new settings
    _settled: bool = False  # no file has gone since all copies were looked at
    _due: dict[str, tuple[float, float]] = field(default_factory=dict)  # first change, when to copy
    _pinned: set[str] = field(default_factory=set)  # files of pinned sessions, without suffixes
    _oldest_ns: int = 0  # no copy is older: there is no room for sessions that are

    async def run(self) -> None:
        """Keep the archive until cancelled."""
        await self.pipeline.scanned.wait()
        self.pipeline.bus.subscribe(self._on_event)
        while True:
            self.wake.clear()
            await self.once()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self.wake.wait()

    async def once(self) -> None:
        """Bring the copies that are due up to date: at first, those of all sessions."""
        try:
            await self._work()
            self.trouble = None
        except (IndexerdError, OSError) as bad:
            cure = getattr(bad, "hint", "free some space; it is tried again")
            if (str(bad), cure) != self.trouble:
                self.pipeline.bus.log("archive.failed", {"reason": str(bad)})
            self.trouble, self._settled = (str(bad), cure), False

    def reload(self) -> None:
        """Apply new settings: all sessions are compared with their copies."""
        self._swept = self._settled = False
        self.wake.set()

    @property
    def _on(self) -> bool:
        return self.pipeline.settings.archive.enabled

    @property
    def _most(self) -> float:
        return self.pipeline.settings.archive.max_gb * GIGABYTE

    async def _work(self) -> None:
        if not (self._on or self.archive.directory.is_dir()):
            return
        if self._held < 0:
            self._held = await asyncio.to_thread(hold, self.archive.directory / "lock")
        if not self._settled:
            await self._settle()
        now, failed = monotonic(), list[Exception]()
        due = [key for key, (_, at) in self._due.items() if at <= now] if self._on else []
        self._pinned = await self.pipeline.read(self._pins) if due else set()
        for session_id in due:
            change = self._due.pop(session_id, (now, now))
            try:
                sources = await self.pipeline.read(self._sources, session_id)
                await asyncio.to_thread(self._copy, sources, swept=not change[0])
            except (IndexerdError, OSError) as bad:  # a full disk may have room for others
                self._due.setdefault(session_id, change)
                failed.append(bad)
        if failed:
            raise failed[0]

    def _pause(self) -> float | None:
        """Return how long to wait: until the next session is due; None: for an event."""
        if self.trouble:
            return RETRY_SECONDS
        if not (self._due and self._on):
            return None
        return max(0.05, min(at for _, at in self._due.values()) - monotonic())

    def _on_event(self, event: Row) -> None:
        """Note a session that changed, or whose file is gone."""
        session_id = event.get("sessionId")
        if event["event"] == "session.removed" and self.archive.directory.is_dir():
            self._due.pop(str(session_id), None)
            self._settled = False
            self.wake.set()
        elif event["event"] in ("session.created", "session.updated") and self._on:
            now, quiet = monotonic(), self.pipeline.settings.archive.quiet_seconds
            if not self._due:
                self.wake.set()
            first, _ = self._due.get(str(session_id), (now, now))
            self._due[str(session_id)] = first, min(now + quiet, first + RESTLESS * quiet)

    async def _settle(self) -> None:
        """Compare all copies with what is there; after a start, let all sessions be due."""
        self._settled = True
        infos, excluded = await self.pipeline.read(self._known)
        if self._on and not self._swept:
            self.skipped.clear()
            self._oldest_ns = 0
            self._due |= dict.fromkeys((info.session_id for info in infos), (0.0, 0.0))
        self._swept = True
        moved = {base_name(path): path for path in (*(info.path for info in infos), *excluded)}
        if await asyncio.to_thread(self._reconcile, moved, excluded):
            self.pipeline.rescan()

    def _known(self) -> tuple[list[SessionInfo], set[str]]:
        """Return the sessions whose files are there, newest first, and the excluded files."""
        files = self.pipeline.library.files
        infos = [info for info in files.owners.infos() if files.original(info.path) == info.path]
        infos.sort(key=lambda info: -info.modified_ms)
        return infos, {path.removesuffix(SUFFIX) for path in files.excluded()}

    def _reconcile(self, moved: dict[str, str], excluded: set[str]) -> bool:
        """Drop copies of files that moved or were excluded, and let those of gone ones be read.

        Returns whether there are any of the latter.
        """
        self.archive.tidy()
        published = False
        for kind in (GONE, LIVE):
            for source, _ in [*self.archive.entries(kind)]:
                now = moved.get(base_name(source.path), "")
                if source.path in excluded:
                    self.archive.remove(source)
                elif kind == GONE or source.is_there():
                    continue
                elif now and self.archive.covers(now, source):
                    self.archive.remove(source)
                else:
                    published |= self.archive.publish(source)
        self.size = sum(status.st_size for _, status in self._entries())
        self.skipped = {source for source in self.skipped if source.is_there()}
        return published

    def _entries(self) -> list[tuple[Source, os.stat_result]]:
        return [entry for kind in (LIVE, GONE) for entry in self.archive.entries(kind)]

    # -- copies

    def _sources(self, session_id: str) -> list[Source]:
        """Return a session's files: several after a revert in Codex."""
        files, found = self.pipeline.library.files, dict[str, Source]()
        for path in (file.path for file in files.owners.files(session_id)):
            root = files.root_of(path)
            if root and not root.kept and root.layout in (Layout.FILES, Layout.DATABASE):
                found.setdefault(path.removesuffix(SUFFIX), Source(root.sessions, path))
        return [*found.values()]

    def _pins(self) -> set[str]:
        library = self.pipeline.library
        rows = library.store.select("SELECT file FROM session WHERE pinned")
        return {_stem(library.files.original(str(file))) for (file,) in rows}

    def _copy(self, sources: list[Source], *, swept: bool) -> None:
        """Bring a session's copies up to date; in a sweep, replace those that are damaged."""
        for source in sources:
            self.skipped.discard(source)
            fits = self.archive.has_room(source)
            for each in (source, *self.archive.sides(source)) if fits else ():
                # A file may have gone unnoticed; of one that cannot be read, `status` says so.
                with suppress(FileNotFoundError, SessionUnreadableError):
                    anew = swept and self.archive.is_damaged(each)
                    fits = fits and self._copy_one(each, anew=anew)
            if not fits:
                self.skipped.add(source)

    def _copy_one(self, source: Source, *, anew: bool) -> bool:
        """Bring one copy up to date; return whether it fits, perhaps in the place of others."""
        archive, rows = self.archive, None
        if source.in_database:
            known_ns = 0 if anew else archive.copied_ns(source)
            if (found := rows_of(source.path, known_ns)) is None:
                return True
            rows, mtime_ns = found
            size = len(rows)
        else:
            status = os.lstat(source.path)
            size, mtime_ns = status.st_size, status.st_mtime_ns
        need = size - archive.size_of(source)
        if need > 0 and self.size + need > self._most:  # compressed, it may still fit
            need = archive.growth(source, rows)
        if need > 0 and self.size + need > self._most and not self._room(need, source, mtime_ns):
            return False
        if rows is None:
            self.size += archive.copy(source, anew=anew)
        else:
            self.size += archive.copy_whole(source, rows, mtime_ns)
        return True

    def _room(self, need: int, source: Source, mtime_ns: int) -> bool:
        """Remove the oldest copies, none newer than the file to copy; return whether it fits."""
        stays = _is_of(source, self._pinned)
        if mtime_ns <= self._oldest_ns and not stays:
            return False
        entries, victims, free = self._entries(), list[Source](), 0
        self.size = sum(status.st_size for _, status in entries)
        if self.size > LOWERED * self._most:
            return False
        for old, status in sorted(entries, key=lambda entry: entry[1].st_mtime_ns):
            if self.size - free + need <= (1 - SLACK) * self._most:
                break
            if status.st_mtime_ns >= mtime_ns and not stays:
                break
            if old.is_session and old != source and not _is_of(old, self._pinned):
                victims.append(old)
                free += sum(path.stat().st_size for path in self.archive.copies(old))
        if self.size - free + need > self._most:
            self._oldest_ns = max(self._oldest_ns, 0 if victims else mtime_ns)
            return False
        for old in victims:
            self.archive.remove(old)
            self.pipeline.bus.log("archive.dropped", {"path": old.path})
        self.skipped |= {old for old in victims if old.is_there()}
        self.size -= free
        return True

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Find what the user should know: code, cause and cure."""
        limit = self.pipeline.settings.archive.max_gb
        if self._on and self.trouble:
            yield "archive_unwritable", *self.trouble
        if self._on and (self.skipped or self.size > NEARLY_FULL * limit * GIGABYTE):
            cause = f"the archive has {self.size / GIGABYTE:.3g} of {limit:g} GB"
            if self.skipped:
                cause += f", and {count(len(self.skipped), 'session')} did not fit"
            cure = "raise [archive] max_gb, or pin what must stay: the oldest copies go first"
            if self.size > LOWERED * limit * GIGABYTE:
                cure = "raise [archive] max_gb: until then nothing is copied, and nothing removed"
            yield "archive_full", cause, cure


def _stem(path: str) -> str:
    return path.removesuffix(SUFFIX).removesuffix(".jsonl")


def _is_of(source: Source, stems: set[str]) -> bool:
    """Whether a file is one of these, or below the name of one."""
    return not stems.isdisjoint([_stem(source.path), *map(str, PurePath(source.path).parents)])
