"""`run --once`: scan, wait out the quiet time of ended turns, try each due session once."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Any

from indexerd.daemon.pipeline import Pipeline
from indexerd.digests.auto import AutoDigests
from indexerd.indexing.indexer import Done, Failure
from indexerd.indexing.policy import decide


@dataclass(frozen=True, slots=True)
class Report:
    """What one pass did."""

    sessions: int
    indexed: list[Done]
    failed: list[tuple[str, str, bool]]  # session, kind, retryable; runs and digests
    digested: list[str]  # sessions that got a segment

    @property
    def skipped(self) -> int:
        """Sessions that were not due."""
        tried = {done.session_id for done in self.indexed} | {key for key, _, _ in self.failed}
        return self.sessions - len(tried.union(self.digested))

    @property
    def exit_code(self) -> int:
        """0 when nothing failed, 75 when all that failed may be tried again, else 1."""
        if not self.failed:
            return 0
        return 75 if all(retryable for _, _, retryable in self.failed) else 1

    def to_json(self) -> dict[str, Any]:
        """The `--json` form of docs/PROTOCOL.md."""
        return {
            "sessions": self.sessions,
            "indexed": [done.session_id for done in self.indexed],
            "skipped": self.skipped,
            "digested": self.digested,
            "failed": [{"sessionId": key, "kind": kind} for key, kind, _ in self.failed],
        }


async def run_once(pipeline: Pipeline, digests: AutoDigests) -> Report:
    """One pass over everything; a back-off is not waited for."""
    await pipeline.start()
    ticking = asyncio.create_task(pipeline.keep_time())
    try:
        await pipeline.scan()
        while await pipeline.read(pipeline.library.texts.step):
            pass
        await _settled(pipeline)
        await digests.settle()
    finally:
        ticking.cancel()
        await pipeline.stop()
    outcomes = pipeline.indexer.outcomes
    failed = [
        (key, one.kind, one.retryable) for key, one in outcomes.items() if isinstance(one, Failure)
    ]
    for session_id, _, why in _waiting(pipeline):
        if why == "back_off":
            failed.append((session_id, pipeline.known[session_id].retry.why, True))
    failed += [(key, bad.kind, bad.retryable) for key, bad in digests.failed.items()]
    indexed = [one for one in outcomes.values() if isinstance(one, Done) and not one.adopted]
    return Report(len(pipeline.known), indexed, failed, list(digests.made))


async def _settled(pipeline: Pipeline) -> None:
    """Wait until nothing runs, and nothing waits for the end of its quiet time."""
    while True:
        if tasks := pipeline.tasks():
            await asyncio.wait(tasks)
        elif not pipeline.decide_due():
            due = [when for _, when, why in _waiting(pipeline) if why == "due"]
            if not due or pipeline.indexing_off or not pipeline.models.available():
                return
            await asyncio.sleep(max(0.01, min(min(due) - pipeline.now(), 1.0)))


def _waiting(pipeline: Pipeline) -> list[tuple[str, float, str]]:
    """Sessions not tried yet that only wait for their moment: id, when, why."""
    now, settings = pipeline.now(), pipeline.settings
    untried = (one for one in pipeline.known.items() if one[0] not in pipeline.indexer.outcomes)
    decisions = ((key, *decide(one, settings, now)) for key, one in untried)
    return [one for one in decisions if now < one[1] < math.inf]
