"""What every model is: one provider call, without a retry or a fallback.

It fails with an error of `indexerd.errors`; malformed text is no failure here: callers check it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from indexerd.events import Prompt

LOCAL = "local/"  # models under this prefix need no network, no key and no budget


class Finish(StrEnum):
    """Why the model stopped."""

    STOP = "stop"
    LENGTH = "length"  # cut by its output limit: counts as malformed
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens as the provider counted them, None where it did not say; `output` has the thinking."""

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
    """A configured model; `key` is `provider/model`. Budget and breaker bind `remote` ones."""

    @property
    def key(self) -> str: ...
    @property
    def remote(self) -> bool: ...
    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """Make one call within `timeout` seconds in total."""
