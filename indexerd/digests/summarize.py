"""Summarize a conversation with the first model that can be used.

If a model calls the text too large, a compaction leaves out its oldest parts, as the agents' own
do. A segment stands for all of its messages: its halves are summarized one after the other.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

from indexerd import errors
from indexerd.digests.prompts import NO_WISH, Wish, consult, instructions, summary_prompt
from indexerd.digests.transcript import Part, RedactedTranscript, words_in
from indexerd.events import Prompt, Stretch
from indexerd.logs import Event
from indexerd.models.attempts import Calls, Rejected, first_usable
from indexerd.models.base import Finish, Model, Reply
from indexerd.models.telemetry import DIGEST
from indexerd.privacy.redact import redactor
from indexerd.privacy.sanitize import clean_text
from indexerd.references.services import Services

CHARS_PER_TOKEN = 8  # more than any model writes: a longer answer is not usable
PAUSE_SECONDS, LONGEST_PAUSE = 0.25, 4.0  # before a smaller text is tried

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """What to summarize, and how; `base` without its messages."""

    row: Row
    name: str  # in the audit: segment, compaction or branch
    transcript: RedactedTranscript
    base: Stretch
    wish: Wish = NO_WISH
    strategy: str = ""
    covering: tuple[int, int] | None = None
    asked: bool = True  # by a person; else automatic


def usage_of(made: Sequence[Summary]) -> dict[str, Any]:
    costs = [one.calls.usd for one in made]
    return {
        "inputTokens": sum(one.calls.input_tokens for one in made),
        "outputTokens": sum(one.calls.output_tokens for one in made),
        "costUsd": None if None in costs else sum(one or 0.0 for one in costs),
        "calls": sum(one.calls.count for one in made),
        "model": made[0].model if made else None,
        "ms": sum(one.ms for one in made),
    }


async def summarize(services: Services, task: Task) -> Summary:
    """Summarize; an IndexerdError means that there is no summary."""
    if not task.transcript.parts:
        raise errors.SessionEmptyError("there is no text to summarize")
    started, made = perf_counter(), Summary(services, task)
    try:
        await made.consult_hook()
        made.text, model = await first_usable(services.summarizers(), made.by_model)
    except errors.ModelError as bad:
        if task.asked and bad.kind not in ("budget_exhausted", "model_unavailable"):
            bad.hint = "try again later, or another model: [digest] model"
        raise
    made.model, made.ms = model.key, round((perf_counter() - started) * 1000)
    return made


class Summary:
    """A summary, and how it was made."""

    def __init__(self, services: Services, task: Task) -> None:
        self.text = self.model = ""
        self.ms, self.notes = 0, list[str]()
        self._services, self._task = services, task
        self._settings = services.settings()
        self._clean = redactor(self._settings)
        self._redactions = Counter(task.transcript.redactions)  # of everything that is sent
        self._wish = Wish(self._safe(task.wish.focus), self._safe(task.wish.instead))
        audit = {
            "customType": DIGEST,
            "task": task.name,
            "by": "user" if task.asked else "daemon",
            "covering_messages": task.covering,
            "sessionId": task.row["sessionId"],
        }
        log = partial(self._log, Event.DIGEST_ATTEMPT)
        self.calls = Calls(services.budget, audit, lambda fields, _error: log(fields))

    def _safe(self, text: str) -> str:
        clean, found = self._clean(text)
        self._redactions.update(found)
        return clean

    def _log(self, event: Event, fields: dict[str, Any]) -> None:
        self._services.events.log(event, {"session": self._task.row["sessionId"], **fields})

    async def consult_hook(self) -> None:
        """Ask the user's hook to change the prompt; a failing hook changes nothing."""
        task, wanted = self._task, self._settings.digest
        if not wanted.hook:
            return
        payload = {
            "task": task.name,
            "strategy": task.strategy,
            "sessionId": task.row["sessionId"],
            "agent": task.row["agent"],
            "cwd": task.base.cwd,
            "covering": task.covering,
            "prompt": self._wish.instead or instructions(task.base),
        }
        try:
            advice = await consult(wanted.hook, payload, seconds=wanted.hook_seconds)
        except errors.IndexerdError as failed:
            self._log(Event.DIGEST_HOOK_FAILED, {"reason": str(failed)})
            return
        instead = self._safe(advice.prompt or "") or self._wish.instead
        self._wish = Wish(self._wish.focus, instead, tuple(map(self._safe, advice.context or ())))

    async def by_model(self, model: Model) -> str:
        """Summarize with one model, in smaller parts if it calls the text too large."""
        parts, segment = self._task.transcript.parts, self._task.name == "segment"
        todo, texts, pause = [parts], list[str](), PAUSE_SECONDS
        while todo:
            parts = todo.pop()
            try:
                texts.append(await self._ask(model, self._prompt(parts, texts)))
            except errors.ContextTooLargeError:
                if len(parts) == 1:
                    raise
                half, fourth = len(parts) // 2, max(1, len(parts) // 4)
                todo += [parts[half:], parts[:half]] if segment else [parts[fourth:]]
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        dropped = 0 if segment else len(self._task.transcript.parts) - len(parts)
        if dropped:
            self.notes.append(f"{dropped} of the oldest parts were too much for {model.key}")
        return "\n\n".join(texts)

    def _prompt(self, parts: Sequence[Part], texts: list[str]) -> Prompt:
        stretch = replace(
            self._task.base,
            messages=tuple(words_in(parts)),
            previous="\n\n".join([self._task.base.previous, *texts]).strip(),
            instructions=self._wish.focus,
        )
        text = "\n\n".join(one.text for one in parts)
        return summary_prompt(text, stretch, secrets.token_hex(8), self._wish)

    async def _ask(self, model: Model, base: Prompt) -> str:
        most = CHARS_PER_TOKEN * base.max_output_tokens
        size = len(base.user.encode("utf-8", "replace"))

        def read(reply: Reply) -> str | Rejected:
            # Cleaned first: invisible characters could be inside a secret.
            text = self._clean(clean_text(reply.text[: 2 * most], 2 * most))[0]
            if reply.finish is Finish.LENGTH:
                return Rejected("it was cut off at its limit; be much briefer")
            if not text:
                return Rejected("it was empty")
            return text if len(text) <= most else Rejected("it was far too long; be much briefer")

        def again(_reply: Reply, error: str) -> Prompt:
            problem = f"Your previous answer could not be used: {error}."
            return replace(base, user=f"{base.user}\n\n{problem}")

        sent = {"bytes": size, "redactions": dict(self._redactions)}
        self.calls.audit |= sent
        timeout = self._settings.model.timeout_seconds
        return await self.calls.ask(model, base, timeout=timeout, read=read, again=again)
