"""The one shape every model has, and what goes in and comes out of it.

A `Model` does one provider call: no retry, no loop, no fallback. Failures are the errors of
`indexerd.errors` (ProviderError, ProviderDeniedError, RefusedError, DeadlineError,
ContextTooLargeError); malformed text is not a failure here, `indexing.check` judges it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from indexerd.events import Prompt

__all__ = ["LOCAL", "Finish", "Model", "Prompt", "Reply", "Tokens"]

LOCAL = "local/"  # models under this prefix need no network, no key and no budget


class Finish(StrEnum):
    """Why the model stopped."""

    STOP = "stop"
    LENGTH = "length"  # cut by its output limit: counts as malformed (S0.24)
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens as the provider counted them; None where it did not say.

    `output` includes thinking, which is billed as output.
    """

    input: int | None = None
    output: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. `model` is the model that answered, as the provider names it."""

    text: str
    model: str
    finish: Finish = Finish.STOP
    tokens: Tokens = Tokens()


class Model(Protocol):
    """A configured model. `key` is `provider/model`, as in `model_keys`."""

    @property
    def key(self) -> str:
        """`provider/model`."""
        ...

    @property
    def remote(self) -> bool:
        """Whether a call leaves the machine, and so is bound by budget and breaker."""
        ...

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """Make one call within `timeout` seconds in total."""
        ...

    async def aclose(self) -> None:
        """Release connections."""
        ...
