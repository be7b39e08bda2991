"""Rows of sessions that grow are what rows made of everything are, and no vanished half is told."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.errors import WriteError
from indexerd.io.catalog import Catalog
from indexerd.io.ledger import Ledger
from indexerd.io.stores import Store
from indexerd.service import following, health
from indexerd.service.health import Status
from indexerd.service.library import Library
from indexerd.service.rows import Rows
from tests.e2e.world import Session
from tests.service.flow_bench import Flow, until


class Desk:
    """Three sessions, and one library."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder, self.metas = root, root / "sessions/--w--", root / "meta"
        self.metas.mkdir()
        self.sessions = [Session(self.folder) for _ in range(3)]
        for session in self.sessions:
            session.talk(1)
        self.number = 0
        self.library = Library(
            Ledger(root / "ledger.sqlite"),
            Catalog.open(root / "catalog.sqlite"),
            stores=lambda: [Store("pi", f"{root}/sessions", str(self.metas))],
            exclude=list,
            report=lambda *_: None,
            defect=_no_defect,
        )
        self.library.load()
        for _ in self.library.scan():
            pass

    def do(self, what: str, session: Session) -> None:
        """Something happens to a session, or to what is known of it."""
        self.number += 1
        word = f"widget{self.number}"
        if what == "turn" and session.path.exists():
            session.turn(f"Where is {word}?")
        elif what == "named" and session.path.exists():
            session.entry("session_info", name=f"The {word}")
        elif what == "meta":
            self.describe(session, word)
        elif what == "title":
            held = {"schemaVersion": 1, "sessionId": session.id, "title": f"My {word}"}
            self.hold(session, "user", json.dumps(held))
        elif what == "bad meta":
            self.hold(session, "meta", "{")
        elif what == "gone":
            session.path.rename(f"{session.path}.aside")
        elif what == "back":
            Path(f"{session.path}.aside").rename(session.path)
        elif what == "read":
            while self.library.texts.some():
                pass

    def describe(self, session: Session, word: str) -> None:
        """Another hand describes a session."""
        held = {
            "schemaVersion": 1,
            "sessionId": session.id,
            "sessionFile": str(session.path),
            "name": f"Adjust the {word}",
            "description": "Widgets are adjusted.",
            "summary": f"All of {word}.",
            "tags": ["widgets"],
            "cwd": "/w",
            "createdAt": "2026-11-21T10:00:00.000Z",
            "updatedAt": "2026-11-21T10:00:00.000Z",
            "model": "other/model",
            "lastIndexedLeafId": session.last,
        }
        self.hold(session, "meta", json.dumps(held))

    def hold(self, session: Session, kind: str, text: str) -> None:
        """Write a file beside sessions."""
        (self.metas / f"{session.id}.{kind}.json").write_text(text)

    def look(self) -> None:
        """As after hints at everything."""
        paths = [str(one.path) for one in self.sessions] + [
            str(one) for one in self.metas.iterdir()
        ]
        for _ in self.library.hinted(paths):
            pass

    def agrees(self) -> None:
        """Every row, with the names it is found by, is the one that is made of everything."""
        library = self.library
        anew = Rows(library.files, library.shelf, library.catalog, library._kin, library.stores)
        known = {one.session_id: one for one in library.catalog.known()}
        for session in self.sessions:
            written = anew.of(session.id, grown=False)
            assert written is not None
            assert library.catalog.get(session.id) == written.row
            assert set(known[session.id].aliases) == set(written.aliases)  # in any order


def _no_defect(path: str, bug: Exception) -> None:
    raise AssertionError(path) from bug


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
    added, left = library.catalog.add_messages, [2]

    def add(*args: Any, **more: Any) -> int:
        left[0] -= 1
        if left[0] == 0:
            raise WriteError("no space is left on the device")
        return added(*args, **more)

    monkeypatch.setattr(library.catalog, "add_messages", add)
    with pytest.raises(WriteError):
        library.texts.some()
    assert library.texts.unread == 3
    assert not library.catalog.search("zebra0").hits
    while library.texts.some():
        pass
    assert library.texts.unread == 0
    assert all(library.catalog.search(f"zebra{number}").hits for number in range(3))
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
    flow.news.subscribe(lambda said: told.append(said["event"]))
    return told


@pytest.mark.parametrize("hide", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_file_gets_a_moment_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hide: Callable[[Path], Any]
) -> None:
    """F14: where a hint finds nothing, or nothing in a file, that is said a moment later."""
    monkeypatch.setattr(following, "SETTLE_SECONDS", 3600.0)
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
        flow.pipeline._following._look_again({str(session.path)})
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
        status = Status(flow.pipeline, flow.treasury, 0.0)
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
