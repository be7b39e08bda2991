"""`local/extractive`: the built-in model. It needs no key, no network and no money.

It reads only `prompt.facts`, `prompt.question` or `prompt.stretch`, and answers as any model does.
"""

from __future__ import annotations

import asyncio
import json
from typing import Final

from indexerd.errors import DeadlineError
from indexerd.events import Facts, Prompt
from indexerd.models.base import LOCAL, Reply, Tokens


class Extractive:
    """A model that describes sessions, quotes passages and summarizes stretches by rules."""

    key: Final = LOCAL + "extractive"
    remote: Final = False

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """Answer in a thread; DeadlineError after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                text = await asyncio.to_thread(_answer, prompt)
        except TimeoutError:
            raise DeadlineError(f"{self.key}: no answer within {timeout:g} s") from None
        return Reply(text=text, model=self.key, tokens=Tokens(0, 0))


def _answer(prompt: Prompt) -> str:
    from indexerd.models.extractive import passages, summarize  # noqa: PLC0415 - large word lists

    if prompt.question is not None:
        return json.dumps(passages.answer(prompt.question))
    if prompt.stretch is not None:
        return summarize.summarize(prompt.stretch)
    return summarize.describe(prompt.facts or Facts(())).model_dump_json()
