"""The door of the web view: who is let in, and who is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from indexerd.web.guard import BODY_MAX
from indexerd.web.serve import make_guard
from indexerd.web.web_place import Running
from tests.web.guarded_app import (
    BOOT,
    BROWSER,
    HOST,
    JSON,
    ORIGIN,
    PORT,
    World,
)

FOLLOWED = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """One for each test."""
    return World(tmp_path)


@pytest.mark.parametrize("path", ["/events%0a", "/%0A", "/hello%0d", "/static/view.css%00", "/%7f"])
def test_an_address_with_a_control_character_is_none(world: World, path: str) -> None:
    """A route's pattern would take a line's end for its own end."""
    told = world.client.get(path, headers=world.jar)
    assert told.status_code == 404
    assert told.json()["error"]["code"] == "not_found"
    assert not world.reached


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        f"127.0.0.1.evil.example:{PORT}",
        "127.0.0.1",
        "127.0.0.1:7118",
        f"127.0.0.2:{PORT}",
        f"[::1]:{PORT}",
        f"{HOST}@evil.example",
        "",
    ],
)
def test_a_name_that_was_made_to_lead_here_is_turned_away(world: World, host: str) -> None:
    """DNS rebinding: whatever else is right, and at every address."""
    for path in (
        "/",
        "/hello?challenge=" + "c" * 20,
        "/static/view.css",
        f"/?token={world.token()}",
    ):
        told = world.client.get(path, headers=world.jar | {"Host": host})
        assert told.status_code == 403
        assert "set-cookie" not in told.headers
    assert world.reached == []


def test_this_machine_has_two_names(world: World) -> None:
    """The address, and localhost, however it is written; two hosts at once are none."""
    for host in (HOST, f"localhost:{PORT}", f"LOCALHOST:{PORT}"):
        assert world.client.get("/", headers=world.jar | {"Host": host}).status_code == 200
    twice = [("Host", HOST), ("Host", HOST), *world.jar.items()]
    assert world.client.get("/", headers=twice).status_code == 403


@pytest.mark.parametrize(
    "url", ["http://[::1]:7117", "http://127.0.0.2:7117", "http://127.0.0.1:80"]
)
def test_the_names_are_those_of_where_it_listens(url: str) -> None:
    """Not those of every loopback address; a browser leaves port 80 away."""
    hosts = make_guard(Running(url, 1, BOOT), lambda _: None).hosts
    expected = {
        "http://[::1]:7117": {"[::1]:7117", "localhost:7117"},
        "http://127.0.0.2:7117": {"127.0.0.2:7117"},
        "http://127.0.0.1:80": {"127.0.0.1", "127.0.0.1:80", "localhost", "localhost:80"},
    }
    assert hosts == expected[url]


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "null",
        "http://evil.example",
        f"https://{HOST}",
        "http://127.0.0.1",
        "http://127.0.0.1:7118",
        f"http://localhost:{PORT}",
        f"{ORIGIN}/",
        f"{ORIGIN}, {ORIGIN}",
    ],
)
def test_only_our_own_page_changes_anything(world: World, origin: str | None) -> None:
    """A browser says where a request comes from; one that does not say is not heard either."""
    headers = world.jar | {"Content-Type": "application/json"}
    headers |= {} if origin is None else {"Origin": origin}
    told = world.client.post("/change", headers=headers, content=b"{}")
    assert told.status_code == 403
    assert world.reached == []
    assert world.client.post("/change", headers=world.jar | JSON, content=b"{}").status_code == 200


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "text/plain;application/json"]
)
def test_what_a_form_could_send_is_refused(world: World, kind: str) -> None:
    """Only JSON, which no page of another site sends without asking first."""
    told = world.client.post("/change", headers=world.jar | JSON | {"Content-Type": kind})
    assert told.status_code == 415
    assert world.reached == []
    kind = "application/json; charset=utf-8"
    told = world.client.post("/change", headers=world.jar | JSON | {"Content-Type": kind})
    assert told.status_code == 200


@pytest.mark.parametrize("streamed", [False, True])
def test_what_is_sent_is_small(world: World, streamed: bool) -> None:
    """256 KiB pass, a byte more does not, whether its length is said before or not."""

    def send(size: int) -> Any:
        body = b"x" * size
        parts = (body[at : at + 10_000] for at in range(0, size, 10_000))
        headers = world.jar | JSON
        return world.client.post("/change", headers=headers, content=parts if streamed else body)

    assert send(BODY_MAX).json() == {"bytes": BODY_MAX}
    world.reached.clear()
    assert send(BODY_MAX + 1).status_code == 413
    assert world.reached == []


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_other_methods_are_none(world: World, method: str) -> None:
    """Nor is there a preflight that could be answered kindly."""
    told = world.client.request(method, "/", headers=world.jar | JSON)
    assert told.status_code == 405
    assert "access-control-allow-origin" not in told.headers
    assert world.reached == []


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_page_can_link_to_us_and_nothing_else(world: World, site: str) -> None:
    """No image, script, frame or fetch of it gets an answer, with a cookie or without.

    Another port of this machine is the same site to a browser, and another page to us.
    """
    said = world.jar | {"Sec-Fetch-Site": site}
    for more in (
        {},
        {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
        {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ):
        for path in ("/", "/static/view.css", "/events", "/hello?challenge=" + "c" * 20):
            assert world.client.get(path, headers=said | more).status_code == 403
    told = world.client.post("/change", headers=said | JSON | FOLLOWED, content=b"{}")
    assert told.status_code == 403
    assert world.reached == []
    assert world.client.get("/", headers=said | FOLLOWED).status_code == 200
    for own in ("same-origin", "none"):
        assert world.client.get("/", headers=said | {"Sec-Fetch-Site": own}).status_code == 200


def test_what_came_from_another_site_is_loaded_once_more(world: World) -> None:
    """A strict cookie is not sent along a link from elsewhere; our own page then asks again."""
    there = BROWSER | FOLLOWED | {"Sec-Fetch-Site": "cross-site"}
    told = world.client.get("/s/a?find=%C3%BC", headers=there)
    assert told.status_code == 403
    assert told.headers["refresh"] == f"0; url={ORIGIN}/s/a?find=%C3%BC"
    again = BROWSER | FOLLOWED | {"Sec-Fetch-Site": "same-origin"}
    assert "refresh" not in world.client.get("/s/a", headers=again).headers  # no ring
