"""`export`: one session as one document, and that as a file's text.

In: a session as it was taken, and what is stored of it. Out: the document of core/export_json.py,
and its HTML, Markdown or JSON. Reads every line of the session once, in a thread or a command;
writes nothing. There is no method of the socket for it: a document has megabytes, and whoever
wants a file can read the session as well as the daemon can, in a process of its own, where it
keeps nobody waiting.

How much an entry may say depends on how much all of them say: the whole stays below `TOTAL_MAX`
characters. Secrets are taken out only where that was asked for, before a text is cut, and from a
little more than is shown, so that none is recognised by its first half alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from indexerd import __version__
from indexerd.core import export_html, export_json, export_md
from indexerd.core.clean import bare, clean_line
from indexerd.core.export_html import ASSETS, Assets
from indexerd.core.export_json import Head, document
from indexerd.core.redact import redact
from indexerd.core.segments import chain, encode, message_rows, rows_between
from indexerd.core.session import SessionState
from indexerd.core.sets import footer
from indexerd.core.story import Cut, Node, Story, kept_rows, node_of, story_of, turn_of
from indexerd.errors import IndexerdError
from indexerd.events import Entry
from indexerd.llm.threads import Check
from indexerd.service.answers import Answers, is_fork
from indexerd.service.stored_digest import stored_segments
from indexerd.service.views import Taken, branches, reader

FORMATS = {"html": ".html", "md": ".md", "json": ".json"}
TEXT_MAX = 20_000  # characters of one entry
TOTAL_MAX = 12_000_000  # of all, before each has less
ROOMS = (TEXT_MAX, 4000, 1000, 200)
MARGIN = 8192  # characters past a cut in which the rest of a secret may stand
KIN_MAX = 200  # ids of each kind
PAGES_MAX = 40  # of sessions that are looked through for kin
STEM_MAX = 60


@dataclass(frozen=True, slots=True)
class Wish:
    """How an export is to be. `extra`: the user's own patterns of secrets."""

    format: str = "html"
    redact: bool = False
    extra: tuple[re.Pattern[str], ...] = ()


@dataclass(slots=True)
class Read:
    """A session, read: what a document is made of besides what is stored of it."""

    story: Story
    tips: list[dict[str, Any]]
    digests: list[dict[str, Any]]
    room: int
    warnings: list[str] = field(default_factory=list)


def read_session(taken: Taken, check: Check, wish: Wish) -> Read:
    """Read all of a session. ValueError: a line is no JSON, the session must be reread."""
    state = taken.state
    rows = sorted(kept_rows(state))
    room = _room(state, rows)
    cut, names = cutter(wish), dict[str, str]()
    with taken.lines as lines:
        read = reader(taken, lines)

        def checked(row: int) -> Entry:
            check()
            return read(row)

        drafts: dict[int, Node] = {
            row: node_of(checked(row), turn_of(state, row), room, cut, names) for row in rows
        }
        tips = branches(taken, _clean(checked, wish), {})["tips"]
    labels = {key: cut(text, STEM_MAX * 8) for key, text in taken.labels.items()}
    gists = {
        row: (cut(tip["gist"], TEXT_MAX), tip["gistSource"])
        for tip in tips
        if "gist" in tip and (row := state.row(tip["leafId"])) is not None
    }
    story = story_of(state, drafts, labels, gists)
    found = Read(story, [_placed(tip, state, story) for tip in tips], [], room)
    found.digests = _digests(taken, story, found.warnings)
    lost = sum(1 for row in rows if not state.lengths[row])
    if lost:
        found.warnings.append(
            f"{lost} {'entry is' if lost == 1 else 'entries are'} too long to be read"
        )
    return found


def _clean(read: Callable[[int], Entry], wish: Wish) -> Callable[[int], Entry]:
    """Redacted before anything is cut from it."""
    if not wish.redact:
        return read

    def clean(row: int) -> Entry:
        entry = read(row)
        return replace(entry, texts=tuple(redact(one, wish.extra).text for one in entry.texts))

    return clean


def _room(state: SessionState, rows: Sequence[int]) -> int:
    """How much each entry may say, so that all of them together stay within bounds."""
    for room in ROOMS:
        if sum(min(state.lengths[row], room) for row in rows) <= TOTAL_MAX:
            return room
    return ROOMS[-1]


def cutter(wish: Wish) -> Cut:
    """How texts are made fit: whole characters for a program, only what shows for people."""

    def cut(text: str, limit: int) -> str:
        if limit <= 0:
            return ""
        seen = text[: limit + MARGIN]
        if wish.redact:
            seen = redact(seen, wish.extra).text
            if len(text) > limit + MARGIN:
                seen = seen[:-MARGIN]
        if wish.format != "json":
            seen = bare(seen).replace("\r\n", "\n")
        return seen[:limit]

    return cut


def _placed(tip: Mapping[str, Any], state: SessionState, story: Story) -> dict[str, Any]:
    row = state.row(tip["leafId"])
    place = None if row is None else story.places.get(row)
    return dict(tip) | ({} if place is None else {"place": place})


def _digests(taken: Taken, story: Story, warnings: list[str]) -> list[dict[str, Any]]:
    """The segments that hold on the path, with the places of what they cover."""
    state = taken.state
    rows, path = message_rows(state), state.path()
    try:
        held = chain(state, rows, stored_segments(taken))
    except IndexerdError as bad:
        warnings.append(str(bad))
        return []
    found = []
    for one in held:
        between = rows_between(path, rows, one.first, one.last)
        places = [story.places[row] for row in between if row in story.places]
        if places:
            found.append(encode(one) | {"from": places[0], "to": places[-1]})
    return found


# -- what is stored of it ------------------------------------------------------------------------


def head_of(stored: Mapping[str, Any], kin: Mapping[str, Any], now: str) -> Head:
    """What the answer of `get` says of a session; `now` is when it is exported."""
    row, context = stored["session"], stored.get("context") or {}
    return Head(
        row=row,
        meta=stored.get("meta"),
        context=context,
        footer=footer(context, row["cwd"])["text"],
        kin=kin,
        exported_at=now,
        generator=f"indexerd {__version__}",
    )


def kin_of(answers: Answers, row: Mapping[str, Any]) -> dict[str, Any]:
    """The ids of a session's parent, forks and sub-agents, as far as they are listed."""
    kin: dict[str, Any] = {"forks": [], "subagents": []}
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        params = {"archived": True, "subagents": True, "limit": 500, "cursor": cursor}
        page = answers.list({key: one for key, one in params.items() if one is not None})
        for other in page["sessions"]:
            if other.get("parentSessionId") == row["sessionId"]:
                kin["forks" if is_fork(other) else "subagents"].append(other["sessionId"])
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    found = {key: ids[:KIN_MAX] for key, ids in kin.items() if ids}
    parent = row.get("parentSessionId")
    return found | ({"parent": parent} if parent else {})


# -- the file ------------------------------------------------------------------------------------


def document_of(head: Head, read: Read, wish: Wish) -> dict[str, Any]:
    """The document, of which every form is made."""
    found = document(
        head,
        read.story,
        tips=read.tips,
        digests=read.digests,
        text_max=read.room,
        redacted=wish.redact,
        warnings=read.warnings,
    )
    fit = cutter(wish)
    return found | {key: _fit(one, fit) for key, one in found.items() if key not in _FIT}


_FIT = frozenset({"nodes", "beats"})  # as their texts were read


def _fit(value: Any, fit: Cut) -> Any:
    """A value whose texts are fit for their readers; they are all bounded where they come from."""
    if isinstance(value, str):
        return fit(value, len(value))
    if isinstance(value, list | tuple):
        return [_fit(one, fit) for one in value]
    if isinstance(value, dict):
        return {key: _fit(one, fit) for key, one in value.items()}
    return value


def text_of(found: Mapping[str, Any], wish: Wish) -> str:
    """The document in its form."""
    return _FORMS[wish.format](found)


def assets() -> Assets:
    """The page of the view, which ships with the program."""
    folder = files("indexerd") / "view"
    try:
        page, style, script = ((folder / name).read_text(encoding="utf-8") for name in ASSETS)
    except OSError:
        raise IndexerdError(
            "the files of the view are missing", hint="install indexerd again"
        ) from None
    return Assets(page, style, script)


def file_name(row: Mapping[str, Any], wish: Wish) -> str:
    """A name for the file: what a session is called, and the head of its id."""
    words = re.sub(r"[^a-z0-9]+", "-", clean_line(str(row.get("name", ""))[:400], 200).lower())
    stem = words[:STEM_MAX].strip("-") or "session"
    head = re.sub(r"[^A-Za-z0-9]", "", str(row["sessionId"]))[:8]
    return f"{stem}-{head}{FORMATS[wish.format]}"


_FORMS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "html": lambda found: export_html.html(found, assets()),
    "md": export_md.markdown,
    "json": export_json.to_json,
}
