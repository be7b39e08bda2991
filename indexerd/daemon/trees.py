"""The socket's methods about one session's tree.

`tree`, `branches`, `path` and `context` look. `branch` makes a new session file of one path: the
only thing that ever makes a file in an agent's directory, at its user's word, and never over
another file.

`read_alone` opens one session without the daemon's store, for commands, exports and pages: it is
read anew by the same code, into caches that are thrown away again, so that what is shown is what
the daemon would show. A file whose name is no UTF-8 is not found: a row is JSON.
"""

from __future__ import annotations

import os
import secrets
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from indexerd.agents.pi.branch_file import VERSION, Line, Origin, branch_lines, file_name
from indexerd.daemon.library import Library
from indexerd.digests.segments import read_segments
from indexerd.errors import (
    IndexerdError,
    NotFoundError,
    SessionEmptyError,
    SessionUnreadableError,
    UsageError,
)
from indexerd.events import Kind
from indexerd.meta.newfile import create
from indexerd.meta.reader import read_user
from indexerd.paths import user_name
from indexerd.protocol import params
from indexerd.protocol.params import LeafParams
from indexerd.search.index import TextIndex
from indexerd.sessions import views
from indexerd.sessions.context import Read
from indexerd.sessions.state import SessionState
from indexerd.settings import Settings
from indexerd.sources.session_reader import OpenSession, SessionLines, row_of
from indexerd.sources.stores import stores
from indexerd.store.store import StateStore
from indexerd.times import iso

PREFIX = "indexerd-"  # of directories of caches; the process that they are of comes next
# How the other agents make a branch of a session: their files are theirs alone to write.
_OWN_WAYS = {
    "claude": "`claude --resume ID --fork-session` makes a branch of its own",
    "codex": "`codex fork ID` makes a branch of its own",
    "opencode": "fork the session inside opencode",
}


View = Callable[[OpenSession, Read, Any], dict[str, Any]]  # the params are those of its method


def open_session(library: Library, session_id: str, leaf: str | None = None) -> OpenSession | None:
    """Copy what is needed of a session; None where its file is gone.

    For the thread that owns its state.
    """
    card, state = library.files.card(session_id), library.files.state(session_id)
    if card is None or state is None:
        return None
    row = None if leaf is None else row_of(state, leaf)
    home = _home(library, session_id)
    labels = state.labels | {
        state.id(one): text
        for key, text in _user_labels(home, session_id).items()
        if (one := state.row(key)) is not None
    }
    return OpenSession(card, state.still(row), library.files.lines(session_id), labels, home)


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


def branches(session: OpenSession, read: Read, _asked: object = None) -> dict[str, Any]:
    """`branches`, with our own summaries of them."""
    try:
        held = read_segments(session.home, session.info.session_id, "branch")
    except IndexerdError:  # not readable, or no id that has a sidecar: as for labels
        held = []
    return views.branches(session, read, {one.leaf_id: one.content for one in held})


VIEWS: dict[str, View] = {
    "tree": views.tree,
    "branches": branches,
    "path": views.path,
    "context": views.context,
}


def show(
    method: str, asked: LeafParams, session: OpenSession, _check: object = None
) -> dict[str, Any]:
    """Answer one of `VIEWS` from an open session."""
    with session.reading() as read:
        return VIEWS[method](session, read, asked)


def make_branch(
    asked: params.Branch, now: float, session: OpenSession, _check: object
) -> dict[str, Any]:
    """Make a session file of one path."""
    file = asked.file
    if file is not None and not file.startswith("/"):
        raise UsageError("file is an absolute path")
    if file is not None and "\0" in file:
        raise UsageError("file has a NUL in it, which no path can have")
    return _write(iso(now), new_id(now), file, session)


def _write(now: str, session_id: str, file: str | None, session: OpenSession) -> dict[str, Any]:
    """Make the file of a path. UsageError for sessions of agents other than pi."""
    card, state, header = session.info, session.state, session.state.header
    if card.agent != "pi":
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


# -- without the daemon's store -------------------------------------------------------------------


@contextmanager
def read_alone(
    row: Mapping[str, Any],
    settings: Settings,
    env: Mapping[str, str],
    home: Path,
    within: Path | None = None,
) -> Iterator[Library]:
    """A library that knows the session of a row, read now, and no other; nothing of it is kept.

    Its caches are in a directory of their own `within` one, or where temporary files go.
    """
    with TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", dir=within) as folder:
        store = StateStore(Path(folder) / "store.sqlite")
        index = TextIndex(Path(folder) / "search", store)
        index.open()
        library = Library(
            store,
            index,
            stores=lambda: stores(settings, env, home),
            exclude=lambda: settings.privacy.exclude,
            report=lambda _session, _why: None,
            defect=_unreadable,
            patterns=lambda: settings.redact.extra_patterns,
        )
        try:
            library.only(row["agent"], row["sessionFile"], row["sessionId"])
            yield library
        finally:
            library.close()


def sweep(folder: Path) -> None:
    """Remove what processes that were killed left of their caches; others' stay."""
    for left in folder.glob(f"{PREFIX}*"):
        pid = left.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isascii() and pid.isdigit() and not left.is_symlink() and _is_gone(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it is somebody's
        return False
    return False


def _unreadable(_path: str, bug: Exception) -> None:
    raise SessionUnreadableError(f"the session file cannot be read: {type(bug).__name__}")
