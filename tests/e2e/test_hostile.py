"""Odd files, odd moments: each loses at most itself."""

from __future__ import annotations

import json
import os
import signal
import sqlite3

import pytest

from tests.e2e.world import Session, World, until

pytestmark = pytest.mark.faults


def test_odd_names_and_headers_lose_only_themselves(world: World) -> None:
    """W14, F4, F7, X1: names that are no UTF-8 and hostile headers do not end the daemon."""
    good = world.session(turns=5)
    odd = Session(world.sessions, session_id="odd-name")
    odd.talk(5)
    odd.path.rename(os.fsdecode(os.fsencode(world.sessions) + b"/bad-\xff-name.jsonl"))
    headers = {
        "stamp": {"timestamp": "\ud800"},
        "version": {"version": 10**26},
        "../escape": {},
        "a\u0000b": {},
    }
    for number, (session_id, fields) in enumerate(headers.items()):
        header = {"type": "session", "version": 3, "id": session_id, "cwd": "/w", **fields}
        lines = json.dumps(header) + "\n"
        (world.sessions / f"hostile{number}.jsonl").write_text(lines)

    with world.daemon() as process:
        world.wait_meta(good.id)
        world.wait_meta("odd-name")
        until(lambda: world.row("version"), "the row")
        causes = " ".join(one["cause"] for one in world.call("status")["problems"])
        assert "not of the allowed form" in causes
        assert process.poll() is None
    with world.daemon():
        until(lambda: world.call("list")["sessions"], "the sessions, out of the ledger")
        assert world.call("resolve", ref="odd-name")["sessionId"] == "odd-name"
    assert not (world.pi / "escape.meta.json").exists()


def test_exclusions_come_and_go(world: World) -> None:
    """[privacy] exclude: by reload or restart, a session is dropped with its text, and returns."""
    world.scripted()
    world.config.parent.mkdir(parents=True)
    hidden = Session(world.sessions, cwd="/secret/place")
    hidden.talk(4)
    with world.daemon() as process:
        until(lambda: world.call("search", query="widget")["hits"], "the text")
        world.config.write_text('min_new_user_messages = 2\n[privacy]\nexclude = ["/secret"]\n')
        process.send_signal(signal.SIGHUP)
        until(lambda: not world.call("list", archived=True)["sessions"], "the session to go")
        assert world.call("search", query="widget")["hits"] == []
        hidden.turn()
        shown = world.session(turns=3)
        world.wait_meta(shown.id)
        assert {shown.id} == {call["session"] for call in world.calls()}
    report = world.run("run", "--once", "--json")
    assert (report["sessions"], report["indexed"]) == (1, [])
    world.config.write_text("min_new_user_messages = 2\n")
    report = world.run("run", "--once", "--json")
    assert [hidden.id] == report["indexed"]


def test_a_line_that_only_looks_whole_is_found_out(world: World) -> None:
    """S1.2, F4: bytes inside a message that no JSON has cost that message, not the session."""
    session = world.session(turns=6)
    data = session.path.read_bytes()
    hole = data.index(b"Question 3")
    session.path.write_bytes(data[:hole] + b"\1" * 9 + data[hole + 9 :])

    assert world.run("run", "--once", "--json")["indexed"] == []  # three messages are too few
    row = world.run("show", session.id, "--json")["session"]
    assert row["userMessageCount"] == 3  # pi, too, loses the way at the entry that is missing


def test_a_root_that_is_no_root_any_more_is_let_go(world: World) -> None:
    """W5: a root dropped by a reload leaves its sessions gone, and nothing hangs."""
    other = world.root / "other/agent"
    world.config.parent.mkdir(parents=True)
    world.config.write_text(f'[agents.pi]\nroots = ["{world.pi}", "{other}"]\n')
    first = world.session(turns=5)
    second = Session(other / "sessions/--w--")
    second.talk(5)
    with world.daemon() as process:
        world.wait_meta(first.id)
        until(lambda: list(other.glob("sessions-meta/*.meta.json")), "the other meta file")
        world.config.write_text(f'[agents.pi]\nroots = ["{world.pi}"]\n')
        process.send_signal(signal.SIGHUP)
        until(lambda: world.row(second.id).get("gone"), "the row marked gone")
        told = world.run("index", second.id, "--force", "--wait", "--json", code=3)
        assert told["error"]["code"] == "not_found"
        session = world.session(turns=5)
        world.wait_meta(session.id)


def test_a_locked_ledger_is_waited_for(world: World) -> None:
    """A3, S3.14: a cache that cannot be written degrades the daemon, and does not end it.

    What a file said meanwhile is shown, whether or not the file grows again.
    """
    world.scripted()
    session = world.session(turns=5)
    with world.daemon() as process:
        world.wait_meta(session.id)
        other = sqlite3.connect(world.state / "store.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        session.talk(2)
        new = world.session(turns=6)
        until(
            lambda: "state_unwritable" in {p["code"] for p in world.call("status")["problems"]},
            "the problem in the status",
        )
        assert world.call("status")["state"] == "degraded"
        assert world.call("resolve", ref=session.id)["sessionId"] == session.id
        other.execute("ROLLBACK")
        other.close()
        until(lambda: world.row(session.id)["userMessageCount"] == 7, "what was said meanwhile")
        until(lambda: world.row(new.id).get("userMessageCount") == 6, "the session that began")
        world.wait_meta(new.id)
        until(lambda: world.call("status")["state"] == "ok", "the end of the problem")
        assert process.poll() is None
    assert [call["session"] for call in world.calls()] == [session.id, new.id]


def test_a_session_moved_to_another_root_keeps_its_meta_file(world: World) -> None:
    """F14, S0.34: createdAt goes along, and without caches nothing is paid for again."""
    world.scripted()
    other = world.root / "other/agent"
    world.config.parent.mkdir(parents=True)
    world.config.write_text(f'[agents.pi]\nroots = ["{world.pi}", "{other}"]\n')
    session = world.session(turns=5)
    world.run("run", "--once")
    first = world.meta(session.id)
    assert first is not None
    target = other / "sessions/--w--"
    target.mkdir(parents=True)
    session.path = session.path.rename(target / session.path.name)
    session.talk(5)
    world.run("run", "--once")
    moved = json.loads((other / f"sessions-meta/{session.id}.meta.json").read_bytes())
    assert (first["createdAt"], session.last) == (moved["createdAt"], moved["lastIndexedLeafId"])
    for path in world.state.glob("*.sqlite*"):
        path.unlink()
    assert world.run("run", "--once", "--json")["indexed"] == []
    assert len(world.calls()) == 2
