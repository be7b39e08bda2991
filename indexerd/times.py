"""Times as text: ISO-8601 in UTC with milliseconds and `Z`, as in every file of indexerd."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

DAY_MS = 86_400_000

_EPOCH = datetime.fromtimestamp(0, UTC)
_UNITS = ((86_400 * 365, "y"), (86_400, "d"), (3600, "h"), (60, "m"))


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


def age(seconds: float) -> str:
    """Write how long ago something was, in one unit, as `3h ago`; "now" for less than a minute."""
    ages = (f"{seconds // size:.0f}{unit} ago" for size, unit in _UNITS if seconds >= size)
    return next(ages, "now")
