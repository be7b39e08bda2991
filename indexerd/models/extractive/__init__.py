"""`local/extractive`: the built-in model. It needs no key, no network and no money.

It reads `prompt.facts`, `prompt.question` or `prompt.stretch` and nothing else of a prompt. Facts
give the JSON of a `Metadata`, a question the JSON of an `Answer`, which pass the checks that every
model's answers pass; a stretch gives Markdown.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Final

from indexerd.errors import DeadlineError
from indexerd.events import Prompt
from indexerd.models.base import LOCAL, Reply, Tokens
from indexerd.threads import Check, stoppable


class Extractive:
    """Describes sessions, quotes passages and sums up stretches, by rules."""

    key: Final = LOCAL + "extractive"
    remote: Final = False

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """Answer in a thread; DeadlineError where `timeout` seconds are not enough."""
        try:
            async with asyncio.timeout(timeout):
                text = await stoppable(partial(_answer, prompt))
        except TimeoutError:
            raise DeadlineError(f"{self.key}: no answer within {timeout:g} s") from None
        return Reply(text=text, model=self.key, tokens=Tokens(0, 0))

    async def aclose(self) -> None:
        """Nothing is held."""


def _answer(prompt: Prompt, check: Check) -> str:
    from indexerd.models.extractive.passages import answer  # noqa: PLC0415 - word lists are large
    from indexerd.models.extractive.summarize import (  # noqa: PLC0415 - as above
        describe,
        summarize,
    )

    if prompt.question is not None:
        return json.dumps(answer(prompt.question, check))
    if prompt.stretch is not None:
        return summarize(prompt.stretch, check)
    return describe(prompt.facts, check).model_dump_json() if prompt.facts is not None else ""
