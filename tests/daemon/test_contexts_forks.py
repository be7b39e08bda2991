"""Context sets and forks: what a fork starts with, one met late, and what does no harm (S4)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from indexerd.daemon.answers import Answers
from indexerd.store.catalog import Catalog
from tests.sessions.context_shop import Shop, run
from tests.store.catalog_rows import fill
from tests.store.catalog_rows import row as row_of


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A directory of sidecars."""
    shop = Shop(tmp_path)
    yield shop
    shop.close()


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
