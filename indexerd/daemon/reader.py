"""The one thread that reads files: session states, the store and index writes are its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")


class Reader:
    """Called with blocking work, it does that in its thread, in order, and gives the result."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="reader")

    async def __call__(self, work: Callable[..., _T], *args: Any) -> _T:
        """Do one piece of work; it should be bounded, others wait."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    async def steps(self, work: Iterator[_T]) -> AsyncIterator[_T]:
        """Do work step by step, so that other work gets its turn between."""
        while (found := await self(next, work, None)) is not None:
            yield found

    def close(self) -> None:
        """Wait for what is under way, and end the thread."""
        self._thread.shutdown()
