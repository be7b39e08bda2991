"""The clock may be set while sessions wait for the end of their quiet time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.daemon.flow_bench import Flow, until
from tests.digests.grown import grown
from tests.models.digest_bench import Bench


@pytest.mark.parametrize("step", [-3600.0, 86_400.0], ids=["back an hour", "ahead a day"])
def test_a_clock_that_is_set_holds_up_nothing(tmp_path: Path, step: float) -> None:
    """V8: no session waits for as long as the clock was set back, and none is indexed twice."""
    flow = Flow(tmp_path, quiet=0.5)

    async def work() -> None:
        await until(flow.pipeline.scanned.is_set, "the first scan")
        session = flow.session(turns=5)
        flow.hint(session)
        await until(lambda: len(flow.pipeline._reminders) == 1, "the quiet time")
        flow.offset = step
        path = flow.metas / f"{session.id}.meta.json"
        await until(path.exists, "the meta file")
        await until(lambda: not flow.pipeline.tasks(), "the end of the run")
        outcomes = flow.pipeline.runner.outcomes
        assert list(outcomes) == [session.id]
        session.talk(5)
        flow.hint(session)
        first = outcomes[session.id]
        await until(lambda: outcomes[session.id] is not first, "the next run")

    flow.running(work)


def test_a_digest_that_waits_is_made_after_the_clock_was_set_back(tmp_path: Path) -> None:
    """V8: the same holds for what comes at the end of a turn besides."""
    bench = Bench(tmp_path)
    bench.scripted("One.")
    bench.session.talk(41)
    assert grown(bench, 0, -3600) == [0, 1]
