"""One session over HTTP: its page streams, and is patched; changes, exports, odd requests."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from indexerd.errors import DaemonDownError, IndexerdError, NotFoundError
from indexerd.llm.threads import Check
from indexerd.paths import Places, places
from indexerd.service.live import LiveSessions
from indexerd.settings import Settings
from indexerd.surfaces.web import session as web
from indexerd.surfaces.web.pages import Pages
from indexerd.surfaces.web.session_acts import BODY_MAX
from tests.core.tree_sessions import said, session

HOSTILE = "</script><script>alert(1)</script><!--"
HEADERS = {"Content-Type": "application/json"}


class FakeDesk:
    """Answers as a daemon would, and keeps what it was asked."""

    def __init__(self, home: Path) -> None:
        self.home, self.env = home, dict[str, str]()
        self.where: Places = places({"XDG_STATE_HOME": str(home / "state")}, home=home)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.rows: dict[str, dict[str, Any]] = {}
        self.answers: dict[str, Any] = {}
        self.down = False

    async def ask(self, method: str, params: Mapping[str, Any], *, seconds: float = 20.0) -> Any:
        if self.down:
            raise DaemonDownError("no daemon answers")
        return self._answer(method, dict(params))

    async def read(self, method: str, params: Mapping[str, Any]) -> Any:
        return self._answer(method, dict(params))

    def settings(self) -> Settings:
        return Settings()

    def _answer(self, method: str, params: dict[str, Any]) -> Any:
        self.asked.append((method, params))
        if method == "get":
            return {"session": self._row(params["ref"]), "meta": None}
        found = self.answers.get(method, {"status": "done"})
        if isinstance(found, IndexerdError):
            raise found
        return found

    def _row(self, ref: str) -> dict[str, Any]:
        for row in self.rows.values():
            if ref == row["name"] or row["sessionId"].startswith(ref):
                return row
        raise NotFoundError(f"no session {ref}")

    @property
    def changes(self) -> list[tuple[str, dict[str, Any]]]:
        """What was asked for besides looking."""
        return [one for one in self.asked if one[0] != "get"]


class Fake:
    """Something in the place of `LiveSessions`."""

    def __init__(self) -> None:
        self.tended = threading.Event()

    def tend(self) -> None:
        self.tended.set()


class Site:
    """The routes of sessions, over files of pi."""

    def __init__(self, home: Path) -> None:
        self.desk = FakeDesk(home)
        self.folder = home / ".pi/agent/sessions/--w--"
        self.folder.mkdir(parents=True)
        self.live: Any = LiveSessions(Settings, {}, home)
        self.up = True

    def write(self, *entries: bytes, session_id: str = "s1", **fields: Any) -> Path:
        """A session."""
        path = self.folder / f"{session_id}.jsonl"
        path.write_bytes(
            session(*entries).replace(b'"id":"s1"', b'"id":"%s"' % session_id.encode())
        )
        row = {"sessionId": session_id, "agent": "pi", "sessionFile": str(path), "cwd": "/w"}
        self.desk.rows[session_id] = row | {"name": "Two ways", "newUserMessages": 3} | fields
        return path

    def app(self) -> Starlette:
        """The app, as small as it can be."""
        desk: Any = self.desk
        pages = Pages()
        app = Starlette(routes=web.routes(desk, pages, self.live, up=lambda: self.up))
        app.state.pages = pages
        return app


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site with one session."""
    found = Site(tmp_path)
    found.write(said("a", None, "user", f"Go {HOSTILE}"), said("b", "a", "assistant", "Gone."))
    yield found
    found.live.close()


@pytest.fixture
def client(site: Site) -> Iterator[TestClient]:
    """A browser of sorts."""
    with TestClient(site.app(), follow_redirects=False) as found:
        yield found


class Data(HTMLParser):
    """The data of a page, and its texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.data, self.scripts, self._in = "", 0, False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = dict(attrs)
        self._in = tag == "script" and held.get("id") == "data"
        self.scripts += tag == "script" and not held.get("src") and not self._in

    def handle_endtag(self, _tag: str) -> None:
        self._in = False

    def handle_data(self, data: str) -> None:
        self.data += data if self._in else ""


# -- the page ------------------------------------------------------------------------------------


def test_the_page_holds_its_document(site: Site, client: TestClient) -> None:
    """All of it in one island that nothing in it can leave; no script stands in the page itself."""
    found = client.get("/s/s1?find=x")
    assert (found.status_code, found.headers["cache-control"]) == (200, "no-store")
    page = Data(found.text)
    held = json.loads(page.data)
    assert [node["id"] for node in held["nodes"]] == ["a", "b"]
    assert held["nodes"][0]["text"] == f"Go {HOSTILE}"
    assert page.scripts == 0
    assert held["live"] == {"daemon": True, "behind": 3}
    assert "Two ways" in found.text.partition("<body")[0]


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


def test_other_names_lead_to_the_page(client: TestClient) -> None:
    """The beginning of an id, or a name: the page's address has the id; unknown ones have none."""
    for ref in ("s", "Two%20ways"):
        found = client.get(f"/s/{ref}?find=a%26b")
        assert (found.status_code, found.headers["location"]) == (303, "/s/s1?find=a%26b")
    assert client.get("/s/nobody").status_code == 404
    assert client.get(f"/s/{'x' * 500}").status_code == 404


def test_a_session_without_its_file_has_a_page(site: Site, client: TestClient) -> None:
    """What is stored is shown, without a tree."""
    Path(site.desk.rows["s1"]["sessionFile"]).unlink()
    held = json.loads(Data(client.get("/s/s1").text).data)
    assert (held["nodes"], held["live"]["gone"]) == ([], True)
    assert held["session"]["name"] == "Two ways"


# -- what its scripts ask for --------------------------------------------------------------------


def test_the_document_follows_the_file(site: Site, client: TestClient) -> None:
    """Whole, then nothing, then a patch; the daemon's going is told as well."""
    path = Path(site.desk.rows["s1"]["sessionFile"])
    whole = client.get("/s/s1/document").json()
    since = {"since": whole["version"]}
    assert client.get("/s/s1/document", params=since).json() == {
        "version": whole["version"],
        "base": whole["version"],
    }
    with path.open("ab") as file:
        file.write(said("c", "b", "user", "On."))
    told = client.get("/s/s1/document", params=since).json()
    assert [node["id"] for node in told["nodes"]] == ["c"]
    site.up = False
    told = client.get("/s/s1/document", params={"since": told["version"]}).json()
    assert (told["live"]["daemon"], told["nodes"]) == (False, [])
    found = client.get("/s/nobody/document")
    assert (found.status_code, found.json()["error"]["code"]) == (404, "not_found")
    assert client.get("/s/s/document").status_code == 404


def test_what_is_sent_and_what_was(site: Site, client: TestClient) -> None:
    """The prompt as it would go, and the audit rows; without a prompt, why not."""
    site.desk.answers["as_sent"] = {"sessionId": "s1", "user": "Sum it up"}
    audit = site.desk.where.telemetry
    found = client.get("/s/s1/sent").json()
    assert found == {"asSent": {"sessionId": "s1", "user": "Sum it up"}, "runs": []}
    audit.parent.mkdir(parents=True)
    row = {"customType": "session-index:index", "success": True, "sessionId": "s1", "model": "m"}
    audit.write_text(json.dumps(row) + "\n" + json.dumps(row | {"sessionId": "s2"}) + "\n")
    site.desk.answers["as_sent"] = NotFoundError("the session's file is gone")
    found = client.get("/s/s1/sent").json()
    assert (found["asSent"], found["problem"]) == (None, "the session's file is gone")
    assert [one["model"] for one in found["runs"]] == ["m"]


def test_family_is_handed_on(site: Site, client: TestClient) -> None:
    """As the method answers it."""
    site.desk.answers["family"] = {"sessionId": "s1", "members": [], "more": 0}
    assert client.get("/s/s1/family").json() == site.desk.answers["family"]
    site.desk.answers["family"] = DaemonDownError("no daemon answers")
    found = client.get("/s/s1/family")
    assert (found.status_code, found.json()["error"]["retryable"]) == (503, True)


@pytest.mark.parametrize(("form", "begins"), [("html", "<!doctype"), ("md", "#"), ("json", "{")])
def test_an_export_is_a_download(site: Site, client: TestClient, form: str, begins: str) -> None:
    """The same file that the command makes, under a name of letters and digits."""
    members = [
        {"sessionId": "s1", "parentSessionId": None, "relation": "root"},
        {"sessionId": "f1", "parentSessionId": "s1", "relation": "fork"},
    ]
    site.desk.answers["family"] = {"sessionId": "s1", "members": members, "more": 0}
    found = client.get(f"/s/s1/export?format={form}")
    assert found.status_code == 200
    disposition = found.headers["content-disposition"]
    assert disposition == f'attachment; filename="two-ways-s1.{form}"'
    assert found.text.lower().startswith(begins)
    if form == "json":
        assert found.json()["kin"] == {"forks": ["f1"]}
    assert client.get("/s/s1/export?format=pdf").status_code == 400
    Path(site.desk.rows["s1"]["sessionFile"]).unlink()
    assert client.get(f"/s/s1/export?format={form}").status_code == 404


# -- changes -------------------------------------------------------------------------------------


CHANGES: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "renamed": ("rename", {"title": "New"}, "update", {"ref": "s1", "title": "New"}),
    "name taken back": ("rename", {"title": None}, "update", {"ref": "s1", "title": None}),
    "labelled": (
        "label",
        {"entryId": "a", "text": "start"},
        "label",
        {"ref": "s1", "entryId": "a", "text": "start"},
    ),
    "label taken back": (
        "label",
        {"entryId": "a", "text": None},
        "label",
        {"ref": "s1", "entryId": "a"},
    ),
    "indexed": ("index", {}, "index", {"ref": "s1", "force": True}),
    "shown": (
        "state",
        {"slug": "tree", "items": ["node=a", "filter=all"]},
        "set_relevant_context",
        {"session": "s1", "setName": "applet", "items": ["tree", "node=a", "filter=all"]},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_the_daemons(site: Site, client: TestClient, change: str) -> None:
    """S4.25, S4.26: each is one question that names its session, and the answer is handed on."""
    name, fields, method, params = CHANGES[change]
    found = client.post(f"/s/s1/{name}", json=fields)
    assert (found.status_code, found.json()) == (200, {"status": "done"})
    assert site.desk.changes == [(method, params)]
    site.desk.down = True
    found = client.post(f"/s/s1/{name}", json=fields)
    assert (found.status_code, found.json()["error"]["code"]) == (503, "daemon_down")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("s1/rename", b"{}"),
        ("s1/rename", b'{"title":1}'),
        ("s1/rename", b'{"title":"x","more":1}'),
        ("s1/rename", b'{"title":"\\ud800"}'),
        ("s1/rename", b"[]"),
        ("s1/rename", b"no json"),
        ("s1/rename", b"[" * 20_000),
        ("s1/rename", b'{"title":"' + b"x" * BODY_MAX + b'"}'),
        ("s1/label", b'{"text":"x"}'),
        ("s1/label", b'{"entryId":"","text":"x"}'),
        ("s1/index", b'{"force":false}'),
        ("s1/state", b'{"slug":"","items":[]}'),
        ("s1/state", b'{"slug":"x","items":["novalue"]}'),
        ("s1/state", b'{"slug":"x","items":["=x"]}'),
        ("s1/state", b'{"slug":"x","items":"a=b"}'),
    ],
)
def test_odd_changes_are_refused(site: Site, client: TestClient, path: str, body: bytes) -> None:
    """Nothing of another shape reaches the daemon."""
    found = client.post(f"/s/{path}", content=body, headers=HEADERS)
    assert (found.status_code, found.json()["error"]["code"]) == (400, "usage")
    assert site.desk.changes == []


def test_a_change_names_its_session_by_its_id(site: Site, client: TestClient) -> None:
    """S4.26: neither the beginning of an id nor a name will do, and only JSON is a change."""
    body = {"title": "x"}
    for ref in ("s", "Two%20ways", "nobody"):
        assert client.post(f"/s/{ref}/rename", json=body).status_code == 404
    plain = client.post("/s/s1/rename", content=b'{"title":"x"}')
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    posted = client.post("/s/s1/rename", content=b'{"title":"x"}', headers=form)
    assert (plain.status_code, posted.status_code) == (400, 400)
    assert client.get("/s/s1/rename").status_code == 405
    assert site.desk.changes == []


def test_what_is_not_there_any_more_is_kept_nowhere(
    site: Site, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purged while its page is open: the next question closes what was read of it."""
    site.write(said("a", None, "user", "Go."))
    assert client.get("/s/s1/document").status_code == 200
    forgotten: list[str] = []
    monkeypatch.setattr(site.live, "forget", forgotten.append)
    del site.desk.rows["s1"]
    assert client.get("/s/s1/document").status_code == 404
    assert forgotten == ["s1"]
