"""The web view beside the daemon: started by it, found by `indexerd web`, gone with it."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.e2e.world import World, until

pytest.importorskip("starlette")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def config(world: World, listen: str) -> None:
    """The configuration, with this address for the view."""
    path = Path(world.env["XDG_CONFIG_HOME"]) / "indexerd" / "indexerd.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'[web]\nlisten = "{listen}"\n')


def announced(world: World) -> dict[str, Any] | None:
    """What the view says of itself."""
    try:
        told: dict[str, Any] = json.loads((world.state / "web.json").read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return told


def alive(pid: int) -> bool:
    """Whether a process runs, and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_the_daemon_keeps_the_view_running(world: World) -> None:
    """`[web] listen`: the link of `indexerd web` leads to it, once; a reload ends it."""
    session = world.session(3)
    port = free_port()
    config(world, f"127.0.0.1:{port}")
    with world.daemon() as daemon:
        told = until(lambda: announced(world), "the view's start")
        assert told["url"] == f"http://127.0.0.1:{port}"
        found = world.run("web", "--json", session.id)
        assert found["url"] == told["url"]
        assert found["pid"] == told["pid"]
        with httpx2.Client(follow_redirects=True) as browser:
            page = browser.get(found["link"])
            assert page.status_code == 200
            assert urlsplit(str(page.url)).path == f"/s/{session.id}"
            assert httpx2.get(found["link"]).status_code == 403
        assert world.call("status")["problems"] == []

        config(world, "")
        daemon.send_signal(signal.SIGHUP)
        until(lambda: not alive(told["pid"]), "the view's end")
        assert announced(world) is None


def test_the_view_is_started_again_and_does_not_outlive_a_killed_daemon(world: World) -> None:
    """Killed, it comes back; when the daemon is killed, it ends by itself."""
    config(world, f"127.0.0.1:{free_port()}")
    with world.daemon() as daemon:
        first = until(lambda: announced(world), "the view's start")
        os.kill(first["pid"], signal.SIGKILL)

        def another() -> Any:
            told = announced(world)
            return told if told and told["pid"] != first["pid"] else None

        second = until(another, "another view")
        until(lambda: not world.call("status")["problems"], "all to be well")
        daemon.kill()
        daemon.wait(10)
        until(lambda: not alive(second["pid"]), "the view's end")


def test_an_address_that_is_taken_is_a_problem_and_the_daemon_goes_on(world: World) -> None:
    """`status` names it; sessions are indexed all the same."""
    session = world.session(6)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config(world, f"127.0.0.1:{taken.getsockname()[1]}")
        with world.daemon():
            world.wait_meta(session.id)

            def told() -> list[str]:
                problems = world.call("status")["problems"]
                return [one["cause"] for one in problems if one["code"] == "web_down"]

            assert "cannot listen" in until(told, "the problem")[0]
