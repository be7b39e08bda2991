"""Our own files among the agents': what we write causes nothing, and each session counts once."""

from __future__ import annotations

import json
import os

import pytest

from tests.e2e.world import World, until

pytestmark = pytest.mark.faults

SCANS = 3


def settle(world: World) -> None:
    """Let some scans pass, and all work they may have found."""
    for _ in range(SCANS):
        before = world.call("status")["lastScanAt"]
        until(lambda before=before: world.call("status")["lastScanAt"] != before, "a scan")
    until(lambda: not world.call("status")["indexing"], "an end of work")


def test_what_we_write_causes_nothing(world: World) -> None:
    """W11: our meta files and our state lie among the sessions, and each turn costs one call."""
    world.scripted()
    world.env |= {
        "INDEXERD_MIN_NEW_USER_MESSAGES": "1",
        "INDEXERD_WATCH__RESCAN_SECONDS": "0.3",
        "INDEXERD_AGENTS__PI__META_DIR": str(world.sessions),
        "INDEXERD_STATE_DIR": str(world.sessions / "indexerd"),
    }
    session = world.session(turns=1)
    path = world.sessions / f"{session.id}.meta.json"
    with world.daemon():
        for turn in range(1, 4):
            until(lambda: len(world.calls()) == turn, "the call")  # noqa: B023 - called at once
            until(
                lambda: (
                    path.exists()
                    and json.loads(path.read_text())["lastIndexedLeafId"] == session.last
                ),
                "the meta file",
            )
            stored = path.stat()
            settle(world)
            assert len(world.calls()) == turn
            assert path.stat().st_mtime_ns == stored.st_mtime_ns
            session.turn()
        until(lambda: len(world.calls()) == 4, "the last call")
        (row,) = world.call("list", archived=True)["sessions"]
        assert row["sessionId"] == session.id


def test_roots_in_any_disorder_are_one_session_one_call_one_file(world: World) -> None:
    """C6: nested, double, linked, with a slash, and `/`; our output lies in one of them."""
    world.scripted()
    link = world.root / "link"
    os.symlink(world.pi, link)
    inner = world.pi / "sessions"
    os.symlink(inner, world.pi / "loop")
    roots = [
        world.pi,
        f"{world.pi}/",
        link,
        f"{world.pi}/../agent",
        inner,
        world.root / "home",
        "/",
    ]
    world.config.parent.mkdir(parents=True)
    world.config.write_text(
        f"[agents.pi]\nroots = {json.dumps([str(one) for one in roots])}\n"
        f"meta_dir = {json.dumps(str(world.sessions))}\n"
    )
    world.env["INDEXERD_WATCH__RESCAN_SECONDS"] = "0.3"
    session = world.session(turns=5)
    with world.daemon():
        until(world.calls, "the call")
        settle(world)
        (row,) = world.call("list", archived=True)["sessions"]
        assert (row["sessionId"], row["userMessageCount"]) == (session.id, 5)
        session.talk(5)
        until(lambda: len(world.calls()) == 2, "the next call")
        settle(world)
    assert len(world.calls()) == 2
    found = [path for path in world.root.rglob("*.meta.json") if not path.is_symlink()]
    assert [path.name for path in found] == [f"{session.id}.meta.json"]
