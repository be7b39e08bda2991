"""`run --once`: scan, wait out the quiet time of ended turns, try each due session once."""

from __future__ import annotations

import asyncio
import math
from typing import Any, NamedTuple

from indexerd.daemon.pipeline import Pipeline
from indexerd.digests.auto import AutoDigests
from indexerd.indexing.indexer import Done, Failure
from indexerd.indexing.policy import decide


class Report(NamedTuple):
    """What one pass did."""

    sessions: int
    indexed: list[Done]
    failed: list[tuple[str, str, bool]]  # session, kind, retryable; runs and digests
    digested: list[str]  # sessions that got a segment

    @property
    def skipped(self) -> int:
        tried = {done.session_id for done in self.indexed} | {key for key, _, _ in self.failed}
        return self.sessions - len(tried.union(self.digested))

    @property
    def exit_code(self) -> int:
        """0 when nothing failed, 75 when all that failed may be tried again, else 1."""
        if not self.failed:
            return 0
        return 75 if all(retryable for _, _, retryable in self.failed) else 1

    def to_json(self) -> dict[str, Any]:
        return {
            "sessions": self.sessions,
            "indexed": [done.session_id for done in self.indexed],
            "skipped": self.skipped,
            "digested": self.digested,
            "failed": [{"sessionId": key, "kind": kind} for key, kind, _ in self.failed],
        }


async def run_once(pipeline: Pipeline, digests: AutoDigests) -> Report:
    """One pass over everything; a back-off is not waited for."""
    outcomes = pipeline.indexer.outcomes
    await pipeline.start()
    await pipeline.scan()
    while await pipeline.read(pipeline.library.texts.step):
        pass
    waiting = await _run_due(pipeline)
    await digests.run(once=True)
    failed = [
        (key, one.kind, one.retryable) for key, one in outcomes.items() if isinstance(one, Failure)
    ]
    failed += [
        (key, pipeline.known[key].retry.why, True)
        for key, (_, why) in waiting.items()
        if why == "back_off"
    ]
    failed += [(key, bad.kind, bad.retryable) for key, bad in digests.failed.items()]
    indexed = [one for one in outcomes.values() if isinstance(one, Done) and not one.adopted]
    return Report(len(pipeline.known), indexed, failed, list(digests.made))


async def _run_due(pipeline: Pipeline) -> dict[str, tuple[float, str]]:
    """Run until no session is at the end of its quiet time, or near it; the others' waits."""
    while True:
        if pipeline.running:
            await asyncio.wait(pipeline.running.values())
            continue
        untried = pipeline.known.keys() - pipeline.indexer.outcomes.keys()
        for session_id in untried:
            pipeline.consider(session_id)
        if pipeline.running:
            continue
        now, settings = pipeline.now(), pipeline.settings
        decisions = {key: decide(pipeline.known[key], settings, now) for key in untried}
        waiting = {key: one for key, one in decisions.items() if now < one[0] < math.inf}
        until = [when for when, why in waiting.values() if why == "due"]
        if not until or pipeline.indexing_off or not pipeline.models.available():
            return waiting
        await asyncio.sleep(max(0.01, min(min(until) - now, 1.0)))
