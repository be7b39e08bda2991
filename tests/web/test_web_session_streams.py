"""A session's page as it is sent: in parts, to several at once, and to whoever hung up."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from indexerd.errors import NotFoundError
from indexerd.models.threads import Check
from indexerd.settings import Settings
from indexerd.web import session as web
from indexerd.web.live import LiveSessions
from tests.web.session_site import Data, Site, sites


class Fake:
    """Something in the place of `LiveSessions`."""

    def __init__(self) -> None:
        self.tended = threading.Event()

    def tend(self) -> None:
        self.tended.set()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site with one session."""
    yield from sites(tmp_path)


@pytest.fixture
def client(site: Site) -> Iterator[TestClient]:
    """A browser of sorts."""
    with TestClient(site.app(), follow_redirects=False) as found:
        yield found


def test_the_head_is_there_before_the_session_was_read(site: Site) -> None:
    """First paint waits for nothing: title and description come while the session is read."""
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Fake):
        def document(self, _stored: Any, _since: Any, _check: Check) -> dict[str, Any]:
            begun.set()
            assert go_on.wait(20)
            return {"version": "a.0"}

    site.live.close()
    site.live = Slow()
    chunks: list[str] = []

    def heard(body: bytes) -> None:
        chunks.append(body.decode())
        if len(chunks) == 1:
            assert not go_on.is_set()
            go_on.set()

    asyncio.run(_asked(site.app(), "/s/s1", heard))
    site.live = LiveSessions(Settings, {}, site.desk.home)
    assert begun.is_set()
    assert "Two ways" in chunks[0]
    assert "<h1" in chunks[0]
    assert '"version"' not in chunks[0]
    assert json.loads(Data("".join(chunks)).data) == {"version": "a.0"}


async def _asked(
    app: Starlette, path: str, heard: Callable[[bytes], None], gone: asyncio.Event | None = None
) -> None:
    """Ask as a server would, hearing each chunk; `gone` is when the client hangs up."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if not asked:
            asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await (gone or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body" and message["body"]:
            heard(message["body"])

    await app(scope, receive, send)


@pytest.mark.parametrize("path", ["/s/s1", "/s/s1/document"])
def test_a_client_that_hung_up_ends_the_work(site: Site, path: str) -> None:
    """A reading that nobody waits for stops at its next look, and its place is free again."""
    ended = threading.Event()

    async def run() -> None:
        gone = asyncio.Event()
        loop = asyncio.get_running_loop()

        class Endless(Fake):
            def document(self, _stored: Any, _since: Any, check: Check) -> dict[str, Any]:
                loop.call_soon_threadsafe(gone.set)
                try:
                    for _ in range(20_000):
                        check()
                        ended.wait(0.001)
                finally:
                    ended.set()
                raise AssertionError("nobody stopped it")

        site.live.close()
        site.live = Endless()
        async with asyncio.timeout(20):
            await _asked(site.app(), path, lambda _: None, gone)
            assert await asyncio.to_thread(ended.wait, 20)

    asyncio.run(run())
    site.live = LiveSessions(Settings, {}, site.desk.home)


def test_two_sessions_are_read_at_once(site: Site) -> None:
    """Whoever asks for one more waits; all are answered."""
    lock, third = threading.Lock(), threading.Event()
    now, most, answered = 0, 0, list[bytes]()

    class Counting(Fake):
        def document(self, _stored: Any, _since: Any, _check: Check) -> dict[str, Any]:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
                if now > 2:
                    third.set()
            third.wait(0.2)  # long enough for one more to come, if it may
            with lock:
                now -= 1
            return {"version": "a.0"}

    async def run() -> None:
        app = site.app()
        paths = ["/s/s1", "/s/s1/document"] * 3
        await asyncio.gather(*(_asked(app, one, answered.append) for one in paths))

    site.live.close()
    site.live = Counting()
    asyncio.run(run())
    site.live = LiveSessions(Settings, {}, site.desk.home)
    assert most == 2
    assert sum(b'"a.0"' in one for one in answered) == 6


def test_what_nobody_asks_for_is_closed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nobody asks for anything any more."""
    monkeypatch.setattr(web, "IDLE_SECONDS", -1.0)

    class Idle(Fake):
        def document(self, _stored: Any, _since: Any, _check: Check) -> dict[str, Any]:
            return {"version": "a.0"}

    async def run() -> None:
        await _asked(site.app(), "/s/s1/document", lambda _: None)
        assert await asyncio.to_thread(idle.tended.wait, 20)

    site.live.close()
    site.live = idle = Idle()
    asyncio.run(run())
    site.live = LiveSessions(Settings, {}, site.desk.home)


@pytest.mark.parametrize(
    ("error", "code"),
    [(NotFoundError("gone"), "not_found"), (RuntimeError("a text of the session"), "internal")],
)
def test_what_goes_wrong_midway_is_in_the_page(site: Site, error: Exception, code: str) -> None:
    """The page is begun: it ends, and its data says what is wrong; never what a defect held."""

    class Broken(Fake):
        def document(self, _stored: Any, _since: Any, _check: Check) -> dict[str, Any]:
            raise error

    site.live.close()
    site.live = Broken()
    with TestClient(site.app()) as client:
        found = client.get("/s/s1")
    site.live = LiveSessions(Settings, {}, site.desk.home)
    assert found.status_code == 200
    held = json.loads(Data(found.text).data)
    assert (held["problem"]["code"], held["nodes"]) == (code, [])
    assert held["session"]["name"] == "Two ways"
    assert "version" not in held
    assert "a text of the session" not in found.text
    assert "</html>" in found.text
