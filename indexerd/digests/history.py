"""`history`: a long session as a page: its segments, and what follows them, message by message.

In full, it adds the context that the two make together (S2.14): system messages, segments,
messages verbatim. Only lines that are shown are read. Texts are the session's own, not redacted:
they go to the user who asks. Segments were redacted when they were made.

A segment's text came from a model that read text from any hand. It must not be able to end its
own block and begin another: lines of it that begin like a heading of ours are quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from indexerd.digests.segments import Segment, chain_at, covered, encode, shown
from indexerd.events import Entry, Kind
from indexerd.models.threads import Check
from indexerd.privacy.patterns import lazy_pattern
from indexerd.privacy.sanitize import clean_line
from indexerd.sessions.clipped_entries import Keep
from indexerd.sessions.context import Read, context_messages, role_of
from indexerd.sessions.positions import message_rows, rows_between
from indexerd.sessions.serialize import serialize
from indexerd.sessions.state import SessionState
from indexerd.sessions.views import TEXT_MAX, text_limit
from indexerd.settings import Digest
from indexerd.sources.session_reader import OpenSession

TOOLS_MAX = 20  # of one answer
LINE_MAX = 200  # characters of a message's text, unless all is asked for
LINE_LOOKED = 4000  # that are looked at for these
FULL_MAX = 4_000_000  # bytes of all texts where all is asked for, before each has less
RESULT_MAX = 2000  # characters of a tool's result, and of each end of what a call was given
FILES_SHOWN = 100  # of one segment

# Marks of Markdown, white space, case and other dashes do not make a heading another one.
_DASH = "[-\u2010-\u2015\u2212]"
_HEADING = lazy_pattern(
    r"^(?=[ \t#*_`]*+(?:previous[ \t]+conversation[ \t]+context"
    rf"|(?:{_DASH}[ \t]*+)++[*_`]*+earlier[ \t]+in[ \t]+conversation"
    r"|\[[ \t]*+previous[ \t]+conversation[ \t]+summari[sz]ed"
    r"|files[ \t]+modified|key[ \t]+decisions[ \t]*+:))",
    re.IGNORECASE | re.MULTILINE,
)


def history(session: OpenSession, check: Check, *, wanted: Digest, full: bool) -> dict[str, Any]:
    """The result of `history`."""
    state = session.state
    rows = message_rows(state)
    chain = chain_at(state, session.home, session.info.session_id)
    stand = shown(chain, len(rows), wanted.preserve_recent)  # for messages of the context
    start = covered(stand if full else chain)
    path_rows = rows_between(state.path(), rows, start, len(rows) - 1)
    head = text_limit(state, rows[start:], FULL_MAX) if full else LINE_LOOKED
    keep = Keep(RESULT_MAX, head=head, tail=0, given=RESULT_MAX)
    recent, context = list[dict[str, Any]](), list[dict[str, Any]]()
    with session.reading(check, keep) as read:
        if full and wanted.preserve_system:
            context += _system(state, rows, read)
        if stand:
            context.append(_said("user", earlier(stand), None))
        most = text_limit(state, path_rows, FULL_MAX)
        for one in _messages(state, rows, path_rows, read):
            recent += [one.listed(full=full)] if one.n >= covered(chain) else []
            if full:  # a message without words by its calls and results
                text = one.text or serialize(context_messages(state, read, one.rows))[:most]
                context += [_said(one.role, text, one.entries[0].id)] if text else []
    found = {
        "sessionId": session.info.session_id,
        "leafId": state.leaf_id,
        "segments": [encode(one) for one in chain],
        "recent": recent,
        "fullMessageCount": len(rows),
        "foldedMessages": covered(chain),
    }
    return found | ({"context": context} if full else {})


class _Message(NamedTuple):
    """One message: its place on the path, what is said in it, and all rows that belong to it."""

    n: int
    entries: list[Entry]
    rows: list[int]

    @property
    def role(self) -> str:
        """Whose it is."""
        return "user" if self.entries[0].kind is Kind.USER else "assistant"

    @property
    def text(self) -> str:
        """Its words; an answer on several lines is one."""
        return "\n".join(filter(None, ("".join(one.texts) for one in self.entries)))

    def listed(self, *, full: bool) -> dict[str, Any]:
        """As `recent` has it; `tools` are those that an answer without words called."""
        text, first = self.text, self.entries[0]
        shown = text[:TEXT_MAX] if full else clean_line(text[:LINE_LOOKED], LINE_MAX)
        found = {"n": self.n, "role": self.role, "text": shown, "entryId": first.id}
        tools = [call.name for one in self.entries for call in one.tools if call.name and not text]
        return found | {"at": first.timestamp} | ({"tools": tools[:TOOLS_MAX]} if tools else {})


def _messages(
    state: SessionState, rows: list[int], path_rows: list[int], read: Read
) -> Iterator[_Message]:
    """The messages of a part of the path, each up to the next one."""
    numbers = {row: n for n, row in enumerate(rows)}
    starts = [at for at, row in enumerate(path_rows) if row in numbers]
    for start, end in zip(starts, [*starts[1:], len(path_rows)], strict=False):
        own = path_rows[start:end]
        said = (row for row in own if state.kind(row) in (Kind.USER, Kind.ASSISTANT))
        yield _Message(numbers[own[0]], list(map(read, said)), own)


def _system(state: SessionState, rows: list[int], read: Read) -> Iterator[dict[str, Any]]:
    """System messages of the path, and the project's instructions before the first message."""
    begun = False
    for row in state.path():
        begun = begun or row in rows[:1]
        kind = state.kind(row)
        if kind is Kind.SYSTEM or (kind is Kind.OTHER and not begun):
            entry = read(row)
            role, text = role_of(entry), "".join(entry.as_sent)
            if role and text:
                yield _said(role, text[:TEXT_MAX], entry.id)


def _said(role: str, text: str, entry_id: str | None) -> dict[str, Any]:
    return {"role": role, "text": text, "entryId": entry_id}


def earlier(chain: Sequence[Segment]) -> str:
    """The segments as one text, oldest first, under their headings (S2.15)."""
    parts = ["Previous conversation context:"]
    for one in chain:
        parts.append("--- Earlier in conversation ---")
        parts.append(f"[Previous conversation summarized - {one.messages} messages]")
        parts.append(_HEADING.sub("> ", one.content))
        if one.files_modified:
            more = len(one.files_modified) - FILES_SHOWN
            names = ", ".join(one.files_modified[:FILES_SHOWN])
            parts.append(f"Files modified: {names}" + (f" and {more} more" if more > 0 else ""))
        if one.key_decisions:
            parts.append("\n- ".join(["Key decisions:", *one.key_decisions]))
    return "\n\n".join(parts)
