"""`local/extractive`: the built-in model. It needs no key, no network and no money.

It reads only `prompt.facts`, `prompt.question` or `prompt.stretch`, and answers like any model.
"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import Executor

from indexerd.entries import Facts, Prompt
from indexerd.errors import DeadlineError
from indexerd.models.base import LOCAL, Reply, TokenCounts
from indexerd.models.extractive.describe import describe
from indexerd.models.extractive.passages import answer, nearest
from indexerd.models.extractive.summarize import summarize

__all__ = ["Extractive", "nearest"]


class Extractive:
    """A model that describes sessions, quotes passages and summarizes stretches by rules."""

    key = LOCAL + "extractive"
    remote = False

    pool: Executor | None = None  # where it runs; None: a thread of this process

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """Answer in a thread; DeadlineError after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                running = asyncio.get_running_loop()
                text = await running.run_in_executor(self.pool, answered, prompt)
        except TimeoutError:
            raise DeadlineError(f"{self.key}: no answer within {timeout:g} s") from None
        return Reply(text=text, model=self.key, tokens=TokenCounts(0, 0))


def answered(prompt: Prompt) -> str:
    """Return the answer to a prompt."""
    if prompt.question is not None:
        return json.dumps(answer(prompt.question))
    if prompt.stretch is not None:
        return summarize(prompt.stretch)
    return describe(prompt.facts or Facts(())).model_dump_json()
