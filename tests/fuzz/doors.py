"""Targets for what comes in from outside: the socket, the web view's door, addresses, the page.

Here it is not enough that nothing raises: nobody comes in who must not, and what goes out ends
nothing that it stands in.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from indexerd.privacy.sanitize import scrub
from indexerd.protocol import wire
from indexerd.web import home as home_page
from indexerd.web.auth import CSP, Auth, issue_token
from indexerd.web.export import embedded
from tests.fuzz.texts import as_json, text_of

PORT = 7117
ORIGIN = f"http://127.0.0.1:{PORT}"
_DEEP = 100  # levels of a value; a document has a few
_STEP = 7  # bytes that arrive at a time
_PLAIN = re.compile(r"[A-Za-z0-9/?&=%._~+:-]*")


# -- the socket ------------------------------------------------------------------------------------


def request(data: bytes) -> None:
    """Any line is a request or a failure, and whatever is answered is one line of strict JSON."""
    for line in (data, data.replace(b"\n", b" ")):
        asked = wire.parse(line)
        if isinstance(asked, wire.Failure):
            _one_line(asked.to_line())
            continue
        asked.method.encode()
        assert asked.method
        _one_line(wire.unknown_method(asked).to_line())
        try:
            told = wire.result(asked.id, asked.params)
        except RecursionError:  # promised, for what is nested without end
            continue
        assert _one_line(told)["result"] == json.loads(json.dumps(asked.params))
        assert asked.id is None or _one_line(told)["id"] == asked.id
    _dealt(data)


def _one_line(line: bytes) -> Any:
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    return json.loads(line.decode(), parse_constant=_refuse)


def _refuse(word: str) -> None:
    raise AssertionError(word)


def _dealt(data: bytes) -> None:
    """Lines do not depend on how the bytes arrive, and one that is too long is not handed out."""
    lines, found = wire.Lines(64), list[bytes]()
    for at in range(0, len(data), _STEP):
        lines.feed(data[at : at + _STEP])
        while (line := lines.take()) is not None:
            found.append(line)
    whole = data.split(b"\n")
    short = next((n for n, one in enumerate(whole) if len(one) > 64), len(whole) - 1)
    assert found == whole[:short]
    assert lines.too_long == (short < len(whole) - 1 or len(whole[-1]) > 64)


# -- addresses --------------------------------------------------------------------------


def home(data: bytes) -> None:
    """Any query gives filters within bounds, and their address gives the same filters again."""
    for query in (text_of(data), data.decode("latin-1")):
        params = {key: scrub(value) for key, value in parse_qsl(query, errors="replace")}
        filters = home_page.Filters.of(params)
        where = filters.address(before=filters.before)
        assert _PLAIN.fullmatch(where)
        assert where.startswith("/")
        assert not where.startswith("//")
        again = {key: scrub(value) for key, value in parse_qsl(where.partition("?")[2])}
        assert home_page.Filters.of(again) == filters
        for links in filters.choices().values():
            assert all(_PLAIN.fullmatch(one["href"]) for one in links)
        target = home_page.footer_target(params)
        assert target is None or re.fullmatch(r"/s/[\w%.~-]+(\?find=[\w%./~-]+)?", target)
        assert ".." not in home_page.session_address(query).split("/")


# -- the page's data -------------------------------------------------------------------------------


def island(data: bytes) -> None:
    """Read back it is the same value, and nothing in it can end the element that it stands in."""
    value = as_json(data)
    if data.count(b"[") + data.count(b"{") > _DEEP:
        return
    text = embedded(value)
    text.encode()
    assert not set(text) & set("<>&\u2028\u2029\0\x1b")
    told = json.dumps(value)
    if "\\ud" not in told.lower():  # halves of characters are replaced, or joined
        meant = json.loads(told, parse_constant=lambda _: None)  # no number is null
        assert json.dumps(json.loads(text, parse_constant=_no_constant)) == json.dumps(meant)


def _no_constant(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


# -- the door of the web view ----------------------------------------------------------------------


@cache
def _auth() -> tuple[Auth, str, str]:
    """The authentication of a server, its cookie, and the name that its one token goes by."""
    auth = Auth(ORIGIN, Path(tempfile.mkdtemp()), on_error=_fail)
    return auth, f"indexerd-{PORT}={auth._cookie}", "@TOKEN@"


def _fail(error: BaseException) -> None:
    raise error


def guard(data: bytes) -> None:
    """Nobody gets through without a cookie, from elsewhere, or with what is no JSON.

    The bytes: the method, the path, the query, headers a line each, an empty line, the body.
    """
    head, _, body = data.partition(b"\n\n")
    lines = [*head.split(b"\n"), b"", b"", b""]
    # No server hands on a target with control characters: httptools and h11 refuse the request.
    lines[1:3] = [re.sub(rb"[\x00-\x20\x7f]", b"", one) for one in lines[1:3]]
    pairs = [line.partition(b":") for line in lines[3:] if line]
    headers = [(name.strip().lower(), value.strip()) for name, _, value in pairs]
    auth, cookie, _ = _auth()
    token = issue_token(auth._state_dir, ORIGIN) if b"@TOKEN@" in lines[2] else ""
    scope: dict[str, Any] = {
        "type": "http",
        "method": lines[0].decode("latin-1").upper(),
        "path": lines[1].decode("utf-8", "replace"),
        "raw_path": lines[1],
        "query_string": lines[2],
        "headers": [(name, value.replace(b"@COOKIE@", cookie.encode())) for name, value in headers],
    }
    scope["query_string"] = lines[2].replace(b"@TOKEN@", token.encode())
    reached, sent = asyncio.run(_asked(scope, body))
    _dressed(sent, token)
    if reached:
        _may(scope)


async def _asked(scope: dict[str, Any], body: bytes) -> tuple[bool, list[dict[str, Any]]]:
    reached, sent = [], list[dict[str, Any]]()
    pieces = [body[: len(body) // 2], body[len(body) // 2 :]]

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        reached.append(True)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> dict[str, Any]:
        piece = pieces.pop(0) if pieces else b""
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message: Any) -> None:
        sent.append(message)

    await _auth()[0].protect(app)(scope, receive, send)
    return bool(reached), sent


def _dressed(sent: list[dict[str, Any]], token: str) -> None:
    """Every answer carries its headers, and leads nowhere but to us."""
    starts = [one for one in sent if one["type"] == "http.response.start"]
    assert len(starts) == 1
    held = {name.decode().lower(): value.decode("latin-1") for name, value in starts[0]["headers"]}
    assert held["content-security-policy"] == CSP
    assert not set("".join(held.values())) & set("\r\n\0")
    ours = (f"http://127.0.0.1:{PORT}", f"http://localhost:{PORT}")
    for name in ("location", "refresh"):
        where = held.get(name, ours[0]).removeprefix("0; url=")
        assert urlsplit(where.lower()).netloc in {urlsplit(one).netloc for one in ours}
        assert not token or token not in where


def _may(scope: dict[str, Any]) -> None:
    """What must have been there, where the app was reached."""
    held: dict[bytes, list[bytes]] = {}
    for name, value in scope["headers"]:
        held.setdefault(name, []).append(value)
    assert held[b"host"][0].lower() in (b"127.0.0.1:7117", b"localhost:7117")
    path = scope["path"]
    public = path.startswith("/static/")
    known = any(_auth()[1].encode() in one for one in held.get(b"cookie", ()))
    assert known or (public and scope["method"] in ("GET", "HEAD"))
    if scope["method"] not in ("GET", "HEAD"):
        assert known
        assert held[b"origin"] == [b"http://" + held[b"host"][0].lower()]
        assert held[b"content-type"][0].lower().startswith(b"application/json")
        assert held.get(b"sec-fetch-site", [b"none"])[0] in (b"", b"none", b"same-origin")


TARGETS: dict[str, Callable[[bytes], None]] = {
    "wire": request,
    "home": home,
    "island": island,
    "guard": guard,
}
