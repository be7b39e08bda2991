"""Blocking work in a thread that stops soon after its task was cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
Check = Callable[[], None]


async def stoppable(work: Callable[[Check], _T]) -> _T:
    """Run `work(check)` in a thread; `check` raises once the waiting task was cancelled."""
    unwanted = threading.Event()

    def check() -> None:
        if unwanted.is_set():
            raise asyncio.CancelledError

    try:
        return await asyncio.to_thread(work, check)
    finally:
        unwanted.set()
