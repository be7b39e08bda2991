"""Context sets and forks: what a fork starts with, one met late, and what does no harm (S4)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sessions.context_shop import Shop, run


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
