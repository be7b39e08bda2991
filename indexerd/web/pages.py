"""What the web view answers with: pages from templates, assets, changes of a document, problems.

Whatever goes into a template is escaped; a name that nobody gave is an error. Assets are those of a
fixed list, so that no name out of an address becomes a path. Their addresses carry a hash, so that
a browser may keep them; and pages say what each must hold (`integrity`), since another program may
have answered under such an address before.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from indexerd.errors import AccessError, AmbiguousError, IndexerdError, NotFoundError, UsageError
from indexerd.web.document import to_json
from indexerd.web.export import PARTS, content_hash, read_static, session_page

LIVE, HOME = "live-page.js", "home.js"
BUNDLES = {  # one script of several parts, so that a page waits for one answer
    LIVE: (*PARTS, "stream.js", "family.js", "acts.js", "panel.js", "session.js", "live.js"),
    HOME: ("words.js", "stream.js", "home.js"),
}
MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
FILES = frozenset({"view.css", "home.css", "favicon.svg", *BUNDLES})
_STATUS = ((NotFoundError, 404), (AmbiguousError, 404), (AccessError, 403), (UsageError, 400))
_PASSING = ("nodes", "exportedAt", "number")  # not among what makes a version


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the list; `url` has the hash `version`."""

    body: str
    media_type: str
    version: str
    url: str
    integrity: str


@cache
def asset(name: str) -> Asset:
    """A file of the list. KeyError for any other name."""
    if name not in FILES:
        raise KeyError(name)
    body = "\n".join(map(read_static, BUNDLES.get(name, (name,))))
    version = hashlib.sha256(body.encode()).hexdigest()[:16]
    media_type = MEDIA_TYPES[name.rpartition(".")[2]]
    return Asset(body, media_type, version, f"/static/{name}?v={version}", content_hash(body))


_templates = Environment(
    loader=FunctionLoader(read_static),
    autoescape=True,
    undefined=StrictUndefined,
    auto_reload=False,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_templates.globals["asset"] = lambda name: asset(name).url
_templates.globals["integrity"] = lambda name: asset(name).integrity


def render(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A page from a template."""
    text = _templates.get_template(template).render(values)
    return HTMLResponse(text.encode("utf-8", "replace"), status)


def live_page(document: Mapping[str, Any]) -> HTMLResponse:
    """The page of a session, with its script and style by address."""
    css, icon, script = (asset(name) for name in ("view.css", "favicon.svg", LIVE))
    style = (
        f'<link rel="stylesheet" href="{css.url}" integrity="{css.integrity}">\n'
        f'<link rel="icon" type="image/svg+xml" href="{icon.url}">\n'
        f'<script src="{script.url}" integrity="{script.integrity}" defer></script>'
    )
    page = session_page(document, style=style, home='<a class="home" href="/">Sessions</a>')
    return HTMLResponse(page.encode("utf-8", "replace"))


def changed(document: Mapping[str, Any], after: str) -> dict[str, Any]:
    """What a page needs that has the version `after` of a document, or "".

    A version is `COUNT.HASH.HASH`, of the nodes and of the rest. The answer is `{version}` where
    nothing is new, the whole document with its `version`, or, where a page's nodes are still the
    first ones, that with those behind them alone: `{…, keep}`.
    """
    nodes = document["nodes"]
    rest = {key: one for key, one in document.items() if key not in _PASSING}
    version = f"{len(nodes)}.{_digest(nodes)}.{_digest(rest)}"
    if after == version:
        return {"version": version}
    count, _, digests = after.partition(".")
    keep = int(count) if re.fullmatch("[0-9]{1,9}", count) else len(nodes) + 1
    tail: dict[str, Any] = {}
    if keep <= len(nodes) and digests.startswith(f"{_digest(nodes[:keep])}."):
        tail = {"keep": keep, "nodes": nodes[keep:]}
    return {"version": version, **document, **tail}


def _digest(value: Any) -> str:
    return hashlib.blake2b(to_json(value).encode(), digest_size=12).hexdigest()


def problem(request: Request, error: BaseException, status: int = 0) -> Response:
    """The answer for an error: a page for a person, JSON for a script.

    Of an error that is not ours it says only that there was one.
    """
    if not isinstance(error, IndexerdError):
        error = IndexerdError("something went wrong in indexerd itself")
    usual = 503 if error.retryable else 500
    status = status or next((code for kind, code in _STATUS if isinstance(error, kind)), usual)
    mode = request.headers.get("sec-fetch-mode")
    wants_page = mode == "navigate" if mode else "text/html" in request.headers.get("accept", "")
    if wants_page and request.method in ("GET", "HEAD"):
        title = HTTPStatus(status).phrase
        return render("problem.html", status, title=title, message=str(error), hint=error.hint)
    data = error.data()
    return answer({"error": {"code": data.pop("kind"), "message": str(error), **data}}, status)


def answer(value: Any, status: int = 200) -> Response:
    """JSON for a script."""
    return Response(to_json(value), status, media_type="application/json")
