"""Addresses of the home page: what one asks for, and where each of its links leads.

In: the query of an address, which anybody may have written. Out: filters, each within bounds; a
value that is none of its filter's counts as absent. And back: an address from filters, in which
every part is percent-encoded, so that none can begin another one, and which always begins with
our own `/`: no scheme and no host can come out of a name or a path.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import chain
from urllib.parse import parse_qsl, quote

from indexerd.privacy.sanitize import clean_line, scrub
from indexerd.web.footer_html import FILE_VIEW

QUERY_MAX = 500  # characters of a search
PATH_MAX = 4096
WORD_MAX = 256  # of an id, an agent's name, a cursor
SINCE = {"": "any time", "today": "today", "7d": "7 days", "30d": "30 days"}
_ADDRESS_MAX = 16_384  # characters of a query string that are looked at
_FIELDS_MAX = 40
_SPOKEN = re.compile(r'(agent|project|since):(?:"([^"]+)"|([^\s"]+))')
_PART = re.compile(r'[^\s"]*"[^"]*"|\S+')


@dataclass(frozen=True, slots=True)
class Filters:
    """What an address of the home page asks for, each within bounds; "" is no filter."""

    q: str = ""
    agent: str = ""
    project: str = ""  # a directory, for itself and all below
    since: str = ""  # a key of SINCE
    archived: str = ""  # "1" or ""
    subagents: str = ""
    before: str = ""  # a cursor: go on after an earlier page

    @property
    def narrowed(self) -> bool:
        """Whether anything is left out that a bare address would show."""
        return bool(self.agent or self.project or self.since)

    def address(self, **changes: str) -> str:
        """Where the page with these changes is; a change of filters begins at its first page."""
        changed = replace(self, **({"before": ""} | changes))
        pairs = [(one.name, getattr(changed, one.name)) for one in fields(changed)]
        query = "&".join(f"{key}={encoded(value)}" for key, value in pairs if value)
        return f"/?{query}" if query else "/"

    def kept(self) -> list[tuple[str, str]]:
        """What a form for a search carries along, as names and values."""
        names = ("agent", "project", "since", "archived", "subagents")
        return [(name, getattr(self, name)) for name in names if getattr(self, name)]


def asked(query: str) -> dict[str, str]:
    """The parameters of a query string, each as it was first given; never raises."""
    pairs = parse_qsl(query[:_ADDRESS_MAX], errors="replace")
    found: dict[str, str] = {}
    for key, value in pairs[:_FIELDS_MAX]:
        found.setdefault(key, scrub(value))
    return found


def filters_of(params: Mapping[str, str]) -> Filters:
    """The filters among an address's parameters; what is no value of one counts as absent."""
    since = params.get("since", "")
    return Filters(
        q=clean_line(params.get("q", "")[: QUERY_MAX * 4], QUERY_MAX),
        agent=clean_line(params.get("agent", "")[:WORD_MAX], WORD_MAX),
        project=params.get("project", "")[:PATH_MAX],
        since=since if since in SINCE else "",
        archived="1" if params.get("archived") == "1" else "",
        subagents="1" if params.get("subagents") == "1" else "",
        before=params.get("before", "")[:WORD_MAX],
    )


def names_project(q: str) -> bool:
    """Whether a search may have a word for a project in it, so that `spoken` needs directories."""
    return "project:" in q


def spoken(
    filters: Filters, agents: Collection[str], home: str, directories: Iterable[str] = ()
) -> Filters:
    """The same with what a search says by `agent:`, `project:` and `since:` as filters.

    What stands in a search counts more than what stands beside it in the address. A project is a
    whole path (`~` is the directory `home`), or the name of one of `directories` or a part of it,
    whichever comes first. What is no agent, no project and no key of SINCE stays a word, as does
    everything in quotes and after `re:`.
    """
    said: dict[str, str] = {}
    words: list[str] = []
    for part in _PART.finditer(filters.q):
        if part[0].startswith("re:"):
            words.append(filters.q[part.start() :])
            break
        found = _SPOKEN.fullmatch(part[0])
        name, value = (found[1], found[2] or found[3]) if found else ("", "")
        if name == "project":
            value = _directory(value, home, directories)
        known: dict[str, Collection[str]] = {"agent": agents, "since": SINCE}
        if value and value in known.get(name, (value,)):
            said[name] = value
        else:
            words.append(part[0])
    return replace(filters, q=" ".join(words), **said) if said else filters


def _directory(text: str, home: str, directories: Iterable[str]) -> str:
    """A directory that somebody means; "" for none."""
    if text == "~" or text.startswith("~/"):
        text = home.rstrip("/") + text[1:]
    if text.startswith("/"):
        return text.rstrip("/") or "/"
    part = text.casefold()
    names = [(basename(one).casefold(), one) for one in directories]
    same = (one for name, one in names if name == part)
    within = (one for name, one in names if part and part in name)
    return next(chain(same, within), "")


def footer_target(params: Mapping[str, str]) -> str | None:
    """Where a link of a context footer leads (web/footer_html.py); None for another address."""
    session_id = params.get("session", "")[:WORD_MAX]
    if not session_id or "applet" not in params:
        return None
    name = basename(params.get("path", "")[-PATH_MAX:])
    find = f"?find={encoded(name)}" if params["applet"] == FILE_VIEW and name else ""
    return session_address(session_id) + find


def session_address(session_id: str) -> str:
    """The page of a session. A name of dots alone would be a step up, and leads nowhere."""
    name = quote(scrub(session_id), safe="")
    return f"/s/{name}" if name.strip(".") else "/s/-"


@dataclass(frozen=True, slots=True)
class Choice:
    """A filter that can be set or taken back by following a link."""

    key: str
    label: str
    href: str
    on: bool


def choices(filters: Filters, agents: Iterable[str]) -> dict[str, list[Choice]]:
    """The links of the filters: `agent`, `since`, and `more` for what is left out otherwise."""
    names = ["", *agents]
    if filters.agent and filters.agent not in names:
        names.append(filters.agent)
    one_of = (
        ("agent", filters.agent, [(name, name or "any") for name in names]),
        ("since", filters.since, list(SINCE.items())),
    )
    found = {
        name: [
            Choice(f"{name}:{value}", label, filters.address(**{name: value}), value == at)
            for value, label in values
        ]
        for name, at, values in one_of
    }
    found["more"] = [
        Choice(name, label, filters.address(**{name: "" if at else "1"}), bool(at))
        for name, at, label in (
            ("archived", filters.archived, "archived"),
            ("subagents", filters.subagents, "sub-agents"),
        )
    ]
    return found


def basename(path: str) -> str:
    """The last part of a path, whichever way its separators lean."""
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def encoded(text: str) -> str:
    """Text as one part of an address; half of a surrogate pair is no text."""
    return quote(scrub(text), safe="/")
