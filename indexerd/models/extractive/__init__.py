"""`local/extractive`: the built-in model. No key, no network, no money.

It reads `prompt.facts`, `prompt.question` or `prompt.stretch`, and nothing else of the prompt.
Facts of a session it answers with the JSON of a `Metadata`, a question with the JSON of an
`Answer`, so that its answers pass the same checks as any other model's; a stretch that is to be
summed up it answers with plain Markdown. A prompt with none of them is refused, and `model` always
says who answered; an answer to a question says so in its text, too.

The work is done in a thread, as it is pure CPU work that must not hold up the event loop. Past
its deadline, or when nobody waits for it any more, it stops soon.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Final

from indexerd.errors import DeadlineError, ModelUnavailableError
from indexerd.models.base import LOCAL, Prompt, Reply, Tokens
from indexerd.models.threads import Check, stoppable


class Extractive:
    """Names and describes a session by what was said in it, finds passages, sums parts up."""

    key: Final = LOCAL + "extractive"
    remote: Final = False

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """Describe the facts, answer the question or sum the stretch up, within `timeout` seconds.

        DeadlineError where that is not enough.
        """
        if prompt.facts is None and prompt.question is None and prompt.stretch is None:
            raise ModelUnavailableError(
                f"{self.key} knows sessions only, and there are no facts of one in this prompt",
                hint="configure a google/ or openai/ model for other questions",
            )
        try:
            async with asyncio.timeout(timeout):
                text = await stoppable(partial(_said, prompt))
        except TimeoutError:
            raise DeadlineError(f"{self.key}: no answer within {timeout:g} s") from None
        return Reply(text=text, model=self.key, tokens=Tokens(0, 0))

    async def aclose(self) -> None:
        """Nothing is held."""


def _said(prompt: Prompt, check: Check) -> str:
    from indexerd.models.extractive.describe import describe  # noqa: PLC0415 - when first asked
    from indexerd.models.extractive.passages import answer  # noqa: PLC0415 - as above
    from indexerd.models.extractive.summarize import summarize  # noqa: PLC0415 - as above

    if prompt.question is not None:
        return json.dumps(answer(prompt.question, check))
    if prompt.stretch is not None:
        return summarize(prompt.stretch, check)
    return describe(prompt.facts, check).model_dump_json() if prompt.facts is not None else ""
