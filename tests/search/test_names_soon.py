"""service/names_soon: names are put together while others are answered, and miss nothing."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexerd.daemon.answers import Answers
from indexerd.errors import StateError
from indexerd.protocol import params
from indexerd.protocol.params import decode
from indexerd.search.index import TextIndex
from indexerd.search.name_index import NameIndex
from indexerd.search.names import Names
from indexerd.search.names_soon import SLICE, NamesSoon
from indexerd.store.store import StateStore
from tests.store.rows import fill, row, texts

PATIENCE = 20  # seconds


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[TextIndex]:
    """A catalog with three sessions."""
    found = texts(tmp_path)
    for n, name in enumerate(("First door", "Second door", "Third door"), 1):
        fill(found, row(f"session-{n}", n, name=name))
    yield found
    found.close()
    found.store.close()


def change(answers: Answers, catalog: TextIndex, session_id: str, name: str | None) -> None:
    """What the daemon does at a change: the catalog first, then the names."""
    if name is None:
        catalog.forget(session_id)
        answers.row_changed(session_id, None)
    else:
        new = row(session_id, 9, name=name)
        fill(catalog, new)
        answers.row_changed(session_id, new)


def named(answers: Answers, ref: str) -> str:
    """The session that a name means."""
    found: str = answers.resolve(decode(params.Resolve, {"ref": ref, "scope": "all"}))["sessionId"]
    return found


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_what_changes_meanwhile_is_made_up_for(
    catalog: TextIndex, monkeypatch: pytest.MonkeyPatch, *, late: bool
) -> None:
    """S0.49: before or after the catalog was read; all who wait do so for one thread."""
    begun, go_on = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []
    real = NameIndex.made

    def held_up(self: NameIndex) -> Names:
        threads.append(threading.current_thread())
        made = real(self) if late else None
        begun.set()
        assert go_on.wait(PATIENCE)
        return made or real(self)

    monkeypatch.setattr(NameIndex, "made", held_up)
    answers = Answers(catalog, lambda: 0.0)
    soon = NamesSoon(answers)

    async def both() -> None:
        waiting = [asyncio.create_task(soon.come()) for _ in range(2)]
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        change(answers, catalog, "session-1", "Red gate")
        change(answers, catalog, "session-2", None)
        change(answers, catalog, "session-4", "Blue gate")
        go_on.set()
        await asyncio.gather(*waiting)

    asyncio.run(both())
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()
    assert answers.index.ready
    known = {one: names.session_id for one in KEPT if (names := answers.names.get(one))}
    assert known == {one: one for one in KEPT}
    assert named(answers, "red gate") == "session-1"
    assert named(answers, "blue gate") == "session-4"
    assert answers.names.get("session-2") is None
    change(answers, catalog, "session-4", "Green gate")
    assert named(answers, "green gate") == "session-4"


KEPT = ("session-1", "session-3", "session-4")


def test_who_asks_at_once_meanwhile_is_answered(catalog: TextIndex) -> None:
    """What was put together first stands; what comes later is dropped."""
    answers = Answers(catalog, lambda: 0.0)
    end = answers.index.begin()
    late = answers.index.made()
    assert named(answers, "first door") == "session-1"
    change(answers, catalog, "session-1", "Red gate")
    end(late)
    assert named(answers, "red gate") == "session-1"


def test_names_that_cannot_be_had_are_an_error_of_who_asks(
    catalog: TextIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever, and the next one tries again."""
    answers = Answers(catalog, lambda: 0.0)
    soon = NamesSoon(answers)

    def broken(_self: StateStore) -> Any:
        raise StateError("the catalog is closed")

    with monkeypatch.context() as patch:
        patch.setattr(StateStore, "names", broken)
        asyncio.run(soon.come())
        with pytest.raises(StateError):
            named(answers, "first door")
    asyncio.run(soon.come())
    assert answers.index.ready


@pytest.mark.parametrize(
    ("method", "params", "wanted"),
    [
        ("resolve", {"ref": "session-1"}, True),
        ("complete", {}, True),
        ("get", {"ref": "session-1"}, False),
        ("get", {"ref": "first door"}, True),
        ("query_session", {"session": "first door"}, True),
        ("get", {"ref": 7}, False),
        ("expand", {"text": "nothing to see"}, False),
        ("expand", {"text": "as in @@first-door"}, True),
        ("list", {}, False),
    ],
)
def test_who_needs_no_names_does_not_wait(
    catalog: TextIndex, method: str, params: dict[str, Any], *, wanted: bool
) -> None:
    """An id that the catalog knows needs none, and memory is not filled for it."""
    answers = Answers(catalog, lambda: 0.0)
    soon = NamesSoon(answers)
    assert soon.wanted(method, params) is wanted
    asyncio.run(soon.come())
    assert not soon.wanted(method, params)


MANY = 2000


def test_others_are_answered_while_fuzzy_names_are_made_ready(tmp_path: Path) -> None:
    """The loop is never blocked: what the first mistyped name wants is made in slices."""
    catalog = texts(tmp_path)
    fill(catalog, *(row(f"s-{n}", n, name=f"door{n} lock") for n in range(MANY)))
    answers = Answers(catalog, lambda: 0.0)
    soon = NamesSoon(answers)
    asked = {"ref": "door77 locks", "scope": "all"}
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def ask() -> None:
        assert soon.wanted("resolve", asked)
        await soon.come()  # the names
        others = asyncio.create_task(turn())
        assert soon.wanted("resolve", asked)
        assert soon.wanted("expand", {"text": "as in @@door77-locks"})
        assert not soon.wanted("expand", {"text": "as in @@door77-lock"})
        assert not soon.wanted("resolve", {"ref": "door77 lock"})
        assert soon.wanted("resolve", {"ref": "door77 lock", "exclude": "s-77"})
        assert soon.wanted("expand", {"text": "as in @@door77-lock", "sessionId": "s-77"})
        assert soon.wanted("expand", {"text": "words " * 9000 + "@@door77-lock"})
        assert not soon.wanted("get", {"ref": str(uuid.uuid4())})
        assert not soon.wanted("complete", {"prefix": "doar"})
        await asyncio.gather(soon.come(), soon.come())
        others.cancel()
        assert not soon.wanted("resolve", asked)

    asyncio.run(ask())
    assert turns >= MANY / SLICE
    assert named(answers, "door77 locks") == "s-77"
    catalog.close()


def test_names_made_anew_meanwhile_are_waited_for(catalog: TextIndex) -> None:
    """Rows were renamed while slices were made: what was half ready is nobody's any more."""
    answers = Answers(catalog, lambda: 0.0)
    soon = NamesSoon(answers)

    async def ask() -> None:
        await soon.come()
        catalog.store.renamed += 1
        await soon.come()
        assert answers.index.ready
        await soon.come()

    asyncio.run(ask())
    assert named(answers, "frist door") == "session-1"
