"""Context sets when a session is resumed: its block, its footer, and what is told of it (S4)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from indexerd.daemon.answers import Held, Place, held
from indexerd.daemon.context_methods import RESUMES_MAX, is_there
from indexerd.errors import (
    AccessError,
    NotFoundError,
    WriteError,
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
        monkeypatch.setattr("indexerd.daemon.sidecar.held", slowly)
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
