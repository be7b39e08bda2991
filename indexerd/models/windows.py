"""How many tokens a model takes, where that is known.

In: the provider and the model as an agent stored them. Out: the size of its context window in
tokens, or None: an unknown window is said to be unknown, and nobody warns about it. The numbers
ship with `genai-prices` (offline data: never updated over the network), imported on first use.

Surprises: the library knows prices of many more models than windows (none of Google's or of
OpenRouter's), so None is the usual answer for those. A provider that it does not know may serve
any model in a smaller window, so then the model's name alone is not asked about; it is where no
provider is named at all. A window may be larger than listed (a beta of 1,000,000 tokens): a
context that is larger than it proves the list wrong, which is the caller's to see.
"""

from __future__ import annotations

from functools import lru_cache

NAME_MAX = 128  # characters: a session file says any name at all, and patterns run over it
_KEPT = 256  # answers that are remembered


@lru_cache(_KEPT)
def window_of(provider: str | None, model: str) -> int | None:
    """Tokens of a model's context window, by the installed list; None where it is not there.

    The first call takes 0.3 s: not for an event loop.
    """
    if not model or len(model) > NAME_MAX or len(provider or "") > NAME_MAX:
        return None
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - 0.3 s, where it is asked

    try:
        _, found = get_snapshot().find_provider_model(model, None, provider or None, None)
    except (LookupError, ValueError):
        return None
    return found.context_window or None
