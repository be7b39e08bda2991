"""The socket's methods about one session's tree, and the two that add to it.

`tree`, `branches`, `path` and `context` look. `label` writes to the user's own sidecar. `branch`
makes a new session file of one path: the only thing that ever makes a file in an agent's
directory, at its user's word, and never over another file.

How a session is taken and read: references/looks.py.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from indexerd.agents import pi
from indexerd.daemon.answers import Answers, word
from indexerd.daemon.views import VIEWS, Taken, ask
from indexerd.digests.branch_file import VERSION, Line, Origin, branch_lines, file_name
from indexerd.errors import (
    SessionEmptyError,
    SessionUnreadableError,
    UsageError,
)
from indexerd.events import Kind
from indexerd.meta.limits import NAME_MAX
from indexerd.meta.newfile import create
from indexerd.privacy.sanitize import clean_line
from indexerd.references.looks import Looks
from indexerd.sessions.state import SessionState
from indexerd.sources.session_lines import SessionLines
from indexerd.times import iso

Params = dict[str, Any]
Update = Callable[[Params, Any], Awaitable[Any]]
Work = Callable[[Taken, Params], dict[str, Any]]

# How the other agents make a branch of a session: their files are theirs alone to write.
_OWN_WAYS = {
    "claude": "`claude --resume ID --fork-session` makes a branch of its own",
    "codex": "`codex fork ID` makes a branch of its own",
    "opencode": "fork the session inside opencode",
}


class Trees:
    """Answers about trees, for one daemon."""

    def __init__(
        self,
        answers: Answers,
        *,
        looks: Looks,
        update: Update,
        clock: Callable[[], float],
    ) -> None:
        """`update` changes the user's sidecar."""
        self._answers = answers
        self._update = update
        self._clock = clock
        self._looks = looks

    def methods(self) -> dict[str, Callable[[Params, Any], Any]]:
        """Every method, by its name."""
        looks = {name: partial(self._look, partial(ask, view)) for name, view in VIEWS.items()}
        return {**looks, "branch": self._branch, "label": self._label}

    async def _look(self, work: Work, params: Params, _peer: Any) -> Any:
        return await self._do(work, self._session(params), params)

    def _session(self, params: Params) -> str:
        row = self._answers.row(_text(params, "ref"), cwd=word(params, "cwd"))
        return str(row["sessionId"])

    async def _do(self, work: Work, session_id: str, params: Params) -> Any:
        leaf = word(params, "leaf")
        if leaf == "":
            raise UsageError("leaf is an entry's id")
        return await self._looks.at(session_id, leaf, lambda taken, _: work(taken, params))

    async def _label(self, params: Params, peer: Any) -> Any:
        entry_id, text = _text(params, "entryId"), word(params, "text")
        session_id = self._session(params)
        label = {"entryId": entry_id, "text": text or None}
        await self._update({"ref": session_id, "label": label}, peer)
        shown = clean_line(text, NAME_MAX) if text else None
        return {"sessionId": session_id, "entryId": entry_id, "label": shown or None}

    async def _branch(self, params: Params, _peer: Any) -> Any:
        _text(params, "leaf")
        given = word(params, "file")
        if given is not None and not given.startswith("/"):
            raise UsageError("file is an absolute path")
        if given is not None and "\0" in given:
            raise UsageError("file has a NUL in it, which no path can have")
        now = self._clock()
        make = partial(_write, iso(now), new_id(now), given)
        return await self._do(make, self._session(params), params)


def _write(
    now: str, session_id: str, file: str | None, taken: Taken, _params: Params
) -> dict[str, Any]:
    """Make the file of a path. UsageError for sessions of agents other than pi."""
    card, state, header = taken.card, taken.state, taken.state.header
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
    with taken.lines as lines:
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


def _text(params: Params, key: str) -> str:
    value = word(params, key)
    if not value:
        raise UsageError(f"{key} is required, and is a string")
    return value
