"""A model during whose call the task that asked is cancelled."""

from __future__ import annotations

import asyncio

from indexerd.events import Prompt
from indexerd.models.base import Reply
from tests.fakes.scripted import Scripted


class Ending(Scripted):
    """A model during whose call the task is cancelled."""

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """Answer, if it comes to that."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return await super().generate(prompt, timeout=timeout)
