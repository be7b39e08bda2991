"""The web view of a daemon: its start, its link, its restart and its end."""

import html
import os
import signal
import socket
import subprocess
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from urllib.parse import urlsplit

import httpx2
import pytest

from indexerd.web.server import Running, find_running
from tests.e2e.web.views import browsing, started
from tests.e2e.world import World, clock, hooked, problems, until

pytestmark = pytest.mark.faults


def test_the_daemon_runs_the_view(world: World) -> None:
    """With `[web] listen`, the link of `indexerd web` opens it once; a reload ends it."""
    session = world.session(3)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    world.listen(address)
    with world.daemon() as daemon:
        view = started(world)
        assert view.url == f"http://{address}"
        found = world.run("web", "--json", session.id)
        assert (found["url"], found["pid"]) == view
        with httpx2.Client(follow_redirects=True) as browser:
            page = browser.get(found["link"])
            assert page.status_code == 200
            assert urlsplit(str(page.url)).path == f"/s/{session.id}"
            assert httpx2.get(found["link"]).status_code == 403
        assert world.call("status")["problems"] == []
        world.listen("")
        daemon.send_signal(signal.SIGHUP)
        until(lambda: not find_running(world.state), "the view's end")


def test_usage_opens_where_there_is_use(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a range, all time is shown if nothing was used lately."""
    monkeypatch.setattr(clock, "now", datetime(2025, 1, 1, tzinfo=UTC))
    session = world.session(3)
    world.listen()
    with world.daemon(), browsing(world, session.id) as (browser, _):
        until(lambda: world.call("usage")["days"], "the session's use")
        shown = browser.get("/usage").text
        assert '<a href="/usage?range=all" aria-current="page">' in shown
        assert "Nothing was used yet." in browser.get("/usage?range=30d").text


STARTS = """\
import os, sys

def note(event, args):
    if event.startswith(("subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.system")):
        with open(os.environ["STARTED"], "a") as file:
            file.write(f"{os.getpid()} {event}\\n")

sys.addaudithook(note)
"""


def test_the_view_starts_no_program(world: World) -> None:
    """Opening any page starts no agent and no other program."""
    session = world.session(3)
    world.listen()
    noted = world.root / "noted"
    world.env["STARTED"] = str(noted)
    hooked(world, STARTS)
    with world.daemon() as daemon:
        view = started(world)
        with browsing(world, session.id) as (browser, _):
            for page in ("", "/document", "/sent", "/family", "/export"):
                assert browser.get(f"/s/{session.id}{page}").is_success, page
            until(lambda: world.call("search", query="widget")["hits"], "the text in the index")
            for query, some in (("widget", False), ("widget zeppelin", True)):
                found = browser.get(f"/?q={query}")
                assert found.is_success
                assert "<mark>widget</mark>" in found.text
                assert ("1 of 2 words" in found.text) is some
        by = {int(line.split()[0]) for line in noted.read_text().splitlines()}
    assert daemon.pid in by  # the daemon itself started the view
    assert view.pid not in by


@pytest.mark.parametrize("with_daemon", [False, True])
def test_a_browser_is_given_a_file_instead_of_a_link(world: World, with_daemon: bool) -> None:
    """Process arguments, which every user can read, contain no token."""
    seen, browser = world.root / "seen", world.root / "browser"
    browser.write_text(
        f'#!/bin/sh\necho "$@" > {seen}.new\ncat "${{1#file://}}" >> {seen}.new\n'
        f"mv {seen}.new {seen}\n"
    )
    browser.chmod(0o755)
    world.env["BROWSER"] = str(browser)
    page = world.state / "web-open.html"
    world.listen()
    with world.daemon() if with_daemon else nullcontext():
        if with_daemon:
            started(world)
        command = [sys.executable, "-m", "indexerd", "web"]
        with subprocess.Popen(command, env=world.env, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            link = process.stdout.readline().decode().strip()
            shown = until(lambda: seen.exists() and seen.read_text(), "the browser")
            argument, _, text = shown.partition("\n")
            assert argument == page.as_uri()
            assert html.escape(link) in text
            assert "token=" in link
            assert page.stat().st_mode & 0o777 == 0o600
            assert httpx2.get(link, follow_redirects=False).status_code == 303
            assert not page.exists()
            if not with_daemon:
                process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0


def test_the_view_restarts_and_ends_with_the_daemon(world: World) -> None:
    world.listen()
    with world.daemon() as daemon:
        first = started(world)
        os.kill(first.pid, signal.SIGKILL)

        def another() -> Running | None:
            again = find_running(world.state)
            return again if again != first else None

        until(another, "another view")
        until(lambda: not world.call("status")["problems"], "all to be well")
        daemon.kill()
        daemon.wait(10)
        until(lambda: not find_running(world.state), "the view's end")


def test_an_address_in_use_is_reported(world: World) -> None:
    """`status` names the problem, and sessions are still indexed."""
    session = world.session(6)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        world.listen(f"127.0.0.1:{taken.getsockname()[1]}")
        with world.daemon():
            world.wait_meta(session.id)
            assert "cannot listen" in until(lambda: problems(world).get("web_down"), "the problem")
