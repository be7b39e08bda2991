"""Context sets over real files: one change at a time, forks, resumes, events (S4)."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from indexerd.errors import (
    AccessError,
    ContextTooLargeError,
    InvalidMetaError,
    NotFoundError,
    UsageError,
    WriteError,
)
from indexerd.io.catalog import Catalog
from indexerd.io.ledger import Ledger
from indexerd.io.logs import get_logger
from indexerd.io.writer import MetaWriter
from indexerd.meta import UserFile
from indexerd.service.answers import Answers, Held, Place, held, is_fork, stored
from indexerd.service.contexts import RESUMES_MAX, Contexts, Resumes, is_there
from indexerd.service.news import Listener, News
from indexerd.service.reader import Reader
from indexerd.service.sidecar import Sidecars
from tests.io.catalog_rows import fill
from tests.io.catalog_rows import row as row_of

LATER = "c0ffee02-0000-4000-8000-000000000000"  # a session that begins while we watch


class Slow(MetaWriter):
    """A writer that can be held up."""

    def __init__(self) -> None:
        super().__init__()
        self.may = threading.Event()
        self.may.set()
        self.begun = threading.Event()

    def write_user(self, directory: Path, session_id: str, user: UserFile) -> Any:
        self.begun.set()
        assert self.may.wait(10)
        return super().write_user(directory, session_id, user)


class Shop:
    """Sidecars and contexts over a directory, with the rest of a daemon left out."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 1_800_000_000.0
        self.rows: dict[str, dict[str, Any]] = {}
        self.writer = Slow()
        self.news = News(get_logger(), self.clock)
        self.heard: list[dict[str, Any]] = []
        self.news.subscribe(self.heard.append)
        self.kept: list[dict[str, Any]] = []
        self.rewritten: list[str] = []
        self.open()
        self.session("a", cwd="/w")

    def clock(self) -> float:
        self.now += 1
        return self.now

    def open(self) -> None:
        """Start, as a daemon does, from what is on the disk."""
        self.ledger = Ledger(self.root / "ledger.sqlite")
        self.reader = Reader()
        pipeline = SimpleNamespace(
            library=SimpleNamespace(home=lambda _session_id: str(self.root / "metas")),
            read=self.reader,
            rewritten=self._rewritten,
            news=self.news,
            scanned=asyncio.Event(),
        )
        pipeline.scanned.set()
        answers = SimpleNamespace(row=self._row, by_id=self._row, forks=self._forks)
        self.sidecars = Sidecars(cast("Any", pipeline), cast("Any", answers), self.writer)
        self.resumes = Resumes(self.ledger, self.reader, self.clock)
        self.contexts = Contexts(
            self.sidecars,
            cast("Any", answers),
            self.news,
            resumes=self.resumes,
            record=lambda row: self.kept.append(dict(row)),
            clock=self.clock,
        )
        self.methods = self.contexts.methods()

    def close(self) -> None:
        self.reader.close()
        self.ledger.close()

    async def _rewritten(self, session_id: str, _directory: str) -> None:
        self.rewritten.append(session_id)

    def _row(self, ref: str, *, cwd: str | None = None, fuzzy: bool = True) -> dict[str, Any]:
        if ref not in self.rows:
            raise NotFoundError(f"no session {ref}")
        return self.rows[ref]

    def _forks(self, session_id: str) -> list[dict[str, Any]]:
        below = (row for row in self.rows.values() if row.get("parentSessionId") == session_id)
        return [row for row in below if is_fork(row)]

    def session(self, name: str, **fields: Any) -> None:
        self.rows[name] = {"sessionId": name, "name": name, "cwd": "/w", **fields}

    async def call(self, method: str, **params: Any) -> Any:
        found = self.methods[method](params, None)
        return await found

    async def put(self, session: str, name: str, *items: str, mode: str = "replace") -> Any:
        asked = {"session": session, "setName": name, "items": list(items), "mode": mode}
        return await self.call("set_relevant_context", **asked)

    async def context(self, session: str) -> Any:
        return (await self.call("get_relevant_context", session=session))["context"]

    def forget_copies(self, *sessions: str) -> None:
        """As if these had begun only now."""
        for one in sessions:
            (self.root / f"metas/{one}.user.json").unlink(missing_ok=True)

    def shown(self, *line: str) -> dict[str, Any]:
        """What `get` reads of a session, and of those it came from."""
        own, *before = [Place(self.root / "metas", one) for one in line]
        return stored(own, before)

    async def update(self, session: str, **params: Any) -> Any:
        return await self.sidecars.update(self.rows[session], params)

    def stored(self, session: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / f"metas/{session}.user.json").read_text())
        return found

    def events(self) -> list[tuple[Any, ...]]:
        """Name, reason, context and set of each event since the last look."""
        keys = ("event", "reason", "context", "setName")
        found = [tuple(one.get(key) for key in keys) for one in self.heard]
        self.heard.clear()
        return found


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A directory of sidecars."""
    shop = Shop(tmp_path)
    yield shop
    shop.close()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run in a loop of its own."""
    return asyncio.run(work)


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


def test_update_is_recorded_as_the_tool_is(shop: Shop) -> None:
    """S4.2, S4.7: a row of telemetry for each set that changed, a line for an unknown name."""
    said: list[Any] = []
    shop.news.say = lambda event, fields: said.append((event.value, fields))  # type: ignore[method-assign]

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


# -- forks ----------------------------------------------------------------------------------------


def test_a_fork_starts_with_a_copy(shop: Shop) -> None:
    """S4.28: it is read in its place, and written before either has other sets."""
    shop.session("fork", parentSessionId="a")
    shop.session("again", parentSessionId="fork")
    shop.session("helper", parentSessionId="a", subagent=True)
    begun = {"files": ["/w/a"]}

    async def work() -> None:
        await shop.put("a", "files", "/w/a", mode="merge")
        shop.forget_copies("fork", "again")
        for one in ("fork", "again"):
            assert await shop.context(one) == begun
            assert (await shop.call("footer", ref=one))["text"] == "a"
            block = await shop.call("resume_context", session=one)
            assert "/w/a" in block["text"] or block["missingFiles"] == 1
            assert shop.shown(one, "fork", "a")["context"] == begun
            assert not (shop.root / f"metas/{one}.user.json").exists()
        assert await shop.context("helper") == {}

        await shop.put("a", "files", "/w/c")
        assert await shop.context("a") == {"files": ["/w/c"]}
        assert [await shop.context(one) for one in ("fork", "again")] == [begun, begun]
        await shop.put("fork", "files", "/w/b", mode="merge")
        assert shop.stored("fork")["context"] == {"files": ["/w/a", "/w/b"]}
        assert await shop.context("again") == begun
        assert shop.shown("again", "fork", "a")["context"] == begun
        assert not (shop.root / "metas/helper.user.json").exists()

    run(work())


def test_a_fork_of_a_session_without_sets_has_none(shop: Shop) -> None:
    """S4.28: what its parent notes later is the parent's; a title of its own stays."""
    shop.session("fork", parentSessionId="a")

    async def work() -> None:
        await shop.update("fork", title="Mine")
        shop.events()
        await shop.put("a", "files", "/w/a")
        assert await shop.context("fork") == {}
        assert shop.stored("fork")["title"] == "Mine"
        changed = [one for one in shop.heard if one["event"] == "context.changed"]
        assert [one["sessionId"] for one in changed] == ["a"]

    run(work())


def test_a_fork_that_is_met_later_has_a_copy_too(shop: Shop) -> None:
    """S4.28: forks that come while the daemon runs, and after a restart."""

    async def work() -> None:
        await shop.put("a", "files", "/w/a")
        shop.session("new", parentSessionId="a")
        shop.session("late")
        await shop.put("a", "ports", "1")
        assert await shop.context("new") == {"files": ["/w/a"]}
        shop.session("late", parentSessionId="a")  # its header was written anew
        await shop.put("a", "files", "/w/b")
        assert await shop.context("late") == {"files": ["/w/a"], "ports": ["1"]}
        shop.session("down", parentSessionId="a")

    run(work())
    shop.close()
    shop.open()
    run(shop.put("a", "files", "/w/c"))
    assert run(shop.context("down")) == {"files": ["/w/b"], "ports": ["1"]}


def test_forks_are_found_in_the_catalog(tmp_path: Path) -> None:
    """S4.28: archived and gone ones too, but none that is hidden; sub-agents are none."""
    catalog = Catalog.open(tmp_path / "catalog.sqlite")
    parent = {"parentSessionId": "a"}
    fill(catalog, row_of("a", 1), row_of("other", 1, parentSessionId="b"))
    fill(
        catalog, row_of("new", 900, **parent), row_of("old", 0, **parent, archived=True, gone=True)
    )
    fill(catalog, row_of("helper", 1, **parent, subagent=True))
    found = Answers(catalog, lambda: 0.0).forks("a")
    assert sorted(row["sessionId"] for row in found) == ["new", "old"]
    bare = Answers(catalog, lambda: 0.0, lambda row: row["sessionId"] == "old").forks("a")
    assert [row["sessionId"] for row in bare] == ["new"]
    catalog.close()


def test_a_fork_whose_file_is_bad_keeps_it(shop: Shop) -> None:
    """S4.28: it is not written over, and does not keep its parent from changing."""
    shop.session("fork", parentSessionId="a")
    (shop.root / "metas").mkdir()
    (shop.root / "metas/fork.user.json").write_text("{")
    run(shop.put("a", "files", "/w/a"))
    assert shop.stored("a")["context"] == {"files": ["/w/a"]}
    assert (shop.root / "metas/fork.user.json").read_text() == "{"


def test_a_fork_that_was_cleared_stays_empty(shop: Shop) -> None:
    """S4.28: its parent's sets do not come back; a title alone changes nothing of that."""
    shop.session("fork", parentSessionId="a")

    async def work() -> None:
        await shop.put("a", "files", "/w/a")
        shop.forget_copies("fork")
        await shop.update("fork", title="T")
        assert await shop.context("fork") == {"files": ["/w/a"]}
        await shop.put("fork", "files")
        assert await shop.context("fork") == {}
        await shop.update("fork", title="U")
        assert await shop.context("fork") == {}
        await shop.put("fork", "ports", "80")
        await shop.put("fork", "ports")
        assert await shop.context("fork") == {}
        assert await shop.context("a") == {"files": ["/w/a"]}

    run(work())


def test_parents_in_a_circle_and_parents_that_are_broken_do_no_harm(shop: Shop) -> None:
    """S4.28: the search ends; an ancestor's bad file is that ancestor's trouble."""
    shop.session("b", parentSessionId="a")
    shop.session("a", parentSessionId="b")
    shop.session("c", parentSessionId="nobody")
    assert [run(shop.context(one)) for one in "abc"] == [{}, {}, {}]
    (shop.root / "metas").mkdir()
    (shop.root / "metas/a.user.json").write_text("{")
    assert run(shop.context("b")) == {}


# -- resume ---------------------------------------------------------------------------------------


def test_a_block_is_given_once_for_each_resume(shop: Shop) -> None:
    """S4.14, S4.18: and its event comes as often; another session's ids are its own."""
    shop.session("b")

    async def work() -> None:
        await shop.put("a", "ports", "80")
        shop.events()
        first = await shop.call("resume_context", session="a", resumeId="r1")
        head = "[SESSION RESUMED]\nShell state was reset. Re-run environment setup before "
        block = "continuing.\n\nSession directory: /w\n\nports: 80\n---\n\n"
        assert first == {"sessionId": "a", "text": head + block, "missingFiles": 0}
        again = await shop.call("resume_context", session="a", resumeId="r1")
        assert again == {"sessionId": "a", "text": None, "missingFiles": 0}
        assert shop.events() == [("context.resume", "resume", {"ports": ["80"]}, None)]
        assert (await shop.call("resume_context", session="a", resumeId="r2"))["text"]
        assert (await shop.call("resume_context", session="b", resumeId="r1"))["text"]
        at_once = [shop.call("resume_context", session="a", resumeId="r3") for _ in range(5)]
        assert sum(bool(one["text"]) for one in await asyncio.gather(*at_once)) == 1

    run(work())


def test_a_resume_is_remembered_over_a_restart(shop: Shop) -> None:
    """S4.18: one with an id is; without one it is once for each start."""

    async def ask(**more: Any) -> bool:
        return bool((await shop.call("resume_context", session="a", **more))["text"])

    odd = "\ud800/../" + "x" * 5000
    assert [run(ask(resumeId=one)) for one in ("r", odd, "r", odd)] == [True, True, False, False]
    assert [run(ask()) for _ in range(2)] == [True, False]
    shop.close()
    shop.open()
    assert [run(ask(resumeId=one)) for one in ("r", odd, "new")] == [False, False, True]
    assert [run(ask()) for _ in range(2)] == [True, False]


def test_a_resume_without_an_id_is_once_whatever_else_is_resumed(shop: Shop) -> None:
    """S4.18: it is not forgotten for those that have ids."""
    resumes = shop.resumes

    async def work() -> None:
        assert await resumes.claim("a", "")
        assert await resumes.claim("b", "")
        for number in range(RESUMES_MAX + 1):
            await resumes.claim("b", str(number))
        assert not await resumes.claim("a", "")
        resumes.release("a", "")
        assert await resumes.claim("a", "")

    run(work())


def test_a_block_that_could_not_be_made_was_not_given(shop: Shop) -> None:
    """S4.18: once the sidecar can be read, its resume gets it."""
    path = shop.root / "metas/a.user.json"
    path.mkdir(parents=True)
    with pytest.raises(AccessError):
        run(shop.call("resume_context", session="a", resumeId="r"))
    path.rmdir()
    assert run(shop.call("resume_context", session="a", resumeId="r"))["text"]


def test_files_are_looked_for_when_a_block_is_made(shop: Shop, tmp_path: Path) -> None:
    """S4.16: relative ones in the session's directory; what is stored stays."""
    (tmp_path / "here.md").touch()
    (tmp_path / "loop").symlink_to("loop")
    shop.session("b", cwd=str(tmp_path))
    files = ["here.md", str(tmp_path / "here.md"), "gone.md", "here.md/below", "loop", "~/nope"]

    async def work() -> None:
        await shop.put("b", "files", *files)
        found = await shop.call("resume_context", session="b")
        told = f"- here.md\n- {tmp_path}/here.md\n- loop\n(3 file(s) no longer exist)\n"
        assert told in found["text"]
        assert found["missingFiles"] == 3
        assert await shop.context("b") == {"files": files}

    run(work())


def test_what_cannot_be_known_is_taken_to_be_there() -> None:
    """S4.16: only what is seen to be missing is said to be."""
    assert is_there("", "relative")
    assert is_there("/", "x" * 5000)
    assert not is_there("/", "a\0b")
    assert is_there("/", "~nobody-of-this-name/x")
    assert not is_there("/nowhere", "x")


def test_the_footer_is_of_the_session_asked_for(shop: Shop) -> None:
    """S4.23: empty for one without context, whatever another one has."""
    shop.session("b")

    async def work() -> None:
        await shop.put("a", "files", "src/a.py", "/x/b.md")
        found = await shop.call("footer", ref="a")
        assert found["text"] == "a.py · b.md"
        paths = [one["path"] for one in found["files"]]
        assert paths == ["/w/src/a.py", "/x/b.md"]
        empty = {"sessionId": "b", "files": [], "more": 0, "text": ""}
        assert await shop.call("footer", ref="b") == empty
        with pytest.raises(NotFoundError):
            await shop.call("footer", ref="nobody")

    run(work())


def test_switching_while_a_footer_is_read_shows_nothing_of_the_other(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4.23: answers name their session; one that comes late cannot be taken for another's."""
    shop.session("b", cwd="/b")
    may, begun = threading.Event(), threading.Event()

    def slowly(own: Place, before: Sequence[Place]) -> Held:
        if own.session_id == "a":
            begun.set()
            assert may.wait(10)
        return held(own, before)

    async def work() -> None:
        await shop.put("a", "files", "src/a.py")
        monkeypatch.setattr("indexerd.service.sidecar.held", slowly)
        old = asyncio.create_task(shop.call("footer", ref="a"))
        await asyncio.to_thread(begun.wait, 10)
        empty = {"sessionId": "b", "files": [], "more": 0, "text": ""}
        assert await shop.call("footer", ref="b") == empty
        await shop.put("b", "files", "src/b.py")
        new = await shop.call("footer", ref="b")
        assert not old.done()
        may.set()
        late = await old
        assert (late["sessionId"], late["text"]) == ("a", "a.py")
        assert (new["sessionId"], new["text"]) == ("b", "b.py")
        assert new["files"] == [{"basename": "b.py", "path": "/b/src/b.py"}]

    run(work())


def test_a_history_that_is_opened_tells_of_its_sets(shop: Shop) -> None:
    """S4.13: reason `load`, all sets; nothing where there are none, or none can be read."""
    shop.session("b")
    shop.session("c")

    async def work() -> None:
        await shop.put("a", "files", "/w/a")
        (shop.root / "metas/c.user.json").write_text("{")
        shop.heard.clear()
        for one in ("nobody", "c", "b", "a"):
            shop.contexts.opened(one)
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})

    run(work())
    assert [one["sessionId"] for one in shop.heard] == ["a"]
    assert shop.events() == [("context.load", "load", {"files": ["/w/a"]}, None)]


def test_what_was_noted_does_not_age(shop: Shop) -> None:
    """S4.28: a year of the clock and a restart later it is as it was, and comes at a resume."""

    async def ask(resume: str) -> Any:
        return (await shop.call("resume_context", session="a", resumeId=resume))["text"]

    run(shop.put("a", "ports", "80"))
    first = run(ask("r1"))
    shop.close()
    shop.now += 366 * 86400
    shop.open()
    assert run(shop.context("a")) == {"ports": ["80"]}
    assert run(ask("r2")) == first
    assert run(ask("r1")) is None


def test_a_place_that_takes_nothing_is_an_error(shop: Shop) -> None:
    """S4.12: nothing is told of a write that failed."""
    (shop.root / "metas").touch()
    with pytest.raises(WriteError):
        run(shop.put("a", "files", "/w/a"))
    with pytest.raises(WriteError):
        run(shop.update("a", context={"files": ["/w/a"]}))
    assert (shop.events(), shop.kept) == ([], [])


@pytest.mark.parametrize("method", ["set_relevant_context", "get_relevant_context", "footer"])
@pytest.mark.parametrize("ref", [None, "", 5])
def test_a_session_must_be_named(shop: Shop, method: str, ref: Any) -> None:
    """Every method says what it misses."""
    key = "ref" if method == "footer" else "session"
    with pytest.raises(UsageError, match=f"{key} is"):
        run(shop.call(method, **{key: ref}, setName="files", items=["a"]))
