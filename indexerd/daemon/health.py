"""The answer to `status`: the daemon's state, and its problems, each with cause, start and cure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from indexerd.archive.copies import Archive
from indexerd.archive.retention import deleted_soon
from indexerd.daemon.pipeline import ASKED_PATIENCE, Pipeline
from indexerd.errors import StateError
from indexerd.models.budget import Budget
from indexerd.privacy.redact import quotable, shown_path
from indexerd.privacy.sanitize import escape_path
from indexerd.search.meaning import Meaning
from indexerd.sources.scan import UNREADABLE
from indexerd.times import iso

NEWEST_VERSION = 3  # of pi's format
COUNT_SECONDS = 600.0  # between two counts of the sessions that will be deleted
SHOWN = 20  # paths and sessions named in one problem
Found = Iterator[tuple[str, str, str]]  # code, cause and cure of problems


@dataclass(eq=False)
class Status:
    """The state of one daemon."""

    pipeline: Pipeline
    budget: Budget
    archive: Archive
    meaning: Meaning
    others: Sequence[Callable[[], Found]]  # find the problems of other parts
    _since: dict[tuple[str, str], str] = field(default_factory=dict)  # when first seen: code, cause
    _seen: int = -1  # `changed` of the library when sessions were last checked
    _of_sessions: list[tuple[str, str, str]] = field(default_factory=list)
    _count_at: float = 0.0  # when to count again, on the monotonic clock
    _archiving: bool = False  # at the last count
    _counted: asyncio.Future[dict[str, Any] | None] | None = None

    def __post_init__(self) -> None:
        self._counter = ThreadPoolExecutor(1, thread_name_prefix="retention")

    def state(self) -> str:
        if self.pipeline.indexing_off or not self.pipeline.models.available():
            return "indexing-off"
        return "degraded" if self._problems() else "ok"

    async def answer(self) -> dict[str, Any]:
        pipeline = self.pipeline
        health = pipeline.watch.health()
        ours = {root.meta for root in pipeline.library.files.roots}  # created when needed
        kinds = dict[str, int]()
        with suppress(StateError):  # `problems` has it
            kinds = pipeline.library.store.kinds()
        return {
            "state": self.state(),
            "sessions": len(pipeline.known),
            "kinds": kinds,
            "queued": len(pipeline.jobs),
            "indexing": len(pipeline.running),
            "running": sorted(pipeline.running),
            "textPending": pipeline.library.texts.unread,
            "meaning": self.meaning.status(),
            "lastScanAt": iso(pipeline.last_scan_at) if pipeline.last_scan_at else None,
            "models": {
                "usable": [model.key for model in pipeline.models.available()],
                "missing": pipeline.models.missing,
            },
            "budget": self.budget.summary(),
            "watches": {
                "mode": health.mode,
                "watched": health.watched,
                "missing": [quotable(path) for path in health.missing if path not in ours],
                "overflows": health.overflows,
            },
            "problems": self._problems(),
            "deletedSoon": await self._deleted_soon(),
        }

    async def _deleted_soon(self) -> dict[str, Any] | None:
        """Count the sessions that will be deleted; None if the disk with the settings hangs."""
        files, now = self.pipeline.library.files, time.monotonic()
        archiving = self.pipeline.settings.archive.enabled
        late = now >= self._count_at or archiving != self._archiving
        if self.pipeline.scanned.is_set() and late:
            self._count_at, self._archiving = now + COUNT_SECONDS, archiving
            given = files.owners.infos(), files.roots, self.archive, int(1000 * time.time())
            count = partial(deleted_soon, *given, archiving=archiving)
            loop = asyncio.get_running_loop()
            self._counted = loop.run_in_executor(self._counter, count)
        if self._counted is None:
            return None
        done, _ = await asyncio.wait([self._counted], timeout=ASKED_PATIENCE)
        return self._counted.result() if done else None

    def _problems(self) -> list[dict[str, Any]]:
        """List the current problems; called every few seconds, so `since` is nearly right."""
        found, now = [*self._find()], iso(time.time())
        self._since = {problem[:2]: self._since.get(problem[:2], now) for problem in found}
        return [
            {
                "code": code,
                "cause": shown_path(cause),
                "since": self._since[code, cause],
                "cure": cure,
            }
            for code, cause, cure in found
        ]

    def _find(self) -> Found:
        pipeline = self.pipeline
        yield from _own(pipeline)
        yield from _roots(pipeline)
        yield from pipeline.watch.health().problems
        for code, (cause, cure) in self.budget.troubles().items():
            yield code, cause, cure
        if pipeline.library.changed != self._seen:  # this looks at every session
            self._seen, self._of_sessions = pipeline.library.changed, [*_sessions(pipeline)]
        yield from self._of_sessions
        for find in self.others:
            yield from find()


def _own(pipeline: Pipeline) -> Found:
    """Find problems with the configuration, models, disk and reader thread."""
    for bad in pipeline.refused or pipeline.loaded.problems:
        yield "config_invalid", f"{bad['file']}: {bad['key']}: {bad['message']}", bad["hint"]
    if not pipeline.models.available():
        cure = "configure a key, or add local/extractive to model_keys, and reload"
        yield "model_unavailable", pipeline.missing_models, cure
    for trouble in set(pipeline.troubles.values()):
        cure = "free some space, or find out what locks the file; it is retried continually"
        yield "state_unwritable", trouble, cure
    if pipeline.stalled:
        cause = "reading files has stopped, perhaps because a file system hangs"
        yield "scan_stalled", cause, "find out which mount does not answer, then restart the daemon"


def _roots(pipeline: Pipeline) -> Found:
    """Find databases and directories that cannot be read."""
    scan = pipeline.library.last_scan
    for path, (why, cure) in islice(scan.unreadable.items() if scan else (), SHOWN):
        yield "unreadable", f"{escape_path(path)}: {why}", cure


def _sessions(pipeline: Pipeline) -> Found:
    """Find problems with session files and meta files."""
    files = pipeline.library.files
    for path, why in islice(files.problems().items(), SHOWN):
        cure = UNREADABLE
        if why.startswith("set aside"):  # because of a bug in indexerd
            cure = "it is read again once it changes, or by a newer indexerd; please report this"
        yield "unreadable", f"{escape_path(path)}: {why}", cure
    for why in islice(pipeline.library.metas.problems().values(), SHOWN):
        yield "invalid_meta", why, "`indexerd index REF --force` rewrites it"
    odd = (info for info in files.owners.infos() if info.looped or info.version > NEWEST_VERSION)
    for info in islice(odd, SHOWN):
        session = f"session {info.session_id}"
        if info.looped:
            cure = "none needed: the path is cut where it would repeat"
            yield "parent_cycle", f"{session}: its entries form a cycle", cure
        else:
            cause = f"{session}: format version {info.version} is newer than this program supports"
            yield "newer_version", cause, "install a newer indexerd"
