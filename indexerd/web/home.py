"""The home page: sessions by day and project, or what a search found.

The address holds all of the page's state, and anybody may have written it: each value is bounded,
and one that its filter does not know counts as absent. The page is whole without its script, which
fetches this same page again while its user types, and when something happened.

A day is a day of this machine's calendar. `since` begins at a local midnight: a cursor of `list`
would not fit a `since` that moves with the clock.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, time, timedelta
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from indexerd.agents import ADAPTERS
from indexerd.errors import AskError
from indexerd.privacy.redact import for_people, shown_path
from indexerd.privacy.sanitize import clean_line, escape_path, replace_surrogates
from indexerd.times import iso, iso_ms
from indexerd.web.daemon_client import Daemon
from indexerd.web.responses import render

ROWS = 60  # sessions on a page
HITS = 30
PROJECTS_OF = 500  # sessions, the latest, whose directories may be named in a search
QUERY_MAX, VALUE_MAX, GIST_MAX, FIND_MAX = 500, 4096, 280, 200  # characters
OPEN_SECONDS = 30 * 60  # without a change, after which nobody is at an open turn any more
SINCE = {"": "any time", "today": "today", "7d": "7 days", "30d": "30 days"}
_DAYS_BACK = {"today": 0, "7d": 6, "30d": 29}
_TYPED = re.compile(r'(agent|project|since):(?:"([^"]+)"|([^\s"]+))')
_PART = re.compile(r're:.*|[^\s"]*"[^"]*"|\S+')
_FOUND = re.compile("«([^«»]*)»")  # how a search marks what it found

Row = Mapping[str, Any]
Shown = dict[str, Any]  # what the template prints


@dataclass(frozen=True, slots=True)
class Filters:
    """What an address of the home page asks for; "" is no filter."""

    q: str = ""
    agent: str = ""
    project: str = ""  # a directory, for itself and all below
    since: str = ""  # a key of SINCE
    archived: str = ""  # "1" or ""
    subagents: str = ""
    before: str = ""  # a cursor: go on after an earlier page

    @classmethod
    def of(cls, params: Mapping[str, str]) -> Filters:
        """The filters among an address's parameters."""
        known: dict[str, Collection[str]] = {"agent": ADAPTERS, "since": SINCE}
        known |= {"archived": "1", "subagents": "1"}
        found = {
            name: params[name][:VALUE_MAX]
            for name in cls.__slots__
            if name in params and params[name] in known.get(name, (params[name],))
        }
        return cls(**found | {"q": clean_line(found.get("q", ""), QUERY_MAX)})

    @property
    def narrowed(self) -> bool:
        """Whether anything is left out that a bare address would show."""
        return bool(self.agent or self.project or self.since)

    def address(self, **changes: str) -> str:
        """The page with these changes; a change of filters begins at its first page."""
        changed = asdict(self) | {"before": ""} | changes
        query = "&".join(f"{key}={_encoded(value)}" for key, value in changed.items() if value)
        return f"/?{query}" if query else "/"

    def kept(self) -> list[tuple[str, str]]:
        """What a form for a search carries along."""
        return [(k, v) for k, v in asdict(self).items() if v and k not in ("q", "before")]


def typed_filters(filters: Filters, home: str, directories: Iterable[str] = ()) -> Filters:
    """The same with the `agent:`, `project:` and `since:` of the search as filters.

    A project is a whole path (`~` is the directory `home`), or the name of one of `directories` or
    a part of it. What is no agent, project or key of SINCE stays a word, as does everything in
    quotes and after `re:`.
    """
    named: dict[str, str] = {}
    words: list[str] = []
    for part in _PART.finditer(filters.q):
        found = _TYPED.fullmatch(part[0])
        name, value = (found[1], found[2] or found[3]) if found else ("", "")
        if name == "project":
            value = _directory(value, home, directories)
        known: dict[str, Collection[str]] = {"agent": ADAPTERS, "since": SINCE}
        if value and value in known.get(name, (value,)):
            named[name] = value
        else:
            words.append(part[0])
    return replace(filters, q=" ".join(words), **named) if named else filters


def _directory(text: str, home: str, directories: Iterable[str]) -> str:
    """The directory that somebody means; "" for none."""
    if text == "~" or text.startswith("~/"):
        text = home.rstrip("/") + text[1:]
    if text.startswith("/"):
        return text.rstrip("/") or "/"
    names = {one: basename(one).casefold() for one in directories}
    found = [one for one, name in names.items() if text.casefold() in name]
    return min(found, key=lambda one: len(names[one]), default="")


def session_address(session_id: str) -> str:
    """The page of a session. An id of dots alone would be a parent directory: no link."""
    name = quote(replace_surrogates(session_id), safe="")
    return f"/s/{name}" if name.strip(".") else "/s/-"


def footer_target(params: Mapping[str, str]) -> str | None:
    """Where a link of a context footer leads, `?session=…&applet=…`; None for another address."""
    session_id = params.get("session", "")[:VALUE_MAX]
    if not session_id or "applet" not in params:
        return None
    name = basename(params.get("path", "")[-VALUE_MAX:])
    find = f"?find={_encoded(name)}" if params["applet"] == "text-editor" and name else ""
    return session_address(session_id) + find


def basename(path: str) -> str:
    """The last part of a path, whichever way its separators lean."""
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def _encoded(text: str) -> str:
    return quote(replace_surrogates(text), safe="/")


async def home_page(daemon: Daemon, request: Request) -> Response:
    """The page, or the way to where a context footer's link leads."""
    pairs = parse_qsl(request.url.query[:16_384], errors="replace")
    params = {key: replace_surrogates(value) for key, value in reversed(pairs)}
    if target := footer_target(params):
        return RedirectResponse(target, 303)
    typed, directories = Filters.of(params), dict[str, None]()
    if "project:" in typed.q:
        latest = await daemon.read("list", {"limit": PROJECTS_OF})
        directories = dict.fromkeys(one["cwd"] for one in latest["sessions"] if one["cwd"])
    home = str(daemon.home).rstrip("/")
    filters = typed_filters(typed, home, directories)
    shown: Shown = {"stretches": {}, "hits": [], "following": "", "warnings": [], "problem": None}
    try:
        shown |= await (_hits if filters.q else _sessions)(daemon, filters, home)
    except AskError as bad:  # such as a cursor of another list: said in the results' place
        shown["problem"] = {"message": str(bad), "hint": bad.hint}
    return render(
        "home.html",
        typed=typed,
        filters=filters,
        zone=f"UTC{_now().isoformat()[-6:]}".removesuffix("+00:00"),
        agents=[*ADAPTERS],
        since=SINCE,
        project=_place(filters.project, filters, home)["path"] if filters.project else "",
        up=daemon.up,
        most=HITS,
        **shown,
    )


def _asked(filters: Filters, **more: Any) -> dict[str, Any]:
    """What is asked of `list` or `search`."""
    since = None
    if filters.since:
        day = _now().date() - timedelta(days=_DAYS_BACK[filters.since])
        since = iso(datetime.combine(day, time()).timestamp())
    wanted = {"agent": filters.agent, "cwd": filters.project, "since": since, **more}
    return {key: value for key, value in wanted.items() if value}


async def _sessions(daemon: Daemon, filters: Filters, home: str) -> Shown:
    more = {"archived": bool(filters.archived), "subagents": bool(filters.subagents)}
    asked = _asked(filters, limit=ROWS, cursor=filters.before, **more)
    found = await daemon.read("list", asked)
    stretches: dict[str, dict[str, Shown]] = {}
    for row in found["sessions"]:
        title, cwd = _stretch(row["modifiedAt"]), row["cwd"] or ""
        project = {"place": _place(cwd, filters, home), "lines": list[Shown]()}
        projects = stretches.setdefault(title, {})
        projects.setdefault(shown_path(cwd), project)["lines"].append(line(row))
    following = found.get("nextCursor")
    return {
        "stretches": stretches,
        "following": filters.address(before=following) if following else "",
        "warnings": found.get("warnings", []),
    }


async def _hits(daemon: Daemon, filters: Filters, home: str) -> Shown:
    found = await daemon.read("search", _asked(filters, query=filters.q, limit=HITS, rows=True))
    rows, hits = found.get("rows", {}), []
    for hit in found["hits"]:
        row = rows.get(hit["sessionId"], {})
        place = _place(row["cwd"] or "", filters, home) if row else None
        hits.append(_hit(hit, row) | {"place": place})
    return {"hits": hits, "warnings": found.get("warnings", [])}


def _hit(hit: Row, row: Row) -> Shown:
    session_id, field, entry = hit["sessionId"], hit["field"], hit.get("entryId") or ""
    shown = line({"name": hit.get("name"), **row, "sessionId": session_id})
    pieces = enumerate(_FOUND.split(hit["snippet"]))  # every second one was looked for
    snippet = [(piece, bool(at % 2)) for at, piece in pieces if piece]
    # Where in the session's page it is: its entry, or what to look for among the entries. That
    # is only what was found in them: a title, a tag or a summary has words of its own.
    words: list[str] = []
    if field == "message":
        words = [word for text, found in snippet if found for word in text.split()]
    elif field == "files":
        words = basename("".join(text for text, _ in snippet).strip("…")).split()
    find = " ".join(dict.fromkeys(words))[:FIND_MAX]
    spot = f"#target={_encoded(entry)}" if entry else f"?find={_encoded(find)}" if find else ""
    key = f"{session_id} {field} {entry}"
    return shown | {"hit": hit, "key": key, "spot": spot, "snippet": snippet}


def _place(cwd: str, filters: Filters, home: str) -> Shown:
    """A directory, with `~` for the user's home; it leads to the page of that project."""
    if not cwd:
        return {"name": "no directory", "path": "", "href": ""}
    path = shown_path(cwd)
    is_whole = path == cwd  # else the address does not name it either
    if home and (path == home or path.startswith(f"{home}/")):
        path = "~" + path[len(home) :]
    href = filters.address(project=cwd) if is_whole and cwd != filters.project else ""
    return {"name": escape_path(basename(path) or path), "path": escape_path(path), "href": href}


def line(row: Row) -> Shown:
    """One session in a list."""
    session_id, title = row["sessionId"], row.get("name") or "session"
    gist = row.get("description") or row.get("firstUserMessage") or ""
    files = row.get("filesModified") or row.get("filesRead") or ()
    resume = "" if row.get("gone") else for_people(row).get("resume") or ""
    stamp, state = row.get("modifiedAt", ""), row.get("state", "idle")
    then = iso_ms(stamp) / 1000
    if state == "active" and then and _now().timestamp() - then > OPEN_SECONDS:
        state = "unfinished"  # an open turn may never have ended
    return {
        "row": row,
        "key": session_id,
        "href": session_address(session_id),
        "title": title,
        "state": state,
        "gist": "" if title.startswith(gist[:GIST_MAX]) else clean_line(gist, GIST_MAX),
        "moment": _moment(stamp),
        "files": [(escape_path(basename(one)), escape_path(one)) for one in files if basename(one)],
        # A command that would not show as it is, is not offered for pasting.
        "resume": resume if escape_path(resume) == resume else "",
    }


def _now() -> datetime:
    return datetime.now().astimezone()


def _local(stamp: str) -> datetime | None:
    ms = iso_ms(stamp)
    return datetime.fromtimestamp(ms / 1000).astimezone() if ms else None


def _moment(stamp: str) -> Shown:
    """A time: for programs, for a reader, and how long ago it is, in one unit."""
    then = _local(stamp)
    if then is None:
        return {"iso": "", "full": "at an unknown time", "ago": ""}
    age = max(timedelta(), _now() - then)
    minutes = age // timedelta(minutes=1)
    days = max(1, age.days)
    units = {
        1: "just now",
        60: f"{minutes} min ago",
        24 * 60: f"{minutes // 60} h ago",
        7 * 24 * 60: f"{days} day{'' if days == 1 else 's'} ago",
    }
    usual = f"{then.day} {then:%b} {then.year}"
    ago = next((words for most, words in units.items() if minutes < most), usual)
    full = f"{then:%a} {then.day} {then:%B %Y, %H:%M}"
    return {"iso": stamp, "full": full, "ago": ago}


def _stretch(stamp: str) -> str:
    """The stretch of days that a time falls into; what is still to come counts as today."""
    then = _local(stamp)
    if then is None:
        return "No date"
    today = _now().date()
    monday = today - timedelta(days=today.weekday())
    stretches = {
        "Today": today,
        "Yesterday": today - timedelta(days=1),
        "This week": monday,
        "Last week": monday - timedelta(days=7),
    }
    usual = f"{then:%B %Y}"
    return next((title for title, first in stretches.items() if then.date() >= first), usual)
