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
from indexerd.web.pages import render

ROWS = 60  # sessions on a page
HITS = 30
PROJECTS_OF = 500  # sessions, the latest, whose directories may be named in a search
QUERY_MAX, PATH_MAX, WORD_MAX = 500, 4096, 256  # characters
GIST_MAX = 280
FILES_SHOWN = 4
FIND_MAX = 200  # characters that a session's page is to look for
OPEN_SECONDS = 30 * 60  # without a change, after which nobody is at an open turn any more
SINCE = {"": "any time", "today": "today", "7d": "7 days", "30d": "30 days"}
_DAYS_BACK = {"today": 0, "7d": 6, "30d": 29}
_FIELDS = {"name": "title", "cwd": "directory"}  # of a hit, where the page has another word
_ROLES = {"user": ", you", "assistant": ", answer"}
_TYPED = re.compile(r'(agent|project|since):(?:"([^"]+)"|([^\s"]+))')
_PART = re.compile(r'[^\s"]*"[^"]*"|\S+')
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
        return cls(
            q=clean_line(params.get("q", "")[: QUERY_MAX * 4], QUERY_MAX),
            agent=clean_line(params.get("agent", "")[:WORD_MAX], WORD_MAX),
            project=params.get("project", "")[:PATH_MAX],
            since=params["since"] if params.get("since") in SINCE else "",
            archived="1" if params.get("archived") == "1" else "",
            subagents="1" if params.get("subagents") == "1" else "",
            before=params.get("before", "")[:WORD_MAX],
        )

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

    def choices(self) -> dict[str, list[Shown]]:
        """The links that set or take back a filter."""
        agents = {name: name or "any" for name in ("", *ADAPTERS, self.agent)}
        known = [("agent", "agent", value, label) for value, label in agents.items()]
        known += [("since", "since", value, label) for value, label in SINCE.items()]
        known += [("more", "archived", "1", "archived"), ("more", "subagents", "1", "sub-agents")]
        found: dict[str, list[Shown]] = {}
        for group, name, value, label in known:
            on = getattr(self, name) == value
            href = self.address(**{name: "" if on and group == "more" else value})
            one = {"key": f"{name}:{value}", "label": label, "href": href, "on": on}
            found.setdefault(group, []).append(one)
        return found


def typed_filters(
    filters: Filters, agents: Collection[str], home: str, directories: Iterable[str] = ()
) -> Filters:
    """The same with the `agent:`, `project:` and `since:` of the search as filters.

    A project is a whole path (`~` is the directory `home`), or the name of one of `directories` or
    a part of it. What is no agent, project or key of SINCE stays a word, as does everything in
    quotes and after `re:`.
    """
    named: dict[str, str] = {}
    words: list[str] = []
    for part in _PART.finditer(filters.q):
        if part[0].startswith("re:"):
            words.append(filters.q[part.start() :])
            break
        found = _TYPED.fullmatch(part[0])
        name, value = (found[1], found[2] or found[3]) if found else ("", "")
        if name == "project":
            value = _directory(value, home, directories)
        known: dict[str, Collection[str]] = {"agent": agents, "since": SINCE}
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
    names = [(basename(one).casefold(), one) for one in directories]
    found = [one for name, one in names if name == text.casefold()]
    found += [one for name, one in names if text.casefold() in name]
    return found[0] if found else ""


def session_address(session_id: str) -> str:
    """The page of a session. A name of dots alone would be a step up, and leads nowhere."""
    name = quote(replace_surrogates(session_id), safe="")
    return f"/s/{name}" if name.strip(".") else "/s/-"


def footer_target(params: Mapping[str, str]) -> str | None:
    """Where a link of a context footer leads, `?session=…&applet=…`; None for another address."""
    session_id = params.get("session", "")[:WORD_MAX]
    if not session_id or "applet" not in params:
        return None
    name = basename(params.get("path", "")[-PATH_MAX:])
    find = f"?find={_encoded(name)}" if params["applet"] == "text-editor" and name else ""
    return session_address(session_id) + find


def basename(path: str) -> str:
    """The last part of a path, whichever way its separators lean."""
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def _encoded(text: str) -> str:
    return quote(replace_surrogates(text), safe="/")


class Home:
    """The page, and what it is made of."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    async def page(self, request: Request) -> Response:
        """The page, or the way to where a context footer's link leads."""
        pairs = parse_qsl(request.url.query[:16_384], errors="replace")
        params = {key: replace_surrogates(value) for key, value in reversed(pairs)}
        if target := footer_target(params):
            return RedirectResponse(target, 303)
        number = self._daemon.count
        typed, directories = Filters.of(params), dict[str, None]()
        if "project:" in typed.q:
            latest = await self._daemon.read("list", {"limit": PROJECTS_OF})
            directories = dict.fromkeys(one["cwd"] for one in latest["sessions"] if one["cwd"])
        filters = typed_filters(typed, ADAPTERS, str(self._daemon.home), directories)
        shown: Shown = {"stretches": {}, "hits": [], "following": "", "warnings": []}
        problem: Shown | None = None
        try:
            shown |= await (self._search(filters) if filters.q else self._list(filters))
        except AskError as bad:  # such as a cursor of another list: said in the results' place
            problem = {"message": str(bad), "hint": bad.hint}
        return render(
            "home.html",
            typed=typed,
            filters=filters,
            zone=f"UTC{_now().isoformat()[-6:]}".removesuffix("+00:00"),
            choices=filters.choices(),
            project=self._place(filters.project, filters)["path"] if filters.project else "",
            up=self._daemon.up,
            number=number,
            problem=problem,
            most=HITS,
            **shown,
        )

    @staticmethod
    def _params(filters: Filters) -> dict[str, Any]:
        """What `list` and `search` both take."""
        since = None
        if filters.since in _DAYS_BACK:
            day = _now().date() - timedelta(days=_DAYS_BACK[filters.since])
            since = iso(datetime.combine(day, time()).timestamp())
        wanted = {"agent": filters.agent, "cwd": filters.project, "since": since}
        return {key: value for key, value in wanted.items() if value}

    async def _list(self, filters: Filters) -> Shown:
        params = self._params(filters) | {"limit": ROWS}
        params |= {name: bool(getattr(filters, name)) for name in ("archived", "subagents")}
        if filters.before:
            params["cursor"] = filters.before
        found = await self._daemon.read("list", params)
        stretches: dict[str, dict[str, Shown]] = {}
        for row in found["sessions"]:
            title, cwd = _stretch(row["modifiedAt"]), row["cwd"] or ""
            project = {"place": self._place(cwd, filters), "lines": list[Shown]()}
            projects = stretches.setdefault(title, {})
            projects.setdefault(shown_path(cwd), project)["lines"].append(line(row))
        following = found.get("nextCursor")
        return {
            "stretches": stretches,
            "following": filters.address(before=following) if following else "",
            "warnings": found.get("warnings", []),
        }

    async def _search(self, filters: Filters) -> Shown:
        params = self._params(filters) | {"query": filters.q, "limit": HITS, "rows": True}
        found = await self._daemon.read("search", params)
        rows = found.get("rows", {})
        hits = [self._hit(one, rows.get(one["sessionId"], {}), filters) for one in found["hits"]]
        return {"hits": hits, "warnings": found.get("warnings", [])}

    def _hit(self, hit: Row, row: Row, filters: Filters) -> Shown:
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
        return {
            "href": shown["href"] + spot,
            "field": str(_FIELDS.get(field, field)) + _ROLES.get(str(hit.get("role")), ""),
            "snippet": snippet,
            "place": self._place(row["cwd"] or "", filters) if row else None,
            "line": shown | {"key": f"{session_id} {field} {entry}"},
        }

    def _place(self, cwd: str, filters: Filters) -> Shown:
        """A directory, with `~` for the user's home; it leads to the page of that project."""
        if not cwd:
            return {"name": "no directory", "path": "", "href": ""}
        home, path = str(self._daemon.home).rstrip("/"), shown_path(cwd)
        is_whole = path == cwd  # else no address tells it either
        if home and (path == home or path.startswith(f"{home}/")):
            path = "~" + path[len(home) :]
        href = filters.address(project=cwd) if is_whole and cwd != filters.project else ""
        name = path.rstrip("/").rpartition("/")[2] or path
        return {"name": escape_path(name), "path": escape_path(path), "href": href}


def line(row: Row) -> Shown:
    """One session in a list."""
    session_id, title = row["sessionId"], row.get("name") or "session"
    behind = (row.get("newUserMessages") or 0) if row.get("indexed") else 0
    gist = row.get("description") or row.get("firstUserMessage") or ""
    touched = next((one for one in ("filesModified", "filesRead") if row.get(one)), "")
    files = [one for one in row.get(touched) or () if basename(one)]
    marks = (("gone", "file gone"), ("subagent", "sub-agent"))
    resume = "" if row.get("gone") else for_people(row).get("resume") or ""
    stamp, state = row.get("modifiedAt", ""), row.get("state", "idle")
    then = iso_ms(stamp) / 1000
    if state == "active" and then and _now().timestamp() - then > OPEN_SECONDS:
        state = "unfinished"  # an open turn may never have ended
    return {
        "key": session_id,
        "session_id": session_id,
        "href": session_address(session_id),
        "title": title,
        "agent": row.get("agent", ""),
        "state": state,
        "marks": [word for name, word in marks if row.get(name)],
        "gist": "" if title.startswith(gist[:GIST_MAX]) else clean_line(gist, GIST_MAX),
        "moment": _moment(stamp),
        "touched": {"filesModified": "changed", "filesRead": "read"}.get(touched, ""),
        "files": [(escape_path(basename(one)), escape_path(one)) for one in files[:FILES_SHOWN]],
        "more_files": max(0, len(files) - FILES_SHOWN),
        "behind": f"{behind} message{'' if behind == 1 else 's'} behind" if behind else "",
        # A command that would not show as it is, is not offered for pasting.
        "resume": resume if escape_path(resume) == resume else "",
    }


# -- times, by this machine's calendar -----------------------------------------------------------


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
    now = _now()
    minutes = max(0, int((now - then).total_seconds())) // 60
    days = (now.date() - then.date()).days
    if minutes < 24 * 60:
        ago = f"{minutes // 60} h ago" if minutes >= 60 else f"{minutes} min ago"  # noqa: PLR2004
    elif days <= 1:
        ago = f"yesterday {then:%H:%M}"
    elif days < 7:  # noqa: PLR2004 - of a week
        ago = f"{days} days ago"
    else:
        ago = f"{then.day} {then:%b}" + ("" if then.year == now.year else f" {then.year}")
    full = f"{then:%a} {then.day} {then:%B %Y, %H:%M}"
    return {"iso": stamp, "full": full, "ago": ago if minutes else "just now"}


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
