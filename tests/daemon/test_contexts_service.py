"""Context sets over real files: one change at a time, forks, resumes, events (S4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from indexerd.daemon.event_bus import Listener
from indexerd.errors import (
    InvalidMetaError,
)
from tests.sessions.context_shop import Shop, run

LATER = "c0ffee02-0000-4000-8000-000000000000"  # a session that begins while we watch


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A directory of sidecars."""
    shop = Shop(tmp_path)
    yield shop
    shop.close()


# -- set and get -----------------------------------------------------------------------------------


def test_every_merge_of_many_at_once_is_kept(shop: Shop) -> None:
    """S4.10: fifty calls that overlap, in five sets, and as many changes of other kinds."""

    async def work() -> None:
        calls = [shop.put("a", f"s{n % 5}", str(n), mode="merge") for n in range(50)]
        others = [shop.update("a", envHint=f"hint {n}") for n in range(10)]
        await asyncio.gather(*calls, *others)

    run(work())
    held = shop.stored("a")
    assert sorted(int(one) for items in held["context"].values() for one in items) == [*range(50)]
    assert held["envHint"] == "hint 9"


def test_a_change_outlives_the_client_that_asked_for_it(shop: Shop) -> None:
    """S4.10, S4.12: who hangs up in the middle of a write lets no other change slip in between."""

    async def work() -> None:
        shop.writer.may.clear()
        first = asyncio.create_task(shop.put("a", "files", "/w/a"))
        await asyncio.to_thread(shop.writer.begun.wait, 10)
        first.cancel()
        second = asyncio.create_task(shop.put("a", "ports", "80"))
        await asyncio.gather(first, return_exceptions=True)
        shop.writer.may.set()
        await second

    run(work())
    assert shop.stored("a")["context"] == {"files": ["/w/a"], "ports": ["80"]}
    assert [event[0] for event in shop.events()] == ["context.changed"] * 2


def test_a_session_that_has_only_just_begun_is_waited_for(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents call the tool in their first turn, and their file may be a moment behind."""
    subscribe = shop.bus.subscribe

    async def work() -> None:
        listening = asyncio.Event()

        def seen(listener: Listener) -> Callable[[], None]:
            listening.set()
            return subscribe(listener)

        monkeypatch.setattr(shop.bus, "subscribe", seen)
        asked = asyncio.create_task(shop.put(LATER, "files", "/w/a"))
        await listening.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asked.done()
        shop.session(LATER)
        shop.bus.publish("session.created", LATER, {})
        assert (await asked)["text"] == "Set files: 1 items"

    run(work())
    assert shop.stored(LATER)["context"] == {"files": ["/w/a"]}


@pytest.mark.parametrize("content", ["{", '{"context": {"files": "no list"}}'])
def test_a_sidecar_that_is_none_is_an_error_and_stays(shop: Shop, content: str) -> None:
    """It holds words that nobody can write again: never written over."""
    path = shop.root / "metas/a.user.json"
    path.parent.mkdir()
    path.write_text(content)
    for method in ("get_relevant_context", "resume_context"):
        with pytest.raises(InvalidMetaError) as caught:
            run(shop.call(method, session="a"))
        assert str(path) in caught.value.hint
        assert "move it away" in caught.value.hint
        assert "--force" not in caught.value.hint
    with pytest.raises(InvalidMetaError):
        run(shop.put("a", "files", "/w/a"))
    assert path.read_text() == content
    assert shop.events() == []


# -- update ---------------------------------------------------------------------------------------


def test_update_changes_what_it_names_and_nothing_else(shop: Shop) -> None:
    """S4.20, S4.21: one set, all sets, title, hint; null clears; each with its event."""

    async def work() -> None:
        await shop.update("a", title="T", envHint="H")
        await shop.update("a", setContext={"setName": "files", "items": ["/w/a"]})
        more = {"setName": "files", "items": ["/w/b"], "mode": "merge"}
        await shop.update("a", setContext=more)
        await shop.update("a", setContext={"ports": ["80"], "applet": ["git-diff", "path=/w"]})
        held = shop.stored("a")
        assert (held["title"], held["envHint"]) == ("T", "H")
        context = {"files": ["/w/a", "/w/b"], "ports": ["80"], "applet": ["git-diff", "path=/w"]}
        assert held["context"] == context
        named = [event[3] for event in shop.events() if event[0] == "context.changed"]
        assert named == ["files", "files", None]

        await shop.update("a", setContext={"setName": "ports", "items": None})
        await shop.update("a", envHint=None)
        assert "ports" not in shop.stored("a")["context"]
        assert "envHint" not in shop.stored("a")
        await shop.update("a", context={"files": ["/w/c"], "ports": []})
        assert shop.stored("a")["context"] == {"files": ["/w/c"]}
        await shop.update("a", context=None)
        assert shop.stored("a") == {"title": "T", "labels": {}, "context": {}}

    run(work())
