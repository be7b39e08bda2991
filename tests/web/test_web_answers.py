"""What every answer of the web view carries, whatever was asked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import StreamingResponse
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from indexerd.errors import AmbiguousError, IndexerdError
from indexerd.web.guard import CSP
from indexerd.web.pages import Pages
from tests.web.guarded_app import (
    BOOT,
    BROWSER,
    ERRORS,
    HOST,
    ORIGIN,
    World,
    _nothing,
    _scope,
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """One for each test."""
    return World(tmp_path)


ADDRESSES = {
    "/": 200,
    "/static/view.css": 200,
    "/static/no.css": 404,
    "/static/..%2f..%2fpyproject.toml": 404,
    "/nowhere": 404,
    "/change": 405,
    "/" + "a" * 9000: 414,
    **{f"/error/{name}": status for name, (status, _) in ERRORS.items()},
}


@pytest.mark.parametrize("path", ADDRESSES)
@pytest.mark.parametrize("known", [True, False])
def test_every_answer_carries_the_headers(world: World, path: str, known: bool) -> None:
    """Errors and refusals, too, in either form; only assets may be kept."""
    client = TestClient(world.app, ORIGIN, follow_redirects=False, raise_server_exceptions=False)
    for form in ({}, BROWSER):
        told = client.get(path, headers=(world.jar if known else {}) | form)
        assert told.status_code == (ADDRESSES[path] if known else told.status_code)
        headers = told.headers
        assert headers["content-security-policy"] == CSP
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["x-frame-options"] == "DENY"
        assert "clipboard-write=(self)" in headers["permissions-policy"]
        assert "server" not in headers
        if path != "/static/view.css":
            assert headers["cache-control"] == "no-store"


def test_the_policy_lets_nothing_in_but_our_own() -> None:
    """No inline script or style, no other machine, no frame around us, no sink for HTML."""
    parts = dict(one.partition(" ")[::2] for one in CSP.split("; "))
    assert parts.pop("default-src") == "'none'"
    assert parts.pop("require-trusted-types-for") == "'script'"
    assert parts.pop("trusted-types") == "'none'"
    assert {parts.pop(one) for one in ("base-uri", "frame-ancestors")} == {"'none'"}
    assert set(parts.values()) == {"'self'"}


def test_an_asset_is_kept_for_ever_under_its_own_digest(world: World) -> None:
    """Under another one, or none, it is asked for again."""
    url = Pages().url("view.css")
    assert "immutable" in world.client.get(url).headers["cache-control"]
    assert world.client.get("/static/view.css?v=0").headers["cache-control"] == "no-cache"


def test_looking_without_a_body_works_alike(world: World) -> None:
    """HEAD has the status and headers of GET."""
    for path in ("/", "/nowhere", "/static/view.css"):
        get = world.client.get(path, headers=world.jar)
        head = world.client.head(path, headers=world.jar)
        assert head.status_code == get.status_code
        assert head.headers == get.headers


def test_absurd_headers_are_refused(world: World) -> None:
    """Nobody's cookies are that long."""
    told = world.client.get("/", headers=world.jar | {"X-Long": "a" * 40_000})
    assert told.status_code == 431


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_says_what_it_is(world: World, name: str) -> None:
    """As JSON with its kind and hint, as a page with its text."""
    status, error = ERRORS[name]
    told = world.client.get(f"/error/{name}", headers=world.jar)
    page = world.client.get(f"/error/{name}", headers=world.jar | BROWSER)
    assert told.status_code == page.status_code == status
    assert page.headers["content-type"].startswith("text/html")
    if isinstance(error, IndexerdError):
        said = told.json()["error"]
        assert said["code"] == error.kind
        assert said["message"] == str(error)
        assert said["retryable"] is error.retryable
        assert str(error) in page.text
        assert ("candidates" in said) is isinstance(error, AmbiguousError)
    else:  # what nobody foresaw is told to the log, and to nobody else
        assert "secret" not in told.text + page.text + str(told.headers)
        assert world.failed == [error, error]


def test_a_stream_is_not_held_up(world: World) -> None:
    """The first part arrives while the second is not made yet."""
    told: list[dict[str, Any]] = []

    async def ask() -> None:
        go = asyncio.Event()

        async def parts() -> AsyncIterator[bytes]:
            yield b"first"
            await go.wait()
            yield b"second"

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await StreamingResponse(parts())(scope, receive, send)

        async def keep(message: Any) -> None:
            told.append(message)
            if message.get("body") == b"first":
                go.set()

        scope = _scope("/", "", ("cookie", world.jar["Cookie"]))
        async with asyncio.timeout(10):
            await world.guard.around(app)(scope, _nothing, keep)

    asyncio.run(ask())
    assert [one.get("body") for one in told] == [None, b"first", b"second", b""]


def test_there_are_no_websockets(world: World) -> None:
    """Nor do any reach the app."""
    with (
        pytest.raises(WebSocketDisconnect),
        world.client.websocket_connect("/", headers=world.jar | {"Host": HOST}),
    ):
        pass


def test_no_key_shows_itself(world: World) -> None:
    """Not where the guard is printed by mistake."""
    world.guard.admits(world.token())
    shown = repr(world.guard)
    assert repr(BOOT) not in shown
    assert not re.search("[0-9a-f]{32}", shown)
