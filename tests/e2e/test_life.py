"""The daemon as a process: one at a time, signals, configuration, caches."""

from __future__ import annotations

import json
import os
import signal
import stat

import pytest

from tests.e2e.world import World, until

pytestmark = pytest.mark.faults


def test_a_second_daemon_names_the_first_and_ends(world: World) -> None:
    """S0.41, A11: exit code 75, the holder's process id, and the first one goes on."""
    with world.daemon() as first:
        world.run("run", code=75)
        assert str(first.pid) in world.stderr
        told = world.run("run", "--once", "--json", code=75)
        assert told["error"]["code"] == "already_running"
        assert first.pid == world.call("hello")["pid"]
        first.send_signal(signal.SIGKILL)
        first.wait()
        with world.daemon() as second:
            assert second.pid == world.call("hello")["pid"]


def test_signals_end_reload_and_clean_up(world: World) -> None:
    """V1, C3: SIGTERM and SIGINT end with 0, the socket is removed; SIGHUP reads settings anew."""
    for number in (signal.SIGTERM, signal.SIGINT):
        with world.daemon() as process:
            process.send_signal(number)
            assert process.wait(5) == 0
        assert not world.socket.exists()
    session = world.session(turns=3)
    world.config.parent.mkdir(parents=True)
    with world.daemon() as process:
        until(lambda: world.call("list")["sessions"], "the session")
        world.config.write_text("min_new_user_messages = 3\n")
        process.send_signal(signal.SIGHUP)
        world.wait_meta(session.id)
        world.config.write_text("nonsense = 1\n")
        process.send_signal(signal.SIGHUP)
        log = world.state / "log.jsonl"
        until(lambda: "config.invalid" in log.read_text(), "the complaint")
        assert world.call("status")["state"] == "ok"


def test_a_bad_file_at_a_reload_leaves_the_old_values_in_force(world: World) -> None:
    """C3: what was excluded stays so, thresholds stay, whatever the bad file says beside its error.

    The reload is over when the log has named the error; what comes after it is judged by the old.
    """
    world.config.parent.mkdir(parents=True)
    world.config.write_text('min_new_user_messages = 3\n[privacy]\nexclude = ["/secret"]\n')
    with world.daemon() as process:
        world.config.write_text("min_new_user_messages = 1\nnonsense = 1\n")
        process.send_signal(signal.SIGHUP)
        log = world.state / "log.jsonl"
        until(lambda: "config.invalid" in log.read_text(), "the complaint")
        hidden, small = world.session(turns=4, cwd="/secret"), world.session(turns=2)
        shown = world.session(turns=3)
        world.wait_meta(shown.id)
        until(lambda: world.row(small.id), "the small one")
        assert (world.meta(small.id), world.row(hidden.id)) == (None, {})
        assert world.call("status")["state"] == "ok"
        world.config.write_text("min_new_user_messages = 1\n")  # put right, it is taken
        process.send_signal(signal.SIGHUP)
        for one in (small, hidden):
            world.wait_meta(one.id)


def test_a_bad_configuration_keeps_lookups_alive(world: World) -> None:
    """S0.26, V3: errors are listed, nothing is indexed, lookups work; `config check` says 78."""
    world.config.parent.mkdir(parents=True)
    world.config.write_text('min_new_user_messages = "five"\nnonsense = true\n')
    session = world.session(turns=6)
    with world.daemon():
        found = until(lambda: world.call("list")["sessions"], "the session")
        assert session.id == found[0]["sessionId"]
        status = world.call("status")
        assert status["state"] == "indexing-off"
        causes = " ".join(one["cause"] for one in status["problems"])
        assert "min_new_user_messages" in causes
        assert "nonsense" in causes
        told = world.run("index", session.id, "--force", "--json", code=78)
        assert told["error"]["code"] == "config_invalid"
        assert world.meta(session.id) is None
    told = world.run("config", "check", "--json", code=78)
    assert told["error"]["code"] == "config_invalid"


def test_our_files_are_private_whatever_the_umask(world: World) -> None:
    """S2, S2.22, A8: directories 0700, files 0600, the socket owner-only."""
    session = world.session(turns=5)
    old = os.umask(0)
    try:
        with world.daemon():
            world.wait_meta(session.id)
            modes = {
                path: stat.S_IMODE(path.lstat().st_mode)
                for root in (world.state, world.metas)
                for path in (root, *root.rglob("*"))
            }
            modes[world.socket] = stat.S_IMODE(world.socket.lstat().st_mode)
    finally:
        os.umask(old)
    wrong = {str(path): oct(mode) for path, mode in modes.items() if mode & 0o077}
    assert wrong == {}


def test_reads_work_without_a_daemon(world: World) -> None:
    """interfaces.md 4: list, show, resolve and search answer from what is stored, and say so."""
    session = world.session(turns=5)
    world.run("run", "--once")
    meta = world.meta(session.id)
    assert meta is not None

    rows = world.run("list", "--all", "--json")["sessions"]
    assert "no daemon runs" in world.stderr
    assert [session.id] == [row["sessionId"] for row in rows]
    assert session.id == world.run("resolve", meta["name"], "--json")["sessionId"]
    assert meta == world.run("show", session.id[:8], "--json")["meta"]
    sent = world.run("show", session.id, "--as-sent", "--json")
    assert "widget number 1" in sent["user"]
    assert sent["leavesTheMachine"] is False
    assert session.id == world.run("search", "widget", "--json")["hits"][0]["sessionId"]
    assert world.run("status", "--json", code=69)["error"]["code"] == "daemon_down"
    assert world.run("resolve", "no such thing", "--json", code=3)["error"]["code"] == "not_found"


def test_two_daemons_do_not_share_a_directory_of_meta_files(world: World) -> None:
    """S0.41: with another state directory, too; and nothing is left in the agents' stores."""
    session = world.session(turns=1)
    with world.daemon():
        until(lambda: world.row(session.id), "the session")
        elsewhere = {"XDG_STATE_HOME": str(world.root / "other"), "INDEXERD_SOCKET": "/nowhere/s"}
        world.env |= elsewhere
        told = world.run("run", "--once", "--json", code=75)
        assert str(world.metas) in told["error"]["message"]
        world.env |= {
            "XDG_STATE_HOME": str(world.root / "state"),
            "INDEXERD_SOCKET": str(world.socket),
        }
    assert not [*world.pi.rglob(".*")]


def test_damaged_caches_are_rebuilt(world: World) -> None:
    """V6: a damaged store or index costs a reading, and no model call."""
    world.scripted()
    session = world.session(turns=5)
    world.run("run", "--once")
    for path in (world.state / "store.sqlite", *(world.state / "search").glob("*/meta.json")):
        path.write_bytes(b"not a database" * 500)
    with world.daemon():
        rows = until(lambda: world.call("list")["sessions"], "the session")
        assert [session.id] == [row["sessionId"] for row in rows]
        until(lambda: world.call("search", query="widget")["hits"], "the text")
    assert len(world.calls()) == 1


def test_excluded_projects_are_never_read(world: World) -> None:
    """[privacy] exclude: no row, no meta file, no text in our state."""
    world.config.parent.mkdir(parents=True)
    world.config.write_text('[privacy]\nexclude = ["/secret", "*/private-*"]\n')
    hidden = world.session(cwd="/secret/project")
    hidden.turn("The hidden word is xylophone.")
    hidden.talk(5)
    shown = world.session(turns=5)
    world.run("run", "--once")

    assert world.meta(shown.id)
    assert world.meta(hidden.id) is None
    assert len(world.run("list", "--all", "--json")["sessions"]) == 1
    stored = b"".join(path.read_bytes() for path in world.state.rglob("*") if path.is_file())
    assert b"xylophone" not in stored


def test_secrets_reach_neither_files_nor_state(world: World) -> None:
    """X5, S2.21: what looks like a secret is in no meta file, log, telemetry or cache."""
    world.scripted()
    secret = "sk-ant-api03-" + "Zq7" * 25
    session = world.session()
    session.turn(f"My key is {secret}, use it.")
    session.entry("session_info", name=f"Key {secret}")
    session.talk(5)
    with world.daemon():
        world.wait_meta(session.id)
        until(lambda: world.call("search", query="widget")["hits"], "the text index")
        sent = world.run("show", session.id, "--as-sent", "--json")
        assert secret not in sent["user"]
        assert "[redacted:" in sent["user"]
        assert sum(sent["redactions"].values()) >= 1
    for root in (world.state, world.metas):
        for path in root.rglob("*"):
            assert not path.is_file() or secret.encode() not in path.read_bytes(), path


def test_logs_are_lines_of_json_and_can_be_followed(world: World) -> None:
    """X11: every line has ts, level and event (interfaces.md 6); no text of a session is there."""
    session = world.session()
    session.turn("A very particular xylophone request.")
    session.talk(5)
    with world.daemon():
        log = world.state / "log.jsonl"
        until(lambda: "index.succeeded" in log.read_text(), "the run")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert all({"ts", "level", "event"} <= set(line) for line in lines)
    events = [line["event"] for line in lines]
    for event in ("daemon.started", "daemon.ready", "index.started", "index.succeeded"):
        assert event in events
    assert "xylophone" not in log.read_text()
    assert "index.succeeded" in world.run("logs")
