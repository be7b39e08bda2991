"""Tokens and static files; tests/browser/test_web_door.py tests cookies and requests."""

import os
import time
from pathlib import Path

from indexerd.web.auth import TOKEN_SECONDS, login_link, open_page, redeem_token
from indexerd.web.responses import FILES, read_static, render

URL = "http://127.0.0.1:7117"


def token(folder: Path) -> str:
    return login_link(folder, URL).partition("token=")[2]


def test_a_token_works_once_for_a_while_on_its_server(tmp_path: Path) -> None:
    """Its file is private and is removed with it, as is the page that leads to it."""
    held = token(tmp_path)
    (file,) = tmp_path.iterdir()
    assert (file.stat().st_mode & 0o777, file.read_bytes()) == (0o600, b"")
    assert held not in file.name
    page = open_page(tmp_path, f"{URL}/?token={held}")
    assert not redeem_token(tmp_path, "http://127.0.0.1:7118", held)
    assert redeem_token(tmp_path, URL, held)
    assert not page.exists()
    assert not redeem_token(tmp_path, URL, held)
    then = time.time() - TOKEN_SECONDS - 1
    for used in (True, False):
        late = token(tmp_path)
        (file,) = tmp_path.iterdir()
        os.utime(file, (then, then))
        assert not used or not redeem_token(tmp_path, URL, late)
    token(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1  # unused tokens expire
    for bad in ("", "x", "\ud800", "../x"):
        assert not redeem_token(tmp_path, URL, bad)


def test_only_listed_assets_are_served() -> None:
    """No name leads out of the folder or to a template; only rendered text becomes markup."""
    for name in ("../home.py", "home.html", "page.html", "", "/etc/passwd", "home.css/"):
        assert name not in FILES
    evil = "<script>x</script>\ud800"
    near = [{"sessionId": "a/b", "name": evil}]
    told = {"title": "No", "message": evil, "hint": "a `b`", "candidates": near, "way": True}
    page = bytes(render("problem.html", sought="a/b c", **told).body).decode()
    assert 'href="/?q=a%2Fb%20c"' in page
    assert 'href="/s/a%2Fb"' in page
    assert "<script>" not in page
    assert "&lt;script&gt;x" in page
    assert "<code>b</code>" in page
    sinks = ("innerHTML", "outerHTML", "insertAdjacentHTML", "DOMParser", "eval(", "http:")
    rendered = ".innerHTML = policy.createHTML(html)"
    for script in (read_static(name) for name in FILES if name.endswith(".js")):
        assert not [sink for sink in sinks if sink in script.replace(rendered, "", 1)]
