"""The reader's work is done in bounded steps, and other work gets its turn between them."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from indexerd.daemon.library import Update
from indexerd.search import session_texts
from tests.daemon.flow_bench import Flow, until

HUGE = 1 << 30  # bytes of a sparse file


def long_session(flow: Flow, messages: int) -> str:
    """A session with so many answers of some kilobytes."""
    session = flow.session(turns=1)
    lines = []
    for number in range(messages):
        said = {"role": "assistant", "content": [{"type": "text", "text": "word " * 600}]}
        entry = {"type": "message", "id": f"{number:08x}", "parentId": session.last}
        session.last = f"{number:08x}"
        lines.append(json.dumps({**entry, "timestamp": "2026-11-21T10:00:00Z", "message": said}))
    with session.path.open("a") as file:
        file.write("\n".join(lines) + "\n")
    return session.id


def test_a_long_session_is_prepared_in_steps(tmp_path: Path) -> None:
    """V2, F9: while a run waits for its texts, all else that the reader is asked for is done."""
    flow = Flow(tmp_path)
    session_id = long_session(flow, 2000)

    async def work() -> None:
        await flow.pipeline.start()
        await flow.pipeline.scan()
        run = asyncio.create_task(flow.indexer.prepare(session_id, flow.settings))
        turns = 0
        while not run.done():
            await flow.reader(int)
            turns += 1
        run.result()
        assert turns >= 2000 * 3000 // session_texts.STEP_BYTES

    flow.alone(work)


def test_a_run_that_waits_for_its_texts_can_be_cancelled(tmp_path: Path) -> None:
    """M17: no more than the step under way is done then."""
    flow = Flow(tmp_path)
    session_id = long_session(flow, 2000)

    async def work() -> None:
        await flow.pipeline.start()
        await flow.pipeline.scan()
        run = asyncio.create_task(flow.indexer.prepare(session_id, flow.settings))
        await asyncio.sleep(0)
        await flow.reader(int)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert not await flow.reader(flow.library.texts.index, session_id)

    flow.alone(work)


@pytest.mark.parametrize("hinted", [False, True])
def test_a_huge_file_takes_turns_with_the_others(tmp_path: Path, *, hinted: bool) -> None:
    """F9, V2: a turn that ends while a file of many GiB is read is seen before that is read.

    By a hint or by a scan; and each step is a sign of life.
    """
    flow = Flow(tmp_path, rescan=3600.0)
    small, huge = flow.session(turns=5), flow.session(turns=1)
    aside = tmp_path / "huge.jsonl"
    huge.path.rename(aside)
    os.truncate(aside, HUGE)
    with aside.open("ab") as file:
        file.write(b"\n")
    order: list[tuple[str, int]] = []
    learn = flow.pipeline._learn
    beats: list[float] = []

    def heard(updates: list[Update]) -> None:
        order.extend((one.session_id, one.card.users) for one in updates if one.card)
        learn(updates)
        if aside.exists() or small.turns > 5 or (small.id, 5) not in order:
            return
        beats.append(flow.pipeline._watch_loop._next_beat)
        if len(beats) == 3:  # the huge file is being read
            small.turn()
            flow.hint(small)

    flow.pipeline._watch_loop._learn = heard

    async def work() -> None:
        if hinted:
            await until(flow.pipeline.scanned.is_set, "the first scan")
            aside.rename(huge.path)
            flow.hint(huge)
        await until(lambda: (huge.id, 1) in order, "the huge file")
        assert order.index((small.id, 6)) < order.index((huge.id, 1))
        assert beats == sorted(set(beats))

    if not hinted:
        aside.rename(huge.path)
    flow.running(work)
