"""A defect of ours that one file provokes costs that file, until it changes, and nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexerd.daemon import files
from indexerd.daemon.event_bus import EventBus
from indexerd.daemon.library import Library
from indexerd.logs import Event
from indexerd.sessions.state import SessionState
from indexerd.settings import Settings
from indexerd.sources.stores import stores
from tests.e2e.world import Session
from tests.store.rows import caches

CANARY = "xylophone-in-a-traceback"


class Desk:
    """A library over a home with sessions, and what is said of defects."""

    def __init__(self, home: Path) -> None:
        self.folder = home / ".pi/agent/sessions/--w--"
        self.told: list[tuple[str, Exception]] = []
        self.library = Library(
            *caches(home),
            stores=lambda: stores(Settings(), {}, home),
            exclude=list,
            report=lambda _session, _why: None,
            defect=lambda path, bug: self.told.append((path, bug)),
        )

    def session(self, turns: int) -> Session:
        """A new session."""
        session = Session(self.folder)
        session.talk(turns)
        return session

    def scan(self) -> None:
        """Look at everything."""
        self.library.find_stores()
        for _ in self.library.scan():
            pass

    def users(self, session: Session) -> int | None:
        """How many user messages are known."""
        card = self.library.files.card(session.id)
        return card.users if card else None


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A home."""
    desk = Desk(tmp_path)
    yield desk
    desk.library.close()


@pytest.fixture
def cursed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Files at which the program stumbles, as over a bug in an adapter; their readings."""
    found: set[str] = set()
    take_in = files.take_in

    def stumbling(agent: str, state: SessionState, pieces: Any) -> None:
        if state.file in found:
            raise ValueError(f"unexpected {CANARY}")
        take_in(agent, state, pieces)

    monkeypatch.setattr(files, "take_in", stumbling)
    return found


@pytest.mark.parametrize("known", [False, True])
def test_one_odd_file_is_set_aside(desk: Desk, cursed: set[str], *, known: bool) -> None:
    """V7: told once, shown, not read again at every scan; tried again when it grows, and healed."""
    bad, good = desk.session(2), desk.session(2)
    if known:
        desk.scan()
        bad.turn()
        good.turn()
    cursed.add(str(bad.path))
    for _ in range(3):
        desk.scan()
    assert [path for path, _ in desk.told] == [str(bad.path)]
    problems = desk.library.files.problems()
    assert problems == {str(bad.path): "set aside until it changes: ValueError"}
    assert desk.users(good) == 2 + known

    bad.turn()
    desk.scan()
    assert len(desk.told) == 2
    cursed.clear()
    desk.scan()
    assert len(desk.told) == 2
    assert desk.library.files.problems() != {}
    bad.turn()
    desk.scan()
    assert desk.library.files.problems() == {}
    assert desk.users(bad) == 4 + known


def test_what_shrinks_is_counted_anew_and_what_flickers_is_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F10, F18: cut to less, a session is what it is now; files that went are no problem.

    Some are gone before we look, some between the look and the opening.
    """
    session = desk.session(5)
    desk.scan()
    lines = session.path.read_bytes().splitlines(keepends=True)
    session.path.write_bytes(b"".join(lines[:5]))
    gone = [desk.session(5) for _ in range(5)]
    for one in gone[:2]:
        one.path.unlink()
    fleeting, opened = {str(one.path) for one in gone[2:]}, os.open

    def vanishing(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if os.fsdecode(path) in fleeting:
            Path(path).unlink(missing_ok=True)
        return opened(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", vanishing)
    paths = [str(one.path) for one in (*gone, session)]
    for _ in desk.library.hinted(paths):
        pass
    desk.scan()
    card = desk.library.files.card(session.id)
    assert card is not None
    assert (card.users, card.new_users) == (2, 2)
    assert [desk.users(one) for one in gone] == [None] * 5
    assert desk.told == []
    assert desk.library.files.problems() == {}


def test_what_it_held_is_told_nobody(desk: Desk, cursed: set[str]) -> None:
    """X11: a defect's own words may quote a session: the log has its type and place alone."""
    lines: list[dict[str, Any]] = []

    class Log:
        def log(self, level: int, event: str, **fields: Any) -> None:
            lines.append({"level": level, "event": event, **fields})

    bad = desk.session(2)
    cursed.add(str(bad.path))
    desk.scan()
    ((path, bug),) = desk.told
    EventBus(Log(), lambda: 0.0).defect(Event.SESSION_QUARANTINED, "", bug, path=path)
    (line,) = lines
    assert line.pop("exc_info") is bug  # the log's own formatter keeps type and place of it
    assert CANARY not in json.dumps(line)
    assert CANARY not in json.dumps(desk.library.files.problems())
