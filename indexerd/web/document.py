r"""A session as one JSON document, of which every form of an export and the live page are made.

    format "indexerd-export", schema 1, exportedAt, generator
    session, meta, context, footer, kin {parent, forks: [id], subagents: [id]}
    leafId, leaf    the entry that the session stands at, or that was asked for; its place
    nodes, beats    every entry, depth first, and the story over them: `web/story.py`; places count
                    in `nodes`, as ids may repeat or be empty
    tips            the branches, as `branches` answers, each with its `place`
    digests         the segments that hold on the path to the leaf, with the places `from` and `to`
    textMax         characters that an entry had room for; redacted, warnings

A field that has nothing to say is absent. Texts are the session's own, whole but for `textMax`,
which depends on how much all of them say. Secrets are taken out only where that was asked for,
before a text is cut, and from a little more than is shown, so that none is recognised by its first
half alone.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from indexerd import __version__
from indexerd.daemon.library import Library
from indexerd.daemon.open_session import branches, open_session
from indexerd.digests.segments import chain_at, encode
from indexerd.errors import FileGoneError, IndexerdError
from indexerd.events import Entry
from indexerd.meta.context_sets import footer
from indexerd.privacy.redact import for_people, redact
from indexerd.privacy.sanitize import bare
from indexerd.sessions.positions import message_rows, rows_between
from indexerd.sources.session_reader import OpenSession, reader
from indexerd.times import iso
from indexerd.web.story import Cut, Story, entry_rows, node_of, story_of

TEXT_MAX = 20_000  # characters of one entry
TOTAL_MAX = 12_000_000  # of all, before each has less
ROOMS = (TEXT_MAX, 4000, 1000, 200)
LABEL_ROOM = 480
MARGIN = 8192  # characters past a cut in which the rest of a secret may stand
RELATIVES_MAX = 200  # ids of each kind
_PATHS = ("cwd", "sessionFile", "parentSessionFile")  # left out of `meta`: the row has them
_PASSING = ("nodes", "exportedAt")  # not among what makes a version

Document = dict[str, Any]
Stored = Mapping[str, Any]  # the answer of `get`


@dataclass(frozen=True, slots=True)
class Wish:
    """How a document is to be. `extra`: the user's own patterns of secrets."""

    for_people: bool = True  # only what shows; else whole characters, for a program
    redact: bool = False
    extra: tuple[re.Pattern[str], ...] = ()
    leaf: str | None = None


def read_document(
    library: Library, stored: Stored, wish: Wish, family: Mapping[str, Any] | None = None
) -> Document:
    """The document of a session that the library knows. Blocks.

    `family` is the answer of that method. NotFoundError where the session's file is gone.
    """
    session_id = stored["session"]["sessionId"]
    session = open_session(library, session_id, wish.leaf)
    if session is None:
        raise FileGoneError("the session's file is gone")
    return document_of(session, stored, wish, family)


def document_of(
    session: OpenSession, stored: Stored, wish: Wish, family: Mapping[str, Any] | None = None
) -> Document:
    """The document of an open session."""
    state, cut = session.state, cutter(wish)
    rows = entry_rows(state)
    lengths = [state.lengths[row] for row in rows]
    rooms = (room for room in ROOMS if sum(min(one, room) for one in lengths) <= TOTAL_MAX)
    room = next(rooms, ROOMS[-1])
    with session.lines as lines:
        read = reader(session, lines)
        names: dict[str, str] = {}
        nodes = {row: node_of(state, row, read(row), room, cut=cut, names=names) for row in rows}
        tips = branches(session, _redacting(read, wish) if wish.redact else read)["tips"]
    placed = [(row, tip) for tip in tips if (row := state.row(tip["leafId"])) is not None]
    labels = {key: cut(text, LABEL_ROOM) for key, text in session.labels.items()}
    gists = {
        row: (cut(tip["gist"], TEXT_MAX), tip["gistSource"]) for row, tip in placed if "gist" in tip
    }
    story = story_of(state, nodes, labels, gists)
    for row, tip in placed:
        if row in story.places:
            tip["place"] = story.places[row]
    found = without_entries(stored, wish)
    if lost := lengths.count(0):
        many = "entry is" if lost == 1 else "entries are"
        found["warnings"].append(f"{lost} {many} too long to be read")
    digests = _digests(session, story, found["warnings"])
    kin = _relatives(family, stored["session"]["sessionId"]) if family else {}
    return found | {
        "kin": kin,
        "leafId": story.nodes[story.leaf].id if story.leaf >= 0 else None,
        "leaf": story.leaf,
        "tips": _fit(tips, cut),
        "digests": _fit(digests, cut),
        "textMax": room,
        "beats": msgspec.to_builtins(story.beats),
        "nodes": msgspec.to_builtins(story.nodes),
    }


def without_entries(stored: Stored, wish: Wish | None = None) -> Document:
    """The document of a session whose entries cannot be read: what is stored of it."""
    wish = wish or Wish()
    row, meta, context = stored["session"], stored.get("meta"), stored.get("context") or {}
    row = for_people(row) if wish.for_people else row
    about = {
        "session": {key: value for key, value in row.items() if value not in (None, "")},
        "meta": meta and {key: one for key, one in meta.items() if key not in _PATHS},
        "context": context,
        "footer": footer(context, row["cwd"])["text"],
        "warnings": list(stored.get("warnings", ())),
    }
    return {
        "format": "indexerd-export",
        "schema": 1,
        "generator": f"indexerd {__version__}",
        "exportedAt": iso(time.time()),
        "redacted": wish.redact,
        **_fit(about, cutter(wish)),
        "kin": {},
        "leafId": None,
        "leaf": -1,
        "tips": [],
        "digests": [],
        "textMax": 0,
        "beats": [],
        "nodes": [],
    }


def _relatives(family: Mapping[str, Any], session_id: str) -> dict[str, Any]:
    """The ids of a session's parent, forks and sub-agents."""
    found: dict[str, Any] = {}
    for one in family["members"]:
        if one["sessionId"] == session_id and one.get("parentSessionId"):
            found["parent"] = one["parentSessionId"]
        elif one.get("parentSessionId") == session_id:
            kind = "subagents" if one["relation"] == "subagent" else "forks"
            found.setdefault(kind, []).append(one["sessionId"])
            del found[kind][RELATIVES_MAX:]
    return found


def _redacting(read: Callable[[int], Entry], wish: Wish) -> Callable[[int], Entry]:
    """Entries whose texts are redacted, before anything is cut from them."""

    def clean(row: int) -> Entry:
        entry = read(row)
        texts = tuple(redact(one, wish.extra).text for one in entry.texts)
        return msgspec.structs.replace(entry, texts=texts)

    return clean


def cutter(wish: Wish) -> Cut:
    """How texts are made fit for their readers."""

    def cut(text: str, limit: int) -> str:
        seen = text[: limit + MARGIN]
        if wish.redact:
            seen = redact(seen, wish.extra).text
            if len(text) > limit + MARGIN:
                seen = seen[:-MARGIN]
        if wish.for_people and not seen.replace("\n", "").isprintable():
            seen = bare(seen).replace("\r\n", "\n")
        return seen[:limit]

    return cut


def _fit(value: Any, cut: Cut) -> Any:
    """A value whose texts are fit for their readers; they are all bounded where they come from."""
    if isinstance(value, str):
        return cut(value, len(value))
    if isinstance(value, list | tuple):
        return [_fit(one, cut) for one in value]
    if isinstance(value, Mapping):
        return {key: _fit(one, cut) for key, one in value.items()}
    return value


def _digests(session: OpenSession, story: Story, warnings: list[str]) -> list[dict[str, Any]]:
    """The segments that hold on the path, with the places of what they cover."""
    state = session.state
    rows, path = message_rows(state), state.path()
    try:
        segments = chain_at(state, session.home, session.info.session_id)
    except IndexerdError as bad:
        warnings.append(str(bad))
        return []
    found = []
    for one in segments:
        between = rows_between(path, rows, *one.covering)
        if places := [story.places[row] for row in between if row in story.places]:
            found.append(encode(one) | {"from": places[0], "to": places[-1]})
    return found


def changed(document: Document, after: str) -> Document:
    """What a page needs that has the version `after` of a document, or "".

    A version is `COUNT.HASH.HASH`, of the nodes and of the rest. The answer is `{version}` where
    nothing is new, the whole document with its `version`, or, where a page's nodes are still the
    first ones, that with those behind them alone: `{…, keep}`.
    """
    nodes = document["nodes"]
    rest = {key: one for key, one in document.items() if key not in _PASSING}
    version = f"{len(nodes)}.{_digest(nodes)}.{_digest(rest)}"
    if after == version:
        return {"version": version}
    count, _, digests = after.partition(".")
    keep = int(count) if re.fullmatch("[0-9]{1,9}", count) else len(nodes) + 1
    tail: dict[str, Any] = {}
    if keep <= len(nodes) and digests.startswith(f"{_digest(nodes[:keep])}."):
        tail = {"keep": keep, "nodes": nodes[keep:]}
    return {"version": version, **document, **tail}


def _digest(value: Any) -> str:
    return hashlib.blake2b(to_json(value).encode(), digest_size=12).hexdigest()


def to_json(value: Any) -> str:
    """A value as JSON in one line, ASCII alone; a number that is none is null."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
        return json.dumps(finite, separators=(",", ":"))
