"""Names for whoever can wait: made ready so that nobody else is kept waiting.

In: a request. Out: whether names have to be made ready before it is answered, and their coming.
They are put together in a thread, and what fuzzy references want besides is made in slices between
other answers, since names are one thread's. All who need them wait for the same work. Work that
fails is no error here: the request then asks at once, and is told the error that is its own.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from indexerd.daemon.answers import Answers
from indexerd.errors import IndexerdError
from indexerd.references.parse import LONG, find
from indexerd.search.names import Names
from indexerd.search.names_fuzzy import load_comparison

SLICE = 200  # names and words that are indexed before others get their turn: 1 ms
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
            names = self._answers.index.now()
            if not names.cold:
                return False
            asking = _asking(params)
            return any(one is None or names.is_fuzzy(one, asking) for one in _named(method, params))
        if method in _ALWAYS:
            return True
        if method == "expand":
            return _IN_TEXT in str(params.get("text"))
        return any(self._answers.needs_names(params.get(key)) for key in _REFERENCES)

    async def come(self) -> None:
        """Wait for what is lacking: names, or else what fuzzy references want; or for neither."""
        if self._coming is None:
            work = self._warm() if self._answers.index.ready else self._make()
            self._coming = asyncio.create_task(work)
            self._coming.add_done_callback(self._has_come)
        await asyncio.shield(self._coming)

    def _has_come(self, _: asyncio.Task[None]) -> None:
        self._coming = None

    async def _make(self) -> None:
        made: Names | None = None
        end = self._answers.index.begin()
        try:
            with suppress(IndexerdError):
                made = await asyncio.to_thread(self._answers.index.made)
        finally:
            end(made)

    async def _warm(self) -> None:
        index = self._answers.index
        await asyncio.to_thread(load_comparison)
        while index.ready:
            if index.now().warm(SLICE):
                return
            await asyncio.sleep(0)


def _named(method: str, params: dict[str, Any]) -> list[str | None]:
    """The references of a request; None for those of a text that takes its time to look through."""
    if method == "expand":
        text = str(params.get("text"))
        if len(text) > LONG and _IN_TEXT in text:
            return [None]
        return [one.ref for one in find(text)]
    if method == "complete":  # its prefix is no reference
        return []
    return [one for key in _REFERENCES if isinstance(one := params.get(key), str)]


def _asking(params: dict[str, Any]) -> str | None:
    """The session that asks, and does not mean itself."""
    given = (params.get(key) for key in ("exclude", "sessionId"))
    return next((one for one in given if isinstance(one, str)), None)
