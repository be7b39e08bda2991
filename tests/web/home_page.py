"""The home page over a desk that answers as it is told, and the page as a browser would read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.testclient import TestClient

from indexerd.errors import IndexerdError
from indexerd.web import home
from indexerd.web.pages import Pages

NOW = datetime(2026, 11, 19, 12, 0, tzinfo=UTC).timestamp()
VOID = {"meta", "link", "input", "br"}
Answer = Callable[[dict[str, Any]], Any]


class FakeDesk:
    """Answers as a daemon would, and keeps what it was asked."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.home = Path("/home/ada")
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._answers = answers

    async def read(self, method: str, params: Mapping[str, Any]) -> Any:
        self.asked.append((method, dict(params)))
        return self._answers[method](dict(params))


class Page(HTMLParser):
    """A page as a browser would read it: elements with attributes, and texts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    def all(self, tag: str, **wanted: str) -> list[dict[str, str]]:
        """Elements of a tag that have these attributes."""
        names = {key.rstrip("_").replace("_", "-"): value for key, value in wanted.items()}
        return [
            held
            for one, held in self.elements
            if one == tag and all(held.get(key) == value for key, value in names.items())
        ]


def row(session_id: str = "s-1", **fields: Any) -> dict[str, Any]:
    """A row of today."""
    return {
        "sessionId": session_id,
        "agent": "pi",
        "cwd": "/home/ada/site",
        "name": "Fix the cursor",
        "description": "Compared as pairs.",
        "state": "idle",
        "modifiedAt": "2026-11-19T11:57:00.000Z",
        "indexed": True,
        "newUserMessages": 2,
        "filesModified": ["/home/ada/site/page.py"],
        "filesRead": [],
        "resume": "cd /home/ada/site && pi --session s-1",
    } | fields


class World:
    """The page of one desk."""

    def __init__(
        self, found: Mapping[str, Answer] | None = None, *, up: bool = True, **answers: Answer
    ) -> None:
        self.desk = FakeDesk({**(found or {}), **answers})
        routes = home.routes(
            self.desk,  # type: ignore[arg-type] # as much of a desk as a page asks
            Pages(),
            up=lambda: up,
            clock=lambda: NOW,
            offset=lambda _: 0,
        )
        self.client = TestClient(Starlette(routes=routes), follow_redirects=False)

    def get(self, address: str = "/") -> Page:
        """The page at an address; its elements are closed in order."""
        answer = self.client.get(address)
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"
        page = Page(answer.text)
        assert page.open == []
        return page


def listing(*rows: dict[str, Any], **more: Any) -> Answer:
    """An answer of `list`."""
    return lambda _: {"sessions": list(rows), **more}


def raising(error: IndexerdError) -> Answer:
    """An answer that is none."""

    def answer(_params: dict[str, Any]) -> Any:
        raise error

    return answer


def hit(session_id: str = "s-1", **fields: Any) -> dict[str, Any]:
    """A hit of `search`."""
    found = {"sessionId": session_id, "name": "N", "field": "summary", "snippet": "a «b» c"}
    return found | {"score": 1.0} | fields
