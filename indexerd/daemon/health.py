"""The answer to `status`: the daemon's state, and its problems, each with cause, start and cure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

from indexerd.archive.copies import Archive
from indexerd.archive.retention import deleted_soon
from indexerd.daemon.pipeline import ASKED_PATIENCE, Pipeline
from indexerd.daemon.web_supervisor import WebSupervisor
from indexerd.errors import StateError
from indexerd.models.budget import Budget
from indexerd.privacy.redact import quotable, shown_path
from indexerd.privacy.sanitize import escape_path
from indexerd.times import iso

NEWEST_VERSION = 3  # of pi's format
COUNT_SECONDS = 600.0  # between two counts of the sessions that will be deleted
SHOWN = 20  # paths and sessions named in one problem
Found = Iterator[tuple[str, str, str]]  # code, cause and cure of problems
_READ = "check its mode and owner; if it is damaged, restore a backup; every scan tries it again"


class Status:
    """The state of one daemon."""

    def __init__(
        self, pipeline: Pipeline, budget: Budget, web: WebSupervisor, archive: Archive
    ) -> None:
        self._pipeline = pipeline
        self._budget = budget
        self._web = web
        self._archive = archive
        self.more: list[Callable[[], Found]] = []  # of other parts
        self._since: dict[tuple[str, str], str] = {}  # when problems were first seen: code, cause
        self._seen = -1  # `changed` of the library when sessions were last checked
        self._of_sessions: list[tuple[str, str, str]] = []
        self._counter = ThreadPoolExecutor(1, thread_name_prefix="retention")
        self._count_at = 0.0  # when to count again, on the monotonic clock
        self._archiving = False  # at the last count
        self._counted: asyncio.Future[dict[str, Any] | None] | None = None

    def state(self) -> str:
        if self._pipeline.indexing_off or not self._pipeline.models.available():
            return "indexing-off"
        return "degraded" if self._problems() else "ok"

    async def answer(self) -> dict[str, Any]:
        return self.report() | {"deletedSoon": await self._deleted_soon()}

    async def _deleted_soon(self) -> dict[str, Any] | None:
        """Count the sessions that will be deleted, if asked; None also if settings' disk hangs."""
        files, now = self._pipeline.library.files, time.monotonic()
        archiving = self._pipeline.settings.archive.enabled
        late = now >= self._count_at or archiving != self._archiving
        if self._pipeline.scanned.is_set() and late:
            self._count_at, self._archiving = now + COUNT_SECONDS, archiving
            now_ms = int(1000 * time.time())
            given = files.owners.infos(), files.roots, self._archive, now_ms
            loop = asyncio.get_running_loop()
            count = partial(deleted_soon, *given, archiving=archiving)
            self._counted = loop.run_in_executor(self._counter, count)
        with suppress(TimeoutError):
            async with asyncio.timeout(ASKED_PATIENCE):
                return await asyncio.shield(self._counted) if self._counted else None
        return None

    def report(self) -> dict[str, Any]:
        pipeline = self._pipeline
        health = pipeline.watch.health()
        ours = {root.meta for root in pipeline.library.files.roots}  # created when needed
        kinds = dict[str, int]()
        with suppress(StateError):  # `problems` has it
            kinds = pipeline.library.store.kinds()
        percent, left = pipeline.library.texts.progress or (None, None)
        return {
            "state": self.state(),
            "sessions": len(pipeline.known),
            "kinds": kinds,
            "queued": len(pipeline.jobs),
            "indexing": len(pipeline.running),
            "running": sorted(pipeline.running),
            "textPending": pipeline.library.texts.unread,
            "textPercent": percent,
            "textSecondsLeft": left,
            "lastScanAt": iso(pipeline.last_scan_at) if pipeline.last_scan_at else None,
            "models": {
                "usable": [model.key for model in pipeline.models.available()],
                "missing": pipeline.models.missing,
            },
            "budget": self._budget.summary(),
            "watches": {
                "mode": health.mode,
                "watched": health.watched,
                "missing": [quotable(path) for path in health.missing if path not in ours],
                "overflows": health.overflows,
            },
            "problems": self._problems(),
        }

    def _problems(self) -> list[dict[str, Any]]:
        """List the current problems; called every few seconds, so `since` is nearly right."""
        pipeline, now = self._pipeline, iso(time.time())
        budget = ((code, *why) for code, why in self._budget.troubles().items())
        watch = pipeline.watch.health().problems
        if pipeline.library.changed != self._seen:  # this looks at every session
            self._seen, self._of_sessions = pipeline.library.changed, [*_sessions(pipeline)]
        problems = [*_own(pipeline), *_roots(pipeline), *watch, *budget, *self._of_sessions]
        problems += [problem for find in self.more for problem in find()]
        self._since = {problem[:2]: self._since.get(problem[:2], now) for problem in problems}
        return [
            {
                "code": code,
                "cause": shown_path(cause),
                "since": self._since[code, cause],
                "cure": cure,
            }
            for code, cause, cure in problems
        ] + self._web.problems


def _own(pipeline: Pipeline) -> Found:
    """Find problems with the configuration, models, disk and reader thread."""
    for bad in pipeline.loaded.problems:
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
        cure = _READ
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
