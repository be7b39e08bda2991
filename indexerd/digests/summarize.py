"""One summary of a conversation, by the first model that can be used.

A text that is too long for one call goes in chunks: each call carries the summary so far. Where a
model says that even that is too large, it is cut into smaller chunks; of what any model takes a
compaction leaves out the oldest parts, as the agents' own do, while a segment never does, as it
stands for all of its messages (S3.24). What was left out or cut is noted. Nothing is stored here:
if this fails, all that was there before stands (S2.20).
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any

from indexerd.digests.prompt_hook import Failed, consult
from indexerd.digests.prompts import (
    PREVIOUS_MAX,
    Wish,
    instructions,
    shorter_prompt,
    summary_prompt,
)
from indexerd.digests.redacted_transcript import (
    Part,
    RedactedTranscript,
    take,
    without_oldest,
    words_in,
)
from indexerd.errors import (
    ContextTooLargeError,
    DeadlineError,
    IndexerdError,
    OutputInvalidError,
    ProviderError,
    RefusedError,
    SessionEmptyError,
)
from indexerd.events import Prompt, Stretch
from indexerd.logs import Event
from indexerd.models.attempts import Attempt, Rejected, Spent, ask, first_usable
from indexerd.models.base import LOCAL, Finish, Model, Reply
from indexerd.models.budget import Budget
from indexerd.models.telemetry import digest_row
from indexerd.privacy.redact import Redactor, redactor
from indexerd.privacy.sanitize import clean_text
from indexerd.settings import Settings
from indexerd.times import iso

CHUNK_BYTES = 200_000  # of one call: about 50,000 tokens
LOCAL_BYTES = 8_000_000
DROPPED_BYTES = 32_000  # what any model takes: if even that is too large, the oldest of it goes
SMALLEST_BYTES = 2048  # a text that is too large for a model is halved, but not below this
CHARS_PER_TOKEN = 8  # more than any model writes: a longer answer than this is none
LEAST_TOKENS = 250  # that one of several chunks of a segment may take
REFUSALS_MAX = 12  # of texts that were too large, for one summary
PAUSE_SECONDS, LONGEST_PAUSE = 0.25, 4.0  # before a smaller text is tried
EARLIER = "earlier"  # among kinds of redactions: marks in the summary of what came before

# What is redacted in that summary was counted nowhere, if it was stored so. The kind that a mark
# names is not kept: another hand may have written it, and no word of theirs is for the audit.
_MARK = re.compile(r"\[redacted:[a-z0-9-]+\]")

# For somebody who asked: nobody tries it again by itself.
_HINTS: dict[type[IndexerdError], str] = {
    ProviderError: "try again later",
    RefusedError: "try another model: [digest] model",
    OutputInvalidError: "try again, or another model: [digest] model",
    ContextTooLargeError: "use a model with a larger window: [digest] model",
    DeadlineError: "try again, or raise [model] timeout_seconds",
}


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be summarized, and for what. `base.messages` are filled in chunk by chunk."""

    session_id: str
    agent: str
    name: str  # segment, compaction or branch: as the audit calls it
    transcript: RedactedTranscript
    base: Stretch
    focus: str = ""  # what the user wants it to dwell on
    instead: str = ""  # the user's own instructions, in the place of ours
    strategy: str = ""
    covering: tuple[int, int] | None = None
    asked: bool = True  # by somebody; else it came by itself
    drops: bool = False  # whether the oldest parts may be left out where all is too large


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary, and what there is to say about it."""

    text: str
    model: str
    spent: Spent
    notes: tuple[str, ...] = ()
    ms: int = 0


def usage_of(made: Sequence[Summary]) -> dict[str, Any]:
    """What summaries cost together, as answers have it."""
    costs = [one.spent.usd for one in made]
    return {
        "inputTokens": sum(one.spent.input_tokens for one in made),
        "outputTokens": sum(one.spent.output_tokens for one in made),
        "costUsd": None if None in costs else sum(one or 0.0 for one in costs),
        "calls": sum(one.spent.calls for one in made),
        "model": made[0].model if made else None,
        "ms": sum(one.ms for one in made),
    }


@dataclass(slots=True)
class _Run:
    """One task on its way."""

    task: Task
    settings: Settings
    clean: Redactor
    redactions: dict[str, int]  # of all that the task sends
    wish: Wish = field(default_factory=Wish)
    spent: Spent = field(default_factory=Spent)
    notes: list[str] = field(default_factory=list)
    bytes: int = 0

    def safe(self, text: str) -> str:
        """Redact a text, and count what was found."""
        clean, found = self.clean(text)
        for kind, number in found.items():
            self.redactions[kind] = self.redactions.get(kind, 0) + number
        return clean


class Summarizer:
    """Makes summaries."""

    def __init__(
        self,
        *,
        budget: Budget,
        record: Callable[[dict[str, Any]], object],
        clock: Callable[[], float],
        notify: Callable[[Event, str, dict[str, Any]], None],
    ) -> None:
        """`record` keeps rows of the audit trail.

        `notify(event, session id, fields)` hears of attempts, and of hooks that fail.
        """
        self._budget = budget
        self._record = record
        self._clock = clock
        self._notify = notify

    async def write(self, task: Task, settings: Settings, models: Sequence[Model]) -> Summary:
        """Summarize. Raises an error of the tree: then there is no summary."""
        if not task.transcript.parts:
            raise SessionEmptyError("there is nothing in words to sum up")
        started = perf_counter()
        run = _Run(task, settings, redactor(settings), dict(task.transcript.redactions))
        if earlier := len(_MARK.findall(task.base.previous[:PREVIOUS_MAX])):
            run.redactions[EARLIER] = earlier
        try:
            run.wish = await self._wish(run)
            text, model = await first_usable(models, partial(self._in_chunks, run))
        except IndexerdError as bad:
            if task.asked:
                bad.hint = _HINTS.get(type(bad), bad.hint)
            raise
        ms = round((perf_counter() - started) * 1000)
        return Summary(text, model.key, run.spent, tuple(run.notes), ms)

    async def _wish(self, run: _Run) -> Wish:
        """What the user wants otherwise; a hook that fails is passed over (S3.29)."""
        task, wanted = run.task, run.settings.digest
        focus, instead = run.safe(task.focus), run.safe(task.instead)
        payload = {
            "task": task.name,
            "strategy": task.strategy,
            "sessionId": task.session_id,
            "agent": task.agent,
            "cwd": task.base.cwd,
            "covering": task.covering,
            "prompt": instead or instructions(task.base),
        }
        advice = await consult(wanted.hook, payload, seconds=wanted.hook_seconds)
        if isinstance(advice, Failed):
            self._notify(Event.DIGEST_HOOK_FAILED, task.session_id, {"reason": advice.reason})
            return Wish(focus, instead)
        context = tuple(run.safe(one) for one in advice.context)
        return Wish(focus, run.safe(advice.prompt or "") or instead, context)

    async def _in_chunks(self, run: _Run, model: Model) -> str:
        """The summary by one model, in as many calls as its text takes."""
        task = run.task
        size = LOCAL_BYTES if model.key.startswith(LOCAL) else CHUNK_BYTES
        left, texts = list(task.transcript.parts), list[str]()
        pause, dropped, cut, refusals = PAUSE_SECONDS, 0, 0, 0
        while left:
            chunk, rest = take(left, size)
            prompt = self._prompt(run, chunk, texts, last=not rest)
            try:
                texts.append(await self._ask(run, model, prompt))
            except ContextTooLargeError:
                refusals += 1
                sent = _size(chunk)
                if task.drops and len(chunk) > 1 and sent <= DROPPED_BYTES:
                    kept = without_oldest(chunk) or chunk[-1:]
                    dropped += len(chunk) - len(kept)
                    left, size = [*kept, *rest], _size(kept)
                elif sent // 2 < SMALLEST_BYTES:
                    raise
                else:
                    size = sent // 2
                if refusals > REFUSALS_MAX:
                    raise
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            cut += chunk[0] != left[0]
            left = rest
        if cut:
            run.notes.append(f"{cut} messages were too long to be read whole")
        if dropped:
            run.notes.append(f"{dropped} of the oldest parts were too much for {model.key}")
        return "\n\n".join(texts) if task.base.kind == "segment" else texts[-1]

    def _prompt(self, run: _Run, chunk: list[Part], texts: list[str], *, last: bool) -> Prompt:
        """Ask about one chunk; `texts` are the answers so far."""
        base = run.task.base
        tokens, previous = base.max_tokens, base.previous
        if base.kind == "segment":
            previous = "\n\n".join([previous, *texts]).strip()
            if texts or not last:
                tokens = max(LEAST_TOKENS, tokens // 2)
        elif texts:
            previous = texts[-1]
        stretch = replace(
            base,
            messages=words_in(chunk),
            previous=previous,
            instructions=run.wish.focus,
            max_tokens=tokens,
        )
        text = "\n\n".join(one.text for one in chunk)
        prompt = summary_prompt(text, stretch, secrets.token_hex(8), run.wish)
        run.bytes = len(prompt.user.encode("utf-8", "replace"))
        return prompt

    async def _ask(self, run: _Run, model: Model, base: Prompt) -> str:
        most = CHARS_PER_TOKEN * base.max_output_tokens

        def read(reply: Reply) -> str | Rejected:
            # Cleaned first: characters that are not shown could stand within a secret.
            text = run.clean(clean_text(reply.text[: 2 * most], 2 * most))[0]
            if reply.finish is Finish.LENGTH:
                return Rejected("it was cut off at its limit; be much briefer")
            if not text:
                return Rejected("it was empty")
            if len(text) > most:
                return Rejected("it was far too long; be much briefer")
            return text

        return await ask(
            model,
            base,
            self._budget,
            seconds=lambda _error: run.settings.model.timeout_seconds,
            read=read,
            again=lambda _reply, error: shorter_prompt(base, error),
            report=partial(self._report, run),
        )

    def _report(self, run: _Run, attempt: Attempt) -> None:
        """Keep what an attempt cost, and its row of the audit trail."""
        task = run.task
        if attempt.reply is not None:
            run.spent.add(attempt.reply, attempt.usd)
            fields = {"model": attempt.model, "attempt": attempt.number, "cost_usd": attempt.usd}
            self._notify(Event.DIGEST_ATTEMPT, task.session_id, fields | {"ms": attempt.ms})
        row = digest_row(
            task=task.name,
            by="user" if task.asked else "daemon",
            covering=task.covering,
            session_id=task.session_id,
            timestamp=iso(self._clock()),
            bytes=run.bytes,
            redactions=run.redactions,
            **attempt.audit(),
        )
        self._record(row)


def _size(parts: Iterable[Part]) -> int:
    return sum(one.size for one in parts)
