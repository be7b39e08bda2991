"""What a question needs of one session: its path, newest first, and the agent's own summaries.

In: a session as it was taken, seen from its leaf or from another entry. Out: what was said,
redacted, as far back as a text of so many bytes goes. Runs in threads, never in the event loop.
Errors carry the code of the tool that this one follows, where their kind alone does not say it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from indexerd.core.context import Read
from indexerd.core.questions import EMPTY, EVER, Gathered, Said, gather
from indexerd.core.session import SessionState
from indexerd.core.transcript import Redactor
from indexerd.errors import NotFoundError, SessionEmptyError, SessionUnreadableError
from indexerd.events import Kind
from indexerd.service.library import Library
from indexerd.service.query_codes import INVALID, MISSING, UNREADABLE
from indexerd.service.trees import present
from indexerd.service.views import Taken, reader, take

_ROLES = {Kind.USER: "user", Kind.ASSISTANT: "assistant"}
_SUMMARIES = (Kind.COMPACTION, Kind.BRANCH_SUMMARY)


def taken_of(library: Library, session_id: str, leaf: str | None) -> Taken:
    """Take a session, seen from an entry. For the thread that owns its state; quick."""
    try:
        present(library, session_id)
    except NotFoundError as gone:
        row = library.catalog.get(session_id)
        if row is not None and Path(row["sessionFile"]).exists():
            raise SessionUnreadableError("the session's file holds no session any more") from None
        gone.upstream = MISSING
        raise
    try:
        return take(library, session_id, leaf)
    except NotFoundError as unknown:  # the entry, not the session
        unknown.upstream = INVALID
        raise


def gathered_of(taken: Taken, max_bytes: int, clean: Redactor) -> Gathered:
    """Read as much of the path as a text of `max_bytes` needs. For any thread.

    ValueError: a line is no JSON, the session must be reread. SessionEmptyError: nobody said
    anything. SessionUnreadableError: the file is gone, or cannot be read.
    """
    state = taken.state
    try:
        with taken.lines as lines:
            read = reader(taken, lines)
            found = gather(_said(state, read), _summaries(state, read), max_bytes, clean)
    except SessionUnreadableError as bad:
        bad.upstream = UNREADABLE if Path(taken.card.file).exists() else MISSING
        raise
    if not found.sections:
        raise SessionEmptyError(EMPTY)
    return found


def _said(state: SessionState, read: Read) -> Iterator[Said]:
    """What user and assistant said on the path, newest first; a line is read when asked for."""
    for age, row in enumerate(state.up(state.leaf)):
        role = _ROLES.get(state.kind(row))
        if role:
            entry = read(row)
            if not entry.details.get("unseen"):
                yield Said(state.id(row), role, entry.text, age)


def _summaries(state: SessionState, read: Read) -> Iterator[Said]:
    """The agent's own summaries on the path, newest first."""
    for age, row in enumerate(state.up(state.leaf)):
        kind = state.kind(row)
        if kind in _SUMMARIES:
            told = EVER if kind is Kind.COMPACTION else age
            yield Said(state.id(row), "summary", read(row).text, told)
