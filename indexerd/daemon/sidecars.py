"""Changes to the users' own files of sessions, and the block for a resumed session.

Title, labels, environment hint and context sets share one file, so all changes go through here, one
at a time. Before a session's sets change, every fork without sets of its own gets a copy.

A resume block is issued once per `resumeId`, also over restarts, or, without a `resumeId`, once per
start of the daemon. The store remembers that; it is a cache, and a second block does no harm.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from msgspec import UNSET

from indexerd.daemon.answers import Answers, is_fork
from indexerd.daemon.pipeline import Pipeline
from indexerd.errors import (
    AccessError,
    AmbiguousError,
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
from indexerd.meta.sidecar import Edited, edit, has_own_sets, with_sets
from indexerd.meta.writer import MetaWriter
from indexerd.paths import is_session_id
from indexerd.privacy.redact import for_people
from indexerd.protocol import params
from indexerd.sources.session_reader import SessionReaderPool
from indexerd.times import iso

Row = dict[str, Any]

TOPIC = "resume"  # of the store's notes
RESUMES_MAX = 5000  # resumes that are remembered; the oldest are dropped
NEW_SESSION_PATIENCE, POLL = 2.0, 0.05  # seconds
_WHOLE_ID = 16  # characters; a shorter word may be the beginning of an id


@dataclass(eq=False)
class Sidecars:
    """The sidecars of all sessions, for one daemon."""

    pipeline: Pipeline
    answers: Answers
    pool: SessionReaderPool
    writer: MetaWriter
    record: Callable[[Mapping[str, Any]], Any]  # writes a row of telemetry; may block
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # a change reads before it writes
    resumed: set[str] = field(default_factory=set)  # by this process

    async def set(self, asked: params.SetContext) -> Row:
        row = await self._row_soon(asked)
        wanted = params.ContextSet(set_name=asked.set_name, items=asked.items, mode=asked.mode)
        edited = await self._change(row, params.Update(ref=row["sessionId"], set_context=wanted))
        return {
            "sessionId": row["sessionId"],
            "text": edited.text,
            "contextChanged": bool(edited.names),
            "setName": asked.set_name.strip(" "),
            "warnings": list(edited.warnings),
        }

    async def update(self, asked: params.Update) -> Row:
        """Set or clear the fields that are given."""
        row = self.answers.by_id(asked.ref)
        if asked.label and asked.label.text:  # NotFoundError if there is no such entry
            await self.pool.read(row["sessionId"], asked.label.entry_id, lambda *_: None)
        edited = await self._change(row, asked)
        new = self.answers.by_id(row["sessionId"])
        if asked.title is not UNSET:
            renamed = {"name": new["name"], "previous": row["name"]}
            self.pipeline.bus.publish("session.renamed", row["sessionId"], renamed)
        return new | {"warnings": list(edited.warnings)} if edited.warnings else new

    async def give_to_forks(self, row: Row) -> None:
        """Copy a session's sets to the forks that read them, before they are removed."""
        with suppress(InvalidMetaError, AccessError, NotFoundError):  # it has no readable sets
            noted = await asyncio.to_thread(self.answers.noted, row)
            async with self.lock:
                await self._copy_to_forks(row["sessionId"], noted.context)

    async def _change(self, row: Row, asked: params.Update) -> Edited:
        session_id, bus = row["sessionId"], self.pipeline.bus
        path = self.answers.sidecars(row)[0]
        async with self.lock:
            noted = await asyncio.to_thread(self.answers.noted, row)
            edited = await asyncio.to_thread(partial(edit, noted, asked, fork=is_fork(row)))
            if edited.user is None:
                return edited
            if edited.names:
                await self._copy_to_forks(session_id, noted.context)
            await self._write(path.parent, session_id, edited.user)
        for one in edited.names:
            row = {"customType": "relevant-context:set", "success": True, "setName": one}
            row |= {"sessionId": session_id, "contextChanged": True}
            row["timestamp"] = iso(self.pipeline.now())
            await asyncio.to_thread(self.record, row)
            if one not in sets.KNOWN:
                bus.log(Event.CONTEXT_UNKNOWN_SET, {"session": session_id})
        if edited.names:
            name = edited.names[0] if len(edited.names) == 1 else None
            bus.context("changed", session_id, edited.user.context, name)
        return edited

    async def _write(self, directory: Path, session_id: str, user: UserFile) -> None:
        await asyncio.to_thread(self.writer.write_user, directory, session_id, user)
        await self.pipeline.rewritten(session_id, str(directory))

    async def _copy_to_forks(self, session_id: str, context: Context) -> None:
        for fork in self.answers.forks(session_id) if context else ():
            with suppress(InvalidMetaError, AccessError, NotFoundError):  # it is kept as it is
                path = self.answers.sidecars(fork)[0]
                user = await asyncio.to_thread(read_user, path) or UserFile()
                if not has_own_sets(user):
                    copied = with_sets(user, context, fork=True)
                    await self._write(path.parent, fork["sessionId"], copied)

    async def _row_soon(self, asked: params.SessionParams) -> Row:
        """Return the row, also of a session that has just begun.

        Agents call the tool in their first turn, when their file may not exist yet.
        """
        until, ref = monotonic() + NEW_SESSION_PATIENCE, asked.session
        while True:
            try:
                return self.answers.row(ref, cwd=asked.cwd, fuzzy=False)
            except (NotFoundError, AmbiguousError):  # another session's name may be similar
                if len(ref) < _WHOLE_ID or not is_session_id(ref) or monotonic() > until:
                    raise
            await asyncio.sleep(POLL)

    async def resume(self, asked: params.ResumeContext) -> Row:
        """Return the block for the first message after a resume, once."""
        row = self.answers.row(asked.session, cwd=asked.cwd, fuzzy=False)
        session_id, cwd = row["sessionId"], row["cwd"]
        user, context = await asyncio.to_thread(self.answers.noted, row)
        if not await self._is_first(session_id, asked.resume_id):
            return {"sessionId": session_id, "text": None, "missingFiles": 0}
        shown = for_people(row)["cwd"]
        make = partial(sets.resume_block, shown, user.env_hint, context, partial(_exists, cwd))
        text, missing = await asyncio.to_thread(make)
        self.pipeline.bus.context("resume", session_id, context)
        return {"sessionId": session_id, "text": text, "missingFiles": missing}

    async def _is_first(self, session_id: str, resume_id: str | None) -> bool:
        """Whether this resume is new; remembers it."""
        digest = hashlib.blake2b((resume_id or "").encode("utf-8", "replace"), digest_size=12)
        key = f"{session_id}/{digest.hexdigest() if resume_id else ''}"
        known = key in self.resumed
        self.resumed.add(key)
        if resume_id and not known:
            with suppress(StateError):
                known = await self.pipeline.read(self._note_resume, key)
        return not known

    def _note_resume(self, key: str) -> bool:
        store = self.pipeline.library.store
        if store.noted(TOPIC, key) is not None:
            return True
        stamp = int(self.pipeline.now() * 1000).to_bytes(8, "big")  # sorts by age
        store.note(TOPIC, key, stamp)
        store.trim(TOPIC, RESUMES_MAX)
        return False

    async def forget(self, session_id: str) -> None:
        read, store, own = self.pipeline.read, self.pipeline.library.store, f"{session_id}/"
        self.resumed = {key for key in self.resumed if not key.startswith(own)}
        with suppress(StateError):
            for key in await read(store.notes, TOPIC):
                if key.startswith(own):
                    await read(store.note, TOPIC, key, None)

    def opened(self, session_id: str) -> None:
        """Publish the sets of a session whose history was opened."""
        with suppress(IndexerdError):  # `get` reports an invalid file
            if context := self.answers.noted(self.answers.by_id(session_id)).context:
                self.pipeline.bus.context("load", session_id, context)


def _exists(cwd: str, item: str) -> bool:
    """Whether a file exists; true where permissions hide it."""
    try:
        path = Path(sets.absolute(cwd, item)).expanduser()
        return path.exists() or not path.is_absolute()
    except (OSError, RuntimeError):
        return True
