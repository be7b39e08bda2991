r"""A session as one JSON document, of which every form of an export and the live page are made.

    format "indexerd-export", schema 1, exportedAt, generator
    session    a row (docs/PROTOCOL.md), without what only the daemon needs
    meta       name, description, summary, tags, model, updatedAt, usage … of the meta file, or null
    context    the sets of relevant context; footer: the same in one line
    kin        {parent, forks: [id], subagents: [id]}
    leafId     the entry that the session stands at, or that was asked for; leaf: its place
    nodes      every entry, depth first, with texts:
               {id, parentId, above, row, ordinal, kind, type, role, time, text, length, calls:
               [[tool, what for]], results: [[tool, text]], tool, thinking, model, tokens, failed,
               images, label, quiet, hidden, active}. `above` is the place of the parent in this
               list, or -1: ids may repeat or be empty, places not. `length`: the text had so many
               characters, and was cut. `tokens`: {input, output, cacheRead, cacheWrite, costUsd}
    beats      the story over them: {kind: ask|work|compaction|branch-summary, first, last, depth,
               active, begins, text, answers, calls: {tool: n}, failed, tokens, ms, quiet, labels,
               gist, gistSource}; `first` to `last` are places
    tips       the branches, as `branches` answers, each with its `place`
    digests    the segments that hold on the path to the leaf, each with `from` and `to`: places
    textMax    characters that an entry had room for; redacted, omitted, warnings

A field of a node or a beat that has nothing to say is absent. Texts are the session's own, whole
but for `textMax`: how much an entry may say depends on how much all of them say. Secrets are taken
out only where that was asked for, before a text is cut, and from a little more than is shown, so
that none is recognised by its first half alone.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from indexerd import __version__
from indexerd.daemon.library import Library
from indexerd.daemon.trees import branches, open_session
from indexerd.digests.segments import chain_at, encode
from indexerd.errors import IndexerdError
from indexerd.events import Entry, Kind
from indexerd.meta.context_sets import footer
from indexerd.privacy.redact import for_people, redact
from indexerd.privacy.sanitize import bare, scrub
from indexerd.sessions.positions import message_rows, rows_between
from indexerd.sessions.state import ROOT, SessionState
from indexerd.sources.session_reader import OpenSession, read_here, reader
from indexerd.times import iso
from indexerd.web.story import Beat, Cut, Node, Story, kept_rows, node_of, story_of

FORMAT, SCHEMA = "indexerd-export", 1
TEXT_MAX = 20_000  # characters of one entry
LABEL_ROOM = 480
TOTAL_MAX = 12_000_000  # of all, before each has less
ROOMS = (TEXT_MAX, 4000, 1000, 200)
MARGIN = 8192  # characters past a cut in which the rest of a secret may stand
RELATIVES_MAX = 200  # ids of each kind
SESSION = (
    "sessionId", "agent", "name", "nameSource", "agentTitle", "description", "tags", "cwd",
    "sessionFile", "createdAt", "modifiedAt", "durationMs", "messageCount", "userMessageCount",
    "firstUserMessage", "state", "archived", "subagent", "compactions", "gitBranch", "models",
    "tokens", "costUsd", "filesRead", "filesModified", "toolsUsed", "parentSessionId",
    "parentSessionFile", "resume",
)  # fmt: skip
META = (
    "name", "description", "summary", "tags", "model", "updatedAt", "lastIndexedLeafId", "usage",
    "keyDecisions", "redactions",
)  # fmt: skip
_CAMEL = {"gist_source": "gistSource"}
_ALWAYS = frozenset(
    {"above", "row", "ordinal", "kind", "time", "type", "text", "first", "last", "depth"}
)

Document = dict[str, Any]
Stored = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Wish:
    """How a document is to be. `extra`: the user's own patterns of secrets."""

    for_people: bool = True  # only what shows; else whole characters, for a program
    redact: bool = False
    extra: tuple[re.Pattern[str], ...] = ()
    leaf: str | None = None


def read_document(
    library: Library,
    stored: Stored,
    wish: Wish,
    relatives: Mapping[str, Any],
) -> Document:
    """The document of a session that the library knows; `stored` is the answer of `get`.

    Blocks. NotFoundError where the session's file is gone.
    """
    session_id = stored["session"]["sessionId"]
    return read_here(
        partial(open_session, library, session_id, wish.leaf),
        partial(library.reread, session_id),
        lambda session: document_of(session, stored, wish, relatives),
    )


def document_of(
    session: OpenSession, stored: Stored, wish: Wish, relatives: Mapping[str, Any]
) -> Document:
    """The document of an open session. ValueError: a line is no JSON."""
    story, more = _read(session, wish)
    more["warnings"] += stored.get("warnings", ())
    return _about(stored, story, wish, relatives, more) | {
        "beats": [_plain(one) for one in story.beats],
        "nodes": [_node(one, story) for one in story.nodes],
    }


def without_entries(stored: Stored) -> Document:
    """The document of a session whose entries cannot be read: what is stored of it."""
    more = {"tips": [], "digests": [], "textMax": 0, "warnings": list(stored.get("warnings", ()))}
    story = Story([], [], ROOT, {})
    return _about(stored, story, Wish(), {}, more) | {"beats": [], "nodes": []}


def relatives_in(family: Mapping[str, Any], session_id: str) -> dict[str, Any]:
    """The ids of a session's parent, forks and sub-agents, by what the method `family` answers."""
    found: dict[str, Any] = {"forks": [], "subagents": []}
    for one in family["members"]:
        if one["sessionId"] == session_id and one.get("parentSessionId"):
            found["parent"] = one["parentSessionId"]
        elif one.get("parentSessionId") == session_id:
            found["subagents" if one["relation"] == "subagent" else "forks"].append(
                one["sessionId"]
            )
    return {
        key: one if key == "parent" else one[:RELATIVES_MAX] for key, one in found.items() if one
    }


# -- reading -------------------------------------------------------------------------------------


def _read(session: OpenSession, wish: Wish) -> tuple[Story, dict[str, Any]]:
    """The story, and what else is read of the session. ValueError: a line is no JSON."""
    state, cut = session.state, cutter(wish)
    rows = sorted(kept_rows(state))
    room = _room(state, rows)
    with session.lines as lines:
        read = reader(session, lines)
        names: dict[str, str] = {}
        nodes = {row: node_of(state, row, read(row), room, cut=cut, names=names) for row in rows}
        clean = _redacting(read, wish) if wish.redact else read
        tips = branches(session, clean)["tips"]
    labels = {key: cut(text, LABEL_ROOM) for key, text in session.labels.items()}
    gists = {
        row: (cut(tip["gist"], TEXT_MAX), tip["gistSource"])
        for tip in tips
        if "gist" in tip and (row := state.row(tip["leafId"])) is not None
    }
    story = story_of(state, nodes, labels, gists)
    warnings: list[str] = []
    if lost := sum(not state.lengths[row] for row in rows):
        warnings.append(f"{lost} {'entry is' if lost == 1 else 'entries are'} too long to be read")
    for tip in tips:
        row = state.row(tip["leafId"])
        if row in story.places:
            tip["place"] = story.places[row]
    digests = _digests(session, story, warnings)
    return story, {"tips": tips, "digests": digests, "textMax": room, "warnings": warnings}


def _room(state: SessionState, rows: Sequence[int]) -> int:
    """How much each entry may say, so that all of them together stay within bounds."""
    for room in ROOMS:
        if sum(min(state.lengths[row], room) for row in rows) <= TOTAL_MAX:
            return room
    return ROOMS[-1]


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
        if limit <= 0 or not text:
            return ""
        seen = text[: limit + MARGIN]
        if wish.redact:
            seen = redact(seen, wish.extra).text
            if len(text) > limit + MARGIN:
                seen = seen[:-MARGIN]
        if wish.for_people and not seen.replace("\n", "").isprintable():
            seen = bare(seen).replace("\r\n", "\n")
        return seen[:limit]

    return cut


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
        between = rows_between(path, rows, one.first, one.last)
        places = [story.places[row] for row in between if row in story.places]
        if places:
            found.append(encode(one) | {"from": places[0], "to": places[-1]})
    return found


# -- as JSON -------------------------------------------------------------------------------------


def _about(
    stored: Stored,
    story: Story,
    wish: Wish,
    relatives: Mapping[str, Any],
    more: Mapping[str, Any],
) -> Document:
    """The document but for its beats and nodes, whose texts were cut as they were read."""
    row, meta, context = stored["session"], stored.get("meta"), stored.get("context") or {}
    row = for_people(row) if wish.for_people else row
    about = {
        "format": FORMAT,
        "schema": SCHEMA,
        "generator": f"indexerd {__version__}",
        "exportedAt": iso(time.time()),
        "session": {key: row[key] for key in SESSION if row.get(key) not in (None, "")},
        "meta": meta and {key: meta[key] for key in META if meta.get(key) is not None},
        "context": context,
        "footer": footer(context, row["cwd"])["text"],
        "kin": relatives,
        "leafId": None if story.leaf == ROOT else story.nodes[story.leaf].id,
        "leaf": story.leaf,
        "redacted": wish.redact,
        "omitted": story.dropped,
        **more,
    }
    cut = cutter(wish)
    return {key: _fit(value, cut) for key, value in about.items()}


def _fit(value: Any, cut: Cut) -> Any:
    """A value whose texts are fit for their readers; they are all bounded where they come from."""
    if isinstance(value, str):
        return cut(value, len(value))
    if isinstance(value, list | tuple):
        return [_fit(one, cut) for one in value]
    if isinstance(value, Mapping):
        return {key: _fit(one, cut) for key, one in value.items()}
    return value


def _node(node: Node, story: Story) -> dict[str, Any]:
    above = None if node.above == ROOT else story.nodes[node.above].id
    found = {"id": node.id, "parentId": above} | _plain(node)
    found.pop("ms", None)
    if node.tokens is not None:
        tokens = node.tokens
        counts = {
            "input": tokens.input,
            "output": tokens.output,
            "cacheRead": tokens.cache_read,
            "cacheWrite": tokens.cache_write,
            "costUsd": tokens.cost_usd,
        }
        found["tokens"] = {key: value for key, value in counts.items() if value}
    return found


def _plain(one: Node | Beat) -> dict[str, Any]:
    """A node or a beat as an object; what is empty is left out."""
    found: dict[str, Any] = {}
    for name in one.__slots__:
        value = getattr(one, name)
        if value or name in _ALWAYS:
            found[_CAMEL.get(name, name)] = _KINDS[value] if isinstance(value, Kind) else value
    return found


_KINDS = {kind: kind.name.lower() for kind in Kind}


def to_json(document: Mapping[str, Any]) -> str:
    """The document's text: an object's fields a line each, long lists one element a line."""

    def shown(value: Any) -> str:
        if not isinstance(value, list) or not value:
            return compact_json(value)
        return "[\n" + ",\n".join(map(compact_json, value)) + "\n]"

    fields = (f"{json.dumps(key)}: {shown(value)}" for key, value in document.items())
    return without_controls("{\n" + ",\n".join(fields) + "\n}\n")


def compact_json(value: Any) -> str:
    """A value as JSON in one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def without_controls(text: str) -> str:
    r"""The same JSON, with what does not show or could act on a terminal written as `\uXXXX`."""
    text = scrub(text)
    if text.isprintable():
        return text
    odd = "".join(char for char in set(text) if not char.isprintable() and char != "\n")
    escaped = re.compile(f"[{re.escape(odd)}]") if odd else None
    return escaped.sub(lambda found: json.dumps(found[0])[1:-1], text) if escaped else text
