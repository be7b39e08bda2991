"""`local/extractive`: the built-in model. No key, no network, no money.

It reads `prompt.facts` and nothing else of the prompt, and answers with the JSON of a
`Metadata`, so that its answer passes the same check as any other model's. It knows one task:
a prompt without facts (a question, a digest) is refused, and `model` always says who answered.

The work is done in a thread, as it is pure CPU work that must not hold up the event loop. A
thread cannot be stopped: past its deadline it ends unheard, and its bounds end it soon.
"""

from __future__ import annotations

import asyncio
from typing import Final

from indexerd.core.extract import extract
from indexerd.errors import DeadlineError, ModelUnavailableError
from indexerd.llm.base import LOCAL, Prompt, Reply, Tokens


class Extractive:
    """Names and describes a session by what was said in it."""

    key: Final = LOCAL + "extractive"
    remote: Final = False

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """Describe `prompt.facts` within `timeout` seconds, or raise DeadlineError."""
        if prompt.facts is None:
            raise ModelUnavailableError(
                f"{self.key} describes sessions only, and there are no facts of one in this prompt",
                hint="configure a google/ or openai/ model for other questions",
            )
        try:
            async with asyncio.timeout(timeout):
                found = await asyncio.to_thread(extract, prompt.facts)
        except TimeoutError:
            raise DeadlineError(f"{self.key}: no answer within {timeout:g} s") from None
        return Reply(text=found.model_dump_json(), model=self.key, tokens=Tokens(0, 0))

    async def aclose(self) -> None:
        """Nothing is held."""
