"""Tokens, cookies and what requests need; tests/browser/test_web_door.py has the whole, served."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from indexerd.web.auth import CSP, TOKEN_SECONDS, Auth, issue_token, redeem_token
from indexerd.web.pages import FILES, asset, render

URL = "http://127.0.0.1:7117"


async def answer(request: Request) -> Response:
    """Something that is not for everybody."""
    if request.url.path == "/defect":
        raise RuntimeError("secret")
    return PlainTextResponse("private")


def client(folder: Path, errors: list[BaseException] | None = None, **how: Any) -> TestClient:
    """Who asks a guarded app."""
    on_error = (errors if errors is not None else []).append
    auth = Auth(URL, folder, on_error=on_error, **how)
    routes = [Route("/{path:path}", answer, methods=["GET", "POST"])]
    app = Starlette(routes=routes, middleware=[Middleware(auth.protect)])
    return TestClient(app, base_url=URL, follow_redirects=False)


def admitted(folder: Path, **how: Any) -> TestClient:
    """The same, let in."""
    found = client(folder, **how)
    assert found.get(f"/?token={issue_token(folder, URL)}").status_code == 303
    return found


def test_a_token_is_good_once_soon_and_at_its_server(tmp_path: Path) -> None:
    """Its file is the user's alone, says nothing of it, and goes with it."""
    token = issue_token(tmp_path, URL)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_bytes() == b""
    assert token not in file.name
    assert not redeem_token(tmp_path, "http://127.0.0.1:7118", token)
    assert redeem_token(tmp_path, URL, token)
    assert not redeem_token(tmp_path, URL, token)
    late = issue_token(tmp_path, URL)
    (file,) = tmp_path.iterdir()
    then = time.time() - TOKEN_SECONDS - 1
    os.utime(file, (then, then))
    assert not redeem_token(tmp_path, URL, late)
    issue_token(tmp_path, URL)
    (file,) = tmp_path.iterdir()
    os.utime(file, (then, then))
    issue_token(tmp_path, URL)
    assert len(list(tmp_path.iterdir())) == 1  # what nobody used in time is forgotten
    for bad in ("", "x", "\ud800", "../x"):
        assert not redeem_token(tmp_path, URL, bad)


def test_a_token_becomes_a_cookie_and_is_gone_from_the_address(tmp_path: Path) -> None:
    """The rest of the query stays as it was; a stale one is no harm to who is let in."""
    used: list[str] = []
    asker = client(tmp_path, on_admitted=used.append, keep=True)
    token = issue_token(tmp_path, URL)
    found = asker.get(f"{URL}//evil.example/?a=b%20c&token={token}")
    assert found.headers["location"] == f"{URL}//evil.example/?a=b%20c"
    assert "HttpOnly; SameSite=Strict" in found.headers["set-cookie"]
    assert "Max-Age" in found.headers["set-cookie"]
    assert "cookies" not in found.headers["clear-site-data"]
    assert used == [token]
    assert asker.get("/").text == "private"
    again = asker.get(f"/?token={token}")
    assert (again.status_code, "set-cookie" in again.headers) == (303, False)
    assert client(tmp_path).get(f"/?token={token}").status_code == 403
    assert "Max-Age" not in client(tmp_path).get(
        f"/?token={issue_token(tmp_path, URL)}"
    ).headers.get("set-cookie", "")  # fmt: skip


@pytest.mark.parametrize(("headers", "status"), [
    ({"Host": "evil.example"}, 403),
    ({"Host": "127.0.0.1:1"}, 403),
    ({"Host": "LOCALHOST:7117"}, 200),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}, 403),
    ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate",
      "Sec-Fetch-Dest": "document"}, 200),
    ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate",
      "Sec-Fetch-Dest": "iframe"}, 403),
])  # fmt: skip
def test_who_may_read(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    """By one of our names, from our own pages, or by a link that was followed."""
    asker = admitted(tmp_path)
    cookie = "; ".join(f"{name}={value}" for name, value in asker.cookies.items())
    assert asker.get("/", headers=headers | {"Cookie": cookie}).status_code == status


@pytest.mark.parametrize(("headers", "status"), [
    ({"Origin": URL, "Content-Type": "application/json; charset=utf-8"}, 200),
    ({"Origin": URL, "Content-Type": "text/plain"}, 415),
    ({"Origin": "null", "Content-Type": "application/json"}, 403),
    ({"Origin": f"{URL}1", "Content-Type": "application/json"}, 403),
    ({"Content-Type": "application/json"}, 403),
    ({"Origin": URL, "Content-Type": "application/json", "Sec-Fetch-Site": "cross-site",
      "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 403),
])  # fmt: skip
def test_who_may_change(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    """Our own pages, with JSON; and nobody without the cookie."""
    assert admitted(tmp_path).post("/", content="{}", headers=headers).status_code == status
    assert client(tmp_path).post("/", content="{}", headers=headers).status_code in (403, 415)


def test_who_was_led_here_by_another_page_comes_again_as_from_ours(tmp_path: Path) -> None:
    """A strict cookie was not sent: the browser is to load the address once more."""
    headers = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    found = client(tmp_path).get("/a?b=c&token=old&token=er", headers=headers)
    assert found.status_code == 403
    led = client(tmp_path).get("/a?b=c", headers=headers)
    assert led.headers["refresh"] == f"0; url={URL}/a?b=c"
    assert "refresh" not in client(tmp_path).get("/a").headers


def test_every_answer_carries_the_policy_and_a_defect_says_nothing(tmp_path: Path) -> None:
    """Refusals and defects, too."""
    errors: list[BaseException] = []
    asker = client(tmp_path, errors)
    for path in ("/", "/static/none", f"/defect?token={issue_token(tmp_path, URL)}", "/defect"):
        found = asker.get(path, headers={"Accept": "text/html"})
        assert found.headers["content-security-policy"] == CSP
        assert found.headers["cache-control"] == "no-store"
    assert found.status_code == 500
    assert "secret" not in found.text
    assert [str(one) for one in errors] == ["secret"]


def test_assets_are_those_of_a_list() -> None:
    """No name leads out of the folder, or to a template; texts in templates stay texts."""
    for name in ("../home.py", "home.html", "page.html", "", "/etc/passwd", "home.css/"):
        with pytest.raises(KeyError):
            asset(name)
    assert all(asset(name).body for name in FILES)
    evil = "<script>x</script>\ud800"
    page = bytes(render("problem.html", title="No", message=evil, hint="a `b`").body).decode()
    assert "&lt;script&gt;x" in page
    assert "<code>b</code>" in page


@pytest.mark.parametrize("name", ["home.js", "live-page.js"])
def test_scripts_make_no_markup_of_texts(name: str) -> None:
    """No sink that trusted types would have to guard, and no address but this server's."""
    script = asset(name).body
    for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "DOMParser", "eval(", "http:"):
        assert sink not in script
