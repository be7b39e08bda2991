"""The routes of sessions over files of pi, a desk that answers as it is told, and a page's data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from indexerd.errors import DaemonDownError, IndexerdError, NotFoundError
from indexerd.paths import Places, places
from indexerd.settings import Settings
from indexerd.web import session as web
from indexerd.web.live import LiveSessions
from indexerd.web.pages import Pages
from tests.sessions.tree_sessions import said, session

HOSTILE = "</script><script>alert(1)</script><!--"


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


def sites(home: Path) -> Iterator[Site]:
    """A site with one session: what a fixture yields."""
    found = Site(home)
    found.write(said("a", None, "user", f"Go {HOSTILE}"), said("b", "a", "assistant", "Gone."))
    yield found
    found.live.close()


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
