"""Ledger and catalog of one daemon: opened, said to be damaged once, and told of in `status`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from indexerd.daemon.news import News
from indexerd.logs import Event
from indexerd.paths import Places
from indexerd.store.catalog import Catalog
from indexerd.store.ledger import Ledger
from indexerd.times import iso

_CURE = "restart the daemon; where it comes again, look after the disk, and report it"


class Caches:
    """What can be made again of session and meta files; what is damaged of it is."""

    def __init__(self, places: Places, news: News, mend: Callable[[], None], now: float) -> None:
        """`mend()` is called, in any thread, where a cache is damaged."""
        self._news = news
        self._mend = mend
        self._since = iso(now)
        self.ledger = Ledger(places.ledger, lambda why: self._damaged(places.ledger, why))
        self.catalog = Catalog.open(
            places.catalog, report=lambda why: self._damaged(places.catalog, why)
        )

    def _damaged(self, path: Path, why: str) -> None:
        self._news.say(Event.CACHE_DAMAGED, {"path": str(path), "reason": why})
        self._mend()

    def problems(self) -> Iterator[dict[str, Any]]:
        """What was made anew, and fails all the same, for `status`."""
        for cause in filter(None, (self.ledger.problem, self.catalog.problem)):
            told = {"cause": cause, "since": self._since, "cure": _CURE}
            yield {"code": "cache_damaged", **told}
