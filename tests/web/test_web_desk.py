"""The desk, where pages ask: of the daemon, or of what is stored, and without waiting for ever."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import DaemonDownError, DeadlineError, NotFoundError
from indexerd.paths import places, socket_places
from indexerd.web import desk as desks
from indexerd.web.desk import AT_ONCE, Desk
from tests.short import short_directory
from tests.web.hub_daemon import (
    DOWN,
    UP,
    daemon,
    line,
    play,
    running,
    until,
)


@pytest.fixture
def socket() -> Iterator[Path]:
    """A place for a socket, with a short name."""
    with short_directory() as made:
        yield made / "s.sock"


class Clerk:
    """A daemon that answers each question in its own way, when it may."""

    def __init__(self) -> None:
        self.now, self.most = 0, 0
        self.go, self.full = asyncio.Event(), asyncio.Event()

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        self.now += 1
        self.most = max(self.most, self.now)
        if self.now == AT_ONCE:
            self.full.set()
        request = json.loads(await reader.readline())
        answer: dict[str, Any] = {"result": request["params"]}
        if request["method"] == "slow":
            await self.go.wait()
        if request["method"] == "unknown":
            data = {"kind": "not_found", "hint": "look elsewhere", "retryable": False}
            answer = {"error": {"code": 1001, "message": "no session fits", "data": data}}
        if request["method"] != "dies":
            writer.write(line({"jsonrpc": "2.0", "id": request["id"], **answer}))
        self.now -= 1
        writer.close()


def desk_at(socket: Path, read: Callable[[str, dict[str, Any]], Any]) -> Desk:
    """A desk whose daemon would be there."""
    home = socket.parent
    env = {"HOME": str(home), "INDEXERD_STATE_DIR": str(home), "INDEXERD_SOCKET": str(socket)}
    return Desk(places(env, home=home), env, home=home, stored=read)


def test_a_page_asks_the_daemon_or_reads_what_is_stored(socket: Path) -> None:
    """Reading goes on without a daemon, and one that dies meanwhile is none; changing does not."""

    async def story() -> None:
        desk = desk_at(socket, lambda method, params: ["stored", method, params])
        assert await desk.read("list", {"limit": 1}) == ["stored", "list", {"limit": 1}]
        with pytest.raises(DaemonDownError, match=r"s\.sock"):
            await desk.ask("update", {})
        server = await asyncio.start_unix_server(Clerk().meet, socket)
        assert await desk.read("list", {"limit": 2}) == {"limit": 2}
        assert await desk.ask("update", {"title": "a"}) == {"title": "a"}
        assert await desk.read("dies", {}) == ["stored", "dies", {}]
        with pytest.raises(NotFoundError) as caught:
            await desk.read("unknown", {})
        assert caught.value.hint == "look elsewhere"
        server.close()

    play(story)


def test_an_answer_that_takes_too_long_is_not_waited_for(socket: Path) -> None:
    """The time is the asker's to set; what is stored is no answer to that."""

    async def story() -> None:
        clerk = Clerk()
        server = await asyncio.start_unix_server(clerk.meet, socket)
        desk = desk_at(socket, lambda *_: "stored")
        with pytest.raises(DeadlineError):
            await desk.ask("slow", {}, seconds=0.05)
        clerk.go.set()
        server.close()

    play(story)


def test_a_daemon_that_hangs_is_not_asked_again_by_everybody(
    socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket that listens and never answers, as of a stopped process: what is stored is read.

    The first waits; others do not, while one question at a time does. A change is refused with
    what to do, and pages are told; when the daemon answers again, they are told that.
    """
    monkeypatch.setattr(desks, "READ_SECONDS", 0.3)
    monkeypatch.setattr(desks, "HELLO_SECONDS", 0.2)

    async def story() -> None:
        stopped, asked = asyncio.Event(), asyncio.Queue[str]()

        async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            request = json.loads(await reader.readline())
            asked.put_nowait(request["method"])
            await stopped.wait()
            writer.write(line({"jsonrpc": "2.0", "id": request["id"], "result": "answered"}))
            writer.close()

        server = await asyncio.start_unix_server(meet, socket)
        desk, told = desk_at(socket, lambda method, _: f"stored {method}"), asyncio.Queue[bool]()
        desk.on_silent = told.put_nowait
        assert await desk.read("list", {}) == "stored list"
        assert await told.get()
        assert desk.silent
        for _ in range(30):
            assert await desk.read("get", {}) == "stored get"
        with pytest.raises(DeadlineError, match="does not answer") as caught:
            await desk.ask("update", {})
        assert caught.value.retryable
        assert "try again" in caught.value.hint
        assert [await asked.get() for _ in range(3)] == ["list", "hello", "hello"]
        assert asked.empty()
        stopped.set()
        assert not await told.get()
        assert await desk.read("get", {}) == "answered"
        assert await desk.ask("update", {}) == "answered"
        server.close()

    play(story)


def test_one_answer_that_takes_long_is_no_silence(
    socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stored is read in its place; the daemon, which answers others, is asked on."""
    monkeypatch.setattr(desks, "READ_SECONDS", 0.2)

    async def story() -> None:
        clerk, told = Clerk(), list[bool]()
        server = await asyncio.start_unix_server(clerk.meet, socket)
        desk = desk_at(socket, lambda *_: "stored")
        desk.on_silent = told.append
        assert await desk.read("slow", {}) == "stored"
        assert await desk.read("list", {"limit": 1}) == {"limit": 1}
        assert not told
        clerk.go.set()
        server.close()

    play(story)


def test_pages_are_told_of_a_daemon_that_does_not_answer(socket: Path) -> None:
    """As of one that is gone, though the subscription stands; and of its return."""

    async def story() -> None:
        async with daemon(socket), running(socket) as hub, hub.listen() as heard:
            await until(heard, UP)
            hub.hush(silent=True)
            assert not hub.up
            await until(heard, DOWN)
            hub.hush(silent=False)
            assert hub.up
            await until(heard, UP)

    play(story)


def test_few_questions_are_under_way_at_once(socket: Path) -> None:
    """Eight; the others wait for their turn, and have it."""

    async def story() -> None:
        clerk = Clerk()
        server = await asyncio.start_unix_server(clerk.meet, socket)
        desk = desk_at(socket, lambda *_: "stored")
        asked = [asyncio.ensure_future(desk.ask("slow", {"n": n})) for n in range(20)]
        await clerk.full.wait()
        clerk.go.set()
        assert await asyncio.gather(*asked) == [{"n": n} for n in range(20)]
        assert clerk.most == AT_ONCE
        server.close()

    play(story)


def test_the_socket_is_looked_for_where_a_login_session_has_it(tmp_path: Path) -> None:
    """A process with hardly any environment finds it, too; one that was told where asks no more."""
    bare = {"HOME": str(tmp_path)}
    first, *others = socket_places(places(bare, home=tmp_path), bare)
    assert first.is_relative_to(tmp_path)
    if sys.platform != "darwin":
        assert others == [Path(f"/run/user/{os.getuid()}/indexerd/indexerd.sock")]
    told = bare | {"INDEXERD_SOCKET": "/somewhere/s.sock"}
    assert socket_places(places(told, home=tmp_path), told) == (Path("/somewhere/s.sock"),)
