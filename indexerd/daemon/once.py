"""`run --once`: read all sessions, index those that are due, and report."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from time import monotonic, time
from typing import Any, NamedTuple

from indexerd.daemon.pipeline import Pipeline
from indexerd.digests.digest import AutoDigests
from indexerd.indexing.indexer import Done, Failure
from indexerd.indexing.policy import decide
from indexerd.models.extractive import Extractive

MANY = 50  # due sessions, from which on the built-in model has processes of its own
COMMIT_SECONDS = 5.0  # between commits: what an interruption loses at most
_NO_INTERRUPT = (signal.SIGINT, signal.SIG_IGN)  # a terminal interrupts all processes
NO_MODEL = "no_model"  # why a due session waits
# Is told what is being done, and how much of how much is done (0: not known).
Show = Callable[[str, int, int], None]


class Report(NamedTuple):
    """The result of one pass."""

    sessions: int
    models: dict[str, str]  # of the sessions that were named
    digested: list[str]
    failed: dict[str, Failure]
    waiting: Counter[str]  # sessions that were left out, by reason (indexing/policy.py)
    unreadable: int  # files and directories
    named_before: int = 0  # of the sessions that wait for new prompts
    subagents: int = 0

    @property
    def exit_code(self) -> int:
        codes = {75 if retryable else 1 for _, retryable in self.failed.values()}
        return min(codes, default=0)

    def encode(self) -> dict[str, Any]:
        return {
            "sessions": self.sessions,
            "indexed": [*self.models],
            "skipped": self.sessions - len({*self.models, *self.failed, *self.digested}),
            "waiting": dict(self.waiting),
            "digested": self.digested,
            "unreadable": self.unreadable,
            "failed": [{"sessionId": key, "kind": kind} for key, (kind, _) in self.failed.items()],
        }


async def run_once(pipeline: Pipeline, digests: AutoDigests, show: Show) -> Report:
    """Scan, make all text searchable, try each due session once, make the digests that are due."""
    pipeline.only_reads = True
    await pipeline.start()
    show("Looking for sessions", 0, 0)
    await _read_all(pipeline, show)
    await pipeline.place_all()
    pipeline.only_reads = False
    with ExitStack() as stack:
        if len(pipeline.jobs) >= MANY:
            _speed_up(pipeline, stack)
        waiting = await _run_due(pipeline, show)
        show("Making digests", 0, 0)
        await digests.run(once=True)
    outcomes = pipeline.indexer.outcomes
    failed = {key: end for key, end in outcomes.items() if not isinstance(end, Done)}
    late = [key for key, why in waiting.items() if why == "back_off"]
    failed |= {key: (pipeline.known[key].retry.why, True) for key in late}
    failed |= digests.failed
    done = [end for end in outcomes.values() if isinstance(end, Done) and not end.adopted]
    models = {run.session_id: run.model for run in done}
    left_out = waiting.keys() - {*models, *failed, *digests.digested}
    reasons = Counter(waiting[key] for key in left_out)
    library = pipeline.library
    unreadable = len(library.files.problems())
    unreadable += len(library.last_scan.unreadable) if library.last_scan else 0
    few = (key for key in left_out if waiting[key] == "below_threshold")
    return Report(
        sessions=len(pipeline.known),
        models=models,
        digested=digests.digested,
        failed=failed,
        waiting=reasons,
        unreadable=unreadable,
        named_before=sum(library.metas.get(key) is not None for key in few),
        subagents=sum(known.info.subagent for known in pipeline.known.values()),
    )


def _speed_up(pipeline: Pipeline, stack: ExitStack) -> None:
    """Have the built-in model answer in processes of its own until the stack ends."""
    count, fresh = pipeline.settings.index.concurrency, get_context("spawn")
    before = os.environ.setdefault("PYTHONSAFEPATH", "")
    os.environ["PYTHONSAFEPATH"] = "1"  # they import nothing from the working directory
    for model in pipeline.models.available():
        if isinstance(model, Extractive):
            pool = ProcessPoolExecutor(count, fresh, signal.signal, _NO_INTERRUPT)
            model.pool = stack.enter_context(pool)
            for _ in range(count):  # starts a process each, while the variable is set
                pool.submit(int)
    os.environ["PYTHONSAFEPATH"] = before  # empty: not set


async def _read_all(pipeline: Pipeline, show: Show) -> None:
    """Read files and, while their trees are in memory, their texts; commit now and then."""
    library, commit_at = pipeline.library, monotonic() + COMMIT_SECONDS
    texts = library.texts
    while not pipeline.scanned.is_set() or await pipeline.read(lambda: texts.due):
        if not pipeline.scanned.is_set():
            await pipeline.look()
        while await pipeline.read(texts.read_some) and not texts.ripe:
            pass
        known = len(pipeline.known)
        show("Reading", known, known + len(library.files.queue))
        if pipeline.scanned.is_set() or monotonic() > commit_at:
            await pipeline.read(library.index.commit)
            commit_at = monotonic() + COMMIT_SECONDS


async def _run_due(pipeline: Pipeline, show: Show) -> dict[str, str]:
    """Run sessions until none is due soon; return why the others wait."""
    outcomes = pipeline.indexer.outcomes
    while True:
        if pipeline.running:
            done = len(outcomes)
            show("Naming", done, done + len(pipeline.running) + len(pipeline.jobs))
            await asyncio.wait(pipeline.running.values(), return_when=asyncio.FIRST_COMPLETED)
            continue
        untried = pipeline.known.keys() - outcomes.keys()
        for session_id in untried:
            pipeline.consider(session_id)
        if pipeline.running:
            continue
        now, settings = time(), pipeline.settings
        decisions = {key: decide(pipeline.known[key], settings, now) for key in untried}
        until = [when for when, why in decisions.values() if why == "due" and now < when < math.inf]
        if not until or pipeline.indexing_off or not pipeline.models.available():
            reasons = ((key, why, now < when) for key, (when, why) in decisions.items())
            return {key: why if ok and why != "due" else NO_MODEL for key, why, ok in reasons}
        show("Waiting for turns to end", 0, 0)
        await asyncio.sleep(max(0.01, min(min(until) - now, 1.0)))
