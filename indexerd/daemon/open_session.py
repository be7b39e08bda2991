"""Open one session for an answer: views of its tree, `branch`, and reading without a daemon.

`branch` writes one path to a new file, on request. Nothing else writes session files.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from indexerd.agents.pi.parse import branch_lines
from indexerd.daemon.event_bus import EventBus
from indexerd.daemon.library import Library
from indexerd.digests.segments import read_segments
from indexerd.disk import create_file, make_directory
from indexerd.entries import Kind
from indexerd.errors import (
    FileGoneError,
    IndexerdError,
    SessionEmptyError,
    SessionUnreadableError,
    UsageError,
)
from indexerd.meta.model import UserFile, read_user
from indexerd.paths import Places, user_name
from indexerd.protocol import params
from indexerd.sessions import tree_answers
from indexerd.sessions.context import ReadRow
from indexerd.settings import Settings
from indexerd.sources.roots import pi_folder
from indexerd.sources.session_reader import OpenSession, row_of
from indexerd.times import iso


def open_session(library: Library, session_id: str, leaf: str | None = None) -> OpenSession | None:
    """Copy a session's state, in the thread that owns it; None if its file is gone."""
    info, state = library.files.info(session_id), library.files.state(session_id)
    if info is None or state is None:
        _check_here(library.store.get(session_id) or {})
        return None
    row = None if leaf is None else row_of(state, leaf)
    directory, labels = library.home(session_id), dict(state.labels)
    home = Path(directory) if directory else None
    with suppress(IndexerdError):  # an invalid sidecar, which `get` reports
        user = read_user(home / user_name(session_id)) if home else UserFile()
        for key, text in user.labels.items():
            if (labelled := state.row(key)) is not None:
                labels[state.ids[labelled]] = text
    return OpenSession(info, state.snapshot(row), labels, library.files.lines(session_id), home)


def branches(session: OpenSession, read: ReadRow, _asked: object = None) -> dict[str, Any]:
    """Answer `branches`, with our own summaries of them."""
    summaries: dict[str, str] = {}
    with suppress(IndexerdError):  # as for labels
        segments = read_segments(session.home, session.info.session_id, "branch")
        summaries = {segment.leaf_id: segment.content for segment in segments}
    return tree_answers.branches(session, read, summaries)


def make_branch(args: params.Branch, cwd: str, session: OpenSession) -> dict[str, Any]:
    """Write a new session file of one path; its project is now in `cwd`.

    UsageError for agents other than pi.
    """
    file, info, state = args.file, session.info, session.state
    if file is not None and (not file.startswith("/") or "\0" in file):
        raise UsageError("file must be an absolute path without NUL")
    if info.agent != "pi":
        hint = "the agent itself can fork a session"
        raise UsageError("branches can only be extracted from sessions of pi", hint=hint)
    rows = state.path()
    labels = [row for row in range(len(state)) if state.kind(row) is Kind.LABEL]
    if all(state.kind(row) is Kind.LABEL for row in rows):
        raise SessionEmptyError("this path has only labels")
    source = info.path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    new_id, now = str(uuid.uuid4()), iso(time.time())
    fields = {"version": info.version, "id": new_id, "timestamp": now}
    fields |= {"cwd": cwd, "parentSession": source}
    folder = Path(info.path).parent
    if folder.name == pi_folder(info.cwd):
        folder = folder.with_name(pi_folder(cwd))
    stamp = now.replace(":", "-").replace(".", "-")
    target = Path(file) if file else folder / f"{stamp}_{new_id}.jsonl"
    if not file:
        make_directory(folder)
    with session.lines as lines:

        def line(row: int) -> bytes:
            if data := lines.row(row):
                return data
            message = "an entry on this path is too long to copy"
            raise SessionUnreadableError(message, hint="pi itself can fork it")

        new_entry_id = partial(secrets.token_hex, 4)
        path = ((state.ids[row], line(row)) for row in rows)
        new_lines = branch_lines(fields, path, map(line, labels), new_entry_id)
        count = create_file(target, new_lines)
    return {"sessionId": new_id, "sessionFile": str(target), "entries": count - 1}


def _check_here(row: Mapping[str, Any]) -> None:
    """Raise FileGoneError if another machine has a session's file."""
    if machine := row.get("machine"):
        hint = f"ask on {machine}; `indexerd show {row['sessionId']}` shows what is known here"
        raise FileGoneError(f"its transcript is on {machine}", hint=hint)


@contextmanager
def read_alone(
    row: Mapping[str, Any], settings: Settings, env: Mapping[str, str], home: Path
) -> Iterator[Library]:
    """Read one session into a library whose caches are in a temporary directory."""
    _check_here(row)
    with TemporaryDirectory(prefix="indexerd-") as folder:
        places = Places({**env, "INDEXERD_STATE_DIR": folder}, home=home)
        library = Library(places, lambda: settings, env, home, EventBus())
        try:
            library.index.open()
            library.only(row["agent"], row["sessionFile"], row["sessionId"])
            for why in library.files.problems().values():
                raise SessionUnreadableError(f"the session file cannot be read: {why}")
            yield library
        finally:
            library.close()
