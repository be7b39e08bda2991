"""The home page as values: sessions by day, project and line, and what a search found.

In: rows of `list` and hits of `search`; the time, and how far local time is from UTC at a moment.
Out: what a template prints, with addresses for its links. Names, paths and snippets were chosen
by others: each is cleaned of what does not show, and cut to a length.

A day is a day of the local calendar. `since` begins at a local midnight: a cursor of `list` is
good for one moment only, and would not fit a `since` that moves with the clock.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from indexerd.privacy.redact_paths import shown_path
from indexerd.privacy.sanitize import clean_line, escape_path, scrub
from indexerd.times import iso, iso_ms
from indexerd.web.home_address import (
    PATH_MAX,
    WORD_MAX,
    Filters,
    basename,
    encoded,
    session_address,
)

Offset = Callable[[float], int]  # seconds of UTC -> seconds that local time is ahead of it there

NAME_MAX = 160
GIST_MAX = 280
SNIPPET_MAX = 400
COMMAND_MAX = 8192
FILES_SHOWN = 4
FIND_WORDS, FIND_MAX = 8, 200  # words and characters that a session's page is to look for
OPEN_SECONDS = 30 * 60  # without a change, after which nobody is at an open turn any more

_DAYS_BACK = {"today": 0, "7d": 6, "30d": 29}
STATES = frozenset({"active", "unfinished", "idle", "compacted", "archived"})
FIELD_WORDS = {"name": "title", "cwd": "directory"}  # of a search, where the page has others
ROLE_WORDS = {"user": "you", "assistant": "answer"}
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September",
           "October", "November", "December")  # fmt: skip
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_FOUND = re.compile("«([^«»]*)»")  # how io/catalog_search marks what it found
_EPOCH = date(1970, 1, 1)


def since_time(word: str, now: float, offset: Offset) -> str | None:
    """The moment that a word of SINCE stands for, as `list` and `search` take it."""
    if word not in _DAYS_BACK:
        return None
    midnight = (_day(now, offset) - _EPOCH - timedelta(days=_DAYS_BACK[word])).days * 86_400
    return iso(midnight - offset(midnight - offset(now)))


@dataclass(frozen=True, slots=True)
class Place:
    """A directory: a short name, and the whole of it with `~` for the user's home."""

    name: str
    path: str
    href: str  # the page of this project alone; "" where no directory is known


@dataclass(frozen=True, slots=True)
class Moment:
    """A time: for programs, for a reader, and how long ago it is."""

    iso: str
    full: str
    ago: str


@dataclass(frozen=True, slots=True)
class File:
    """A file touched."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class Line:
    """One session in a list."""

    key: str
    session_id: str
    href: str
    title: str
    agent: str
    state: str  # one of STATES
    marks: tuple[str, ...]  # "file gone", "sub-agent"
    gist: str
    moment: Moment
    touched: str  # "changed", "read", or "" without files
    files: tuple[File, ...]
    more_files: int
    behind: str  # what the summary does not know of yet
    resume: str


@dataclass(frozen=True, slots=True)
class Project:
    """The sessions of one directory within a stretch of days."""

    key: str
    place: Place
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Today, yesterday, this week, last week, or a month."""

    title: str
    projects: tuple[Project, ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """One place that a search found."""

    href: str
    field: str
    snippet: tuple[tuple[str, bool], ...]  # texts, and whether each was looked for
    place: Place | None
    line: Line


@dataclass(frozen=True, slots=True)
class View:
    """What all lines of a page are made with. `home` is the user's directory, absolute."""

    filters: Filters
    now: float
    offset: Offset
    home: str

    def stretches(self, rows: Iterable[Mapping[str, Any]]) -> list[Stretch]:
        """Rows by day and by project; in each the order is that of the rows."""
        found: dict[str, dict[str, list[Line]]] = {}
        for row in rows:
            title = self._title(iso_ms(_text(row, "modifiedAt", WORD_MAX)) / 1000)
            projects = found.setdefault(title, {})
            projects.setdefault(_text(row, "cwd", PATH_MAX), []).append(self.line(row))
        return [
            Stretch(
                title,
                tuple(
                    Project(f"{title}:{shown_path(cwd)}", self.place(cwd), tuple(lines))
                    for cwd, lines in projects.items()
                ),
            )
            for title, projects in found.items()
        ]

    def line(self, row: Mapping[str, Any]) -> Line:
        """One row."""
        session_id = _text(row, "sessionId", WORD_MAX)
        title = clean_line(_text(row, "name", NAME_MAX * 4), NAME_MAX) or "session"
        modified = _text(row, "modifiedAt", WORD_MAX)
        touched, files, more = _touched(row)
        behind = _number(row, "newUserMessages") if row.get("indexed") else 0
        marks = (("gone", "file gone"), ("subagent", "sub-agent"))
        return Line(
            key=session_id,
            session_id=session_id,
            href=session_address(session_id),
            title=title,
            agent=clean_line(_text(row, "agent", WORD_MAX), 40),
            state=self._state(_text(row, "state", WORD_MAX), iso_ms(modified) / 1000),
            marks=tuple(word for name, word in marks if row.get(name)),
            gist=_gist(row, title),
            moment=self.moment(modified),
            touched=touched,
            files=files,
            more_files=more,
            behind=f"{behind} message{'' if behind == 1 else 's'} behind" if behind else "",
            resume=_command(row),
        )

    def _state(self, state: str, then: float) -> str:
        """A state as it is shown; `then` is the last change. An open turn may never have ended."""
        if state == "active" and then and self.now - then > OPEN_SECONDS:
            return "unfinished"
        return state if state in STATES else "idle"

    def hits(
        self, found: Iterable[Mapping[str, Any]], rows: Mapping[str, Mapping[str, Any]]
    ) -> list[Hit]:
        """Hits of a search; `rows` has what is known of their sessions, by id."""
        return [self._hit(one, rows) for one in found]

    def _hit(self, one: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> Hit:
        session_id = _text(one, "sessionId", WORD_MAX)
        row = rows.get(session_id, {})
        field = clean_line(_text(one, "field", WORD_MAX), 40)
        entry = _text(one, "entryId", WORD_MAX)
        known = {"name": one.get("name"), **row, "sessionId": session_id}
        line = replace(self.line(known), key=f"{session_id} {field} {entry}")
        snippet = tuple(_parts(_text(one, "snippet", SNIPPET_MAX)))
        who = ROLE_WORDS.get(_text(one, "role", 40), "")
        return Hit(
            href=line.href + _spot(field, entry, snippet),
            field=FIELD_WORDS.get(field, field) + (f", {who}" if who else ""),
            snippet=snippet,
            place=self.place(_text(row, "cwd", PATH_MAX)) if row else None,
            line=line,
        )

    def place(self, cwd: str) -> Place:
        """A directory, as it is named on the page."""
        if not cwd:
            return Place("no directory", "", "")
        path = shown_path(cwd)
        is_whole = path == cwd  # else no address tells it either
        home = self.home.rstrip("/")
        if home and (path == home or path.startswith(f"{home}/")):
            path = "~" + path[len(home) :]
        name = posixpath.basename(path.rstrip("/")) or path
        is_here = cwd == self.filters.project
        href = self.filters.address(project=cwd) if is_whole and not is_here else ""
        return Place(escape_path(name)[:NAME_MAX], escape_path(path)[:PATH_MAX], href)

    def moment(self, text: str) -> Moment:
        """A time of a row; one that is none is said to be unknown."""
        ms = iso_ms(text)
        if not ms:
            return Moment("", "at an unknown time", "")
        there = _local(ms / 1000, self.offset)
        full = f"{_WEEKDAYS[there.weekday()]} {there.day} {_MONTHS[there.month - 1]} {there.year}"
        return Moment(iso(ms / 1000), f"{full}, {there:%H:%M}", self._ago(ms / 1000, there))

    def zone(self) -> str:
        """What all times of the page are told in, as it is now."""
        ahead = self.offset(self.now) // 60
        hours, minutes = divmod(abs(ahead), 60)
        return f"UTC{'-' if ahead < 0 else '+'}{hours:02}:{minutes:02}" if ahead else "UTC"

    def _ago(self, then: float, there: datetime) -> str:
        """In one unit; from a week on, the day."""
        minutes = max(0, int(self.now - then)) // 60
        for unit, size, until in (("min", 1, 60), ("h", 60, 24 * 60)):
            if minutes < until:
                return f"{minutes // size} {unit} ago" if minutes else "just now"
        days = (_day(self.now, self.offset) - there.date()).days
        if days <= 1:
            return f"yesterday {there:%H:%M}"
        if days < 7:  # noqa: PLR2004 - a week
            return f"{days} days ago"
        year = "" if there.year == _day(self.now, self.offset).year else f" {there.year}"
        return f"{there.day} {_MONTHS[there.month - 1][:3]}{year}"

    def _title(self, then: float) -> str:
        """The stretch of days that a time falls into; what is still to come counts as today."""
        if not then:
            return "No date"
        today, day = _day(self.now, self.offset), _day(then, self.offset)
        monday = today - timedelta(days=today.weekday())
        for title, first in (
            ("Today", today),
            ("Yesterday", today - timedelta(days=1)),
            ("This week", monday),
            ("Last week", monday - timedelta(days=7)),
        ):
            if day >= first:
                return title
        return f"{_MONTHS[day.month - 1]} {day.year}"


def _spot(field: str, entry: str, snippet: Sequence[tuple[str, bool]]) -> str:
    """Where in a session's page a hit is: its entry, or what to look for among the entries.

    That is only what was found in them: a title, a tag or a summary has words of its own, and
    what was typed may be spelled otherwise than what was found.
    """
    if entry:
        return f"#target={encoded(entry)}"
    words: Iterable[str] = ()
    if field == "message":
        words = (word for text, found in snippet if found for word in text.split())
    elif field == "files":
        path = "".join(text for text, _ in snippet)
        words = basename(path.strip("…")).split()
    find = " ".join([*dict.fromkeys(words)][:FIND_WORDS])[:FIND_MAX]
    return f"?find={encoded(find)}" if find else ""


def _touched(row: Mapping[str, Any]) -> tuple[str, tuple[File, ...], int]:
    """What was done with files, a few of them, and how many more there are."""
    for key, word in (("filesModified", "changed"), ("filesRead", "read")):
        paths = [one for one in _list(row, key) if isinstance(one, str) and basename(one)]
        if paths:
            shown = tuple(
                File(escape_path(basename(one[-PATH_MAX:]))[:NAME_MAX], escape_path(one[:PATH_MAX]))
                for one in paths[:FILES_SHOWN]
            )
            return word, shown, len(paths) - len(shown)
    return "", (), 0


def _gist(row: Mapping[str, Any], title: str) -> str:
    """One line: the description, else the first message, unless the title says as much."""
    for key in ("description", "firstUserMessage"):
        text = clean_line(_text(row, key, GIST_MAX * 4), GIST_MAX + 1)
        if text and not title.startswith(text):
            return text if len(text) <= GIST_MAX else f"{text[:GIST_MAX].rstrip()}…"
    return ""


def _command(row: Mapping[str, Any]) -> str:
    """The resume command, or "": one that would not show as it is, is not offered for pasting."""
    shown = row.get("shown")
    text = row.get("resume")
    if isinstance(shown, Mapping):
        text = shown.get("resume", text)
    if row.get("gone") or not isinstance(text, str) or len(text) > COMMAND_MAX:
        return ""
    return text if escape_path(text) == text else ""


def _parts(snippet: str) -> Iterator[tuple[str, bool]]:
    """A snippet in pieces; every second one was looked for."""
    pieces: Sequence[str] = _FOUND.split(clean_line(snippet, SNIPPET_MAX))
    for at, piece in enumerate(pieces):
        if piece:
            yield piece, bool(at % 2)


def _text(row: Mapping[str, Any], key: str, limit: int) -> str:
    value = row.get(key)
    return scrub(value[:limit]) if isinstance(value, str) else ""


def _number(row: Mapping[str, Any], key: str) -> int:
    value = row.get(key)
    return value if isinstance(value, int) and value > 0 else 0


def _list(row: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = row.get(key)
    return value if isinstance(value, list | tuple) else ()


def _local(then: float, offset: Offset) -> datetime:
    """A naive time of the local calendar, within what a calendar can say."""
    return datetime.fromtimestamp(min(max(then + offset(then), 0.0), 2.5e11), UTC)


def _day(then: float, offset: Offset) -> date:
    return _local(then, offset).date()
