"""Money as state: what was reserved and settled, and whether one more call is allowed.

A reservation is made, and stored, before a request leaves; it books the most the call may
cost. Settling replaces that by what it did cost, where the provider said so. A reservation
that was never settled (a crash, a deadline, a reply without usage) stays booked in full, so a
day is never under-counted. The day is the UTC date, and does not go back: a clock set a day
ahead and back again resets the count once, not twice. After a clock that was further ahead the
date goes back, but the count stays: else the books would be open until that day came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from indexerd.errors import BudgetError

MINUTE = 60.0
SOON = 15.0  # seconds: calls under way are settled by then
_LAST_MOMENT = 253_402_300_800.0  # the year 10000: no date has more digits
_MOST_USD = 1e9


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
            if _is_row(row):
                purse.apply(row)
        return purse

    def apply(self, row: Mapping[str, Any]) -> None:
        """Book one row."""
        when, ticket, usd = float(row["t"]), str(row["id"]), row.get("usd")
        self.turn_page(when)
        if row.get("op") == "reserve":
            self.calls += 1
            self.unpriced += usd is None
            self._booked[ticket] = float(usd or 0.0)
            self.usd += self._booked[ticket]
            self._recent = [t for t in self._recent if 0 <= when - t < MINUTE] + [when]
        elif ticket in self._booked and usd is not None:
            self.usd += float(usd) - self._booked.pop(ticket)

    def withdraw(self, row: Mapping[str, Any]) -> None:
        """Take back a reservation that could not be stored: its call is not made."""
        booked = self._booked.pop(str(row["id"]), None)
        if booked is not None:
            self.calls -= 1
            self.usd -= booked
            self.unpriced -= row.get("usd") is None

    def turn_page(self, when: float) -> None:
        """Begin a new day's account, if `when` is in a later day than any before."""
        day = day_of(when)
        if day > self.day:
            self.day, self.calls, self.usd, self.unpriced, self._booked = day, 0, 0.0, 0, {}
        elif day < self.day and _days_between(day, self.day) > 1:
            self.day = day

    def check(self, now: float, usd: float | None, caps: Caps, *, pending: float = 0.0) -> None:
        """Raise BudgetError when one more call of at most `usd` would pass a cap.

        `pending` is what calls under way have booked, in USD: most of it comes back.
        """
        self.turn_page(now)
        if self.calls + 1 > caps.daily_calls:
            raise BudgetError(
                f"{self.calls} of {caps.daily_calls} calls are used today",
                retry_after=self._until_tomorrow(now),
            )
        if self.usd + (usd or 0.0) > caps.daily_usd:
            passing = self.usd - pending + (usd or 0.0) <= caps.daily_usd
            raise BudgetError(
                f"${self.usd:.4f} of ${caps.daily_usd:.2f} are booked today, "
                f"and the call may cost ${usd or 0.0:.4f}",
                retry_after=SOON if passing else self._until_tomorrow(now),
                passing=passing,
            )
        recent = [t for t in self._recent if 0 <= now - t < MINUTE]
        if len(recent) >= caps.requests_per_minute:
            raise BudgetError(
                f"{len(recent)} requests in the last minute",
                retry_after=max(0.1, MINUTE - (now - recent[0])),
                passing=True,
            )

    def _until_tomorrow(self, now: float) -> float:
        return max(60.0, 86_400.0 - now % 86_400.0)


def _days_between(day: str, later: str) -> int:
    return (date.fromisoformat(later) - date.fromisoformat(day)).days


def _is_row(row: Mapping[str, Any]) -> bool:
    """Whether a stored row is one of ours: a NaN in it would open every cap."""
    usd = row.get("usd")
    return (
        row.get("op") in ("reserve", "settle")
        and isinstance(row.get("id"), str)
        and _is_amount(row.get("t"), _LAST_MOMENT)
        and (usd is None or _is_amount(usd, _MOST_USD))
    )


def _is_amount(value: Any, limit: float) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value < limit
