"""The door of the web view: who is let in, who is not, and what every answer carries."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from indexerd.core.web_token import COOKIE_SECONDS, make_cookie, make_token
from indexerd.errors import AmbiguousError, DaemonDownError, IndexerdError, UsageError
from indexerd.io.web_place import Running
from indexerd.paths import places
from indexerd.surfaces.web import guard as door
from indexerd.surfaces.web.app import make_app
from indexerd.surfaces.web.desk import Desk
from indexerd.surfaces.web.guard import BODY_MAX, CSP, Guard
from indexerd.surfaces.web.hub import Hub
from indexerd.surfaces.web.pages import Pages
from indexerd.surfaces.web.serve import make_guard

PORT = 7117
HOST = f"127.0.0.1:{PORT}"
ORIGIN = f"http://{HOST}"
BOOT, OTHER = bytes(range(32)), bytes(range(1, 33))
NOW = 1_800_000_000.0
JSON = {"Origin": ORIGIN, "Content-Type": "application/json"}
BROWSER = {"Accept": "text/html,*/*;q=0.8"}
FOLLOWED = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
ERRORS: dict[str, tuple[int, Exception]] = {
    "ambiguous": (404, AmbiguousError("two fit", [{"sessionId": "a"}, {"sessionId": "b"}])),
    "usage": (400, UsageError("not so")),
    "down": (503, DaemonDownError("nobody answers")),
    "internal": (500, IndexerdError("something of ours")),
    "defect": (500, RuntimeError("/home/user/secret")),
}


class World:
    """A guarded app, and what happened in it."""

    def __init__(self, where: Path) -> None:
        self.now = NOW
        self.reached: list[str] = []
        self.failed: list[BaseException] = []
        self.guard: Guard = make_guard(Running(ORIGIN, 1, BOOT), self.failed.append)
        self.guard.now = lambda: self.now
        env = {"HOME": str(where), "INDEXERD_STATE_DIR": str(where)}
        found = places(env, home=where)
        desk = Desk(found, env, home=where, stored=lambda method, _: method)
        routes = [
            Route("/", self.page),
            Route("/change", self.change, methods=["POST"]),
            Route("/error/{name}", self.error),
            Route("/deep//path", self.page),
        ]
        self.app = make_app(desk, Hub(()), Pages(), self.guard, more=routes)
        self.client = TestClient(self.app, ORIGIN, follow_redirects=False)
        self.jar = {"Cookie": f"{self.guard.cookie_name}={make_cookie(BOOT, PORT, NOW)}"}
        self.nonces = iter(range(10_000))

    def token(self) -> str:
        """A token that was never seen."""
        return make_token(BOOT, next(self.nonces).to_bytes(16), ORIGIN, self.now)

    async def page(self, request: Request) -> Response:
        """A page that says what it was asked."""
        self.reached.append(request.method)
        return JSONResponse({"query": request.url.query})

    async def change(self, request: Request) -> Response:
        """Something that changes something."""
        self.reached.append(request.method)
        return JSONResponse({"bytes": len(await request.body())})

    async def error(self, request: Request) -> Response:
        """A page that fails."""
        raise ERRORS[request.path_params["name"]][1]


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


# -- who asks ------------------------------------------------------------------------------------


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


def _scope(path: str, query: str, *more: tuple[str, str]) -> dict[str, Any]:
    headers = [("host", HOST), *more]
    return {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers],
        "scheme": "http",
        "http_version": "1.1",
        "server": ("127.0.0.1", PORT),
    }


async def _nothing() -> dict[str, Any]:
    await asyncio.Event().wait()
    return {}


def _keeper(told: list[dict[str, Any]]) -> Any:
    async def keep(message: dict[str, Any]) -> None:
        told.append(message)

    return keep
