"""Amounts as people read them: counts, money, durations."""

from __future__ import annotations

_SIZES = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"))
_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def compact(number: float) -> str:
    """Write a count in at most five characters, as 950, 1.2k, 34k or 5.6M."""
    for size, unit in _SIZES:
        if number >= 0.9995 * size:
            value = number / size
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"  # noqa: PLR2004 - two digits
    return str(round(number, 1)).removesuffix(".0")


def dollars(usd: float | None) -> str:
    """Write an amount of money; "" if it is unknown, and four decimals below a cent."""
    if usd is None:
        return ""
    return f"${usd:,.4f}" if 0 < usd < 0.01 else f"${usd:,.2f}"  # noqa: PLR2004 - a cent


def cost(usd: float | None, estimated: float | None, unpriced: int = 0) -> str:
    """Write a cost; "" if it is unknown.

    "~" in front: some of it is an estimate; "≥": there are also `unpriced` tokens.
    """
    total = (usd or 0.0) + (estimated or 0.0)
    if unpriced:
        return f"≥ {dollars(total)}" if total else ""
    if 0 < total < 0.01:  # noqa: PLR2004 - a cent
        return "<$0.01"
    return f"~{dollars(total)}" if estimated else dollars(usd)


def duration(ms: int) -> str:
    """Write a duration in one or two units, as `under 1 s`, `12 min`, `3 h 20 min` or `4 days`."""
    if ms < _SECOND:
        return "under 1 s"
    if ms < _MINUTE:
        return f"{ms // _SECOND} s"
    if ms < _HOUR:
        return f"{ms // _MINUTE} min"
    if ms < _DAY:
        hours, rest = divmod(ms, _HOUR)
        return f"{hours} h {rest // _MINUTE} min" if rest >= _MINUTE else f"{hours} h"
    days = ms // _DAY
    return f"{days} day{'s' * (days != 1)}"
