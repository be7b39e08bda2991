"""How many sessions are read and looked through for questions at a time, and what is done once.

Both are work of the processor that can take seconds for a large session. So there are a few
places for it, of which large sessions get only some: a question to a small one is not stuck
behind ten to a large one. Whoever asks for the same at the same time waits for the same work,
which ends when nobody is left who waits. A place stays taken until its thread has really ended.

A reading is the same as another where the session has not changed in between: its card, which is
made anew with every change of its file, is part of the key.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from indexerd.daemon.library import Library
from indexerd.daemon.views import Taken, changed
from indexerd.errors import DeadlineError
from indexerd.models.base import Model, Prompt, Reply
from indexerd.models.threads import Check, stoppable
from indexerd.privacy.redactor import Redactor
from indexerd.references.question_prompt import Context, Gathered, compose
from indexerd.references.recall import Seen, gathered_of, seen_of, taken_of

AT_ONCE = 4  # sessions that are read, or looked through, at the same time
LARGE_AT_ONCE = 2  # of which large
LARGE = 1_000_000  # bytes of a session, from which on it is large
LONGEST = 600.0  # seconds: as long as any question may wait; each has a deadline of its own

_T = TypeVar("_T")


class Places:
    """Places for work on sessions; they are given in the order of asking, by size of session."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(AT_ONCE)
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)

    @asynccontextmanager
    async def place(self, size: int) -> AsyncIterator[None]:
        """Hold a place for work on so many bytes."""
        if size < LARGE:
            async with self._all:
                yield
        else:
            async with self._large, self._all:
                yield


@dataclass(slots=True, eq=False)
class _Doing(Generic[_T]):
    """Work under way, and how many wait for it."""

    task: asyncio.Task[_T]
    waiting: int = 0


class Shared(Generic[_T]):
    """Work under way by what it is for. Nothing is kept once it has ended."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, _Doing[_T]] = {}
        self._tasks: set[asyncio.Task[_T]] = set()  # those that are ending as well

    async def get(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """The result, or the error, of the work for a key; it is begun where none is under way."""
        doing = self._under_way.get(key) or self._begun(key, work)
        doing.waiting += 1
        try:
            await asyncio.wait({doing.task})  # whoever leaves does not take it along
        finally:
            doing.waiting -= 1
            if not doing.waiting and not doing.task.done():
                self._forget(key, doing)
                doing.task.cancel()
        return doing.task.result()

    def _begun(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, _T]]) -> _Doing[_T]:
        task = asyncio.create_task(work())
        doing = self._under_way[key] = _Doing(task)
        self._tasks.add(task)

        def ended(_: asyncio.Task[_T]) -> None:
            self._tasks.discard(task)
            self._forget(key, doing)
            if not task.cancelled():
                task.exception()  # seen, even where nobody waits any more

        task.add_done_callback(ended)
        return doing

    def _forget(self, key: Hashable, doing: _Doing[_T]) -> None:
        if self._under_way.get(key) is doing:
            del self._under_way[key]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be read of a session."""

    session_id: str
    leaf: str | None
    bytes: int  # of the text, at most
    local: bool  # for the built-in model
    redaction: str  # what is taken out of it, in a form that can be compared


@dataclass(frozen=True, slots=True)
class Text:
    """What was read, and what of it fits."""

    gathered: Gathered
    context: Context


def _text(wanted: Wanted, clean: Redactor, taken: Taken, check: Check) -> Text:
    gathered = gathered_of(taken, wanted.bytes, clean, check)
    return Text(gathered, compose(gathered, wanted.bytes, local=wanted.local))


class Readings:
    """What questions need of sessions, for one daemon."""

    def __init__(self, library: Library, read: Callable[..., Awaitable[Any]]) -> None:
        """`read` does work in the thread of the library."""
        self._library = library
        self._read = read
        self._places = Places()
        self._texts: Shared[Text] = Shared()
        self._replies: Shared[Reply] = Shared()

    async def text(self, wanted: Wanted, clean: Redactor) -> Text:
        """The text of a session for a model. Errors as `taken_of` and `gathered_of` raise them."""
        seen: Seen = await self._read(seen_of, self._library, wanted.session_id, wanted.leaf)
        return await self._texts.get((seen.key, wanted), partial(self._text, wanted, clean, seen))

    async def _text(self, wanted: Wanted, clean: Redactor, seen: Seen) -> Text:
        async with self._places.place(seen.bytes):
            taken: Taken = await self._read(taken_of, self._library, wanted.session_id, wanted.leaf)
            try:
                return await stoppable(partial(_text, wanted, clean, taken))
            except ValueError:  # a line was not what it looked like: once more, parsing them all
                if not await self._read(self._library.reread, wanted.session_id):
                    raise changed() from None
        return await self._text(wanted, clean, seen)

    def looking(self, model: Model, size: int) -> Model:
        """The built-in model, about to look through so many bytes, here and with the others."""
        return _Looking(model, self._replies, self._places, size)


@dataclass(frozen=True, slots=True)
class _Looking:
    """A local model that takes a place, and answers once what several ask at the same time."""

    model: Model
    replies: Shared[Reply]
    places: Places
    size: int

    @property
    def key(self) -> str:
        return self.model.key

    @property
    def remote(self) -> bool:
        return self.model.remote

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """As the model does; `timeout` is for this one question."""
        try:
            async with asyncio.timeout(timeout):
                asked = (self.model.key, prompt.question)
                return await self.replies.get(asked, partial(self._reply, prompt))
        except TimeoutError:
            raise DeadlineError(f"{self.key}: no answer within {timeout:g} s") from None

    async def _reply(self, prompt: Prompt) -> Reply:
        async with self.places.place(self.size):
            return await self.model.generate(prompt, timeout=LONGEST)

    async def aclose(self) -> None:
        """Nothing of its own."""
