"""Context sets when a session is resumed: its block, its footer, and what is told of it (S4)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import (
    AccessError,
)
from tests.sessions.context_shop import Shop, run


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A directory of sidecars."""
    shop = Shop(tmp_path)
    yield shop
    shop.close()


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


def test_a_block_that_could_not_be_made_was_not_given(shop: Shop) -> None:
    """S4.18: once the sidecar can be read, its resume gets it."""
    path = shop.root / "metas/a.user.json"
    path.mkdir(parents=True)
    with pytest.raises(AccessError):
        run(shop.call("resume_context", session="a", resumeId="r"))
    path.rmdir()
    assert run(shop.call("resume_context", session="a", resumeId="r"))["text"]
