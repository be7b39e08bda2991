"""The socket's methods about one session's tree.

`tree`, `branches`, `path` and `context` look. `branch` makes a new session file of one path: the
only thing that ever makes a file in an agent's directory, at its user's word, and never over
another file.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from indexerd.agents import pi
from indexerd.agents.pi.branch_file import VERSION, Line, Origin, branch_lines, file_name
from indexerd.daemon import views
from indexerd.daemon.answers import Answers
from indexerd.daemon.views import View, ask
from indexerd.errors import (
    SessionEmptyError,
    SessionUnreadableError,
    UsageError,
)
from indexerd.events import Kind
from indexerd.meta.newfile import create
from indexerd.protocol import params
from indexerd.protocol.params import LeafParams, RefParams
from indexerd.sessions.state import SessionState
from indexerd.sources.session_lines import SessionLines
from indexerd.sources.session_reader import OpenSession, SessionReaderPool
from indexerd.times import iso

# How the other agents make a branch of a session: their files are theirs alone to write.
_OWN_WAYS = {
    "claude": "`claude --resume ID --fork-session` makes a branch of its own",
    "codex": "`codex fork ID` makes a branch of its own",
    "opencode": "fork the session inside opencode",
}


class Trees:
    """Answers about trees."""

    def __init__(
        self, answers: Answers, pool: SessionReaderPool, clock: Callable[[], float]
    ) -> None:
        self._answers = answers
        self._pool = pool
        self._clock = clock

    def tree(self, asked: params.Tree) -> Awaitable[Any]:
        """Every entry that is asked for."""
        return self._view(views.tree, asked)

    def branches(self, asked: LeafParams) -> Awaitable[Any]:
        """The last entry of each branch."""
        return self._view(views.branches, asked)

    def path(self, asked: params.Path) -> Awaitable[Any]:
        """The entries from the root to the leaf."""
        return self._view(views.path, asked)

    def context(self, asked: params.Context) -> Awaitable[Any]:
        """What the agent would hand its model."""
        return self._view(views.context, asked)

    async def branch(self, asked: params.Branch) -> Any:
        """Make a session file of one path."""
        file = asked.file
        if file is not None and not file.startswith("/"):
            raise UsageError("file is an absolute path")
        if file is not None and "\0" in file:
            raise UsageError("file has a NUL in it, which no path can have")
        now = self._clock()
        make = partial(_write, iso(now), new_id(now), file)
        return await self._pool.read(
            self._session(asked), asked.leaf, lambda session, _: make(session)
        )

    async def _view(self, view: View, asked: LeafParams) -> Any:
        work = partial(ask, view)
        return await self._pool.read(
            self._session(asked), asked.leaf, lambda session, _: work(session, asked)
        )

    def _session(self, asked: RefParams) -> str:
        return str(self._answers.row(asked.ref, cwd=asked.cwd)["sessionId"])


def _write(now: str, session_id: str, file: str | None, session: OpenSession) -> dict[str, Any]:
    """Make the file of a path. UsageError for sessions of agents other than pi."""
    card, state, header = session.info, session.state, session.state.header
    if card.agent != pi.NAME:
        hint = _OWN_WAYS.get(card.agent)
        raise UsageError("a branch can be extracted from a session of pi only", hint=hint)
    rows = state.path()
    if all(state.kind(row) is Kind.LABEL for row in rows):
        raise SessionEmptyError("there is nothing but labels on this path")
    origin = Origin(
        session_id=session_id,
        timestamp=now,
        cwd=header.cwd if header else "",
        source=card.path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"),
        version=header.version if header else VERSION,
    )
    target = Path(file) if file else Path(card.path).parent / file_name(origin)
    with session.lines as lines:
        labels = (row for row in range(len(state)) if state.kind(row) is Kind.LABEL)
        made = branch_lines(
            origin,
            (_line(state, lines, row) for row in rows),
            (_line(state, lines, row) for row in labels),
            partial(secrets.token_hex, 4),
        )
        count = create(target, made)
    return {"sessionId": session_id, "sessionFile": str(target), "entries": count - 1}


def _line(state: SessionState, lines: SessionLines, row: int) -> Line:
    data = lines.row(row)
    if not data:
        raise SessionUnreadableError(
            "an entry on this path is too long to be copied", hint="pi itself can fork it"
        )
    return Line(state.id(row), state.kind(row), data)


def new_id(now: float) -> str:
    """A UUID of version 7, as pi makes them: `now` in seconds, then chance."""
    high = (int(now * 1000) & (1 << 48) - 1) << 80 | 7 << 76 | secrets.randbits(12) << 64
    return str(uuid.UUID(int=high | 2 << 62 | secrets.randbits(62)))
