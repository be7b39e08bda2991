"""Store and text index of one daemon: opened, said to be damaged once, and told of in `status`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from indexerd.daemon.event_bus import EventBus
from indexerd.logs import Event
from indexerd.paths import Places
from indexerd.search.index import TextIndex
from indexerd.store.store import StateStore
from indexerd.times import iso

_CURE = "restart the daemon; where it comes again, look after the disk, and report it"
_FORMER = ("ledger.sqlite", "catalog.sqlite")  # what earlier versions kept instead


class Caches:
    """What can be made again of session and meta files; what is damaged of it is."""

    def __init__(self, places: Places, bus: EventBus, mend: Callable[[], None], now: float) -> None:
        """`mend()` is called, in any thread, where a cache is damaged."""
        self._bus = bus
        self._mend = mend
        self._since = iso(now)
        self._drop_former(places.state_dir)
        self.store = StateStore(places.store, lambda why: self._damaged(places.store, why))
        self.texts = TextIndex(places.search, self.store, self._damaged)

    def _drop_former(self, directory: Path) -> None:
        for name in _FORMER:
            found = [one for one in directory.glob(f"{name}*") if one.is_file()]
            for one in found:
                with suppress(OSError):
                    one.unlink()
            if found:
                self._bus.say(Event.CACHE_REPLACED, {"path": str(directory / name)})

    def _damaged(self, path: Path, why: str) -> None:
        self._bus.say(Event.CACHE_DAMAGED, {"path": str(path), "reason": why})
        self._mend()

    def problems(self) -> Iterator[dict[str, Any]]:
        """What was made anew, and fails all the same, for `status`."""
        for cause in filter(None, (self.store.problem, self.texts.problem)):
            told = {"cause": cause, "since": self._since, "cure": _CURE}
            yield {"code": "cache_damaged", **told}
