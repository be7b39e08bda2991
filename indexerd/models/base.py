"""The interface of models: one call, without retry or fallback; callers check the text.

Failures are errors of `indexerd.errors`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from indexerd.entries import Prompt

LOCAL = "local/"  # models under this prefix need no network, no key and no budget


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens as the provider counted them, None if it did not; `output` includes thinking."""

    input: int | None = None
    output: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; `model` is the provider's name for the model that gave it."""

    text: str
    model: str
    cut: bool = False  # at the output limit: counts as malformed
    tokens: TokenCounts = TokenCounts()


class Model(Protocol):
    """A configured model; `key` is `provider/model`. A `remote` one has a budget and a breaker."""

    key: str
    remote: bool

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """Make one call within `timeout` seconds in total."""
