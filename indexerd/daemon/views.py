"""Looking at one session: its tree, its branches, a path, what a model would get.

In: a library that knows the session. Out: the results of interfaces.md §5. `take` is for the
thread that owns the session's state, and quick: it copies the state's arrays. What follows reads
the session's lines, may take long, and is for any thread. A line that was taken on its looks and
is no JSON shows there: then the file is read anew, parsing each line, and all is done once more.

Texts are the session's own, in full and not redacted: they go to the user who asks, nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from indexerd.agents import ADAPTERS
from indexerd.daemon.library import Library
from indexerd.digests.branch_pi import PREAMBLE
from indexerd.digests.segments import parse
from indexerd.digests.serialize import serialize
from indexerd.errors import IndexerdError, NotFoundError, SessionUnreadableError
from indexerd.events import MESSAGE, TURN_MASK, TURN_SHIFT, Entry, Kind, Turn
from indexerd.meta.reader import digest_name, read_digest, read_user
from indexerd.paths import user_name
from indexerd.privacy.sanitize import clean_line, clean_text
from indexerd.protocol import params
from indexerd.protocol.limits import FIRST_MESSAGE_MAX
from indexerd.protocol.params import LeafParams
from indexerd.protocol.rows import LOOKED_AT
from indexerd.references.inject import own_words
from indexerd.sessions.branches import Tip, asks, names, summary_rows, tips
from indexerd.sessions.clipped_entries import SUMMED, WHOLE, Keep, clipped
from indexerd.sessions.context import Read, context_entries, context_of
from indexerd.sessions.history import compactions, opaque, records
from indexerd.sessions.info import SessionInfo
from indexerd.sessions.state import NOWHERE, ROOT, SessionState
from indexerd.sessions.transforms import rules_of, transformed, transformed_speeches
from indexerd.sessions.tree import NODES_MAX, WORD_MAX, nodes, sketch, still, wanted
from indexerd.sources.session_lines import SessionLines
from indexerd.times import iso_ms, iso_of_ms

GIST_MAX = 1000  # characters
ASKS_READ = 8  # messages of a branch that are read for one that says something
TEXT_MAX = 65_536  # characters of one text of a path, where the answer has space for it
TEXTS_MAX = 10_000_000  # characters of all of them, before they are cut shorter
_CUTS = (TEXT_MAX, 2000, 200)

# Thinking levels where none was set: pi's own word for it; of the others we know none.
LEVELS = {"pi": "off"}


@dataclass(frozen=True, slots=True)
class Taken:
    """A session as it was when somebody asked, seen from the leaf asked for."""

    card: SessionInfo
    state: SessionState  # a copy of its own
    lines: AbstractContextManager[SessionLines]  # to be entered by the thread that reads
    labels: dict[str, str]  # by entry id: the user's, and the session's own
    home: Path | None = None  # the directory of its meta file and sidecars


View = Callable[[Taken, Read, Any], dict[str, Any]]  # the params are those of its method


def take(library: Library, session_id: str, leaf: str | None = None) -> Taken:
    """Copy what is needed of a session. For the thread that owns its state."""
    card, state = library.files.card(session_id), library.files.state(session_id)
    if card is None or state is None:
        raise SessionUnreadableError(
            "the session's file is gone", hint="what is stored of it: `indexerd show REF`"
        )
    row = None if leaf is None else row_of(state, leaf)
    home = _home(library, session_id)
    labels = state.labels | {
        state.id(one): text
        for key, text in _user_labels(home, session_id).items()
        if (one := state.row(key)) is not None
    }
    return Taken(card, still(state, row), library.files.lines(session_id), labels, home)


def row_of(state: SessionState, entry_id: str) -> int:
    """The row of an entry; NotFoundError names one that is not there."""
    row = state.row(entry_id)
    if row is None:
        shown = clean_line(entry_id[:WORD_MAX], WORD_MAX)
        raise NotFoundError(
            f"no entry {shown} in this session", hint="`indexerd tree REF --filter all` lists them"
        )
    return row


def _home(library: Library, session_id: str) -> Path | None:
    try:
        home = library.home(session_id)
    except NotFoundError:  # its directory is no root any more
        return None
    return Path(home) if home else None


def _user_labels(home: Path | None, session_id: str) -> dict[str, str]:
    try:
        user = read_user(home / user_name(session_id)) if home else None
    except IndexerdError:  # an invalid sidecar counts as none, and is reported where it is read
        return {}
    return user.labels if user else {}


def ask(view: View, taken: Taken, asked: LeafParams) -> dict[str, Any]:
    """Answer from what was taken. ValueError: a line is no JSON, the session must be reread."""
    with taken.lines as lines:
        return view(taken, reader(taken, lines), asked)


def changed() -> SessionUnreadableError:
    """The error for a file that is not what it was a moment ago."""
    return SessionUnreadableError("the session file changed while it was read")


def reader(
    taken: Taken,
    lines: SessionLines,
    check: Callable[[], None] = lambda: None,
    keep: Keep | None = None,
) -> Read:
    """A way to read a row in full, and as the lines after it show it, which the state knows.

    `check` is called before each, and ends what nobody waits for any more by an error. Whoever
    holds many entries at a time says how much of each to `keep`.
    """
    read, state = ADAPTERS[taken.card.agent].read, taken.state

    def entry(row: int) -> Entry:
        check()
        line, kind = lines.brief(row), state.kind(row)
        try:
            found = read(line, state.id(row)) if line else _lost(state, row)
        except ValueError:
            if not state.strict:
                raise
            found = _lost(state, row)
        if found.kind not in (kind, Kind.OTHER):
            shown: dict[str, Any] = {"unseen": True} if kind is Kind.OTHER else {}
            if found.kind is Kind.USER and kind is Kind.CUSTOM:  # a program asked, as a user
                shown = {"sentAs": "user"}
            found = msgspec.structs.replace(found, kind=kind, details=found.details | shown)
        return found if keep is None else clipped(found, keep)

    return entry


def _unread(state: SessionState, rows: Iterable[int]) -> dict[str, Any]:
    """A warning where lines of these rows are too long to be read: of such no length is kept."""
    count = sum(1 for row in rows if not state.lengths[row])
    if not count:
        return {}
    found = "1 entry is" if count == 1 else f"{count} entries are"
    return {"warnings": [f"{found} too long to be read"]}


def _lost(state: SessionState, row: int) -> Entry:
    """What is known of an entry whose line is too long to be read, or is none any more."""
    kind = "message" if state.codes[row] & MESSAGE else ""
    return Entry(id=state.id(row), kind=state.kind(row), type=kind, role=None, timestamp="")


# -- the views -----------------------------------------------------------------------------------


def tree(taken: Taken, read: Read, asked: params.Tree) -> dict[str, Any]:
    """`tree`: every entry that is asked for, depth first."""
    state = taken.state
    sketches = {
        row: sketch(read(row), Turn((state.codes[row] & TURN_MASK) >> TURN_SHIFT))
        for row in dict.fromkeys(state.index.get(one, at) for at, one in enumerate(state.ids))
    }
    found = nodes(state, sketches, taken.labels, wanted(asked.filter or "all", asked.search))
    listed = list(islice(found, NODES_MAX))
    answer = _head(taken) | {"nodes": listed} | _unread(state, sketches)
    if next(found, None) is not None:
        answer["truncated"] = True
    circle = state.cycles()
    if circle:
        answer["cycles"] = circle
        told = f"the parents of {len(circle)} entries run in a circle"
        answer["warnings"] = [told, *answer.get("warnings", ())]
    return answer


def branches(taken: Taken, read: Read, _asked: object = None) -> dict[str, Any]:
    """`branches`: every tip; only its last message and what its gist is made of are read."""
    state = taken.state
    summaries = {row: read(row) for row in summary_rows(state)}
    stored = _stored(taken)
    listed = []
    for tip in tips(state, summaries):
        moment = iso_ms(read(tip.row if tip.last == ROOT else tip.last).timestamp)
        gist, source = _gist(state, tip, summaries, stored, read)
        one = {
            "leafId": state.id(tip.row),
            "branchPointId": None if tip.parting == ROOT else state.id(tip.parting),
            "entries": tip.entries,
            "userMessages": tip.users,
            "lastActivity": iso_of_ms(moment) if moment else "",
            "active": tip.row == state.leaf,
            "label": taken.labels.get(state.id(tip.row)),
            "gist": gist,
            "gistSource": source if gist else None,
            "reason": None if tip.summary == ROOT else taken.labels.get(state.id(tip.summary)),
        }
        optional = ("label", "gist", "gistSource", "reason")
        listed.append({key: value for key, value in one.items() if value or key not in optional})
    return _head(taken) | {"tips": listed}


def _stored(taken: Taken) -> dict[str, str]:
    """Our own summaries of branches, by the names of the leaves they are of."""
    if taken.home is None:
        return {}
    try:
        held = read_digest(taken.home / digest_name(taken.card.session_id))
    except IndexerdError:  # not readable, or no id that has a sidecar: as for labels
        return {}
    found = (one for line in held if (one := parse(line)) and one.kind == "branch")
    return {one.leaf_id: one.content for one in found}


def _gist(
    state: SessionState,
    tip: Tip,
    summaries: Mapping[int, Entry],
    stored: Mapping[str, str],
    read: Read,
) -> tuple[str, str]:
    """What a branch was about, and who says so: digest, agent, or what was asked there."""
    named = names(state, tip) if stored else ()
    ours = next((text for leaf, text in stored.items() if leaf in named), "")
    if ours:  # the user asked for it
        return clean_text(ours[: 2 * GIST_MAX], GIST_MAX), "digest"
    if tip.summary != ROOT:
        told = "".join(summaries[tip.summary].texts).removeprefix(PREAMBLE)
        return clean_text(told[: 2 * GIST_MAX], GIST_MAX), "agent"
    if tip.row != state.leaf:
        for row in islice(asks(state, tip), ASKS_READ):
            said = clean_line(own_words(read(row).text)[:LOOKED_AT], FIRST_MESSAGE_MAX)
            if said:
                return said, "ask"
    return "", ""


def path(taken: Taken, read: Read, asked: params.Path) -> dict[str, Any]:
    """`path`: the entries from the root to the leaf, with their texts.

    `customType` asks for an extension's records alone, with their data (S1.33).
    """
    custom = asked.custom_type
    rows = taken.state.path()
    limit = cut_for(taken.state, rows)
    places = {taken.state.id(row): row for row in rows}
    entries: Iterator[Entry] = (read(row) for row in rows)
    if custom is not None:
        entries = records(entries, custom)
    listed = [_step(taken, places[one.id], one, limit, data=custom is not None) for one in entries]
    cut = {} if limit == TEXT_MAX else {"textMax": limit}
    return _head(taken) | {"entries": listed} | cut | _unread(taken.state, rows)


def context(taken: Taken, read: Read, asked: params.Context) -> dict[str, Any]:
    """`context`: what the agent would hand its model; and the path's compactions, newest first.

    `transforms` are rules for this one answer (S1.37). `serialize` adds the whole as one text.
    """
    rules = rules_of(asked.transforms)
    state = taken.state
    shown: set[int] = set()

    def noted(row: int) -> Entry:
        shown.add(row)
        return read(row)

    found = context_of(state, noted, level=LEVELS.get(taken.card.agent))
    rows = [row for row in state.path() if state.kind(row) is Kind.COMPACTION]
    past = [_compaction(one) for one in compactions(read(row) for row in rows)]
    messages = (one.message for one in transformed(found.messages, rules))
    answer = {
        "messages": [
            {"role": one.role, "text": one.text, "entryId": one.entry_id} for one in messages
        ],
        "model": found.model,
        "thinkingLevel": found.thinking_level,
        "compactions": past,
        "previousSummary": past[0]["summary"] if past else None,
    }
    if rules:
        answer["transformed"] = True
    if asked.serialize:
        keep = WHOLE if rules else SUMMED

        def brief(row: int) -> Entry:
            return clipped(noted(row), keep)

        speeches = [one for step in context_entries(state, brief) for one in step.speeches]
        answer["serialized"] = serialize(transformed_speeches(speeches, rules))
    return _head(taken) | answer | _unread(state, shown)


def _head(taken: Taken) -> dict[str, Any]:
    leaf = taken.state.leaf
    return {
        "sessionId": taken.card.session_id,
        "leafId": None if leaf == NOWHERE else taken.state.id(leaf),
    }


def cut_for(state: SessionState, rows: list[int], total: int | None = None) -> int:
    """How long each text may be, so that all of them together stay within bounds."""
    for limit in _CUTS:
        if sum(min(state.lengths[row], limit) for row in rows) <= (total or TEXTS_MAX):
            return limit
    return _CUTS[-1]


def _step(taken: Taken, row: int, entry: Entry, limit: int, *, data: bool) -> dict[str, Any]:
    above = taken.state.parent(row)
    one = {
        "id": entry.id,
        "parentId": None if above == ROOT else taken.state.id(above),
        "ordinal": taken.state.ordinals[row],
        "type": entry.type[:WORD_MAX],
        "role": entry.role and entry.role[:WORD_MAX],
        "label": taken.labels.get(entry.id),
        "timestamp": entry.timestamp[:WORD_MAX],
        "text": "".join(entry.texts)[:limit],
        "customType": entry.details.get("customType"),
        "display": entry.details.get("display"),
        "fromId": entry.details.get("fromId"),
    }
    if data:
        one["data"] = opaque(entry.details.get("data"))
    return {key: value for key, value in one.items() if value is not None or key == "parentId"}


def _compaction(entry: Entry) -> dict[str, Any]:
    details = entry.details
    one = {
        "entryId": entry.id,
        "timestamp": entry.timestamp[:WORD_MAX],
        "summary": "".join(entry.texts),
        "firstKeptEntryId": details.get("kept"),
        "tokensBefore": details.get("tokensBefore"),
        "fromHook": details.get("fromHook"),
        "details": opaque(details.get("details")),
    }
    return {key: value for key, value in one.items() if value is not None}
