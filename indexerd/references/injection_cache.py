"""Keeps injected texts, so that a reference in a session always gives the same bytes.

A session that names another one twice gets the first text again, even if the meta file has changed
since. If the store is lost, texts are written again; no earlier message changes by that.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from indexerd.errors import StateError
from indexerd.store.store import StateStore

TOPIC = "issued"
SESSIONS_MAX = 2000  # sessions whose texts are kept
EACH_MAX = 100  # texts and references of one session
_STAMP = 8  # bytes: the time in milliseconds, so that values sort by age

_decoded = msgspec.msgpack.Decoder(dict[str, str]).decode


class InjectionCache:
    """Texts by the session that got them, and within it by the session they describe."""

    def __init__(self, store: StateStore, run: Callable[..., Awaitable[Any]]) -> None:
        self._store = store
        self._run = run

    async def of(self, session_id: str) -> dict[str, str]:
        with suppress(StateError):
            found: dict[str, str] = await self._run(self._texts, session_id)
            return found
        return {}

    async def keep(self, session_id: str, texts: Mapping[str, str]) -> None:
        """Add texts; those kept already win, and the oldest of many are dropped."""
        with suppress(StateError):
            await self._run(self._keep, session_id, texts)

    async def forget(self, session_id: str) -> None:
        """Drop what was injected into a session, and everywhere else what describes it."""
        with suppress(StateError):
            await self._run(self._forget, session_id)

    def _texts(self, session_id: str) -> dict[str, str]:
        packed = self._store.noted(TOPIC, session_id)
        return _decoded(packed[_STAMP:]) if packed else {}

    def _keep(self, session_id: str, texts: Mapping[str, str]) -> None:
        old = self._texts(session_id)
        kept = {**old, **texts, **old}  # the old ones come first, and win
        packed = msgspec.msgpack.encode(dict([*kept.items()][-EACH_MAX:]))
        stamp = int(time.time() * 1000).to_bytes(_STAMP, "big")
        self._store.note(TOPIC, session_id, stamp + packed)
        self._store.trim(TOPIC, SESSIONS_MAX)

    def _forget(self, session_id: str) -> None:
        self._store.note(TOPIC, session_id, None)
        for other, packed in self._store.notes(TOPIC).items():
            texts = _decoded(packed[_STAMP:])
            left = {key: text for key, text in texts.items() if session_id not in (key, text)}
            if len(left) < len(texts):
                self._store.note(TOPIC, other, packed[:_STAMP] + msgspec.msgpack.encode(left))
