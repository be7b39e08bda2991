"""`export`: one session as one document, and that as a file's text.

In: a session as it was taken, and what is stored of it. Out: the document of web/export_json.py,
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
from typing import Any, NamedTuple

import msgspec

from indexerd import __version__
from indexerd.daemon.library import Library
from indexerd.daemon.views import Taken, branches, reader
from indexerd.digests.segments import chain, encode, message_rows, rows_between
from indexerd.digests.stored_digest import stored_segments
from indexerd.errors import IndexerdError
from indexerd.events import Entry
from indexerd.meta.context_sets import footer
from indexerd.models.threads import Check
from indexerd.privacy.redact import redact
from indexerd.privacy.redact_paths import for_people
from indexerd.privacy.sanitize import bare, clean_line
from indexerd.references.looks import look_alone
from indexerd.sessions.state import SessionState
from indexerd.web import export_html, export_json, export_md
from indexerd.web.export_html import EXPORT_PARTS, PAGE, STYLE, Assets
from indexerd.web.export_json import Head, about, document
from indexerd.web.live_drafts import Drafts
from indexerd.web.story import Cut, Node, Story, kept_rows, node_of, story_of, turn_of

FORMATS = {"html": ".html", "md": ".md", "json": ".json"}
TEXT_MAX = 20_000  # characters of one entry
TOTAL_MAX = 12_000_000  # of all, before each has less
ROOMS = (TEXT_MAX, 4000, 1000, 200)
MARGIN = 8192  # characters past a cut in which the rest of a secret may stand
KIN_MAX = 200  # ids of each kind
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


def read_session(taken: Taken, check: Check, wish: Wish, drafts: Drafts | None = None) -> Read:
    """Read all of a session, or what is not in `drafts` yet: those of an earlier, equal wish.

    ValueError: a line is no JSON, the session must be reread.
    """
    state = taken.state
    rows = sorted(kept_rows(state))
    room = _room(state, rows)
    cut, held = cutter(wish), drafts or Drafts()
    with taken.lines as lines:
        read = reader(taken, lines, check)

        def draft(row: int) -> Node:
            return node_of(read(row), turn_of(state, row), room, cut, held.names)

        nodes = held.nodes(state, lines, rows, room, draft)
        tips = branches(taken, _clean(held.reading(state, read), wish))["tips"]
    labels = {key: cut(text, STEM_MAX * 8) for key, text in taken.labels.items()}
    gists = {
        row: (cut(tip["gist"], TEXT_MAX), tip["gistSource"])
        for tip in tips
        if "gist" in tip and (row := state.row(tip["leafId"])) is not None
    }
    story = story_of(state, nodes, labels, gists)
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
        return msgspec.structs.replace(
            entry, texts=tuple(redact(one, wish.extra).text for one in entry.texts)
        )

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
        if limit <= 0 or not text:
            return ""
        seen = text[: limit + MARGIN]
        if wish.redact:
            seen = redact(seen, wish.extra).text
            if len(text) > limit + MARGIN:
                seen = seen[:-MARGIN]
        return (seen if wish.format == "json" else _shown(seen))[:limit]

    return cut


def _shown(text: str) -> str:
    """What of a text shows; most have nothing else, which a glance tells."""
    if text.replace("\n", "").isprintable():
        return text
    return bare(text).replace("\r\n", "\n")


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


def kin_in(family: Mapping[str, Any], session_id: str) -> dict[str, Any]:
    """The ids of a session's parent, forks and sub-agents, by what the method `family` answers."""
    kin: dict[str, Any] = {"forks": [], "subagents": []}
    for one in family["members"]:
        if one["sessionId"] == session_id and one.get("parentSessionId"):
            kin["parent"] = one["parentSessionId"]
        elif one.get("parentSessionId") == session_id:
            kin["subagents" if one["relation"] == "subagent" else "forks"].append(one["sessionId"])
    return {key: one[:KIN_MAX] if key != "parent" else one for key, one in kin.items() if one}


# -- the file ------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """What an export is made from besides the session's file: `stored` is the answer of `get`."""

    stored: Mapping[str, Any]
    kin: Mapping[str, Any]
    now: str
    leaf: str | None = None


def file_of(library: Library, asked: Asked, wish: Wish, check: Check) -> tuple[str, str]:
    """A name for the file, and its text, from a library that knows the session; blocks.

    NotFoundError where the session's file is gone.
    """
    stored = asked.stored
    session_id = stored["session"]["sessionId"]
    read = look_alone(
        library, session_id, asked.leaf, lambda taken, _: read_session(taken, check, wish)
    )
    read.warnings += stored.get("warnings", ())
    found = document_of(head_of(stored, asked.kin, asked.now), read, wish)
    return file_name(found["session"], wish), text_of(found, wish)


def document_of(head: Head, read: Read, wish: Wish) -> dict[str, Any]:
    """The document, of which every form is made."""
    return _all_fit(document(_told(head, wish), read.story, **_read(read, wish)), wish)


def about_of(head: Head, read: Read, wish: Wish) -> dict[str, Any]:
    """The document but for its beats and nodes."""
    return _all_fit(about(_told(head, wish), read.story, **_read(read, wish)), wish)


def _told(head: Head, wish: Wish) -> Head:
    """What programs are told to the letter, and people as it is shown."""
    return head if wish.format == "json" else replace(head, row=for_people(head.row))


def _read(read: Read, wish: Wish) -> dict[str, Any]:
    return {
        "tips": read.tips,
        "digests": read.digests,
        "text_max": read.room,
        "redacted": wish.redact,
        "warnings": read.warnings,
    }


_FIT = frozenset({"nodes", "beats"})  # as their texts were read


def _all_fit(found: Mapping[str, Any], wish: Wish) -> dict[str, Any]:
    fit = cutter(wish)
    return {key: one if key in _FIT else _fit(one, fit) for key, one in found.items()}


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
        page, style, *parts = (
            (folder / name).read_text(encoding="utf-8") for name in (PAGE, STYLE, *EXPORT_PARTS)
        )
    except OSError:
        raise IndexerdError(
            "the files of the view are missing", hint="install indexerd again"
        ) from None
    return Assets(page, style, "\n".join(parts))


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
