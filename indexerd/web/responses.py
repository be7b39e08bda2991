"""Responses of the web view: pages, JSON, errors."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from indexerd.errors import IndexerdError
from indexerd.protocol.wire import dump
from indexerd.web.assets import fill

_STATUS = {"not_found": 404, "ambiguous_reference": 404, "permission": 403, "usage": 400}


def render(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    return HTMLResponse(fill(template, **values).encode("utf-8", "replace"), status)


def answer(value: Mapping[str, Any], status: int = 200) -> Response:
    return Response(dump(value), status, media_type="application/json")


def problem(request: Request, error: Exception) -> Response:
    """Answer with an error: a page for a person, JSON for a script.

    The message of an unexpected exception is not shown.
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
        return render("problem.html", status, title=title, candidates=candidates, **texts)
    data = error.data()
    return answer({"error": {"code": data.pop("kind"), "message": str(error), **data}}, status)
