"""Errors as answers: a page for a person, JSON for a script.

Our own errors say what is wrong and what to do; their texts hold nothing of a session. Of any other
error an answer says only that there was one.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from indexerd.errors import (
    AccessError,
    AmbiguousError,
    IndexerdError,
    NotFoundError,
    UsageError,
)

_STATUS: tuple[tuple[type[IndexerdError], int], ...] = (
    (NotFoundError, 404),
    (AmbiguousError, 404),
    (AccessError, 403),
    (UsageError, 400),
)


class JsonResponse(Response):
    """JSON in which half a surrogate pair is replaced, and no error."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode it."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def problem(request: Request, error: BaseException, status: int = 0) -> Response:
    """The answer for an error; `status` where another one fits than that of its class."""
    if not isinstance(error, IndexerdError):
        error = IndexerdError("something went wrong in indexerd itself")
    if not status:
        usual = 503 if error.retryable else 500
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), usual)
    if wants_page(request):
        values = {"title": HTTPStatus(status).phrase, "message": str(error), "hint": error.hint}
        return HTMLResponse(request.app.state.assets.render("problem.html", **values), status)
    data = error.data()
    return JsonResponse(
        {"error": {"code": data.pop("kind"), "message": str(error), **data}}, status
    )


def wants_page(request: Request) -> bool:
    """Whether a person will look at the answer."""
    if request.method not in {"GET", "HEAD"}:
        return False
    mode = request.headers.get("sec-fetch-mode")
    return mode == "navigate" if mode else "text/html" in request.headers.get("accept", "")
