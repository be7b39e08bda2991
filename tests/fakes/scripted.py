"""A model that gives the answers a test hands it, in order."""

from collections.abc import Sequence

from indexerd.entries import Prompt
from indexerd.errors import ModelError
from indexerd.models.base import Reply
from indexerd.models.scripted import made_up

Answer = str | Reply | ModelError | None


class Scripted:
    def __init__(
        self, replies: Sequence[Answer] = (), *, key: str = "scripted/list", remote: bool = True
    ) -> None:
        self.key = key
        self.remote = remote
        self.calls: list[Prompt] = []
        self._replies = list(replies)

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        self.calls.append(prompt)
        answer = self._replies.pop(0) if self._replies else None
        if isinstance(answer, ModelError):
            raise answer
        if isinstance(answer, Reply):
            return answer
        made = made_up(prompt, self.key)
        return made if answer is None else Reply(answer, made.model, tokens=made.tokens)
