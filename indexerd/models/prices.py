"""The prices of calls in US dollars, and the context windows of models.

Configured prices win; then the list prices of `genai-prices` (offline data, imported on first use,
0.3 s). An unknown cost or window is None, never 0. Cached input is priced in full. A name under
`openai/` does not tell who serves it (`gpt-oss` from Ollama is free), so list prices count only for
a base URL that the library knows. Google may route a retired name to its successor: `model` must
be the model that answered.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache

from indexerd.models.base import LOCAL, TokenCounts
from indexerd.settings import OpenAIProvider, Price

# For a Google model that the library does not know yet: above every text model that Google
# lists (the most expensive, gemini-3-pro with long prompts: 4 in, 18 out per million tokens).
CEILING = Price(input=5.0, output=25.0)
_AS_GOOGLE = ("google", "scripted")  # scripted: so that budgets can be tested
_NAME_MAX = 128  # characters: a session file may name any model, and patterns are matched with it
# What Claude Code uses of the windows of these models, which have a million tokens.
_USUAL_WINDOW, _PARTLY_USED = 200_000, ("claude-opus-4-6", "claude-sonnet-4-6")
_DATED = re.compile(r"[-@:](latest|\d{3}|\d{8}|\d{4}-\d{2}-\d{2})$")


def cost_usd(provider: str, model: str, tokens: TokenCounts, own: OpenAIProvider) -> float | None:
    """Price a call by the model that answered; `own` has the server and prices of `openai/*`."""
    if f"{provider}/" == LOCAL:
        return 0.0
    if tokens.input is None or tokens.output is None:
        return None
    price = own.prices.get(model) or own.prices.get(_DATED.sub("", model))
    if price is not None and provider == "openai":
        return _priced(price, tokens.input, tokens.output)
    from genai_prices import Usage, calc_price  # noqa: PLC0415 - 0.3 s, only after a call

    used = Usage(input_tokens=tokens.input, output_tokens=tokens.output)
    with suppress(LookupError, ValueError):
        if provider in _AS_GOOGLE:
            return float(calc_price(used, model, provider_id="google").total_price)
        if own.base_url:
            return float(calc_price(used, model, provider_api_url=own.base_url).total_price)
    return None


def upper_bound_usd(
    key: str, input_tokens: int, output_tokens: int, own: OpenAIProvider
) -> float | None:
    """Return the most that a call may cost, before it is made.

    `CEILING` bounds a Google model without a list price; an `openai/*` model without a price has no
    bound (None), only the cap on calls.
    """
    provider, _, model = key.partition("/")
    usd = cost_usd(provider, model, TokenCounts(input_tokens, output_tokens), own)
    if usd is None and provider in _AS_GOOGLE:
        return _priced(CEILING, input_tokens, output_tokens)
    return usd


def _priced(price: Price, input_tokens: int, output_tokens: int) -> float:
    return round((price.input * input_tokens + price.output * output_tokens) / 1_000_000, 9)


def format_usd(cost: float | None) -> str:
    """Format a cost: 4 decimals from one cent, 6 below; "unknown cost" for None."""
    if cost is None:
        return "unknown cost"
    return f"${cost:.4f}" if cost >= 0.01 else f"${cost:.6f}"  # noqa: PLR2004 - a cent


@lru_cache(256)
def _listed_window(provider: str | None, model: str) -> int:
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - 0.3 s, only when needed

    with suppress(LookupError, ValueError):
        _, info = get_snapshot().find_provider_model(model, None, provider, None)
        return info.context_window or 0
    return 0


def window_of(provider: str | None, model: str, used: int) -> int | None:
    """Return the size of a context window that has `used` tokens; None if it is not known.

    It is not if the listed window is smaller, or the provider is one that the library does not
    know. Claude Code, which names no provider, uses 200,000 tokens of some models' million unless
    asked for all. The first call takes 0.3 s: do not make it in an event loop.
    """
    if not model or len(model) > _NAME_MAX or len(provider or "") > _NAME_MAX:
        return None
    window = _listed_window(provider or None, model)
    if not provider and used <= _USUAL_WINDOW and model.startswith(_PARTLY_USED):
        window = min(window, _USUAL_WINDOW)
    return window if window >= max(used, 1) else None
