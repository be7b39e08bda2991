"""Money as state: what was reserved and settled, and whether one more call is allowed.

A reservation is made, and stored, before a request leaves; it books the most the call may
cost. Settling replaces that by what it did cost, where the provider said so. A reservation
that was never settled (a crash, a deadline, a reply without usage) stays booked in full, so a
day is never under-counted. The day is the UTC date, and never goes back: a clock set a day
ahead and back again resets the count once, not twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from indexerd.errors import BudgetError

MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Caps:
    """The limits of one day and one minute."""

    daily_usd: float
    daily_calls: int
    requests_per_minute: int


def day_of(now: float) -> str:
    """The UTC date of a moment."""
    return datetime.fromtimestamp(now, UTC).date().isoformat()


class Purse:
    """The account of the current day, rebuilt from its rows.

    A row is `{"op": "reserve", "id", "t", "usd", "model", "tokens"}` or
    `{"op": "settle", "id", "t", "usd", "inputTokens", "outputTokens"}`; `t` in seconds since
    the epoch, `usd` null where the price is not known.
    """

    def __init__(self) -> None:
        self.day = ""
        self.calls = 0
        self.usd = 0.0
        self.unpriced = 0  # calls today whose price is not known
        self._booked: dict[str, float] = {}
        self._recent: list[float] = []

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> Purse:
        """Rebuild from stored rows; a row of a wrong shape is passed over."""
        purse = cls()
        for row in rows:
            when, ticket = row.get("t"), row.get("id")
            if isinstance(when, int | float) and isinstance(ticket, str):
                purse.apply(row)
        return purse

    def apply(self, row: Mapping[str, Any]) -> None:
        """Book one row."""
        when, ticket, usd = float(row["t"]), str(row["id"]), row.get("usd")
        self._turn_page(when)
        if row.get("op") == "reserve":
            self.calls += 1
            self.unpriced += usd is None
            self._booked[ticket] = float(usd or 0.0)
            self.usd += self._booked[ticket]
            self._recent = [t for t in self._recent if 0 <= when - t < MINUTE] + [when]
        elif ticket in self._booked and usd is not None:
            self.usd += float(usd) - self._booked.pop(ticket)

    def _turn_page(self, when: float) -> None:
        day = day_of(when)
        if day > self.day:
            self.day, self.calls, self.usd, self.unpriced, self._booked = day, 0, 0.0, 0, {}

    def check(self, now: float, usd: float | None, caps: Caps) -> None:
        """Raise BudgetError when one more call of at most `usd` would pass a cap."""
        self._turn_page(now)
        if self.calls + 1 > caps.daily_calls:
            raise BudgetError(
                f"{self.calls} of {caps.daily_calls} calls are used today",
                retry_after=self._until_tomorrow(now),
            )
        if self.usd + (usd or 0.0) > caps.daily_usd:
            raise BudgetError(
                f"${self.usd:.4f} of ${caps.daily_usd:.2f} are used today, "
                f"and the call may cost ${usd or 0.0:.4f}",
                retry_after=self._until_tomorrow(now),
            )
        recent = [t for t in self._recent if 0 <= now - t < MINUTE]
        if len(recent) >= caps.requests_per_minute:
            raise BudgetError(
                f"{len(recent)} requests in the last minute",
                retry_after=max(0.1, MINUTE - (now - recent[0])),
            )

    def _until_tomorrow(self, now: float) -> float:
        return max(60.0, 86_400.0 - now % 86_400.0)
