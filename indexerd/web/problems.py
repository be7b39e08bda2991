"""What went wrong, as a page or as JSON.

In: an error. Out: a response with the status that fits it, and what its user can do. Errors of
the tree speak for themselves: their texts hold nothing of a transcript. Of any other error nothing
is said but that there was one: what it holds is nobody's business outside.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from indexerd.errors import (
    AccessError,
    AmbiguousError,
    IndexerdError,
    NotFoundError,
    UsageError,
)
from indexerd.privacy.sanitize import scrub

_STATUS: tuple[tuple[type[IndexerdError], int], ...] = (
    (NotFoundError, 404),
    (AmbiguousError, 404),
    (AccessError, 403),
    (UsageError, 400),
)
_OWN_FAULT = 500


class JsonResponse(Response):
    """JSON that any text can be part of: half a surrogate pair is replaced, not an error."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode it."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return scrub(text).encode()


def status_of(error: BaseException) -> int:
    """The HTTP status of an error."""
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return status
    return 503 if isinstance(error, IndexerdError) and error.retryable else _OWN_FAULT


def page_problem(request: Request, error: BaseException, *, status: int = 0) -> Response:
    """A small page that says what is wrong and what to do; `status` where another one fits."""
    told = _told(error)
    status = status or status_of(error)
    title = HTTPStatus(status).phrase
    try:
        html = request.app.state.pages.render(
            "problem.html", status=status, title=title, message=str(told), hint=told.hint
        )
    except IndexerdError:  # not even that file is there
        return PlainTextResponse(scrub(f"{title}: {told} ({told.hint})"), status)
    return HTMLResponse(html, status)


def json_problem(error: BaseException, *, status: int = 0) -> Response:
    """The same for scripts: `{"error": {"code", "message", "hint", "retryable", …}}`."""
    told = _told(error)
    data = told.data()
    said = {"code": data.pop("kind"), "message": str(told), **data}
    return JsonResponse({"error": said}, status or status_of(error))


def problem(request: Request, error: BaseException, *, status: int = 0) -> Response:
    """A page for whoever goes to an address, JSON for scripts."""
    if wants_page(request):
        return page_problem(request, error, status=status)
    return json_problem(error, status=status)


def wants_page(request: Request) -> bool:
    """Whether what is asked for will be looked at by a person."""
    if request.method not in {"GET", "HEAD"}:
        return False
    mode = request.headers.get("sec-fetch-mode")
    return mode == "navigate" if mode else "text/html" in request.headers.get("accept", "")


def _told(error: BaseException) -> IndexerdError:
    if isinstance(error, IndexerdError):
        return error
    return IndexerdError("something went wrong in indexerd itself")
