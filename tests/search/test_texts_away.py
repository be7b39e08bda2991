"""Words of a session whose file was away, for a moment, just when they were to be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from indexerd.daemon import background
from indexerd.search.ranking import search
from tests.daemon.flow_bench import Flow, until
from tests.e2e.world import Session
from tests.store.one_store import library_of


def test_a_file_that_is_back_as_it_was_is_read_at_the_next_scan(tmp_path: Path) -> None:
    """S1.13, W2: nothing tells of it but its words, which are searchable all the same."""
    library = library_of(tmp_path)
    library.load()
    session = Session(tmp_path / "sessions/--w--")
    session.turn("zebrafish one")
    for _ in library.scan():
        pass
    os.rename(session.path, tmp_path / "away")
    while library.texts.unread:
        library.texts.some()
    os.rename(tmp_path / "away", session.path)
    for _ in library.scan():
        pass
    while library.texts.unread:
        library.texts.some()
    hits = [one for one in search(library.index, "zebrafish").hits if one["field"] == "message"]
    assert [one["sessionId"] for one in hits] == [session.id]
    library.close()


def test_what_was_missed_is_read_after_a_scan_that_finds_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1.13: what reads texts rests as long as nothing changes; a scan wakes it."""
    monkeypatch.setattr(background, "STORED_SECONDS", 0.05)
    flow = Flow(tmp_path)
    session = flow.session(turns=1)

    async def work() -> None:
        texts, pipeline = flow.library.texts, flow.pipeline
        await until(lambda: session.id in pipeline.known and not texts.due, "all to be read")
        later = pipeline._later
        await until(lambda: not (later._owed or later._work.is_set()), "rest")
        texts._missed[session.id] = None  # as where its file was away
        await pipeline.scan()
        await until(lambda: not texts.unread and not texts._missed, "its words to be read")

    flow.running(work)
