"""What was injected into a session once stays as it was: the same bytes for the same reference.

A session that names another one twice gets the text of the first time again, whatever its
meta file says by then (S0.55). The texts are kept in the store, which is a cache: without it
they are made anew, and no earlier message of any session changes by that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from indexerd.errors import StateError

TOPIC = "issued"
SESSIONS_MAX = 2000  # that texts are kept for
EACH_MAX = 100  # texts of one session, and references
_STAMP = 8  # bytes: when it was kept, in milliseconds, so that values sort by age
_TRIM_EVERY = 100  # writes


class Notes(Protocol):
    """Small values by topic and key, as the store keeps them."""

    def note(self, topic: str, key: str, value: bytes | None) -> None:
        """Keep a value, or drop it."""
        ...

    def noted(self, topic: str, key: str) -> Any:
        """The value of a key; None where there is none."""
        ...

    def notes(self, topic: str) -> dict[str, Any]:
        """All values of a topic, by key."""
        ...

    def trim(self, topic: str, keep: int) -> None:
        """Drop all but the largest values."""
        ...


class InjectionCache:
    """The texts by the session that got them, and there by the id of the session they are about."""

    def __init__(
        self, notes: Notes, run: Callable[..., Awaitable[Any]], clock: Callable[[], float]
    ) -> None:
        """`run` does work in the thread of `notes`."""
        self._notes = notes
        self._run = run
        self._clock = clock
        self._written = 0

    async def of(self, session_id: str) -> dict[str, str]:
        """The texts of a session."""
        with suppress(StateError):
            return _unpacked(await self._run(self._notes.noted, TOPIC, session_id))
        return {}

    async def keep(self, session_id: str, texts: Mapping[str, str]) -> None:
        """Keep these texts, unless there are some already; the oldest of many go."""
        with suppress(StateError):
            await self._run(self._keep, session_id, texts)

    def _keep(self, session_id: str, texts: Mapping[str, str]) -> None:
        old = _unpacked(self._notes.noted(TOPIC, session_id))
        new = {key: text for key, text in texts.items() if key not in old}
        if not new:
            return
        stamp = int(self._clock() * 1000).to_bytes(_STAMP, "big")
        kept = dict(list((old | new).items())[-EACH_MAX:])
        self._notes.note(TOPIC, session_id, stamp + msgspec.msgpack.encode(kept))
        if self._written % _TRIM_EVERY == 0:
            self._notes.trim(TOPIC, SESSIONS_MAX)
        self._written += 1

    async def forget(self, session_id: str) -> None:
        """Drop what was injected into a session, and in all others what is about it."""
        with suppress(StateError):
            await self._run(self._forget, session_id)

    def _forget(self, session_id: str) -> None:
        self._notes.note(TOPIC, session_id, None)
        for other, packed in self._notes.notes(TOPIC).items():
            texts = _unpacked(packed)
            left = {key: text for key, text in texts.items() if session_id not in (key, text)}
            if len(left) < len(texts):
                value = packed[:_STAMP] + msgspec.msgpack.encode(left)
                self._notes.note(TOPIC, other, value)


def _unpacked(packed: bytes | None) -> dict[str, str]:
    try:
        return msgspec.msgpack.decode((packed or b"")[_STAMP:], type=dict[str, str])
    except msgspec.DecodeError:  # nothing kept yet, or by another version
        return {}
