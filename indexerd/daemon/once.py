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
    """The result of one pass."""

    sessions: int
    indexed: list[Done]
    failed: list[tuple[str, Failure]]  # by session; index runs and digests
    digested: list[str]  # sessions that got a segment

    @property
    def skipped(self) -> int:
        tried = {done.session_id for done in self.indexed} | {key for key, _ in self.failed}
        return self.sessions - len(tried.union(self.digested))

    @property
    def exit_code(self) -> int:
        """0 if nothing failed, 75 if all failures are retryable, else 1."""
        codes = {75 if one.retryable else 1 for _, one in self.failed}
        return min(codes, default=0)

    def to_json(self) -> dict[str, Any]:
        return {
            "sessions": self.sessions,
            "indexed": [done.session_id for done in self.indexed],
            "skipped": self.skipped,
            "digested": self.digested,
            "failed": [{"sessionId": key, "kind": one.kind} for key, one in self.failed],
        }


async def run_once(pipeline: Pipeline, digests: AutoDigests) -> Report:
    """Make one pass; sessions that wait after a failure count as failed."""
    outcomes = pipeline.indexer.outcomes
    await pipeline.start()
    await pipeline.scan()
    while await pipeline.read(pipeline.library.texts.step):
        pass
    waiting = await _run_due(pipeline)
    await digests.run(once=True)
    late = [key for key, why in waiting.items() if why == "back_off"]
    failed = [(key, one) for key, one in outcomes.items() if isinstance(one, Failure)]
    failed += [(key, Failure(pipeline.known[key].retry.why, retryable=True)) for key in late]
    failed += digests.failed.items()
    indexed = [one for one in outcomes.values() if isinstance(one, Done) and not one.adopted]
    return Report(len(pipeline.known), indexed, failed, list(digests.made))


async def _run_due(pipeline: Pipeline) -> dict[str, str]:
    """Run sessions until none is due soon; return why the others wait."""
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
            return {key: why for key, (_, why) in waiting.items()}
        await asyncio.sleep(max(0.01, min(min(until) - now, 1.0)))
