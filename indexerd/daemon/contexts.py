"""`set_relevant_context` and `resume_context`: note what a session works with, and give it back.

`set_relevant_context` may come from a session that we have not met yet: agents call it in their
first turn, and their file may be a moment behind. Only then is it waited for, shortly. What
changes sets, or uses up a resume's block, is never about a session whose name is only nearly given.

A resume block is given out once for each `resumeId`, over restarts of the daemon too; the store
remembers, which is a cache: without it a block is given once more, which does no harm. Without a
`resumeId` it is once for each start of the daemon. Whether a file is there is looked at only when
a block is made, and changes nothing that is stored. Each change of a set is a row of telemetry,
whichever method made it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from indexerd.daemon.answers import Answers
from indexerd.daemon.event_bus import EventBus
from indexerd.daemon.sidecar import Sidecars
from indexerd.errors import AmbiguousError, IndexerdError, NotFoundError, StateError
from indexerd.logs import Event
from indexerd.meta import context_sets as sets
from indexerd.paths import is_session_id
from indexerd.protocol import params
from indexerd.store.store import StateStore
from indexerd.times import iso

SET = "relevant-context:set"  # the `customType` of telemetry
TOPIC = "resume"
RESUMES_MAX = 5000  # resumes that are remembered; the oldest go
NEW_SESSION_PATIENCE = 2.0  # seconds
_WHOLE_ID = 16  # characters; a shorter word may be the beginning of an id
_TRIM_EVERY = 100  # resumes

Row = dict[str, Any]


class Contexts:
    """Changes relevant context, and gives out resume blocks."""

    def __init__(
        self,
        sidecars: Sidecars,
        answers: Answers,
        bus: EventBus,
        *,
        resumes: Resumes,
        record: Callable[[Mapping[str, Any]], Any],
        clock: Callable[[], float],
    ) -> None:
        """`record` writes a row of telemetry; it may block for a moment."""
        self._sidecars = sidecars
        self._answers = answers
        self._bus = bus
        self._resumes = resumes
        self._record = record
        self._clock = clock
        self._telling: set[asyncio.Task[None]] = set()
        sidecars.on_sets = self._changed

    async def set(self, asked: params.SetContext) -> Row:
        """Set or clear one set of a session."""
        change = sets.change_of(asked.set_name, asked.items, asked.mode)
        row = await self._row_soon(asked)
        outcome = await self._sidecars.put(row, change)
        return {
            "sessionId": row["sessionId"],
            "text": outcome.text,
            "contextChanged": outcome.changed,
            "setName": change.name,
            "warnings": list(outcome.warnings),
        }

    async def _changed(self, session_id: str, names: Sequence[str]) -> None:
        for name in names:
            row = {"customType": SET, "success": True, "sessionId": session_id}
            row |= {"contextChanged": True, "setName": name, "timestamp": iso(self._clock())}
            await asyncio.to_thread(self._record, row)
            if name not in sets.KNOWN:  # S4.2
                self._bus.say(Event.CONTEXT_UNKNOWN_SET, {"session": session_id})

    async def resume(self, asked: params.ResumeContext) -> Row:
        """The block for the first message after a resume, once."""
        row = self._answers.certain(asked.session, cwd=asked.cwd)
        session_id, cwd = row["sessionId"], row["cwd"]
        key = _key(session_id, asked.resume_id or "")
        if not await self._resumes.claim(key):
            return {"sessionId": session_id, "text": None, "missingFiles": 0}
        try:
            user, context = await self._sidecars.held(row)
            exists = partial(is_there, cwd)
            make = partial(sets.resume_block, cwd, user.env_hint, context, exists)
            text, missing = await asyncio.to_thread(make)
        except BaseException:  # nobody has got it
            self._resumes.release(key)
            raise
        if asked.resume_id:
            await self._resumes.keep(key)
        self._bus.context("resume", session_id, context)
        return {"sessionId": session_id, "text": text, "missingFiles": missing}

    def opened(self, session_id: str) -> None:
        """Somebody has opened a session's history: who listens hears its sets (S4.13)."""
        telling = asyncio.get_running_loop().create_task(self._load(session_id))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    async def _load(self, session_id: str) -> None:
        with suppress(IndexerdError):  # gone meanwhile, or a bad file: that is reported elsewhere
            held = await self._sidecars.held(self._answers.by_id(session_id))
            if held.context:
                self._bus.context("load", session_id, held.context)

    async def _row_soon(self, asked: params.SessionParams) -> Row:
        """The session's row; one with a whole id that is not known may only just have begun."""
        ref = asked.session
        try:
            return self._answers.certain(ref, cwd=asked.cwd)
        except (NotFoundError, AmbiguousError):  # another may have a name that is like this id
            if len(ref) < _WHOLE_ID or not is_session_id(ref):
                raise
        met = asyncio.Event()
        end = self._bus.subscribe(
            lambda event: met.set() if event.get("sessionId") == ref else None
        )
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(met.wait(), NEW_SESSION_PATIENCE)
        finally:
            end()
        return self._answers.certain(ref, cwd=asked.cwd)


class Resumes:
    """Which resumes have had their block."""

    def __init__(
        self, store: StateStore, read: Callable[..., Awaitable[Any]], clock: Callable[[], float]
    ) -> None:
        """`read` does work in the store's thread."""
        self._store = store
        self._read = read
        self._clock = clock
        self._given: set[str] = set()  # by this process
        self._written = 0

    async def claim(self, key: str) -> bool:
        """Take a resume's one block; False where somebody has it."""
        if key in self._given:
            return False
        self._given.add(key)
        try:
            return await self._read(self._store.noted, TOPIC, key) is None
        except StateError:
            return True
        except BaseException:  # who asked has gone: nobody has got it
            self._given.discard(key)
            raise

    def release(self, key: str) -> None:
        """It came to nothing; the next one may take it."""
        self._given.discard(key)

    async def keep(self, key: str) -> None:
        """Remember it over a restart."""
        stamp = int(self._clock() * 1000).to_bytes(8, "big")  # sorts by age
        with suppress(StateError):
            await self._read(self._store.note, TOPIC, key, stamp)
            if self._written % _TRIM_EVERY == 0:
                await self._read(self._store.trim, TOPIC, RESUMES_MAX)
            self._written += 1

    async def forget(self, session_id: str) -> None:
        """Forget every resume of a session."""
        self._given = {key for key in self._given if not key.startswith(f"{session_id}/")}
        with suppress(StateError):
            await self._read(self._clear, f"{session_id}/")

    def _clear(self, prefix: str) -> None:
        for key in self._store.notes(TOPIC):
            if key.startswith(prefix):
                self._store.note(TOPIC, key, None)


def _key(session_id: str, resume_id: str) -> str:
    """A short word for a resume, whatever its id is made of; "" stands for no id."""
    if not resume_id:
        return f"{session_id}/"
    digest = hashlib.blake2b(resume_id.encode("utf-8", "backslashreplace"), digest_size=12)
    return f"{session_id}/{digest.hexdigest()}"


def is_there(cwd: str, item: str) -> bool:
    """Whether a file exists; what cannot be known, for want of a right or a place, is taken so."""
    try:
        path = Path(sets.absolute(cwd, item)).expanduser()
        if path.is_absolute():
            path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in it
        return False
    except (OSError, RuntimeError):
        return True
    return True
