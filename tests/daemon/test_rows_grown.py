"""Rows of sessions that grow are what rows made of everything are, and no vanished half is told."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.daemon import health, watch_loop
from indexerd.daemon.health import Status
from indexerd.search.ranking import search
from tests.daemon.flow_bench import Flow, until
from tests.store.grown_desk import Desk, fails_once

_HAPPENS = st.sampled_from(["turn", "turn", "named", "meta", "title", "bad meta", "move", "read"])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(_HAPPENS, st.integers(0, 2)), min_size=1, max_size=12))
def test_a_row_that_grew_is_as_one_made_of_everything(found: list[tuple[str, int]]) -> None:
    """S0.46: what is kept of a row while its session grows is never kept too long."""
    with tempfile.TemporaryDirectory() as root:
        desk = Desk(Path(root))
        away: set[int] = set()
        for what, number in found:
            if what == "move":
                desk.do("back" if number in away else "gone", desk.sessions[number])
                away ^= {number}
            else:
                desk.do(what, desk.sessions[number])
            desk.look()
            desk.agrees()
        desk.do("read", desk.sessions[0])
        desk.agrees()
        desk.library.close()


def test_what_is_read_together_is_lost_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A3: where a transaction over several sessions fails, each of them is read again."""
    desk = Desk(tmp_path)
    for number, session in enumerate(desk.sessions):
        session.turn(f"Where is zebra{number}?")
    desk.look()
    library = desk.library
    fails_once(library, monkeypatch, 2)
    assert library.texts.unread == 3
    assert not search(library.index, "zebra0").hits
    while library.texts.some():
        pass
    assert library.texts.unread == 0
    assert all(search(library.index, f"zebra{number}").hits for number in range(3))
    desk.agrees()
    library.close()


def test_a_pass_ends_although_sessions_grow_on(tmp_path: Path) -> None:
    """F9: what is appended while words are read belongs to the next pass, and may gather."""
    desk = Desk(tmp_path)
    texts = desk.library.texts
    steps = 0
    while True:
        steps += 1
        more = texts.some()
        texts.want([desk.sessions[0].id])
        if not more:
            break
        assert steps < 100
    assert texts.even
    assert texts.unread == 1
    desk.library.close()


def _told(flow: Flow) -> list[str]:
    told: list[str] = []
    flow.bus.subscribe(lambda said: told.append(said["event"]))
    return told


@pytest.mark.parametrize("hide", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_file_gets_a_moment_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hide: Callable[[Path], Any]
) -> None:
    """F14: where a hint finds nothing, or nothing in a file, that is said a moment later."""
    monkeypatch.setattr(watch_loop, "SETTLE_SECONDS", 3600.0)
    flow = Flow(tmp_path)
    session = flow.session(turns=1)
    told = _told(flow)

    async def work() -> None:
        await until(lambda: session.id in flow.pipeline.known, "the session")
        whole = session.path.read_bytes()
        hide(session.path)
        flow.hint(session)
        await until(lambda: flow.library.absent == {str(session.path)}, "a look")
        session.path.write_bytes(whole)
        flow.pipeline._watch_loop._look_again({str(session.path)})
        other = flow.session(turns=1)
        flow.hint(other)
        await until(lambda: other.id in flow.pipeline.known, "the next look")
        assert session.id in flow.pipeline.known
        assert "session.removed" not in told

    flow.running(work)


def test_a_file_that_does_not_come_back_is_gone(tmp_path: Path) -> None:
    """A hint alone is enough to learn of it, no scan is needed."""
    flow = Flow(tmp_path)
    session = flow.session(turns=1)
    told = _told(flow)

    async def work() -> None:
        await until(lambda: session.id in flow.pipeline.known, "the session")
        await until(flow.pipeline.scanned.is_set, "the first scan")
        session.path.unlink()
        flow.hint(session)
        await until(lambda: "session.removed" in told, "its end")

    flow.running(work)


def test_status_looks_at_sessions_again_only_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Problems come and go with what causes them, and cost nothing while nothing happens."""
    flow = Flow(tmp_path)
    session = flow.session(turns=1)
    looks = []
    sessions = health._sessions

    def looked(*args: Any) -> Any:
        looks.append(args)
        return sessions(*args)

    monkeypatch.setattr(health, "_sessions", looked)

    async def work() -> None:
        await until(flow.pipeline.scanned.is_set, "the first scan")
        status = Status(flow.pipeline, flow.budget, 0.0)
        assert status.state() == "ok"
        flow.metas.mkdir(exist_ok=True)
        meta = flow.metas / f"{session.id}.meta.json"
        meta.write_text("{")
        flow.watch.paths.add(str(meta))
        flow.pipeline.hint()
        await until(lambda: status.state() == "degraded", "the problem")
        assert [one["code"] for one in status.tell()["problems"]] == ["invalid_meta"]
        meta.unlink()
        flow.watch.paths.add(str(meta))
        flow.pipeline.hint()
        await until(lambda: status.state() == "ok", "its end")
        await asyncio.to_thread(lambda: None)
        seen = len(looks)
        for _ in range(50):
            assert status.state() == "ok"
        assert len(looks) <= seen + 1

    flow.running(work)
