"""Times as text: ISO-8601 in UTC with milliseconds and `Z`, as in every file of indexerd."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from indexerd.errors import UsageError

DAY_MS = 86_400_000

_EPOCH = datetime.fromtimestamp(0, UTC)
_UNITS = ((86_400 * 365, "y"), (86_400, "d"), (3600, "h"), (60, "m"))
_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DAYS_AGO = {"today": 0, "yesterday": 1}


@lru_cache(64)  # of one entry it is asked several times
def iso_ms(text: str) -> int:
    """Return milliseconds since the epoch of an ISO-8601 time; 0 for any other text."""
    try:
        when = datetime.fromisoformat(text)
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        return max(0, round(when.timestamp() * 1000))
    except (ValueError, OverflowError):
        return 0


def iso(seconds: float) -> str:
    return iso_of_ms(round(seconds * 1000))


def iso_of_ms(ms: int) -> str:
    """Format milliseconds since the epoch, limited to the years 1970 to 9999."""
    when = _EPOCH + timedelta(milliseconds=min(max(ms, 0), 253_402_300_799_999))
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local(text: str) -> str:
    """Write a time for people, in this machine's zone, with the zone; "" for any other text."""
    moment = iso_ms(text)
    here = datetime.fromtimestamp(moment / 1000).astimezone()
    return f"{here:%Y-%m-%d %H:%M %Z}" if moment else ""


def since(text: str, now: float) -> str:
    """Return the time that a user means; `now` in seconds since the epoch. Else UsageError.

    ISO-8601, a month, a time ago (`90m`, `12h`, `7d`, `2w`), or a day's beginning here.
    """
    number, unit = text[:-1], text[-1:]
    if number.isdecimal() and len(number) <= 6 and unit in _SECONDS:  # noqa: PLR2004 - digits
        return iso(max(0.0, now - int(number) * _SECONDS[unit]))
    if (days := _DAYS_AGO.get(text)) is not None:
        today = datetime.fromtimestamp(now).astimezone().replace(hour=0, minute=0, second=0)
        return iso((today - timedelta(days)).timestamp())
    whole = f"{text}-01" if re.fullmatch(r"\d{4}-\d\d", text, re.ASCII) else text
    if not iso_ms(whole):
        hint = "write 7d, 12h, yesterday, or a day like 2026-01-31"
        raise UsageError(f"not a time: {text}", hint=hint)
    return whole


def age(seconds: float) -> str:
    """Write how long ago something was, in one unit, as `3h ago`; "now" for less than a minute."""
    ages = (f"{seconds // size:.0f}{unit} ago" for size, unit in _UNITS if seconds >= size)
    return next(ages, "now")
