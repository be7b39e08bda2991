"""The home page: sessions by day and project, or the results of a search.

The address contains the page's whole state and may come from anyone: every value is bounded, and an
unknown value is ignored. Days follow this machine's time zone. `since` starts at a local midnight,
because a cursor of `list` is only valid with the `since` it was made for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime, time, timedelta
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from indexerd.agents import ADAPTERS
from indexerd.errors import IndexerdError
from indexerd.privacy.redact import for_people, shown_path
from indexerd.privacy.sanitize import clean_line, escape_path, replace_surrogates
from indexerd.times import age, iso, iso_ms
from indexerd.web.daemon_client import Daemon
from indexerd.web.responses import render

ROWS = 60  # sessions on a page
HITS = 30
QUERY_MAX, VALUE_MAX, GIST_MAX = 500, 4096, 280  # characters
OPEN_SECONDS = 30 * 60  # without a change, after which an open turn counts as abandoned
SINCE = {"": "any time", "today": "today", "7d": "7 days", "30d": "30 days"}
_DAYS_BACK = {"today": 0, "7d": 6, "30d": 29}
_KNOWN: dict[str, Collection[str]] = {"agent": ADAPTERS, "since": SINCE}
_KNOWN |= {"archived": "1", "subagents": "1"}
_MATCH = re.compile("«([^«»]*)»")  # marks of matches in snippets

Row = Mapping[str, Any]
Shown = dict[str, Any]  # values for the template


class Filters(NamedTuple):
    """The parameters of the home page's address; "" is no filter."""

    q: str = ""
    agent: str = ""
    project: str = ""  # a directory, with everything below it
    since: str = ""  # a key of SINCE
    archived: str = ""  # "1" or ""
    subagents: str = ""
    before: str = ""  # a cursor of `list`

    @classmethod
    def of(cls, params: Mapping[str, str]) -> Filters:
        known = {
            name: params[name][:VALUE_MAX]
            for name in cls._fields
            if name in params and params[name] in _KNOWN.get(name, (params[name],))
        }
        return cls(**known | {"q": clean_line(known.get("q", ""), QUERY_MAX)})

    def address(self, **changes: str) -> str:
        """Make the address with these changes; of the first page, unless they say otherwise."""
        changed = self._asdict() | {"before": ""} | changes
        query = "&".join(f"{key}={_encoded(value)}" for key, value in changed.items() if value)
        return f"/?{query}" if query else "/"


def session_address(session_id: str) -> str:
    """Return the address of a session's page; an id of only dots would be a parent directory."""
    name = quote(replace_surrogates(session_id), safe="")
    return f"/s/{name}" if name.strip(".") else "/s/-"


def footer_target(params: Mapping[str, str]) -> str | None:
    """Resolve a context footer's link, `?session=…&applet=…`; None for other addresses."""
    session_id = params.get("session", "")[:VALUE_MAX]
    if not session_id or "applet" not in params:
        return None
    name = basename(params.get("path", "")[-VALUE_MAX:])
    find = f"?find={_encoded(name)}" if params["applet"] == "text-editor" and name else ""
    return session_address(session_id) + find


def basename(path: str) -> str:
    """Return the last part of a POSIX or Windows path."""
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def _encoded(text: str) -> str:
    return quote(replace_surrogates(text), safe="/")


async def home_page(daemon: Daemon, request: Request) -> Response:
    """Show the page, or redirect the link of a context footer."""
    pairs = parse_qsl(request.url.query[:16_384], errors="replace")
    params = {key: replace_surrogates(value) for key, value in reversed(pairs)}
    if target := footer_target(params):
        return RedirectResponse(target, 303)
    filters, home = Filters.of(params), str(daemon.home).rstrip("/")
    shown: Shown = {"stretches": {}, "hits": [], "following": "", "warnings": [], "problem": None}
    try:
        shown |= await (_hits if filters.q else _sessions)(daemon, filters, home)
    except IndexerdError as bad:  # such as an expired cursor; shown in place of the results
        shown["problem"] = {"message": str(bad), "hint": bad.hint}
    return render(
        "home.html",
        filters=filters,
        zone=f"UTC{_now().isoformat()[-6:]}".removesuffix("+00:00"),
        agents=[*ADAPTERS],
        since=SINCE,
        project=_place(filters.project, filters, home)["path"] if filters.project else "",
        up=daemon.up,
        most=HITS,
        ago=_ago,
        **shown,
    )


def _params(filters: Filters, **more: Any) -> dict[str, Any]:
    since = None
    if filters.since:
        day = _now().date() - timedelta(days=_DAYS_BACK[filters.since])
        since = iso(datetime.combine(day, time()).timestamp())
    wanted = {"agent": filters.agent, "cwd": filters.project, "since": since, **more}
    return {key: value for key, value in wanted.items() if value}


async def _sessions(daemon: Daemon, filters: Filters, home: str) -> Shown:
    more = {"archived": bool(filters.archived), "subagents": bool(filters.subagents)}
    answer = await daemon.read("list", _params(filters, limit=ROWS, cursor=filters.before, **more))
    stretches: dict[str, dict[str, Shown]] = {}
    for row in answer["sessions"]:
        projects, cwd = stretches.setdefault(_stretch(row["modifiedAt"]), {}), row["cwd"] or ""
        project = {"place": _place(cwd, filters, home), "lines": list[Shown]()}
        projects.setdefault(shown_path(cwd), project)["lines"].append(line(row))
    following = answer.get("nextCursor")
    return {
        "stretches": stretches,
        "following": filters.address(before=following) if following else "",
        "warnings": answer.get("warnings", []),
    }


async def _hits(daemon: Daemon, filters: Filters, home: str) -> Shown:
    answer = await daemon.read("search", _params(filters, query=filters.q, limit=HITS, rows=True))
    hits = []
    for hit in answer["hits"]:
        row = answer.get("rows", {}).get(hit["sessionId"], {})
        session_id, field, entry = hit["sessionId"], hit["field"], hit.get("entryId") or ""
        spot = f"#target={_encoded(entry)}" if entry else ""
        if field == "files":  # search the session's page for it
            spot = f"?find={_encoded(basename(re.sub('[«»…]', '', hit['snippet'])))}"
        shown = line({"name": hit.get("name"), **row, "sessionId": session_id})
        shown |= {"hit": hit, "key": f"{session_id} {field} {entry}", "spot": spot}
        shown["snippet"] = _MATCH.split(hit["snippet"])  # every second piece matched
        shown["place"] = _place(row["cwd"] or "", filters, home) if row else None
        hits.append(shown)
    return {"hits": hits, "warnings": answer.get("warnings", [])}


def _place(cwd: str, filters: Filters, home: str) -> Shown:
    """Describe a directory, with `~` for the user's home, and link to the page of that project."""
    if not cwd:
        return {"name": "no directory", "path": "", "href": ""}
    path = shown_path(cwd)
    linked = path == cwd != filters.project  # a redacted path stays out of addresses, too
    if home and (path == home or path.startswith(f"{home}/")):
        path = "~" + path[len(home) :]
    href = filters.address(project=cwd) if linked else ""
    return {"name": escape_path(basename(path) or path), "path": escape_path(path), "href": href}


def line(row: Row) -> Shown:
    session_id, title = row["sessionId"], row.get("name") or "session"
    gist = row.get("description") or row.get("firstUserMessage") or ""
    files = row.get("filesModified") or row.get("filesRead") or ()
    resume = "" if row.get("gone") else for_people(row).get("resume") or ""
    then, state = _local(row.get("modifiedAt", "")), row.get("state", "idle")
    if state == "active" and then and (_now() - then).total_seconds() > OPEN_SECONDS:
        state = "unfinished"
    return {
        "row": row,
        "key": session_id,
        "href": session_address(session_id),
        "title": title,
        "state": state,
        "gist": "" if title.startswith(gist[:GIST_MAX]) else clean_line(gist, GIST_MAX),
        "then": then,
        "files": [(escape_path(name), escape_path(p)) for p in files if (name := basename(p))],
        # A command that would be shown escaped is not offered for copying.
        "resume": resume if escape_path(resume) == resume else "",
    }


def _now() -> datetime:
    return datetime.now().astimezone()


def _local(stamp: str) -> datetime | None:
    ms = iso_ms(stamp)
    return datetime.fromtimestamp(ms / 1000).astimezone() if ms else None


def _ago(then: datetime) -> str:
    seconds = (_now() - then).total_seconds()
    return age(seconds) if seconds < 7 * 86_400 else f"{then.day} {then:%b} {then.year}"


def _stretch(stamp: str) -> str:
    """Name the day of a time, or its month if it is long ago; the future counts as today."""
    then = _local(stamp)
    if then is None:
        return "No date"
    days = (_now().date() - then.date()).days
    usual = f"{then:%A}" if days < 7 else f"{then:%B %Y}"  # noqa: PLR2004 - of a week
    return "Today" if days < 1 else "Yesterday" if days == 1 else usual
