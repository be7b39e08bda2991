"""What may wait: the ledger learns of what was read soon, and not of each line by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexerd.daemon import background
from indexerd.daemon.library import Update
from indexerd.search.ranking import search
from indexerd.store.store import StateStore
from tests.daemon.flow_bench import Flow, until


def _counted(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    stored: list[int] = []
    store = flow.library.checkpoint

    def checkpoint() -> None:
        stored.append(len(stored))
        store()

    monkeypatch.setattr(flow.library, "checkpoint", checkpoint)
    return stored


def test_lines_that_come_together_are_stored_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A3: the first is stored at once; what comes in the next seconds waits for their end."""
    monkeypatch.setattr(background, "STORED_SECONDS", 3600.0)
    flow = Flow(tmp_path)
    session = flow.session(turns=1)
    stored = _counted(flow, monkeypatch)

    async def work() -> None:
        await until(lambda: stored, "the first time")
        for _ in range(4):
            session.turn()
            flow.hint(session)
            await until(lambda: flow.pipeline.known[session.id].card.users == session.turns, "it")
            await until(lambda: not flow.library.texts.unread, "its words")
        assert len(stored) == 1

    flow.running(work)


def test_what_is_read_is_stored_though_nothing_more_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A1: who is killed some seconds after the last line has read it for good."""
    monkeypatch.setattr(background, "STORED_SECONDS", 0.2)
    flow = Flow(tmp_path)
    session = flow.session(turns=1)
    stored = _counted(flow, monkeypatch)

    def offset() -> int:
        other = StateStore(tmp_path / "store.sqlite")
        held = {path: cursor.offset for path, cursor, _ in other.cards()}
        other.close()
        return held.get(str(session.path), 0)

    async def work() -> None:
        await until(lambda: stored, "the first time")
        for _ in range(3):
            session.turn()
            flow.hint(session)
            await until(lambda: not flow.watch.paths, "a look")
        await until(lambda: offset() == session.path.stat().st_size, "the last line")

    flow.running(work)


def test_words_wait_for_looks_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F9: that a session has grown is told first; what was said in it is found all the same."""
    flow = Flow(tmp_path)
    session = flow.session(turns=1)
    following = flow.pipeline._watch_loop
    hinted = flow.library.hinted
    going = [True]

    def slow(*paths: Any) -> Iterator[list[Update]]:
        yield from hinted(*paths)
        while going[0]:  # as with a file of many parts
            yield []

    async def work() -> None:
        await until(flow.pipeline.scanned.is_set, "the first scan")
        await until(lambda: not flow.library.texts.unread, "its words")
        assert await following.calm(10.0)
        monkeypatch.setattr(flow.library, "hinted", slow)
        session.turn("Where is the zebra?")
        flow.hint(session)
        await until(lambda: flow.pipeline.known[session.id].card.users == 2, "the turn")
        assert not await following.calm(0.01)
        await until(lambda: search(flow.library.index, "zebra").hits, "its words, all the same")
        going[0] = False
        assert await following.calm(10.0)

    flow.running(work)
