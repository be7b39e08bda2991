"""Odd, hostile and unreadable files affect only themselves."""

import json
import os
import time
from pathlib import Path

import pytest

from indexerd.times import iso
from tests.e2e.world import Session, World, hit_by, hooked, logged, proc, scanned, until, wait

pytestmark = pytest.mark.faults


def test_odd_names_and_headers_affect_only_themselves(world: World) -> None:
    """Names that are not UTF-8, hostile headers and a name too long to look up end nothing."""
    world.configure(f'[agents.opencode]\nroots = ["/{"x" * 300}"]\n')
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
        causes = " ".join(problem["cause"] for problem in world.call("status")["problems"])
        assert "its session id is invalid" in causes
        assert process.poll() is None
    with world.daemon():
        until(lambda: world.call("list")["sessions"], "the sessions, out of the ledger")
        assert world.call("resolve", ref="odd-name")["sessionId"] == "odd-name"
    assert not (world.pi / "escape.meta.json").exists()


def test_a_session_moved_to_another_root_keeps_its_meta_file(world: World) -> None:
    """S0.34: createdAt is kept, and without caches no model is called again."""
    world.scripted()
    other = world.root / "other/agent"
    world.configure(f'[agents.pi]\nroots = ["{world.pi}", "{other}"]\n')
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


def test_a_long_session_in_small_files_is_read_in_linear_time(world: World) -> None:
    """The directory of 4,000 small message files is not listed once per message."""
    storage = world.root / "data/opencode/storage"
    records = {"session/p/ses_a": {"id": "ses_a", "title": "Long", "directory": "/w"}}
    for number in range(4000):
        message = {"role": "user", "time": {"created": number + 1}}
        records[f"message/ses_a/msg_{number:04}"] = message
        records[f"part/msg_{number:04}/prt_1"] = {"type": "text", "text": f"Step {number}."}
    for name, record in records.items():
        path = storage / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record))
    world.run("run", "--once")
    entries = world.run("path", "ses_a", "--json")["entries"]
    assert [entry["text"] for entry in entries] == [f"Step {number}." for number in range(4000)]


# Reading fails with EIO or EACCES for two files as long as the file $WHILE exists.
BAD_DISK = """
import os
import time

read, opened = os.pread, os.open

def fails(name):
    return name in os.environ["FAILING"].split() and os.path.exists(os.environ["WHILE"])

def pread(fd, length, offset):
    if fails("eio") and os.readlink(f"/proc/self/fd/{fd}").endswith("eio.jsonl"):
        raise OSError(5, "Input/output error")
    return read(fd, length, offset)

def open_(path, *more, **named):
    if fails("denied") and os.fsdecode(path).endswith("denied.jsonl"):
        raise PermissionError(13, "Permission denied", path)
    return opened(path, *more, **named)

os.pread, os.open = pread, open_
"""


def problems(world: World) -> dict[str, dict[str, str]]:
    found = world.call("status")["problems"]
    return {Path(problem["cause"].partition(":")[0]).name: problem for problem in found}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_an_unreadable_file_is_reported_until_it_is_readable(world: World) -> None:
    """S0.26: `status` names a file with a read error or mode 000, and since when it is so."""
    hooked(world, BAD_DISK)
    while_there = world.root / "while"
    while_there.touch()
    world.env |= {"FAILING": "eio denied", "WHILE": str(while_there)}
    bad, began = {}, iso(time.time())
    for name in ("eio.jsonl", "denied.jsonl"):
        bad[name] = world.session(turns=5)
        bad[name].path = bad[name].path.rename(world.sessions / name)
    good = world.session(turns=5)
    with world.daemon() as process:
        world.wait_meta(good.id)
        found = until(lambda: len(problems(world)) == 2 and problems(world), "both problems")
        assert found.keys() == bad.keys()
        for problem in found.values():
            assert problem["code"] == "unreadable"
            assert "mode and owner" in problem["cure"]
            assert problem["since"] >= began
        assert "Input/output error" in found["eio.jsonl"]["cause"]
        assert "Permission denied" in found["denied.jsonl"]["cause"]
        good.turn()
        wait(world, good.id, userMessageCount=6)
        assert problems(world) == found  # with the time at which they began
        while_there.unlink()
        for session in bad.values():
            world.wait_meta(session.id)
        until(lambda: world.call("status")["state"] == "ok", "the end of the problems")
        assert process.poll() is None


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("size", [100_000_000, 9_000_000])
def test_a_line_of_100_mb_costs_no_memory(world: World, size: int) -> None:
    """A line that is too long is skipped in pieces, and later lines count."""
    world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = "1000"
    session = world.session(turns=4)
    with world.daemon() as process:
        wait(world, session.id, userMessageCount=4)
        until(lambda: hit_by(world, "adjust widget"), "its words")
        before = proc(process.pid, "status", "VmHWM")
        session.say("assistant", "A zeppelin. \u0001\U0001f6a2 " + "x" * size)
        session.turn("Where does the gondola hang?")
        wait(world, session.id, userMessageCount=5)
        until(lambda: hit_by(world, "gondola"), "its words")
        assert bool(hit_by(world, "zeppelin")) is (size < 16_000_000)
        done = world.call("index", ref=session.id, force=True, wait=True)
        assert done["status"] == "indexed"
        assert proc(process.pid, "status", "VmHWM") - before < 64 << 10


def test_indexerds_own_files_trigger_no_run(world: World) -> None:
    """With meta files and state among the sessions, each turn still costs one call."""
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
            until(lambda: len(world.calls()) == turn, "the call")  # noqa: B023 - called within the loop
            until(lambda: path.exists() and str(session.last) in path.read_text(), "the file")
            stored = path.stat()
            scanned(world, 3)
            until(lambda: not world.call("status")["indexing"], "an end of work")
            assert len(world.calls()) == turn
            assert path.stat().st_mtime_ns == stored.st_mtime_ns
            session.turn()
        until(lambda: len(world.calls()) == 4, "the last call")
        (row,) = world.call("list", archived=True)["sessions"]
        assert row["sessionId"] == session.id


def test_a_slowly_rewritten_file_keeps_its_session(world: World) -> None:
    """S1.11: the session stays listed meanwhile."""
    session, other = world.session(turns=5), world.session(turns=1)
    with world.daemon():
        world.wait_meta(session.id)
        wait(world, session.id, newUserMessages=0)
        lines = session.path.read_bytes().splitlines(keepends=True)
        session.path.write_bytes(b"")
        for at, line in enumerate(lines):
            if at < 2:  # when the daemon has read this, it has mostly read the file, too
                other.turn()
                wait(world, other.id, userMessageCount=at + 2)
            assert world.row(session.id)["userMessageCount"] in range(6)
            with session.path.open("ab") as file:
                file.write(line)
        session.turn()
        wait(world, session.id, userMessageCount=6)
        assert len(logged(world, "session.reset")) < 2  # none if it was never seen empty
