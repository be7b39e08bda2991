"""`history`: a long session as a page: its segments, and what follows them, message by message.

In: a session as it was taken. Out: segments with the ranges they cover, the messages that none
covers, the true count of all; and, in full, the context that the two make together (S2.14): system
messages, segments, messages verbatim. Only lines that are shown are read. Texts are the session's
own, not redacted: they go to the user who asks. Segments were redacted when they were made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from indexerd.daemon.views import TEXT_MAX, Taken, cut_for, reader
from indexerd.digests.assembled import assembled
from indexerd.digests.segments import (
    chain,
    covered,
    encode,
    message_rows,
    rows_between,
    shown,
)
from indexerd.digests.serialize import serialize
from indexerd.digests.stored_digest import stored_segments
from indexerd.events import Entry, Kind
from indexerd.models.threads import Check
from indexerd.privacy.sanitize import clean_line
from indexerd.sessions.clipped_entries import Keep
from indexerd.sessions.context import Read, context_messages, role_of
from indexerd.sessions.state import SessionState
from indexerd.settings import Digest

TOOLS_MAX = 20  # of one answer
LINE_MAX = 200  # characters of a message's text, unless all is asked for
LINE_LOOKED = 4000  # that are looked at for these
FULL_MAX = 4_000_000  # bytes of all texts where all is asked for, before each has less
RESULT_MAX = 2000  # characters of a tool's result, and of each end of what a call was given
_SPOKEN = frozenset({Kind.USER, Kind.ASSISTANT})


def history(taken: Taken, check: Check, *, wanted: Digest, full: bool) -> dict[str, Any]:
    """The result of `history`. ValueError: a line is no JSON, the session must be reread."""
    state = taken.state
    rows = message_rows(state)
    held = chain(state, rows, stored_segments(taken))
    begun = covered(shown(held, len(rows), wanted.preserve_recent))  # of the assembled context
    with taken.lines as lines:
        start = begun if full else covered(held)
        limit = cut_for(state, rows[start:], FULL_MAX) if full else LINE_LOOKED
        work = cut_for(state, rows_between(state.path(), rows, start, len(rows) - 1), FULL_MAX)
        read = reader(taken, lines, keep=Keep(RESULT_MAX, head=limit, tail=0, given=RESULT_MAX))
        recent, said = list[dict[str, Any]](), list[tuple[str, str, str]]()
        for one in _messages(state, rows, start, read, check):
            recent += [one.told(full=full)] if one.n >= covered(held) else []
            told = _said(state, one, read, work) if full else ("", "", "")
            said += [told] if told[1] else []  # an answer that failed may hold nothing at all
        system = list(_system(state, rows, read)) if full and wanted.preserve_system else []
    found: dict[str, Any] = {
        "sessionId": taken.card.session_id,
        "leafId": state.leaf_id,
        "segments": [encode(one) for one in held],
        "recent": recent,
        "fullMessageCount": len(rows),
        "foldedMessages": covered(held),
    }
    if full:
        parts = assembled(system, shown(held, len(rows), wanted.preserve_recent), said)
        found["context"] = [
            {"role": one.role, "text": one.text, "entryId": one.entry_id} for one in parts
        ]
    return found


@dataclass(slots=True)
class _Message:
    """One message: its place on the path, what is said in it, and all rows that belong to it."""

    n: int
    entries: list[Entry] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    @property
    def role(self) -> str:
        """Whose it is: user or assistant."""
        return "user" if self.entries[0].kind is Kind.USER else "assistant"

    @property
    def text(self) -> str:
        """Its words; an answer on several lines is one."""
        texts = ("".join(one.texts) for one in self.entries)
        return "\n".join(text for text in texts if text)

    def told(self, *, full: bool) -> dict[str, Any]:
        """As `recent` has it; `tools` are those that an answer without words called."""
        text, first = self.text, self.entries[0]
        shown = text[:TEXT_MAX] if full else clean_line(text[:LINE_LOOKED], LINE_MAX)
        found = {"n": self.n, "role": self.role, "text": shown, "entryId": first.id}
        tools = [call.name for one in self.entries for call in one.tools if call.name and not text]
        return found | {"at": first.timestamp} | ({"tools": tools[:TOOLS_MAX]} if tools else {})


def _messages(
    state: SessionState, rows: list[int], start: int, read: Read, check: Check
) -> Iterator[_Message]:
    """The messages from a position on."""
    if start >= len(rows):
        return
    numbers = dict(zip(rows, range(len(rows)), strict=True))
    held: _Message | None = None
    for row in rows_between(state.path(), rows, start, len(rows) - 1):
        check()
        if row in numbers:
            if held is not None:
                yield held
            held = _Message(numbers[row])
        if held is not None:
            held.rows.append(row)
            if state.kind(row) in _SPOKEN:
                held.entries.append(read(row))
    if held is not None:
        yield held


def _said(state: SessionState, message: _Message, read: Read, most: int) -> tuple[str, str, str]:
    """A message of the context; one without words is told by its calls and their results."""
    text = message.text or serialize(context_messages(state, read, message.rows))[:most]
    return message.role, text, message.entries[0].id


def _system(state: SessionState, rows: list[int], read: Read) -> Iterator[tuple[str, str, str]]:
    """System messages of the path, and the project's instructions before the first message."""
    first = rows[0] if rows else -1
    begun = False
    for row in state.path():
        begun = begun or row == first
        kind = state.kind(row)
        if kind is Kind.SYSTEM or (kind is Kind.OTHER and not begun):
            entry = read(row)
            role, text = role_of(entry), "".join(entry.details.get("sent", entry.texts))
            if role and text:
                yield role, text[:TEXT_MAX], entry.id
