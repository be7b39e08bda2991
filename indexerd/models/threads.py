"""Blocking work in a thread, which ends soon once nobody wants its result."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
Check = Callable[[], None]


async def stoppable(work: Callable[[Check], _T]) -> _T:
    """Do `work(check)` in a thread; `check` raises once the task that waits was cancelled.

    That task does not go on before the thread has ended, so that a place held meanwhile is free
    when it is given back.
    """
    unwanted = threading.Event()

    def check() -> None:
        if unwanted.is_set():
            raise asyncio.CancelledError

    doing = asyncio.get_running_loop().run_in_executor(None, work, check)
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.wait({doing})  # which leaves it alone when it is cancelled itself
        except asyncio.CancelledError as bad:
            unwanted.set()
            cancelled = bad
    if cancelled is not None:
        if not doing.cancelled():
            doing.exception()  # seen, and of no interest
        raise cancelled
    return doing.result()
