"""Tokens and cookies of the web view: how a browser becomes known, and for how long."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from indexerd.web import guard as door
from indexerd.web.serve import make_guard
from indexerd.web.token import COOKIE_SECONDS, make_cookie, make_token
from indexerd.web.web_place import Running
from tests.web.guarded_app import (
    BOOT,
    BROWSER,
    JSON,
    NOW,
    ORIGIN,
    OTHER,
    PORT,
    World,
    _nothing,
    _scope,
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """One for each test."""
    return World(tmp_path)


# -- tokens and cookies --------------------------------------------------------------------------


def test_a_browser_that_is_not_known_is_told_what_to_do(world: World) -> None:
    """A page for a person, JSON for a script; neither says anything of a session."""
    for path in ("/", "/s/abc", "/events", "/s/abc/document"):
        page = world.client.get(path, headers=BROWSER)
        assert page.status_code == 403
        assert page.headers["content-type"].startswith("text/html")
        assert "indexerd web" in page.text
        told = world.client.get(path)
        assert told.status_code == 403
        error = told.json()["error"]
        assert error.keys() == {"code", "message", "hint", "retryable"}
        assert "indexerd web" in error["hint"]
    assert world.client.post("/change", headers=JSON, content=b"{}").status_code == 403
    assert world.reached == []


def test_what_is_public_anyway_needs_no_cookie(world: World) -> None:
    """The program's own assets, which dress the refusal, and the proof of who listens."""
    assert world.client.get("/static/view.css").status_code == 200
    told = world.client.get("/hello?challenge=" + "c" * 20)
    assert told.json().keys() == {"program", "version", "proof"}
    assert told.json()["proof"] == world.guard.proof("c" * 20)
    assert world.client.get("/hello?challenge=no").status_code == 400
    assert world.client.post("/hello", headers=JSON, content=b"{}").status_code == 403


def test_a_token_becomes_a_cookie(world: World) -> None:
    """The address goes on without it, otherwise as it was; scripts cannot read the cookie."""
    path = f"/s/a%20b?find=x%2By&token={world.token()}&q=&q=2"
    told = world.client.get(path, headers=BROWSER)
    assert told.status_code == 303
    assert told.headers["location"] == f"{ORIGIN}/s/a%20b?find=x%2By&q=&q=2"
    cookie = told.headers["set-cookie"]
    name, _, rest = cookie.partition("=")
    value, *attributes = rest.split("; ")
    assert name == "indexerd-7117"
    assert set(attributes) == {"Path=/", "HttpOnly", "SameSite=Strict"}
    kept = {"Cookie": f"other=1; {name}={value}; more=2"}
    assert world.client.get("/", headers=kept).status_code == 200


def test_where_the_port_stays_a_cookie_outlives_the_browser(world: World) -> None:
    """As long as the server lives, but thirty days at most."""
    guard = make_guard(Running(ORIGIN, 1, BOOT), lambda _: None, kept=True)
    assert f" Max-Age={COOKIE_SECONDS};" in guard.cookie()
    world.now += COOKIE_SECONDS + 1
    assert world.client.get("/", headers=world.jar).status_code == 403


def test_what_another_server_left_in_the_browser_is_cleared(world: World) -> None:
    """For whoever is let in, once: not the cookies, which are those of every port."""
    told = world.client.get(f"/?token={world.token()}")
    assert told.headers["clear-site-data"] == '"cache", "storage"'
    for path, headers in (("/", world.jar), ("/?token=stale", world.jar), ("/?token=stale", {})):
        world.client.cookies.clear()
        assert "clear-site-data" not in world.client.get(path, headers=headers).headers


def test_who_wants_to_know_is_told_what_was_used(world: World) -> None:
    """The token, once it let somebody in, and no other."""
    used: list[str] = []
    world.guard.on_admitted = used.append
    token = world.token()
    for one in ("stale", token, token):
        world.client.get(f"/?token={one}")
    assert used == [token]


def test_a_token_is_good_once(world: World) -> None:
    """The second time it is refused, with a page that says what to do."""
    path = f"/?token={world.token()}"
    assert world.client.get(path, headers=BROWSER).status_code == 303
    world.client.cookies.clear()  # as in another browser
    told = world.client.get(path, headers=BROWSER)
    assert told.status_code == 403
    assert "set-cookie" not in told.headers
    assert "indexerd web" in told.text


def test_a_token_grows_old(world: World) -> None:
    """After five minutes at most; those of another start or server were never good."""
    late = world.token()
    world.now += 300
    others = (
        make_token(OTHER, b"n" * 16, ORIGIN, world.now),
        make_token(BOOT, b"n" * 16, "http://127.0.0.1:7118", world.now),
        "rubbish",
        "",
    )
    for token in (late, *others):
        assert world.client.get(f"/?token={token}", headers=BROWSER).status_code == 403


def test_who_is_known_goes_on_without_a_stale_token(world: World) -> None:
    """A reload of the first address is no reason to shut anybody out."""
    told = world.client.get("/?token=stale&q=a", headers=BROWSER | world.jar)
    assert told.status_code == 303
    assert told.headers["location"] == f"{ORIGIN}/?q=a"
    assert "set-cookie" not in told.headers


def test_looking_at_an_address_does_not_use_it_up(world: World) -> None:
    """HEAD, which previews send, gets no cookie; several tokens at once are none."""
    first, second = world.token(), world.token()
    assert world.client.head(f"/?token={first}").status_code == 403
    assert world.client.get(f"/?token={first}&token={second}").status_code == 403
    assert world.client.get(f"/?token={first}").status_code == 303


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example", "//evil.example/%2e%2e"])
def test_the_way_on_never_leads_elsewhere(world: World, path: str) -> None:
    """A path that begins with two slashes would be another machine."""
    asked = f"{path}?token={world.token()}"
    told: list[dict[str, Any]] = []

    async def ask() -> None:
        scope = _scope(path, asked.partition("?")[2])
        await world.app(scope, _nothing, _keeper(told))

    asyncio.run(ask())
    headers = {name.decode(): value.decode() for name, value in told[0]["headers"]}
    assert told[0]["status"] == 303
    assert headers["location"].startswith(f"{ORIGIN}/")


@pytest.mark.parametrize("made", [(OTHER, PORT, NOW), (BOOT, 7118, NOW), (BOOT, PORT, 1e9)])
def test_a_cookie_of_another_key_port_or_year_is_none(
    world: World, made: tuple[bytes, int, float]
) -> None:
    """Cookies know no ports: whoever listens on another one is sent ours, and we its."""
    jar = {"Cookie": f"{world.guard.cookie_name}={make_cookie(*made)}"}
    assert world.client.get("/", headers=jar).status_code == 403
    assert world.reached == []


def test_tokens_that_were_used_are_forgotten_when_they_are_old(world: World) -> None:
    """What is remembered is bounded, and a used token stays used."""
    tokens = [world.token() for _ in range(door.USED_MAX)]
    assert all(world.guard.admits(one) for one in tokens)
    assert not world.guard.admits(world.token())  # too many at once
    assert not world.guard.admits(tokens[0])
    world.now += 301
    assert not world.guard.admits(tokens[0])
    assert world.guard.admits(world.token())
    assert len(world.guard._used) == 1


# -- what every answer carries -------------------------------------------------------------------


def _keeper(told: list[dict[str, Any]]) -> Any:
    async def keep(message: dict[str, Any]) -> None:
        told.append(message)

    return keep
