"""The user's own file beside a session: changed by one writer at a time, returned at a resume.

Title, labels, environment hint and context sets are in one file, so every change of any of them
comes through here. Before a session's sets are changed, every fork of it that has none of its own
gets a copy.

A resume block is given out once for each `resumeId`, over restarts too: the store remembers, which
is a cache, and one block more does no harm. Without a `resumeId` it is once for each start of the
daemon.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from msgspec import UNSET

from indexerd.daemon.answers import Answers, is_fork
from indexerd.daemon.open_session import open_session
from indexerd.daemon.pipeline import Pipeline
from indexerd.errors import (
    AccessError,
    AmbiguousError,
    FileGoneError,
    IndexerdError,
    InvalidMetaError,
    NotFoundError,
    StateError,
)
from indexerd.logs import Event
from indexerd.meta import context_sets as sets
from indexerd.meta.context_sets import Context
from indexerd.meta.model import UserFile
from indexerd.meta.reader import read_user
from indexerd.meta.sidecar import Edited, Held, edit, has_own_sets, label_of, with_sets
from indexerd.meta.writer import MetaWriter
from indexerd.paths import is_session_id
from indexerd.protocol import params
from indexerd.sources.session_reader import row_of
from indexerd.times import iso

Row = dict[str, Any]

SET = "relevant-context:set"  # the `customType` of telemetry
TOPIC = "resume"  # of the store's notes
RESUMES_MAX = 5000  # resumes that are remembered; the oldest go
NEW_SESSION_PATIENCE, POLL = 2.0, 0.05  # seconds
_WHOLE_ID = 16  # characters; a shorter word may be the beginning of an id


class Sidecars:
    """Every session's sidecar, for one daemon."""

    def __init__(
        self,
        pipeline: Pipeline,
        answers: Answers,
        writer: MetaWriter,
        record: Callable[[Mapping[str, Any]], Any],
    ) -> None:
        """`record` writes a row of telemetry; it may block for a moment."""
        self._pipeline = pipeline
        self._answers = answers
        self._writer = writer
        self._record = record
        self._lock = asyncio.Lock()  # of all changes: each reads a file before it writes it
        self._resumed: set[str] = set()  # by this process
        self._announcing: set[asyncio.Task[None]] = set()

    async def set(self, asked: params.SetContext) -> Row:
        change = sets.change_of(asked.set_name, asked.items, asked.mode)
        row = await self._row_soon(asked)
        outcomes = list[sets.Outcome]()

        def work(noted: Held) -> Edited:
            outcomes.append(outcome := sets.apply(noted.context, change))
            if not outcome.changed:
                return Edited(None)
            return Edited(with_sets(noted.user, outcome.context, fork=is_fork(row)), (change.name,))

        await self._change(row, work, change.name)
        return {
            "sessionId": row["sessionId"],
            "text": outcomes[0].text,
            "contextChanged": outcomes[0].changed,
            "setName": change.name,
            "warnings": list(outcomes[0].warnings),
        }

    async def update(self, asked: params.Update) -> Row:
        """Set or clear title, hint, a label and sets; what is not named stays."""
        row = self._answers.by_id(asked.ref)
        if asked.label is not UNSET and label_of(asked)[1]:
            await self._pipeline.read(self._check_entry, row["sessionId"], label_of(asked)[0])
        work = partial(edit, asked=asked, fork=is_fork(row))
        one = asked.set_context if asked.context is UNSET else None
        name = one.get("setName") if isinstance(one, dict) else None
        edited = await self._change(row, work, name.strip() if isinstance(name, str) else None)
        new = self._answers.by_id(row["sessionId"])
        if asked.title is not UNSET:
            renamed = {"name": new["name"], "previous": row["name"]}
            self._pipeline.bus.publish("session.renamed", row["sessionId"], renamed)
        return new | {"warnings": list(edited.warnings)} if edited.warnings else new

    async def give_to_forks(self, row: Row) -> None:
        """A session's sets are about to go: each fork that reads them gets its copy."""
        with suppress(InvalidMetaError, AccessError, NotFoundError):  # nothing can be read of it
            noted = await asyncio.to_thread(self._answers.noted, row)
            async with self._lock:
                await self._copy_to_forks(row["sessionId"], noted.context)

    async def _change(self, row: Row, work: Callable[[Held], Edited], name: str | None) -> Edited:
        """Make one change; events and telemetry are of what was written."""
        session_id, bus = row["sessionId"], self._pipeline.bus
        path = self._answers.sidecars(row)[0]
        async with self._lock:
            noted = await asyncio.to_thread(self._answers.noted, row)
            edited = await asyncio.to_thread(work, noted)
            if edited.user is None:
                return edited
            if edited.names:
                await self._copy_to_forks(session_id, noted.context)
            await self._write(path.parent, session_id, edited.user)
        for one in edited.names:
            fields = {"customType": SET, "success": True, "sessionId": session_id, "setName": one}
            fields |= {"contextChanged": True, "timestamp": iso(self._pipeline.now())}
            await asyncio.to_thread(self._record, fields)
            if one not in sets.KNOWN:
                bus.log(Event.CONTEXT_UNKNOWN_SET, {"session": session_id})
        if edited.names:
            bus.context("changed", session_id, edited.user.context, name)
        return edited

    async def _write(self, directory: Path, session_id: str, user: UserFile) -> None:
        await asyncio.to_thread(self._writer.write_user, directory, session_id, user)
        await self._pipeline.rewritten(session_id, str(directory))

    async def _copy_to_forks(self, session_id: str, context: Context) -> None:
        for fork in self._answers.forks(session_id) if context else ():
            with suppress(InvalidMetaError, AccessError, NotFoundError):  # never written over
                path = self._answers.sidecars(fork)[0]
                user = await asyncio.to_thread(read_user, path) or UserFile()
                if not has_own_sets(user):
                    copied = with_sets(user, context, fork=True)
                    await self._write(path.parent, fork["sessionId"], copied)

    def _check_entry(self, session_id: str, entry_id: str) -> None:
        """Raise where a session has no such entry; in the thread that owns its state."""
        session = open_session(self._pipeline.library, session_id)
        if session is None:
            raise FileGoneError("the session's file is gone")
        row_of(session.state, entry_id)

    async def _row_soon(self, asked: params.SessionParams) -> Row:
        """The session's row; one with a whole id that is not known may only just have begun.

        Agents call the tool in their first turn, and their file may be a moment behind.
        """
        until, ref = monotonic() + NEW_SESSION_PATIENCE, asked.session
        while True:
            try:
                return self._answers.row(ref, cwd=asked.cwd, fuzzy=False)
            except (NotFoundError, AmbiguousError):  # another may have a name that is like this id
                if len(ref) < _WHOLE_ID or not is_session_id(ref) or monotonic() > until:
                    raise
            await asyncio.sleep(POLL)

    async def resume(self, asked: params.ResumeContext) -> Row:
        """The block for the first message after a resume, once."""
        row = self._answers.row(asked.session, cwd=asked.cwd, fuzzy=False)
        session_id, cwd = row["sessionId"], row["cwd"]
        digest = hashlib.blake2b((asked.resume_id or "").encode("utf-8", "replace"), digest_size=12)
        key = f"{session_id}/{digest.hexdigest() if asked.resume_id else ''}"
        if key in self._resumed or await self._pipeline.read(self._was_given, key):
            return {"sessionId": session_id, "text": None, "missingFiles": 0}
        user, context = await asyncio.to_thread(self._answers.noted, row)
        make = partial(sets.resume_block, cwd, user.env_hint, context, partial(is_there, cwd))
        text, missing = await asyncio.to_thread(make)
        self._resumed.add(key)
        if asked.resume_id:
            with suppress(StateError):
                await self._pipeline.read(self._remember, key)
        self._pipeline.bus.context("resume", session_id, context)
        return {"sessionId": session_id, "text": text, "missingFiles": missing}

    def _was_given(self, key: str) -> bool:
        with suppress(StateError):
            return self._pipeline.library.store.noted(TOPIC, key) is not None
        return False

    def _remember(self, key: str) -> None:
        store = self._pipeline.library.store
        stamp = int(self._pipeline.now() * 1000).to_bytes(8, "big")  # sorts by age
        store.note(TOPIC, key, stamp)
        store.trim(TOPIC, RESUMES_MAX)

    async def forget(self, session_id: str) -> None:
        read, store, own = self._pipeline.read, self._pipeline.library.store, f"{session_id}/"
        self._resumed = {key for key in self._resumed if not key.startswith(own)}
        with suppress(StateError):
            for key in await read(store.notes, TOPIC):
                if key.startswith(own):
                    await read(store.note, TOPIC, key, None)

    def opened(self, session_id: str) -> None:
        """Somebody opened a session's history: publish its sets, after the answer."""
        task = asyncio.get_running_loop().create_task(self._announce(session_id))
        self._announcing.add(task)
        task.add_done_callback(self._announcing.discard)

    async def _announce(self, session_id: str) -> None:
        with suppress(IndexerdError):  # gone meanwhile, or a bad file: that is reported elsewhere
            noted = await asyncio.to_thread(self._answers.noted, self._answers.by_id(session_id))
            if noted.context:
                self._pipeline.bus.context("load", session_id, noted.context)


def is_there(cwd: str, item: str) -> bool:
    """Whether a file exists; what cannot be known, for want of a right, is taken to exist."""
    try:
        path = Path(sets.absolute(cwd, item)).expanduser()
        return path.exists() or not path.is_absolute()
    except (OSError, RuntimeError):
        return True
