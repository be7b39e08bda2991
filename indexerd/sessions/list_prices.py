"""Estimate what calls cost, at the providers' list prices, for agents that record no cost.

Dollars for a million tokens of input, output, cache reads and cache writes, as of November 2026. A
test compares them with `genai-prices`, whose import would cost the daemon 30 MB. A model that is
not listed has no estimate. Discounts and long contexts have other prices.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_DATE = re.compile(r"-(latest|\d{8}|\d{4}-\d{2}-\d{2})$")
_PRICES = {
    "claude-fable-5": (10.0, 50.0, 1.0, 12.5),
    "claude-fable-5-1": (10.0, 50.0, 0.25, 12.5),
    "claude-fable-5-2 claude-mythos-5-2": (8.0, 40.0, 0.2, 10.0),
    "claude-opus-5-5": (4.0, 20.0, 0.2, 5.0),
    "claude-opus-4-5 claude-opus-4-6 claude-opus-4-7": (5.0, 25.0, 0.5, 6.25),
    "claude-opus-4-8 claude-opus-5": (5.0, 25.0, 0.5, 6.25),
    "claude-opus-4 claude-opus-4-1 claude-3-opus": (15.0, 75.0, 1.5, 18.75),
    "claude-sonnet-5": (2.0, 10.0, 0.2, 2.5),
    "claude-sonnet-5-5": (2.0, 10.0, 0.1, 2.5),
    "claude-sonnet-4 claude-sonnet-4-5 claude-sonnet-4-6": (3.0, 15.0, 0.3, 3.75),
    "claude-3-5-sonnet claude-3-7-sonnet": (3.0, 15.0, 0.3, 3.75),
    "claude-haiku-5-5": (0.1, 0.5, 0.01, 0.125),
    "claude-haiku-4-5": (1.0, 5.0, 0.1, 1.25),
    "claude-3-5-haiku": (0.8, 4.0, 0.08, 1.0),
    "gpt-6-astra": (10.0, 50.0, 1.0, 12.5),
    "gpt-6.1-sol": (2.0, 10.0, 0.1, 2.5),
    "gpt-6.1-terra": (1.0, 5.0, 0.05, 1.25),
    "gpt-6-sol": (2.0, 10.0, 0.2, 2.5),
    "gpt-6-luna": (0.1, 0.5, 0.01, 0.125),
    "gpt-5.6-sol": (4.0, 20.0, 0.4, 5.0),
    "gpt-5.6-terra": (2.0, 12.0, 0.2, 2.5),
    "gpt-5.6-luna": (0.2, 1.2, 0.02, 0.25),
    # Before, OpenAI charged nothing extra for a cache write.
    "gpt-5 gpt-5-codex gpt-5.1 gpt-5.1-codex gpt-5.1-codex-max": (1.25, 10.0, 0.125, 1.25),
    "gpt-5-mini gpt-5.1-codex-mini": (0.25, 2.0, 0.025, 0.25),
    "gpt-5-nano": (0.05, 0.4, 0.005, 0.05),
    "gpt-5.2 gpt-5.2-codex gpt-5.3 gpt-5.3-codex": (1.75, 14.0, 0.175, 1.75),
    "gpt-5.4-mini": (0.75, 4.5, 0.075, 0.75),
    "gpt-5.4-nano": (0.2, 1.25, 0.02, 0.2),
    "gpt-5.4": (2.5, 15.0, 0.25, 2.5),
    "gpt-5.5": (5.0, 30.0, 0.5, 5.0),
    "gpt-4.1": (2.0, 8.0, 0.5, 2.0),
    "gpt-4.1-mini": (0.4, 1.6, 0.1, 0.4),
    "o3": (2.0, 8.0, 0.5, 2.0),
    "o4-mini": (1.1, 4.4, 0.275, 1.1),
    "codex-mini": (1.5, 6.0, 0.375, 1.5),
}
BY_MODEL = {model: prices for models, prices in _PRICES.items() for model in models.split()}


def estimated_usd(model: str, tokens: Sequence[int], hour: int = 0) -> float | None:
    """Estimate the cost of input, output, cache reads and cache writes; None if it is unknown.

    `hour` of the cache writes last an hour, and cost twice the input.
    """
    prices = BY_MODEL.get(_DATE.sub("", model))
    if prices is None or not any(tokens):
        return None
    usd = sum(price * count for price, count in zip(prices, tokens, strict=True))
    return (usd + hour * (2 * prices[0] - prices[3])) / 1_000_000
