"""Responses of the web view: pages, JSON, errors; and the files of `static/` that they are made of.

Only a fixed list of files is served, so no name in an address becomes a path. Pages contain the
hash of each file (`integrity`), because another program may have used the same address before.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from http import HTTPStatus
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from indexerd.amounts import compact, cost, count, dollars, duration
from indexerd.errors import IndexerdError
from indexerd.protocol.wire import dump
from indexerd.times import local

_STATUS = {"not_found": 404, "ambiguous_reference": 404, "permission": 403, "usage": 400}
_DRAWING = (
    *("helpers.js", "prose.js", "story.js", "rows.js", "tree.js", "edits.js", "talk.js"),
    "about.js",
)
_LIVE = ("stream.js", "family.js", "actions.js", "panel.js", "session.js", "live.js")
_BUNDLES = {  # scripts made of several files, so that a page makes one request
    "export.js": (*_DRAWING, "session.js"),
    "live-page.js": (*_DRAWING, *_LIVE),
    "home.js": ("helpers.js", "stream.js", "home.js"),
}
FILES = frozenset({"view.css", "home.css", "usage.css", "favicon.svg", "live-page.js", "home.js"})


def read_static(name: str) -> str:
    """Read a file of `static/`, or a bundle of files."""
    folder = files("indexerd") / "web" / "static"
    parts = _BUNDLES.get(name, (name,))
    return "\n".join((folder / part).read_text(encoding="utf-8") for part in parts)


def content_hash(text: str) -> str:
    """Hash a text for a content security policy or an `integrity` attribute."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


_templates = Environment(
    loader=FunctionLoader(read_static),
    autoescape=select_autoescape(),  # for HTML; `session.md` escapes for Markdown itself
    undefined=StrictUndefined,
    keep_trailing_newline=True,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.globals |= {"static": read_static, "hash": content_hash}
_templates.filters |= {"compact": compact, "cost": cost, "dollars": dollars, "duration": duration}
_templates.filters |= {"counted": count, "local": local}


def fill(template: str, /, **values: Any) -> str:
    """Fill in a template; values are escaped, and a name without a value is an error."""
    return _templates.get_template(template).render(values)


def render(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    return HTMLResponse(fill(template, **values).encode("utf-8", "replace"), status)


def answer(value: Mapping[str, Any], status: int = 200) -> Response:
    return Response(dump(value), status, media_type="application/json")


def problem(request: Request, error: Exception, *, way: bool = True) -> Response:
    """Answer with an error: a page for a person, JSON for a script.

    The message of an unexpected exception is not shown. `way`: with links to other pages.
    """
    if not isinstance(error, IndexerdError):
        error = IndexerdError("something went wrong in indexerd itself")
    status = _STATUS.get(error.kind, 503 if error.retryable else 500)
    mode = request.headers.get("sec-fetch-mode")
    wants_page = mode == "navigate" if mode else "text/html" in request.headers.get("accept", "")
    if wants_page and request.method in ("GET", "HEAD"):
        title = HTTPStatus(status).phrase
        texts = {"message": str(error), "hint": error.hint}
        candidates = getattr(error, "candidates", ())
        sought = request.path_params.get("id", "") if error.kind == "not_found" else ""
        texts |= {"title": title, "sought": sought}
        return render("problem.html", status, candidates=candidates, way=way, **texts)
    data = error.data()
    return answer({"error": {"code": data.pop("kind"), "message": str(error), **data}}, status)
