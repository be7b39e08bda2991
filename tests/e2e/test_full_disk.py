"""The whole daemon on disks of its own that are full: it goes on, says so, and stores it later."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.world import Session, World, until

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None,
        reason="mounting a tmpfs needs root on Linux, and unshare",
    ),
]
PATIENCE = 40.0


def on_a_small_disk(place: Path, size: str) -> list[str]:
    """What a daemon is run under so that this directory is a disk that nobody else sees."""
    place.mkdir(parents=True, exist_ok=True)
    mount = f'mount -t tmpfs -o mode=0700,size={size} tmpfs "$0" && exec "$@"'
    return ["unshare", "-m", "sh", "-c", mount, str(place)]


def fill(place: Path) -> Path:
    """Write into a directory until its disk takes no more; gives what is in the way."""
    ballast = place / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (65_536, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    return ballast


def codes(world: World) -> set[str]:
    """What `status` complains of."""
    return {one["code"] for one in world.call("status")["problems"]}


def scanned(world: World) -> Any:
    """When the last scan ended."""
    return world.call("status")["lastScanAt"]


def scanned_since(world: World, before: Any) -> bool:
    """Whether another scan has ended."""
    return bool(scanned(world) != before)


def users(world: World, session: Session) -> int | None:
    """How many user messages a session's row has."""
    count: int | None = world.row(session.id).get("userMessageCount")
    return count


def found(world: World, word: str) -> list[Any]:
    """What a search finds by a word."""
    hits: list[Any] = world.call("search", query=word)["hits"]
    return hits


def test_a_full_state_directory(world: World) -> None:
    """A3, M15, S0.36: books, ledger, catalog and log cannot grow: the daemon does not end.

    Lookups are served, `status` says what is wrong; what sessions said meanwhile is shown, found
    and described once there is room, without another word from them, and nothing is paid twice.
    """
    world.scripted()
    old = world.session(turns=5)
    with world.daemon(under=on_a_small_disk(world.state, "4m")) as process:
        world.wait_meta(old.id)
        until(lambda: found(world, "widget"), "its text", PATIENCE)
        ballast = fill(Path(f"/proc/{process.pid}/root{world.state}"))
        new = world.session(turns=6)
        words = " ".join(f"word{number}x{new.id[:8]}" for number in range(20_000))
        for number in range(4):
            new.turn(f"Question {number}. {words}", f"Zeppelin {number}. {words}")
        new.turn()
        old.talk(5)
        small = world.session(turns=2)  # nothing is to be done with it, but to show it
        until(lambda: "state_unwritable" in codes(world), "the problem in the status", PATIENCE)
        for _ in range(2):
            until(partial(scanned_since, world, scanned(world)), "a scan", PATIENCE)
        status = world.call("status")
        assert status["state"] == "degraded"
        assert all(one["cause"] and one["cure"] for one in status["problems"])
        assert world.call("resolve", ref=old.id)["sessionId"] == old.id
        assert old.id in [one["sessionId"] for one in found(world, "widget")]
        assert process.poll() is None

        ballast.unlink()
        until(lambda: users(world, new) == 11, "the session that began", PATIENCE)
        until(lambda: users(world, old) == 10, "what was said meanwhile", PATIENCE)
        until(lambda: users(world, small) == 2, "the small one", PATIENCE)
        until(lambda: found(world, "zeppelin"), "the text that was read meanwhile", PATIENCE)
        until(lambda: world.meta(new.id), "its meta file", PATIENCE)
        world.wait_meta(old.id, lambda meta: meta["userMessageCount"] == 10)
        until(lambda: not codes(world), "the end of the problem", PATIENCE)
        until(lambda: not world.call("status")["indexing"], "the end of work", PATIENCE)
        booked = world.call("status")["budget"]["calls"]
        assert process.poll() is None
    assert Counter(one["session"] for one in world.calls()) == {old.id: 2, new.id: 1}
    assert booked >= len(world.calls())


def test_a_full_meta_directory(world: World) -> None:
    """A3, S0.40: what was paid for waits for room, and is stored by itself, without a second call.

    What was stored before stays as it was.
    """
    world.scripted()
    world.metas.mkdir()
    with world.daemon(under=on_a_small_disk(world.metas, "256k")) as process:
        inside = Path(f"/proc/{process.pid}/root{world.metas}")
        first, second = world.session(turns=5), None
        kept = inside / f"{first.id}.meta.json"
        until(kept.exists, "the first meta file", PATIENCE)
        before = kept.read_bytes()
        ballast = fill(inside)
        second = world.session(turns=5)
        first.talk(5)
        until(lambda: "write_failed" in codes(world), "the problem in the status", PATIENCE)
        until(lambda: world.call("status")["unwritten"] == 2, "both answers to wait", PATIENCE)
        assert kept.read_bytes() == before
        assert sorted(one.name for one in inside.iterdir()) == sorted([kept.name, "ballast"])
        assert users(world, second) == 5

        ballast.unlink()
        later = inside / f"{second.id}.meta.json"
        until(later.exists, "the second meta file", PATIENCE)
        until(lambda: kept.read_bytes() != before, "the first one anew", PATIENCE)
        until(lambda: not codes(world), "the end of the problem", PATIENCE)
        assert process.poll() is None
    assert Counter(one["session"] for one in world.calls()) == {first.id: 2, second.id: 1}
