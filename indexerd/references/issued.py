"""What was injected into a session once stays as it was: the same bytes for the same reference.

A session that names another one twice gets the text of the first time again, whatever its
meta file says by then (S0.55). The texts are kept in the ledger, which is a cache: without it
they are made anew, and no earlier message of any session changes by that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from indexerd.errors import StateError
from indexerd.store.ledger import Ledger

TOPIC = "issued"
SESSIONS_MAX = 2000  # that texts are kept for
EACH_MAX = 100  # texts of one session, and references
_HELD = 64  # sessions whose texts are in memory
_STAMP = 8  # bytes: when it was kept, in milliseconds, so that values sort by age
_TRIM_EVERY = 100  # writes


class Kept(Protocol):
    """Texts that were issued to a session."""

    async def of(self, session_id: str) -> dict[str, str]:
        """Texts by the id of the session they are about."""
        ...

    async def keep(self, session_id: str, texts: Mapping[str, str]) -> None:
        """Keep these."""
        ...


class Nowhere:
    """Nothing is kept: without a daemon."""

    async def of(self, _session_id: str) -> dict[str, str]:
        """None."""
        return {}

    async def keep(self, _session_id: str, _texts: Mapping[str, str]) -> None:
        """Forget them."""


class Issued:
    """The texts of a daemon's sessions."""

    def __init__(
        self, ledger: Ledger, read: Callable[..., Awaitable[Any]], clock: Callable[[], float]
    ) -> None:
        """`read` does work in the ledger's thread."""
        self._ledger = ledger
        self._read = read
        self._clock = clock
        self._held: OrderedDict[str, dict[str, str]] = OrderedDict()
        self._written = 0

    async def of(self, session_id: str) -> dict[str, str]:
        """What was kept, by any keys; a copy."""
        if session_id not in self._held:
            held = None
            with suppress(StateError):
                held = await self._read(self._ledger.noted, TOPIC, session_id, _unpacked)
            self._hold(session_id, held or {})
        self._held.move_to_end(session_id)
        return dict(self._held[session_id])

    async def keep(self, session_id: str, texts: Mapping[str, str]) -> None:
        """Keep these texts, unless there are some already; the oldest of many go."""
        old = await self.of(session_id)
        new = {key: text for key, text in texts.items() if key not in old}
        if not new:
            return
        kept = dict(list((old | new).items())[-EACH_MAX:])
        self._hold(session_id, kept)
        stamp = int(self._clock() * 1000).to_bytes(_STAMP, "big")
        with suppress(StateError):
            await self._read(
                self._ledger.note, TOPIC, session_id, stamp + msgspec.msgpack.encode(kept)
            )
            if self._written % _TRIM_EVERY == 0:
                await self._read(self._ledger.trim, TOPIC, SESSIONS_MAX)
            self._written += 1

    async def forget(self, session_id: str) -> None:
        """Drop what was issued to a session, and in all others what is about it."""
        with suppress(StateError):
            await self._read(self._clear, session_id)
        self._held.clear()

    def _clear(self, session_id: str) -> None:
        self._ledger.note(TOPIC, session_id, None)
        held = self._ledger.notes(TOPIC, lambda packed: (packed[:_STAMP], _unpacked(packed)))
        for other, (stamp, texts) in held.items():
            left = {key: text for key, text in texts.items() if session_id not in (key, text)}
            if len(left) < len(texts):
                self._ledger.note(TOPIC, other, stamp + msgspec.msgpack.encode(left))

    def _hold(self, session_id: str, texts: dict[str, str]) -> None:
        self._held[session_id] = texts
        while len(self._held) > _HELD:
            self._held.popitem(last=False)


def _unpacked(packed: bytes) -> dict[str, str]:
    return msgspec.msgpack.decode(packed[_STAMP:], type=dict[str, str])
