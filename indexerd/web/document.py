"""A session as one JSON document, from which every export and the live page are made.

It has the answers of `get` and `branches`, all entries (`nodes`), their story (`beats`) and the
digests; places are indices of `nodes`, because ids may repeat or be empty. Secrets are removed only
on request, from a little more text than is shown, as half a secret would not be recognised.
"""

from __future__ import annotations

import hashlib
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from indexerd import __version__
from indexerd.daemon.library import Library
from indexerd.daemon.open_session import branches, open_session
from indexerd.digests.segments import chain_at, encode
from indexerd.entries import Entry
from indexerd.errors import FileGoneError, IndexerdError
from indexerd.meta.sidecar import footer
from indexerd.paths import directory_of
from indexerd.privacy.redact import Redactor, for_people
from indexerd.privacy.sanitize import bare
from indexerd.protocol.wire import dump
from indexerd.sessions.pictures import pictures_in
from indexerd.sessions.state import message_rows, rows_between
from indexerd.sessions.tree_answers import text_limit, unread
from indexerd.sources.session_reader import OpenSession
from indexerd.times import iso
from indexerd.web.markdown import to_text
from indexerd.web.story import Cut, Image, Node, Room, Story, add_results, node_of, story_of

TEXT_MAX = 20_000  # characters of an entry
TOTAL_MAX = 12_000_000  # characters of all entries, before each gets less room
ROOMS = (TEXT_MAX, 4000, 1000, 200)
WHOLE_TOTAL_MAX = 200_000_000  # the same for complete documents
WHOLE_ROOMS = (2_000_000, 200_000, TEXT_MAX, 4000, 1000)
PICTURES_MAX = 24_000_000  # characters of base64 in a document
GIST_MAX = 300
LABEL_ROOM = 480
STRIDE = 1000  # entries: between two strides a page that grows keeps what it has
MARGIN = 8192  # characters after a cut that may contain the rest of a secret
_PATHS = ("cwd", "sessionFile", "parentSessionFile")  # left out of `meta`: `session` has them

Document = dict[str, Any]
Stored = Mapping[str, Any]  # the answer of `get`


@dataclass(frozen=True, slots=True)
class Wish:
    """Options of a document."""

    redact: Redactor | None = None
    whole: bool = False  # for a program: all characters and arguments, texts as long as can be
    pictures: bool = False  # with the pictures' data, unless secrets are removed
    leaf: str | None = None
    newest: int = sys.maxsize  # entries; what is shown begins at a multiple of STRIDE


def read_document(library: Library, stored: Stored, wish: Wish) -> Document:
    """Read the document of a session of the library; FileGoneError if it has no file."""
    session = open_session(library, stored["session"]["sessionId"], wish.leaf)
    if session is None:
        raise FileGoneError("the session's file is gone")
    return document_of(session, stored, wish)


def document_of(session: OpenSession, stored: Stored, wish: Wish) -> Document:
    state, cut = session.state, _cutter(wish)
    document = without_entries(stored, wish)
    rows = range(len(state))
    if left_out := max(0, len(rows) - wish.newest) // STRIDE * STRIDE:
        rows = rows[left_out:]
        why = f"the oldest {left_out:,} entries are not shown: `indexerd export` includes them"
        document["warnings"].append(why)
    rooms, total = (WHOLE_ROOMS, WHOLE_TOTAL_MAX) if wish.whole else (ROOMS, TOTAL_MAX)
    room = Room(cut, text_limit(state, rows, total, rooms), wish.redact, wish.whole)
    nodes = dict[int, Node]()
    pictures_of = _album(PICTURES_MAX if wish.pictures and wish.redact is None else 0)
    with session.lines as lines, session.reading() as read:
        for row in rows:
            entry = read(row)
            pictures = pictures_of(lines.row(row)) if entry.images else ()
            nodes[row] = node_of(state, row, entry, room, pictures)
        add_results(state, nodes, room)
        tips = branches(session, _redacting(read, wish.redact) if wish.redact else read)["tips"]
    placed = [(at, tip) for tip in tips if (at := state.row(tip["leafId"])) is not None]
    labels = {key: cut(text, LABEL_ROOM) for key, text in session.labels.items()}
    gists = {
        row: (to_text(cut(tip["gist"], TEXT_MAX), GIST_MAX), tip["gistSource"])
        for row, tip in placed
        if "gist" in tip
    }
    story = story_of(state, nodes, labels, gists)
    for row, tip in placed:
        if row in story.places:
            tip["place"] = story.places[row]
    document["warnings"] += unread(state, rows).get("warnings", ())
    try:
        digests = _digests(session, story)
    except IndexerdError as bad:
        document["warnings"].append(str(bad))
        digests = []
    return document | {
        "leafId": story.nodes[story.leaf].id if story.leaf >= 0 else None,
        "leaf": story.leaf,
        "tips": _fit(tips, cut),
        "digests": _fit(digests, cut),
        "textMax": room.most,
        **({"cut": room.lost} if wish.whole else {}),
        "beats": msgspec.to_builtins(story.beats),
        "nodes": msgspec.to_builtins(story.nodes),
    }


def _album(left: int) -> Callable[[bytes], list[Image]]:
    """Return a function that makes the pictures of a line; the data of all is bounded."""

    def pictures(line: bytes) -> list[Image]:
        nonlocal left
        found = list[Image]()
        for picture in pictures_in(line):
            data = picture.data if len(picture.data) <= left else ""
            left -= len(data)
            found.append(Image(picture.media_type, picture.size, data))
        return found

    return pictures


def without_entries(stored: Stored, wish: Wish) -> Document:
    """Make the document of a session whose entries cannot be read."""
    row, meta, context = stored["session"], stored.get("meta"), stored.get("context") or {}
    if not wish.whole:
        row = for_people(row)
        texts = {key: row[key] for key in ("name", "description") if row.get(key)}
        row = row | {key: to_text(text, len(text)) or text for key, text in texts.items()}
    about = {
        "session": {key: value for key, value in row.items() if value not in (None, "")},
        "meta": meta and {key: value for key, value in meta.items() if key not in _PATHS},
        "context": context,
        "footer": footer(context, directory_of(row))["text"],
        "warnings": list(stored.get("warnings", ())),
    }
    return {
        "format": "indexerd-export",
        "schema": 2,
        "generator": f"indexerd {__version__}",
        "exportedAt": iso(time.time()),
        "redacted": wish.redact is not None,
        **_fit(about, _cutter(wish)),
        "leafId": None,
        "leaf": -1,
        "textMax": 0,
        **{key: [] for key in ("tips", "digests", "beats", "nodes")},
    }


def _redacting(read: Callable[[int], Entry], redact: Redactor) -> Callable[[int], Entry]:
    """Redact the texts of entries before anything is cut from them."""

    def clean(row: int) -> Entry:
        entry = read(row)
        texts = tuple(redact(text).text for text in entry.texts)
        sent = None if entry.sent is None else tuple(redact(text).text for text in entry.sent)
        return msgspec.structs.replace(entry, texts=texts, sent=sent)

    return clean


def _cutter(wish: Wish) -> Cut:
    def cut(text: str, limit: int) -> str:
        seen = text[: limit + MARGIN]
        if wish.redact:
            seen = wish.redact(seen).text
            if len(text) > limit + MARGIN:
                seen = seen[:-MARGIN]
        if not wish.whole and not seen.replace("\n", "").isprintable():
            seen = bare(seen).replace("\r\n", "\n")
        return seen[:limit]

    return cut


def _fit(value: Any, cut: Cut) -> Any:
    """Apply `cut` to all texts in a value; their lengths are already bounded."""
    if isinstance(value, str):
        return cut(value, len(value))
    if isinstance(value, list | tuple):
        return [_fit(item, cut) for item in value]
    if isinstance(value, Mapping):
        return {key: _fit(item, cut) for key, item in value.items()}
    return value


def _digests(session: OpenSession, story: Story) -> list[dict[str, Any]]:
    state, digests = session.state, list[dict[str, Any]]()
    segments = chain_at(state, session.home, session.info.session_id)
    if not segments:  # nearly always: spare the walk along the path
        return digests
    rows, path = message_rows(state), state.path()
    for segment in segments:
        between = rows_between(path, rows, *segment.covering)
        if places := [story.places[row] for row in between if row in story.places]:
            digests.append(encode(segment) | {"from": places[0], "to": places[-1]})
    return digests


def changed(document: Document, after: str) -> Document:
    """Return the changes for a page that has version `after` of a document ("": none).

    A version is `COUNT.HASH.HASH`, of the nodes and of the rest. The answer is `{version}` if
    nothing changed, else the whole document with its `version`; if the page's nodes are still the
    first ones, `keep` is their number and `nodes` only has those after them.
    """
    nodes = document["nodes"]
    rest = {key: value for key, value in document.items() if key not in ("nodes", "exportedAt")}
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
    return hashlib.blake2b(dump(value), digest_size=12).hexdigest()
