"""Blocking work in a thread, which ends soon once nobody wants its result.

A thread cannot be stopped from outside: the work itself is given a check to call now and then,
which raises when the task that waits was cancelled, be it by its caller, by a deadline, or because
the client hung up. That task does not go on before the thread has ended, so that a place held
meanwhile is free when it is given back, and not merely said to be.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
Check = Callable[[], None]


class _Unwanted(Exception):  # noqa: N818 - no error: it only ends the work, and is never seen
    """Nobody waits for this work any more."""


async def stoppable(work: Callable[[Check], _T]) -> _T:
    """Do `work(check)` in a thread; cancelled, tell it to stop, and wait until it has."""
    unwanted = threading.Event()

    def check() -> None:
        if unwanted.is_set():
            raise _Unwanted

    doing = asyncio.get_running_loop().run_in_executor(None, work, check)
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.wait({doing})  # which leaves it alone when it is cancelled itself
        except asyncio.CancelledError as bad:
            unwanted.set()
            cancelled = bad
    if cancelled is not None:
        doing.exception()  # seen, and of no interest
        raise cancelled
    return doing.result()
