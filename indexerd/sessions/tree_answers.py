"""Answer the socket's questions about one session: its tree, its branches, a path, its context.

Texts are the session's own, in full and not redacted: they go to the user who asks, nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from indexerd.agents.json_lines import own_words
from indexerd.events import Compaction, Entry, Kind
from indexerd.privacy.sanitize import clean_line, clean_text
from indexerd.protocol import params
from indexerd.protocol.limits import FIRST_MESSAGE_MAX, READ_MAX
from indexerd.sessions.branches import BRANCH_PREAMBLE, Tip, asks, names, summary_rows, tips
from indexerd.sessions.clipped import SUMMED, clipped
from indexerd.sessions.context import Read, context_entries, context_of
from indexerd.sessions.info import SessionInfo
from indexerd.sessions.serialize import serialize
from indexerd.sessions.state import NOWHERE, ROOT, SessionState
from indexerd.sessions.transforms import transformed
from indexerd.sessions.tree import NODES_MAX, WORD_MAX, nodes
from indexerd.times import iso_ms, iso_of_ms

GIST_MAX = 1000  # characters
TEXT_MAX = 65_536  # characters of one text of a path, where the answer has space for it
_LIMITS = (TEXT_MAX, 2000, 200)
ASKS_READ = 8  # messages of a branch that are read for one that says something
TEXTS_MAX = 10_000_000  # characters of all texts of a path, before they are cut shorter

# Thinking levels where none was set: pi's own word for it; of the others we know none.
LEVELS = {"pi": "off"}


class Session(Protocol):
    """A session as it was when somebody asked, seen from the leaf asked for."""

    @property
    def info(self) -> SessionInfo: ...
    @property
    def state(self) -> SessionState: ...
    @property
    def labels(self) -> dict[str, str]: ...


def text_limit(state: SessionState, rows: Sequence[int], total: int) -> int:
    """Choose how long each text may be, so that all of them together stay within bounds."""
    sums = ((limit, sum(min(state.lengths[row], limit) for row in rows)) for limit in _LIMITS)
    return next((limit for limit, size in sums if size <= total), _LIMITS[-1])


def _unread(state: SessionState, rows: Iterable[int]) -> dict[str, Any]:
    """Warn where lines of these rows were too long to be read: their length is stored as 0."""
    count = sum(not state.lengths[row] for row in rows)
    if not count:
        return {}
    found = "1 entry is" if count == 1 else f"{count} entries are"
    return {"warnings": [f"{found} too long to be read"]}


def tree(session: Session, read: Read, asked: params.Tree) -> dict[str, Any]:
    state = session.state
    found = nodes(state, read, session.labels, asked.filter or "all", asked.search)
    listed = list(islice(found, NODES_MAX))
    answer = _head(session) | {"nodes": listed} | _unread(state, range(len(state)))
    if next(found, None) is not None:
        answer["truncated"] = True
    if circle := state.cycles():
        answer["cycles"] = circle
        told = f"the parents of {len(circle)} entries run in a circle"
        answer["warnings"] = [told, *answer.get("warnings", ())]
    return answer


def branches(session: Session, read: Read, stored: Mapping[str, str]) -> dict[str, Any]:
    """`branches`: every tip; only its last message and what its gist is made of are read.

    `stored` are our own summaries of branches, by the names of the leaves they are of.
    """
    state, labels = session.state, session.labels
    summaries = {row: read(row) for row in summary_rows(state)}
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
        }
        optional = {
            "label": labels.get(state.id(tip.row)),
            "gist": gist,
            "gistSource": gist and source,
            "reason": None if tip.summary == ROOT else labels.get(state.id(tip.summary)),
        }
        listed.append(one | {key: value for key, value in optional.items() if value})
    return _head(session) | {"tips": listed}


def _gist(
    state: SessionState,
    tip: Tip,
    summaries: Mapping[int, Entry],
    stored: Mapping[str, str],
    read: Read,
) -> tuple[str, str]:
    """Say what a branch was about, and the source: digest, agent, or a question asked there."""
    named = names(state, tip) if stored else ()
    ours = next((text for leaf, text in stored.items() if leaf in named), "")
    if ours:  # the user asked for it
        return clean_text(ours[: 2 * GIST_MAX], GIST_MAX), "digest"
    if tip.summary != ROOT:
        told = "".join(summaries[tip.summary].texts).removeprefix(BRANCH_PREAMBLE)
        return clean_text(told[: 2 * GIST_MAX], GIST_MAX), "agent"
    for row in asks(state, tip)[:ASKS_READ] if tip.row != state.leaf else ():
        said = clean_line(own_words(read(row).text)[:READ_MAX], FIRST_MESSAGE_MAX)
        if said:
            return said, "ask"
    return "", ""


def path(session: Session, read: Read, asked: params.Path) -> dict[str, Any]:
    """`path`: the entries from the root to the leaf, with their texts.

    `customType` asks for an extension's records alone, with their data.
    """
    state, custom = session.state, asked.custom_type
    every = state.path()
    rows = every[-NODES_MAX:]
    limit = text_limit(state, rows, TEXTS_MAX)
    listed = [
        _step(session, row, one, limit, data=custom is not None)
        for row, one in zip(rows, map(read, rows), strict=True)
        if custom is None or (one.type == "custom" and one.custom_type == custom)
    ]
    cut: dict[str, Any] = {} if limit == TEXT_MAX else {"textMax": limit}
    cut |= {"truncated": True} if len(rows) < len(every) else {}
    return _head(session) | {"entries": listed} | cut | _unread(state, rows)


def context(session: Session, read: Read, asked: params.Context) -> dict[str, Any]:
    """`context`: what the agent would hand its model; and the path's compactions, newest first.

    `transforms` are rules for this one answer. `serialize` adds the whole as one text.
    """
    rules, state = asked.transforms or [], session.state
    shown: set[int] = set()

    def noted(row: int) -> Entry:
        shown.add(row)
        return read(row)

    found = context_of(state, noted, level=LEVELS.get(session.info.agent))
    rows = [row for row in reversed(state.path()) if state.kind(row) is Kind.COMPACTION]
    past = [_compaction(read(row)) for row in rows]
    answer = {
        "messages": [
            {"role": one.role, "text": one.text, "entryId": one.entry.id}
            for one in transformed(found.messages, rules)
        ],
        "model": found.model,
        "thinkingLevel": found.thinking_level,
        "compactions": past,
        "previousSummary": past[0]["summary"] if past else None,
    }
    if rules:
        answer["transformed"] = True
    if asked.serialize:  # of results it has the beginnings; rules choose for themselves
        brief = noted if rules else lambda row: clipped(noted(row), SUMMED)
        speeches = [one for step in context_entries(state, brief) for one in step.speeches]
        answer["serialized"] = serialize(transformed(speeches, rules))
    return _head(session) | answer | _unread(state, shown)


def _head(session: Session) -> dict[str, Any]:
    leaf = session.state.leaf
    return {
        "sessionId": session.info.session_id,
        "leafId": None if leaf == NOWHERE else session.state.id(leaf),
    }


def _step(session: Session, row: int, entry: Entry, limit: int, *, data: bool) -> dict[str, Any]:
    above = session.state.parent(row)
    one = {
        "ordinal": session.state.ordinals[row],
        "type": entry.type[:WORD_MAX],
        "role": entry.role and entry.role[:WORD_MAX],
        "label": session.labels.get(entry.id),
        "timestamp": entry.timestamp[:WORD_MAX],
        "text": "".join(entry.texts)[:limit],
        "customType": entry.custom_type,
        "display": entry.display,
        "fromId": entry.from_id,
        "data": entry.data if data else None,
    }
    places = {"id": entry.id, "parentId": None if above == ROOT else session.state.id(above)}
    return places | {key: value for key, value in one.items() if value is not None}


def _compaction(entry: Entry) -> dict[str, Any]:
    held = entry.compaction or Compaction()
    one = {
        "entryId": entry.id,
        "timestamp": entry.timestamp[:WORD_MAX],
        "summary": "".join(entry.texts),
        "firstKeptEntryId": held.kept,
        "tokensBefore": held.tokens_before,
        "fromHook": entry.from_hook,
        "details": entry.stored,
    }
    return {key: value for key, value in one.items() if value is not None}
