"""The home page: where was I? Every session by day and project, or what a search found.

In: an address, which holds all of the page's state. Out: a page that is whole without its script,
from what the daemon answers, or from what is stored where none runs. What was asked for and cannot
be given, such as a cursor of another list, is said in the place of the results. The script fetches
this same page again while its user types, and when something happened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from indexerd.agents import ADAPTERS
from indexerd.errors import AskError
from indexerd.privacy.sanitize import clean_line, escape_path
from indexerd.web.desk import Desk
from indexerd.web.home_address import (
    Filters,
    asked,
    choices,
    filters_of,
    footer_target,
    names_project,
    spoken,
)
from indexerd.web.home_view import Offset, View, since_time
from indexerd.web.pages import Pages

ROWS = 60  # sessions on a page
HITS = 30
PROJECTS_OF = 500  # sessions, the latest, whose directories may be named in a search
WARNINGS_MAX = 10
WARNING_MAX = 500  # characters


def routes(
    desk: Desk,
    pages: Pages,
    *,
    up: Callable[[], bool],
    clock: Callable[[], float] = time.time,
    offset: Offset = lambda seconds: time.localtime(seconds).tm_gmtoff,
) -> list[Route]:
    """Routes of the home page. `up` says whether a daemon runs; `clock` is in seconds of UTC."""
    home = Home(desk, pages, up, clock, offset)
    return [Route("/", home.page, methods=["GET"], name="home")]


class Home:
    """What the home page is made with."""

    def __init__(
        self,
        desk: Desk,
        pages: Pages,
        up: Callable[[], bool],
        clock: Callable[[], float],
        offset: Offset,
    ) -> None:
        self._desk = desk
        self._pages = pages
        self._up = up
        self._clock = clock
        self._offset = offset

    async def page(self, request: Request) -> Response:
        """The page, or the way to where a context footer's link leads."""
        params = asked(request.url.query)
        target = footer_target(params)
        if target is not None:
            return RedirectResponse(target, 303)
        typed = filters_of(params)
        filters = await self._spoken(typed)
        view = View(filters, self._clock(), self._offset, str(self._desk.home))
        problem: dict[str, str] | None = None
        found: dict[str, Any] = {}
        try:
            found = await (self._search(view) if filters.q else self._list(view))
        except AskError as bad:
            problem = {"message": str(bad), "hint": bad.hint}
        html = self._pages.render(
            "home.html",
            typed=typed,
            filters=filters,
            zone=view.zone(),
            choices=choices(filters, ADAPTERS),
            project=escape_path(view.place(filters.project).path) if filters.project else "",
            up=self._up(),
            problem=problem,
            **{"stretches": [], "hits": [], "following": "", "warnings": [], "most": HITS, **found},
        )
        return HTMLResponse(html, headers={"Cache-Control": "no-store"})

    async def _spoken(self, typed: Filters) -> Filters:
        """The filters, with those that the search itself names."""
        directories: dict[str, None] = {}
        if names_project(typed.q):
            latest = await self._desk.read("list", {"limit": PROJECTS_OF})
            rows = latest["sessions"][:PROJECTS_OF]
            directories = dict.fromkeys(one["cwd"] for one in rows if one["cwd"])
        return spoken(typed, ADAPTERS, str(self._desk.home), directories)

    def _narrowing(self, view: View) -> dict[str, Any]:
        """What `list` and `search` both take."""
        filters = view.filters
        wanted = {
            "agent": filters.agent,
            "cwd": filters.project,
            "since": since_time(filters.since, view.now, view.offset),
        }
        return {key: value for key, value in wanted.items() if value}

    async def _list(self, view: View) -> dict[str, Any]:
        filters = view.filters
        params = self._narrowing(view) | {
            "archived": bool(filters.archived),
            "subagents": bool(filters.subagents),
            "limit": ROWS,
        }
        if filters.before:
            params["cursor"] = filters.before
        found = await self._desk.read("list", params)
        following = found.get("nextCursor")
        return {
            "stretches": view.stretches(found["sessions"][:ROWS]),
            "following": filters.address(before=following) if following else "",
            "warnings": _warnings(found),
        }

    async def _search(self, view: View) -> dict[str, Any]:
        params = self._narrowing(view) | {"query": view.filters.q, "limit": HITS, "rows": True}
        found = await self._desk.read("search", params)
        hits = found["hits"][:HITS]
        return {"hits": view.hits(hits, found.get("rows") or {}), "warnings": _warnings(found)}


def _warnings(found: Mapping[str, Any]) -> list[str]:
    """What an answer wants said, within bounds."""
    told = [one for one in found.get("warnings") or () if isinstance(one, str)]
    return [clean_line(one[: WARNING_MAX * 4], WARNING_MAX) for one in told[:WARNINGS_MAX]]
