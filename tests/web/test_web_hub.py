"""What pages hear: one subscription for all, no texts, bounded, there again by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.web.hub import LOST, WAITING_MAX, plain
from tests.short import short_directory
from tests.web.hub_daemon import (
    DOWN,
    UP,
    daemon,
    play,
    running,
    until,
)


@pytest.fixture
def socket() -> Iterator[Path]:
    """A place for a socket, with a short name."""
    with short_directory() as made:
        yield made / "s.sock"


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
