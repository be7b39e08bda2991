"""Names for whoever can wait: put together in a thread, so that nobody else is kept waiting.

In: a request. Out: whether names have to be made ready before it is answered, and their coming.
All who need them wait for the same thread. One that fails is no error here: the request then asks
at once, and is told the error that is its own.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from indexerd.core.names import Names
from indexerd.errors import IndexerdError
from indexerd.service.answers import Answers

_ALWAYS = frozenset({"resolve", "complete"})
_REFERENCES = ("ref", "session")  # parameters that name a session
_IN_TEXT = "@@"  # what refers to one within `text`


class NamesSoon:
    """One daemon's way to its names."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._coming: asyncio.Task[None] | None = None

    def wanted(self, method: str, params: dict[str, Any]) -> bool:
        """Whether a request has to wait for them."""
        if self._answers.index.ready:
            return False
        if method in _ALWAYS:
            return True
        if method == "expand":
            return _IN_TEXT in str(params.get("text"))
        return any(self._answers.needs_names(params.get(key)) for key in _REFERENCES)

    async def come(self) -> None:
        """Wait until they are there, or cannot be had."""
        if self._coming is None:
            self._coming = asyncio.create_task(self._make())
        await asyncio.shield(self._coming)

    async def _make(self) -> None:
        made: Names | None = None
        end = self._answers.index.begin()
        try:
            with suppress(IndexerdError):
                made = await asyncio.to_thread(self._answers.index.made)
        finally:
            end(made)
            self._coming = None
