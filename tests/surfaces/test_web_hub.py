"""What pages hear and ask: one subscription for all, no texts, bounded, there again by itself."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.errors import DaemonDownError, DeadlineError, NotFoundError
from indexerd.paths import places, socket_places
from indexerd.surfaces.web import desk as desks
from indexerd.surfaces.web.desk import AT_ONCE, Desk
from indexerd.surfaces.web.hub import LOST, WAITING_MAX, Hub, plain

SECONDS = 20.0  # after which a test gives up
PAUSES = (0.01, 0.02)
UP, DOWN = {"event": "daemon", "up": True}, {"event": "daemon", "up": False}


@pytest.fixture
def socket() -> Iterator[Path]:
    """A place for a socket, with a short name."""
    made = Path(tempfile.mkdtemp(prefix="ixw", dir="/tmp"))
    yield made / "s.sock"
    shutil.rmtree(made, ignore_errors=True)


class Daemon:
    """A daemon that has nothing but events: says them to whoever subscribed."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []
        self.asked: list[Any] = []
        self.subscribed = asyncio.Event()

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        request = json.loads(await reader.readline())
        self.asked.append(request)
        self.writers.append(writer)
        writer.write(line({"jsonrpc": "2.0", "id": request["id"], "result": {"subscribed": "all"}}))
        self.subscribed.set()
        await reader.read()

    def say(self, **event: Any) -> None:
        """Tell an event."""
        self.send(line({"jsonrpc": "2.0", "method": "event", "params": event}))

    def send(self, held: bytes) -> None:
        """Send some bytes."""
        self.writers[-1].write(held)


def line(held: Any) -> bytes:
    """A document, as it is sent."""
    return json.dumps(held).encode() + b"\n"


@asynccontextmanager
async def daemon(path: Path) -> AsyncIterator[Daemon]:
    """One that runs, and hangs up at its end."""
    one = Daemon()
    server = await asyncio.start_unix_server(one.meet, path)
    try:
        yield one
    finally:
        server.close()
        for writer in one.writers:
            writer.close()


@asynccontextmanager
async def running(*paths: Path) -> AsyncIterator[Hub]:
    """A hub that runs."""
    hub = Hub(paths, pauses=PAUSES)
    task = asyncio.create_task(hub.run())
    try:
        yield hub
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def play(story: Callable[[], Awaitable[None]]) -> None:
    """Run a test's story, with an end."""

    async def bounded() -> None:
        async with asyncio.timeout(SECONDS):
            await story()

    asyncio.run(bounded())


async def until(heard: AsyncIterator[dict[str, Any]], wanted: dict[str, Any]) -> list[Any]:
    """Listen until that is heard; says what was heard before."""
    before: list[Any] = []
    async for event in heard:
        if event == wanted:
            return before
        before.append(event)
    raise AssertionError(f"{wanted} was not heard, but {before}")


def test_every_listener_hears_from_one_subscription(socket: Path) -> None:
    """The state first, then each event; the daemon has one connection for all pages."""

    async def story() -> None:
        async with daemon(socket) as there, running(socket) as hub, hub.listen() as one:
            await until(one, UP)
            assert hub.up
            called: list[Any] = []
            hub.on_event(called.append)
            async with hub.listen() as other:
                assert await anext(other) == UP
                there.say(event="session.updated", sessionId="abc", at="2026-01-01T00:00:00Z")
                expected = {
                    "event": "session.updated",
                    "sessionId": "abc",
                    "at": "2026-01-01T00:00:00Z",
                }
                assert await anext(one) == await anext(other) == expected
                assert called == [expected]
            assert [asked["method"] for asked in there.asked] == ["subscribe"]

    play(story)


def test_a_daemon_that_went_is_there_again_by_itself(socket: Path) -> None:
    """Down, up, and that something was missed meanwhile; a place that is tried first is no bar."""

    async def story() -> None:
        nowhere = socket.with_name("nowhere")
        async with running(nowhere, socket) as hub, hub.listen() as heard:
            assert await anext(heard) == DOWN
            assert not hub.up
            async with daemon(socket):
                assert await until(heard, UP) == []
            assert await until(heard, DOWN) == []
            assert not hub.up
            async with daemon(socket) as there:
                await until(heard, LOST)
                assert hub.up
                there.say(event="session.created", sessionId="abc")
                await until(heard, {"event": "session.created", "sessionId": "abc"})

    play(story)


@pytest.mark.parametrize(
    "rubbish",
    [b"no json\n", b"[1]\n", b"[" * 100_000 + b"\n", b"\xff\n", b"x" * (5 << 20)],
    ids=["words", "a list", "deep", "bytes", "long"],
)
def test_what_is_no_daemon_is_left_and_tried_again(socket: Path, rubbish: bytes) -> None:
    """Whatever comes over the socket, the hub goes on."""

    async def story() -> None:
        async with daemon(socket) as there, running(socket) as hub, hub.listen() as heard:
            await until(heard, UP)
            there.subscribed.clear()
            there.send(rubbish)
            await there.subscribed.wait()
            await until(heard, LOST)
            there.say(event="session.created", sessionId="abc")
            await until(heard, {"event": "session.created", "sessionId": "abc"})
            assert len(there.asked) == 2

    play(story)


def test_what_still_waits_is_told_once(socket: Path) -> None:
    """A page that is slow hears the newest of each kind, and the last of all last."""

    async def story() -> None:
        async with daemon(socket) as there, running(socket) as hub, hub.listen() as heard:
            await until(heard, UP)
            told = asyncio.Event()
            hub.on_event(lambda event: told.set() if event["event"] == "status.changed" else None)
            for n in range(500):
                state = "active" if n < 499 else "idle"
                there.say(event="session.updated", sessionId="abc", state=state)
                there.say(event="index.started", sessionId="abc")
            there.say(event="session.updated", sessionId="other")
            there.say(event="index.failed", sessionId="abc")
            there.say(event="index.started", sessionId="abc")
            there.say(event="status.changed", state="ok")
            await told.wait()
            found = await until(heard, {"event": "status.changed", "state": "ok"})
            assert found == [
                {"event": "session.updated", "sessionId": "abc", "state": "idle"},
                {"event": "session.updated", "sessionId": "other"},
                {"event": "index.failed", "sessionId": "abc"},
                {"event": "index.started", "sessionId": "abc"},
            ]

    play(story)


def test_who_does_not_listen_costs_little_and_is_told(socket: Path) -> None:
    """The oldest go; that some are lost is said, once."""

    async def story() -> None:
        async with daemon(socket) as there, running(socket) as hub, hub.listen() as heard:
            await until(heard, UP)
            told = asyncio.Event()
            hub.on_event(lambda event: told.set() if event["event"] == "status.changed" else None)
            for n in range(WAITING_MAX * 2):
                there.say(event="session.updated", sessionId=f"s{n}")
            there.say(event="status.changed", state="ok")
            await told.wait()
            found = await until(heard, {"event": "status.changed", "state": "ok"})
            assert len(found) < WAITING_MAX + 1
            assert found.count(LOST) == 1
            assert {"event": "session.updated", "sessionId": f"s{WAITING_MAX * 2 - 1}"} in found
            assert {"event": "session.updated", "sessionId": "s0"} not in found

    play(story)


def test_closing_ends_every_listening_at_once(socket: Path) -> None:
    """Those that wait, and those that come later: a server can end."""

    async def story() -> None:
        async with running(socket) as hub, hub.listen() as heard:
            assert await anext(heard) == DOWN
            waiting = asyncio.ensure_future(_all(heard))
            asyncio.get_running_loop().call_soon(hub.close)  # once it waits
            assert await waiting == []
            async with hub.listen() as late:
                assert await _all(late) == []

    play(story)


async def _all(heard: AsyncIterator[Any]) -> list[Any]:
    return [one async for one in heard]


def test_an_event_is_told_without_its_texts() -> None:
    """Names, messages and context stay behind; what only looks like a state does, too."""
    told = {
        "event": "session.renamed",
        "sessionId": "abc",
        "at": "2026-01-01T00:00:00.123Z",
        "state": "active",
        "previousState": "idle",
        "reason": "quiet",
        "kind": "budget_exhausted",
        "name": "a secret plan",
        "previous": "an older plan",
        "message": "words",
        "sessionFile": "/home/user/x.jsonl",
        "context": {"env": ["KEY=1"]},
    }
    expected = {key: told[key] for key in ("event", "sessionId", "at")}
    expected |= {"state": "active", "previousState": "idle"}
    expected |= {"reason": "quiet", "kind": "budget_exhausted"}
    assert plain(told) == expected
    assert plain({"event": "status.changed", "reason": "Some Words", "state": 5}) == {
        "event": "status.changed"
    }


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.sampled_from(["session.updated", "event"]),
        lambda below: st.dictionaries(
            st.sampled_from(["event", "sessionId", "at", "state", "reason"]) | st.text(max_size=9),
            below,
            max_size=4,
        ),
        max_leaves=8,
    )
)
def test_whatever_is_told_little_is_passed_on(told: Any) -> None:
    """Only fields of fixed forms, and only of events that pages know."""
    found = plain(told)
    if found is not None:
        assert found["event"] in told.values()
        for value in found.values():
            assert isinstance(value, str)
            assert len(value) <= 128
            assert value.isascii()
            assert value.isprintable()
            assert not set(value) & set(" <>&\"'")


# -- the desk, where pages ask -------------------------------------------------------------------


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
