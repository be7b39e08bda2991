"""Amounts of US dollars as text. In: an amount, or None where it is not known. Out: words."""

from __future__ import annotations

from decimal import Decimal

_CENT = Decimal("0.01")


def format_usd(cost: Decimal | float | None) -> str:
    """Write a cost: 4 decimals from one cent, 6 below, and words where it is not known (S0.43)."""
    if cost is None:
        return "unknown cost"
    exact = Decimal(str(cost))
    return f"${exact:.4f}" if exact >= _CENT else f"${exact:.6f}"
