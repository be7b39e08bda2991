"""Context sets over real files: one change at a time, forks, resumes, events (S4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from indexerd.daemon.news import Listener
from indexerd.errors import (
    ContextTooLargeError,
    InvalidMetaError,
    NotFoundError,
    UsageError,
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


def test_a_set_is_stored_told_and_recorded(shop: Shop) -> None:
    """S4.1, S4.7, S4.12: beside what else the user said; the event carries all sets."""

    async def work() -> None:
        await shop.update("a", title="Mine", envHint="source .venv/bin/activate")
        answer = await shop.put("a", "files", "/w/a", "/w/b")
        assert answer == {
            "sessionId": "a",
            "text": "Set files: 2 items",
            "contextChanged": True,
            "setName": "files",
            "warnings": [],
        }
        await shop.put("a", "ports", "8080", mode="merge")

    run(work())
    context = {"files": ["/w/a", "/w/b"], "ports": ["8080"]}
    held = {"title": "Mine", "labels": {}, "envHint": "source .venv/bin/activate"}
    assert shop.stored("a") == held | {"context": context}
    changed = "context.changed"
    assert shop.events() == [
        ("session.renamed", None, None, None),
        (changed, "changed", {"files": ["/w/a", "/w/b"]}, "files"),
        (changed, "changed", context, "ports"),
    ]
    kept = shop.kept[0]
    told = {"customType": "relevant-context:set", "success": True, "sessionId": "a"}
    assert kept.items() >= (told | {"contextChanged": True, "setName": "files"}).items()
    assert kept.keys() - told.keys() == {"contextChanged", "setName", "timestamp"}
    assert shop.rewritten == ["a", "a", "a"]


def test_what_is_refused_changes_and_tells_nothing(shop: Shop) -> None:
    """S4.5, S4.12: too much, a bad mode, an unknown session, a disk that does not take it."""

    async def work() -> None:
        for number in range(5):
            await shop.put("a", f"s{number}", *map(str, range(10)))
        shop.events()
        with pytest.raises(ContextTooLargeError, match="51 items, max 50"):
            await shop.put("a", "files", "/w/a")
        with pytest.raises(ContextTooLargeError):
            await shop.update("a", setContext={"setName": "files", "items": ["/w/a"]})
        with pytest.raises(UsageError):
            await shop.put("a", "files", mode="append")
        with pytest.raises(NotFoundError):
            await shop.put("nobody", "files", "/w/a")

    run(work())
    assert len(shop.stored("a")["context"]) == 5
    assert (shop.events(), len(shop.kept)) == ([], 5)


def test_a_merge_of_nothing_writes_nothing(shop: Shop) -> None:
    """S4.6, S4.12: no event, no row, no file; nor does a clear of what is not there."""

    async def work() -> None:
        answer = await shop.put("a", "files", mode="merge")
        assert answer["text"] == "Nothing to merge into files: 0 items"
        assert answer["contextChanged"] is False
        cleared = await shop.put("a", "files")
        assert (cleared["text"], cleared["contextChanged"]) == ("Cleared files", False)
        await shop.update("a", setContext={"setName": "files", "items": []})
        await shop.update("a", context=None)
        assert not (shop.root / "metas").exists()
        assert (shop.events(), shop.kept) == ([], [])

    run(work())


def test_a_merge_that_adds_nothing_is_no_change(shop: Shop) -> None:
    """S4.7, S4.12: all of it was there, or none of it found room; the text stays upstream's."""
    ten = [str(number) for number in range(10)]

    async def work() -> None:
        await shop.put("a", "files", *ten)
        shop.events()
        shop.kept.clear()
        before = (shop.root / "metas/a.user.json").stat().st_mtime_ns
        for items in (["3", "1"], ["x"]):
            answer = await shop.put("a", "files", *items, mode="merge")
            assert answer["text"] == "Merged files: 10 items"
            assert answer["contextChanged"] is False
            asked = {"setName": "files", "items": items, "mode": "merge"}
            assert ("warnings" in await shop.update("a", setContext=asked)) is (items == ["x"])
        assert (shop.events(), shop.kept) == ([], [])
        assert (shop.root / "metas/a.user.json").stat().st_mtime_ns == before
        asked = {"setName": "files", "items": ["1"], "mode": "merge"}
        await shop.update("a", setContext=asked, envHint="H")
        assert (shop.stored("a")["envHint"], shop.events()) == ("H", [])

    run(work())


def test_get_gives_all_one_or_none(shop: Shop) -> None:
    """S4.8: JSON with two spaces; an unknown set is an empty list; nothing at all says so."""

    async def work() -> None:
        nothing = await shop.call("get_relevant_context", session="a")
        assert (nothing["text"], nothing["context"]) == ("No context stored for this session", {})
        await shop.put("a", "files", "/w/é")
        await shop.put("a", "ports", "80")
        found = await shop.call("get_relevant_context", session="a")
        assert found["context"] == {"files": ["/w/é"], "ports": ["80"]}
        text = '{\n  "files": [\n    "/w/é"\n  ],\n  "ports": [\n    "80"\n  ]\n}'
        assert found["text"] == text
        one = await shop.call("get_relevant_context", session="a", setName="ports")
        assert one["context"] == {"ports": ["80"]}
        none = await shop.call("get_relevant_context", session="a", setName="applet")
        assert (none["context"], none["text"]) == ({"applet": []}, '{\n  "applet": []\n}')
        for name, same in ((" ports ", one), ("", found), (" ", found), (None, found)):
            asked = await shop.call("get_relevant_context", session="a", setName=name)
            assert asked == same, "names are taken as they are stored; none is all of them"

    run(work())


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
    subscribe = shop.news.subscribe

    async def work() -> None:
        listening = asyncio.Event()

        def seen(listener: Listener) -> Callable[[], None]:
            listening.set()
            return subscribe(listener)

        monkeypatch.setattr(shop.news, "subscribe", seen)
        asked = asyncio.create_task(shop.put(LATER, "files", "/w/a"))
        await listening.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asked.done()
        shop.session(LATER)
        shop.news.tell("session.created", LATER, {})
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


def test_update_has_the_tools_caps_and_warnings(shop: Shop) -> None:
    """S4.21: ten in a set, fifty in all, known names; a hint is never cut."""

    async def work() -> None:
        eleven = [str(number) for number in range(11)]
        for bad in ({"context": {"files": eleven}}, {"setContext": {"files": eleven}}):
            with pytest.raises(UsageError, match="at most 10"):
                await shop.update("a", **bad)
        with pytest.raises(ContextTooLargeError):
            await shop.update("a", context={str(n): eleven[:10] for n in range(6)})
        with pytest.raises(UsageError, match="at most 1000"):
            await shop.update("a", envHint="x" * 1001)
        with pytest.raises(UsageError):
            await shop.update("a", setContext=["files"])
        row = await shop.update("a", setContext={"setName": "fles", "items": ["/w/a"]})
        assert "unknown set 'fles'" in row["warnings"][0]
        assert "warnings" not in await shop.update("a", setContext={"files": ["/w/a"]})
        await shop.update("a", envHint="  cd  'a  b' && x ")
        assert shop.stored("a")["envHint"] == "cd  'a  b' && x"

    run(work())


def test_update_is_recorded_as_the_tool_is(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """S4.2, S4.7: a row of telemetry for each set that changed, a line for an unknown name."""
    said: list[Any] = []
    monkeypatch.setattr(shop.news, "say", lambda event, fields: said.append((event.value, fields)))

    async def work() -> None:
        await shop.update("a", setContext={"setName": "fles", "items": ["/w/a"]})
        await shop.update("a", context={"files": ["/w/a"], "ports": ["80"]})
        await shop.update("a", title="T")

    run(work())
    assert said == [("context.unknown_set", {"session": "a"})] * 2  # made, and taken away
    told = {"customType": "relevant-context:set", "success": True, "contextChanged": True}
    assert all(row.items() >= (told | {"sessionId": "a"}).items() for row in shop.kept)
    names = [row["setName"] for row in shop.kept]
    assert (names[0], sorted(names[1:])) == ("fles", ["files", "fles", "ports"])


def test_update_takes_nothing_that_it_would_change(shop: Shop) -> None:
    """S4.21: two names of one set, a hint of two lines, an item with what does not show."""
    bad: list[dict[str, Any]] = [
        {"context": {"files": ["a"], "files ": ["b"]}},
        {"setContext": {"files": ["a"], "files ": ["b"]}},
        {"envHint": "source venv\nrm x"},
        {"envHint": "a\u200bb"},
        {"context": {"files": ["a\tb"]}},
    ]
    for params in bad:
        with pytest.raises(UsageError):
            run(shop.update("a", **params))
    assert not (shop.root / "metas").exists()
