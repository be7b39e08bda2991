"""The socket's methods about relevant context: set it, read it, give it back after a resume.

`set_relevant_context` may come from a session that we have not met yet: agents call it in their
first turn, and their file may be a moment behind. Only then is it waited for, shortly. What
changes sets, or uses up a resume's block, is never about a session whose name is only nearly given.

A resume block is given out once for each `resumeId`, over restarts of the daemon too; the ledger
remembers, which is a cache: without it a block is given once more, which does no harm. Without a
`resumeId` it is once for each start of the daemon. Whether a file is there is looked at only when
a block is made, and changes nothing that is stored. Each change of a set is a row of telemetry,
whichever method made it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from indexerd.daemon.answers import Answers
from indexerd.daemon.news import News
from indexerd.daemon.sidecar import Sidecars
from indexerd.errors import AmbiguousError, IndexerdError, NotFoundError, StateError
from indexerd.logs import Event
from indexerd.meta import context_sets as sets
from indexerd.paths import is_session_id
from indexerd.protocol import params
from indexerd.protocol.params import SessionParams
from indexerd.store.ledger import Ledger
from indexerd.times import iso

SET = "relevant-context:set"  # the `customType` of telemetry
TOPIC = "resume"
RESUMES_MAX = 5000  # resumes that are remembered; the oldest go
NEW_SESSION_PATIENCE = 2.0  # seconds
_WHOLE_ID = 16  # characters; a shorter word may be the beginning of an id
_TRIM_EVERY = 100  # resumes

Row = dict[str, Any]


class Contexts:
    """Answers about relevant context, for one daemon."""

    def __init__(
        self,
        sidecars: Sidecars,
        answers: Answers,
        news: News,
        *,
        resumes: Resumes,
        record: Callable[[Mapping[str, Any]], Any],
        clock: Callable[[], float],
    ) -> None:
        """`record` writes a row of telemetry; it may block for a moment."""
        self._sidecars = sidecars
        self._answers = answers
        self._news = news
        self._resumes = resumes
        self._record = record
        self._clock = clock
        self._telling: set[asyncio.Task[None]] = set()
        sidecars.on_sets = self._noted

    async def set(self, asked: params.SetContext) -> dict[str, Any]:
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

    async def _noted(self, session_id: str, names: Sequence[str]) -> None:
        """Sets of a session were changed."""
        for name in names:
            row = {"customType": SET, "success": True, "sessionId": session_id}
            row |= {"contextChanged": True, "setName": name, "timestamp": iso(self._clock())}
            await asyncio.to_thread(self._record, row)
            if name not in sets.KNOWN:  # S4.2
                self._news.say(Event.CONTEXT_UNKNOWN_SET, {"session": session_id})

    async def resume(self, asked: params.ResumeContext) -> dict[str, Any]:
        """The block for the first message after a resume, once."""
        resume_id = asked.resume_id or ""
        row = self._answers.certain(asked.session, cwd=asked.cwd)
        session_id, cwd = row["sessionId"], row["cwd"]
        if not await self._resumes.claim(session_id, resume_id):
            return {"sessionId": session_id, "text": None, "missingFiles": 0}
        try:
            user, context = await self._sidecars.held(row)
            there = partial(is_there, cwd)
            make = partial(sets.resume_block, cwd, user.env_hint, context, there)
            text, missing = await asyncio.to_thread(make)
        except BaseException:  # nobody has got it
            self._resumes.release(session_id, resume_id)
            raise
        await self._resumes.keep(session_id, resume_id)
        self._news.context("resume", session_id, context)
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
                self._news.context("load", session_id, held.context)

    async def _row_soon(self, asked: SessionParams) -> Row:
        """The session's row; one with a whole id that is not known may only just have begun."""
        try:
            return self._answers.certain(asked.session, cwd=asked.cwd)
        except (NotFoundError, AmbiguousError):  # another may have a name that is like this id
            ref = asked.session
            if len(ref) < _WHOLE_ID or not is_session_id(ref):
                raise
        met = asyncio.Event()
        end = self._news.subscribe(
            lambda event: met.set() if event.get("sessionId") == ref else None
        )
        try:
            async with asyncio.timeout(NEW_SESSION_PATIENCE):
                await met.wait()
        except TimeoutError:
            pass
        finally:
            end()
        return self._answers.certain(ref, cwd=asked.cwd)


class Resumes:
    """Which resumes have had their block."""

    def __init__(
        self, ledger: Ledger, read: Callable[..., Awaitable[Any]], clock: Callable[[], float]
    ) -> None:
        """`read` does work in the ledger's thread."""
        self._ledger = ledger
        self._read = read
        self._clock = clock
        self._claimed: OrderedDict[str, None] = OrderedDict()  # by this process, newest last
        self._unnamed: set[str] = set()  # sessions that had one without an id, since the start
        self._written = 0

    async def claim(self, session_id: str, resume_id: str) -> bool:
        """Take a resume's one block; False where somebody has it. "" stands for no id."""
        if not resume_id:
            taken = session_id in self._unnamed
            self._unnamed.add(session_id)
            return not taken
        key = _key(session_id, resume_id)
        if key in self._claimed:
            return False
        self._claimed[key] = None
        while len(self._claimed) > RESUMES_MAX:
            self._claimed.popitem(last=False)
        try:
            return await self._read(self._ledger.noted, TOPIC, key) is None
        except StateError:
            return True
        except BaseException:  # who asked has gone: nobody has got it
            self._claimed.pop(key, None)
            raise

    def release(self, session_id: str, resume_id: str) -> None:
        """It came to nothing; the next one may take it."""
        if resume_id:
            self._claimed.pop(_key(session_id, resume_id), None)
        else:
            self._unnamed.discard(session_id)

    async def keep(self, session_id: str, resume_id: str) -> None:
        """Remember it over a restart."""
        if not resume_id:
            return
        stamp = int(self._clock() * 1000).to_bytes(8, "big")  # sorts by age
        with suppress(StateError):
            await self._read(self._ledger.note, TOPIC, _key(session_id, resume_id), stamp)
            if self._written % _TRIM_EVERY == 0:
                await self._read(self._ledger.trim, TOPIC, RESUMES_MAX)
            self._written += 1

    async def forget(self, session_id: str) -> None:
        """Forget every resume of a session."""
        self._unnamed.discard(session_id)
        for key in [one for one in self._claimed if one.startswith(f"{session_id}/")]:
            del self._claimed[key]
        with suppress(StateError):
            await self._read(self._clear, f"{session_id}/")

    def _clear(self, prefix: str) -> None:
        for key in self._ledger.notes(TOPIC):
            if key.startswith(prefix):
                self._ledger.note(TOPIC, key, None)


def _key(session_id: str, resume_id: str) -> str:
    """A short word for a resume, whatever its id is made of."""
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
