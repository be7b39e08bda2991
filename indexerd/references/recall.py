"""What a question needs of one session: its path, newest first, and the agent's own summaries.

In: a session as it was taken, seen from its leaf or from another entry. Out: what was said,
redacted, as far back as a text of so many bytes goes. Runs in threads, never in the event loop.
Errors carry the code of the tool that this one follows, where their kind alone does not say it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import NamedTuple

from indexerd.daemon.library import Library
from indexerd.daemon.views import Taken, reader, row_of, take
from indexerd.errors import NotFoundError, SessionEmptyError, SessionUnreadableError
from indexerd.events import Kind
from indexerd.models.threads import Check
from indexerd.privacy.redactor import Redactor
from indexerd.references.query_codes import INVALID, MISSING, UNREADABLE
from indexerd.references.question_prompt import EMPTY, EVER, Gathered, Said, gather
from indexerd.sessions.context import Read
from indexerd.sessions.state import SessionState
from indexerd.sources.session_lines import SessionLines

_ROLES = {Kind.USER: "user", Kind.ASSISTANT: "assistant"}
_SUMMARIES = (Kind.COMPACTION, Kind.BRANCH_SUMMARY)


class Seen(NamedTuple):
    """A session as somebody sees it. Two of one key show the same; `bytes` is all it holds."""

    key: Hashable
    bytes: int


def seen_of(library: Library, session_id: str, leaf: str | None) -> Seen:
    """Look at what there is to be read. For the thread that owns its state; quick.

    SessionUnreadableError: the file is gone, or no session any more. NotFoundError: no such entry.
    """
    card, state = library.files.card(session_id), library.files.state(session_id)
    if card is None or state is None:
        raise _lost(library, session_id)
    try:
        row = state.leaf if leaf is None else row_of(state, leaf)
    except NotFoundError as unknown:
        unknown.upstream = INVALID
        raise
    return Seen((card, row), sum(state.lengths))


def taken_of(library: Library, session_id: str, leaf: str | None) -> Taken:
    """Take a session, seen from an entry. For the thread that owns its state; quick.

    Errors as for `seen_of`.
    """
    if library.files.card(session_id) is None:
        raise _lost(library, session_id)
    try:
        return take(library, session_id, leaf)
    except NotFoundError as unknown:  # the entry, not the session
        unknown.upstream = INVALID
        raise


def gathered_of(
    taken: Taken, max_bytes: int, clean: Redactor, check: Check = lambda: None
) -> Gathered:
    """Read as much of the path as a text of `max_bytes` needs. For any thread.

    ValueError: a line is no JSON, the session must be reread. SessionEmptyError: nobody said
    anything. SessionUnreadableError: the file is gone, or cannot be read. `check` is called now
    and then; what it raises ends the work.
    """
    state, card = taken.state, taken.card

    def cleaned(text: str) -> tuple[str, dict[str, int]]:
        check()
        return clean(text)

    try:
        with taken.lines as lines:
            read = reader(taken, lines, check)
            found = gather(_said(state, read), _summaries(state, read), max_bytes, cleaned)
            torn = not found.sections and _torn(state, lines)
    except SessionUnreadableError as bad:
        if not Path(card.file).exists():
            raise _gone() from None
        bad.upstream = UNREADABLE
        raise
    if found.sections:
        return found
    if torn or (card.bad_lines and not card.rows):
        raise _garbage()
    raise SessionEmptyError(EMPTY)


def _torn(state: SessionState, lines: SessionLines) -> bool:
    """Whether a file that is not empty has ended before a line that was read in it."""
    path = Path(state.file)
    rows = (row for row in state.up(state.leaf) if state.lengths[row])
    return any(not lines.row(row) for row in rows) and path.exists() and path.stat().st_size > 0


def _lost(library: Library, session_id: str) -> SessionUnreadableError:
    """The error for a session that is known, and has no session file any more."""
    row = library.catalog.get(session_id)
    return _garbage() if row is not None and Path(row["sessionFile"]).exists() else _gone()


def _gone() -> SessionUnreadableError:
    bad = SessionUnreadableError(
        "the session's file is gone",
        hint="what is stored of it: `indexerd show REF`",
        upstream=MISSING,
    )
    bad.retryable = False  # it does not come back by itself
    return bad


def _garbage() -> SessionUnreadableError:
    return SessionUnreadableError(
        "the session's file holds no session any more", upstream=UNREADABLE
    )


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
