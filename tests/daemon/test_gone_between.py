"""What goes between two steps: a session before its run begins, a client before its answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from indexerd.daemon.library import Update
from indexerd.daemon.sidecar import Resumes
from indexerd.errors import NotFoundError
from indexerd.store.store import StateStore
from tests.daemon.flow_bench import Flow, until

PATIENCE = 10.0  # seconds


def test_who_forced_a_run_is_told_of_a_session_that_goes_before_it_begins(tmp_path: Path) -> None:
    """S0.3: the run has its place, but has not begun; nobody waits for it for ever."""
    flow = Flow(tmp_path, quiet=0.01)
    session = flow.session(turns=1)

    async def work() -> None:
        pipeline = flow.pipeline
        await until(lambda: session.id in pipeline.known and pipeline.scanned.is_set(), "a scan")
        pipeline.known[session.id].changed_at -= 60  # it was quiet: the run begins at once
        waiter = pipeline.force(session.id)
        assert session.id in pipeline.jobs.running
        pipeline._learn([Update(session.id, None, None)])
        assert isinstance(await asyncio.wait_for(waiter, PATIENCE), NotFoundError)
        await until(lambda: not pipeline.jobs.running, "the end of the run")
        assert not list(flow.metas.glob("*"))

    flow.running(work)


@pytest.mark.parametrize("cut", [True, False])
def test_a_resume_that_was_given_up_is_not_used_up(tmp_path: Path, *, cut: bool) -> None:
    """S4.15: a client that hangs up while its claim is looked up has had no block."""
    ledger = StateStore(tmp_path / "store.sqlite")

    async def work() -> None:
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def read(work: Callable[..., Any], *args: Any) -> Any:
            asked.set()
            await go_on.wait()
            return work(*args)

        resumes = Resumes(ledger, read, time.time)
        first = asyncio.create_task(resumes.claim("session/resume"))
        await asked.wait()
        if cut:
            first.cancel()
        go_on.set()
        with suppress(asyncio.CancelledError):
            assert await first
        assert await resumes.claim("session/resume") is cut

    asyncio.run(work())
    ledger.close()
