"""Taking one session, and reading it elsewhere: how every answer about a single session is made.

A session is copied in the thread that owns the library, and read in others, a few at a time:
however large one is, neither the event loop nor what follows the files waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from indexerd.daemon.library import Library
from indexerd.daemon.views import Taken, changed, take
from indexerd.errors import NotFoundError
from indexerd.models.threads import Check, stoppable

AT_ONCE = 2  # sessions that are read at the same time

_T = TypeVar("_T")


class Looks:
    """Looks at sessions, for one daemon."""

    def __init__(self, library: Library, read: Callable[..., Awaitable[Any]]) -> None:
        """`read` does work in the thread of the library."""
        self._library = library
        self._read = read
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def at(self, session_id: str, leaf: str | None, work: Callable[[Taken, Check], _T]) -> _T:
        """Do `work(taken, check)` in a thread, for the session as seen from a leaf.

        `check` is to be called now and then: it ends work that nobody waits for any more. A
        ValueError of the work means that a line is no JSON: the session is read anew, parsing
        every line, and all is done once more. NotFoundError where the file is gone.
        """
        async with self._slots:
            await self._read(present, self._library, session_id)
            taken: Taken = await self._read(take, self._library, session_id, leaf)
            try:
                return await stoppable(lambda check: work(taken, check))
            except ValueError:  # a line was not what it looked like: once more, parsing them all
                if not await self._read(self._library.reread, session_id):
                    raise changed() from None
        return await self.at(session_id, leaf, work)


def present(library: Library, session_id: str) -> None:
    """Raise NotFoundError for a session whose file is gone: asking again will not help."""
    if library.files.card(session_id) is None:
        hint = "what is stored of it: `indexerd show REF`"
        raise NotFoundError("the session's file is gone", hint=hint)


def look_alone(
    library: Library, session_id: str, leaf: str | None, work: Callable[[Taken, Check], _T]
) -> _T:
    """The same in one thread: what a command does without a daemon."""
    present(library, session_id)
    try:
        return work(take(library, session_id, leaf), _go_on)
    except ValueError:
        if not library.reread(session_id):
            raise changed() from None
    return look_alone(library, session_id, leaf, work)


def _go_on() -> None:
    """Nothing ends this work but the end of the process."""
