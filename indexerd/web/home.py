"""The home page: sessions by day and project, or in another order, or the results of a search.

The address contains the page's whole state and may come from anyone: every value is bounded, and an
unknown value is ignored. Days follow this machine's time zone. `since` starts at a local midnight,
because a cursor of `list` is only valid with the `since` it was made for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import Response

from indexerd.agents import ADAPTERS
from indexerd.errors import IndexerdError
from indexerd.paths import basename
from indexerd.privacy.redact import for_people, shown_path
from indexerd.privacy.sanitize import clean_line, escape_path, replace_surrogates
from indexerd.protocol import words
from indexerd.protocol.limits import WAITS_MAX
from indexerd.search.query import typed_filters
from indexerd.times import age, iso_ms, since
from indexerd.web.daemon_client import READ_SECONDS, Daemon
from indexerd.web.markdown import to_text
from indexerd.web.responses import render

ROWS = 60  # sessions on a page
HITS = ("30", "120", "500")  # of a search, at most two of a session; then "More results"
QUERY_MAX, VALUE_MAX, TITLE_MAX, GIST_MAX, SNIPPET_MAX, FACT_MAX = 500, 4096, 200, 280, 400, 60
PROJECTS, TAGS = 6, 8  # shown; the rest is folded
HIT_TAGS = 40  # of the hits, the most frequent
SINCE = {"": "any time", "today": "today", "7d": "7 days", "30d": "30 days"}
PARTS_MAX = 6  # of a path, to tell projects apart
SORTS = {  # names of orders, and headings
    "": ("recent", ""),
    "prompts": ("most prompts", "Most prompts first"),
    "longest": ("longest", "Longest first"),
    "cost": ("cost", "Highest cost first (without sub-agents)"),
}
# States that are worth a word, and for how many seconds without a change: an open turn is
# abandoned after that, and nobody waits any more.
STATES = {
    "waiting": ("waiting for you", WAITS_MAX),
    "active": ("running", 30 * 60),
    "failed": ("interrupted", 86_400),
}
_KNOWN: dict[str, Collection[str]] = {"agent": ADAPTERS, "since": SINCE, "sort": SORTS}
_KNOWN |= {"archived": "1", "subagents": "1", "hidden": "1", "hits": HITS[1:]}
_MATCH = re.compile("«([^«»]*)»")  # marks of matches in snippets

Row = Mapping[str, Any]
Shown = dict[str, Any]  # values for the template


class Filters(NamedTuple):
    """The parameters of the home page's address; "" is no filter."""

    q: str = ""
    agent: str = ""
    project: str = ""  # a directory, with everything below it
    tag: str = ""
    since: str = ""  # a key of SINCE
    sort: str = ""  # a key of SORTS
    archived: str = ""  # "1" or ""
    subagents: str = ""
    hidden: str = ""
    before: str = ""  # a cursor of `list`
    hits: str = ""  # one of HITS

    @classmethod
    def of(cls, params: Mapping[str, str]) -> Filters:
        known = {
            name: params[name][:VALUE_MAX]
            for name in cls._fields
            if name in params and params[name] in _KNOWN.get(name, (params[name],))
        }
        known["tag"] = known.get("tag", "").casefold()  # as `counts` writes it
        return cls(**known | {"q": clean_line(known.get("q", ""), QUERY_MAX)})

    def address(self, **changes: str) -> str:
        """Make the address with these changes; of the first page, unless they say otherwise."""
        changed = self._asdict() | {"before": "", "hits": ""} | changes
        query = "&".join(f"{key}={_encoded(value)}" for key, value in changed.items() if value)
        return f"/?{query}" if query else "/"


def session_address(session_id: str) -> str:
    """Return the address of a session's page; an id of only dots would be a parent directory."""
    name = quote(replace_surrogates(session_id), safe="")
    return f"/s/{name}" if name.strip(".") else "/s/-"


def _encoded(text: str) -> str:
    return quote(replace_surrogates(text), safe="/")


async def home_page(daemon: Daemon, request: Request) -> Response:
    pairs = parse_qsl(request.url.query[:16_384], errors="replace")
    params = {key: replace_surrogates(value) for key, value in reversed(pairs)}
    filters, home = Filters.of(params), str(daemon.home).rstrip("/")
    shown: Shown = {"groups": {}, "hits": [], "following": "", "warnings": [], "problem": None}
    shown |= {"counts": {key: {} for key in ("agents", "tags", "times")}, "projects": []}
    shown |= {"more": "", "full": False, "soon": None}
    try:
        shown |= await (_hits if filters.q else _sessions)(daemon, filters, home)
    except IndexerdError as bad:  # such as an expired cursor; shown in place of the results
        shown["problem"] = {"message": str(bad), "hint": bad.hint}
    return render(
        "home.html",
        filters=filters,
        typed=dict.fromkeys(filters._fields, ("", filters.q)) | typed_filters(filters.q),
        zone=f"UTC{_now().isoformat()[-6:]}".removesuffix("+00:00"),
        agents=[*ADAPTERS],
        since=SINCE,
        most_tags=TAGS,
        sorts=SORTS,
        project=place_of(filters.project, filters, home)["path"] if filters.project else "",
        up=daemon.up,
        ago=_ago,
        **shown,
    )


def _params(filters: Filters, **more: Any) -> dict[str, Any]:
    since = _since(filters.since) if filters.since else None
    wanted = {"agent": filters.agent, "cwd": filters.project, "since": since}
    wanted |= {"tag": filters.tag, **more}
    return {key: value for key, value in wanted.items() if value}


def _since(name: str) -> str:
    return since(name, _now().timestamp())


async def _sessions(daemon: Daemon, filters: Filters, home: str) -> Shown:
    more = {key: bool(getattr(filters, key)) for key in ("archived", "subagents", "hidden")}
    page = {"limit": ROWS, "cursor": filters.before, "sort": filters.sort}
    answer = await daemon.read("list", _params(filters, **more, **page))
    spans = [_since(name) for name in SINCE if name]
    counts = await daemon.read("counts", _params(filters, **more, times=spans))
    rows, waiting, soon = answer["sessions"], list[Row](), None
    if not (filters.before or filters.sort):
        with suppress(IndexerdError):  # only a running daemon knows
            soon = (await daemon.call("status", {}, READ_SECONDS))["deletedSoon"]
        asked = await daemon.read("list", _params(filters, **more, limit=ROWS, state="waiting"))
        waiting = [row for row in asked["sessions"] if _state(row) == "waiting"]
    groups: dict[str, dict[str, Shown]] = {}  # title -> path, or "" -> a project's lines

    def add(title: str, row: Row, cwd: str | None = None, spot: str = "") -> None:
        place = None if cwd is None else place_of(cwd, filters, home)
        group = groups.setdefault(title, {})
        listed = group.setdefault(shown_path(cwd or ""), {"place": place, "lines": []})
        listed["lines"].append(line(row, filters, home) | {"spot": spot})

    for row in waiting:
        asks = f"#target={_encoded(row['leafId'])}" if row.get("leafId") else ""
        add("Waiting for you", {**row, "state": ""}, spot=asks)  # the heading says it
    above = {row["sessionId"] for row in waiting}
    for row in rows:  # pinned ones first
        if row["sessionId"] in above:
            continue
        if row.get("pinned"):
            add("Pinned", row)
        elif filters.sort:
            add(SORTS[filters.sort][1], row)
        else:
            add(_stretch(row["modifiedAt"]), row, _project(row))
    following = answer.get("nextCursor")
    return {
        "groups": groups,
        "following": filters.address(before=following) if following else "",
        "warnings": answer.get("warnings", []),
        "soon": soon,
        "counts": counts | {"times": dict(zip(SINCE, counts["times"], strict=True))},
        "projects": _projects(counts["projects"], filters, home),
    }


def _projects(counted: Sequence[Row], filters: Filters, home: str) -> list[Shown]:
    places = places_of([one["cwd"] or "" for one in counted], home, filters)
    shown = list[Shown]()
    for place, one in zip(places, counted, strict=True):
        on = "" != one["cwd"] == filters.project
        if place["href"] or on:
            folded = len(shown) >= PROJECTS and not on
            shown.append(place | {"sessions": one["sessions"], "on": on, "folded": folded})
    return shown


def places_of(cwds: Sequence[str], home: str, filters: Filters = Filters()) -> list[Shown]:  # noqa: B008 - frozen
    """Describe directories, with those above where two would have the same name."""
    places = [place_of(cwd, filters, home) for cwd in cwds]
    for parts in range(2, PARTS_MAX):
        names = Counter(place["name"] for place in places)
        for place in places:
            if names[place["name"]] > 1:
                place["name"] = "/".join(place["path"].split("/")[-parts:])
    return places


async def _hits(daemon: Daemon, filters: Filters, home: str) -> Shown:
    limit, most = int(filters.hits or HITS[0]), int(HITS[-1])
    asked = _params(filters, query=filters.q, rows=True)
    answer = await daemon.read("search", {**asked, "limit": limit})
    # That may not be all: the limit also bounds what is ranked, but for a slow pattern.
    if len(answer["hits"]) < limit < most and "re:" not in filters.q:
        answer = await daemon.read("search", {**asked, "limit": most})
    spots: dict[str, list[Row]] = {}
    for hit in answer["hits"][:limit]:
        spots.setdefault(hit["sessionId"], []).append(hit)
    rows, hits = [answer["rows"][session_id] for session_id in spots], list[Shown]()
    for row, found in zip(rows, spots.values(), strict=True):
        places = [_spot(hit) for hit in found]
        shown = line(row, filters, home) | {"spot": places[0]["spot"]}
        for place in places:
            if place["label"] == "title" and "".join(place["pieces"]) == shown["title"]:
                shown["marked"] = place["pieces"]  # there, and not once more below
                places.remove(place)
                break
        hits.append(shown | {"places": places, "words": found[0].get("words", "")})
    full = len(answer["hits"]) >= limit
    more = next((wider for wider in HITS if full and int(wider) > limit), "")
    agents = {} if filters.agent else Counter(row["agent"] for row in rows)
    own = {tag.casefold() for row in rows for tag in row.get("ownTags", ())}
    tags = Counter(tag.casefold() for row in rows for tag in row["tags"]).most_common(HIT_TAGS)
    tags = [(tag, number) for tag, number in tags if number > 1 or tag in own]
    tags.sort(key=lambda tag: tag[0] not in own)
    projects = Counter(map(_project, rows)).most_common()
    counted = [{"cwd": cwd, "sessions": None if full else number} for cwd, number in projects]
    counts = {
        "agents": {agent: None if full else number for agent, number in agents.items()},
        "tags": {tag: None if full else number for tag, number in tags},
        "times": {},
    }
    return {
        "hits": hits,
        "full": full,
        "more": more and f"{filters.address(hits=more)}#hit-{len(hits)}",
        "warnings": answer.get("warnings", []),
        "counts": counts,
        "projects": _projects(counted, filters, home),
    }


def _spot(hit: Row) -> Shown:
    """Describe a place that matched, and where it is on the session's page."""
    field, entry = hit["field"], hit.get("entryId") or ""
    spot = f"#target={_encoded(entry)}" if entry else ""
    if field == "files":  # search the session's page for it
        spot = f"?find={_encoded(basename(re.sub('[«»…]', '', hit['snippet'])))}"
    # Of the pieces of a snippet, every second one matched.
    pieces = _MATCH.split(clean_line(hit["snippet"], SNIPPET_MAX))
    return {"spot": spot, "label": words.place(hit), "pieces": pieces}


def place_of(cwd: str, filters: Filters, home: str) -> Shown:
    """Describe a directory, with `~` for the user's home, and link to the page of that project."""
    if not cwd:
        return {"name": "no directory", "path": "", "href": ""}
    path = shown_path(cwd)
    linked = path == cwd != filters.project  # a redacted path stays out of addresses, too
    if home and (path == home or path.startswith(f"{home}/")):
        path = "~" + path[len(home) :]
    href = filters.address(project=cwd) if linked else ""
    return {"name": escape_path(basename(path) or path), "path": escape_path(path), "href": href}


def line(row: Row, filters: Filters, home: str) -> Shown:
    session_id, title = row["sessionId"], to_text(row.get("name") or "", TITLE_MAX) or "session"
    gist = row.get("question") or row.get("description") or row.get("firstUserMessage") or ""
    gist = to_text(gist, GIST_MAX)
    resume = "" if row.get("gone") else for_people(row).get("resume") or ""
    place = place_of(_project(row), filters, home)
    if row.get("nameSource") != "user":
        title = title.removesuffix(f" ({place['name']})")  # it stands beside it
    return {
        "row": row,
        "key": session_id,
        "href": session_address(session_id),
        "title": title,
        "words": "",  # how many of a search's words it has, if not all
        "marked": (),  # the pieces of the title, of which every second one matched
        "state": STATES[state][0] if (state := _state(row)) else "",
        "gist": "" if title.startswith(gist[:GIST_MAX]) else clean_line(gist, GIST_MAX),
        "then": local_time(row.get("modifiedAt", "")),
        "place": place,
        "model": clean_line(next(iter(row["models"][-1:]), ""), FACT_MAX),
        # A command that would be shown escaped is not offered for copying.
        "resume": resume if escape_path(resume) == resume else "",
    }


def _project(row: Row) -> str:
    return row.get("project") or row.get("cwd") or ""


def _state(row: Row) -> str:
    """Return a state that is worth a word, or ""."""
    state, then = row.get("state", ""), local_time(row.get("modifiedAt", ""))
    if state not in STATES or then is None:
        return ""
    return state if (_now() - then).total_seconds() <= STATES[state][1] else ""


def _now() -> datetime:
    return datetime.now().astimezone()


def local_time(stamp: str) -> datetime | None:
    ms = iso_ms(stamp)
    return datetime.fromtimestamp(ms / 1000).astimezone() if ms else None


def _ago(then: datetime) -> str:
    return age((_now() - then).total_seconds())


def _stretch(stamp: str) -> str:
    """Name the day of a time, or its month if it is long ago; the future counts as today."""
    then = local_time(stamp)
    if then is None:
        return "No date"
    days = (_now().date() - then.date()).days
    usual = f"{then:%A}" if days < 7 else f"{then:%B %Y}"  # noqa: PLR2004 - of a week
    return "Today" if days < 1 else "Yesterday" if days == 1 else usual
