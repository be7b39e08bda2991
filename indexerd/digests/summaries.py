"""One summary of a conversation, by the first model that is to be had.

In: a task, whose text is redacted. Out: the summary, cleaned and redacted once more, what it cost,
and notes on what the model did not get. A text that is too long for one call goes in chunks: each
call carries the summary so far. Where a model says that even that is too large, it is cut into
smaller chunks; of what any model takes a compaction leaves out the oldest parts, as the agents'
own do, while a segment never does, as it stands for all of its messages (S3.24). What was left out
or cut is said. Nothing is kept here: if this fails, all that was there before stands (S2.20).
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any

from indexerd.digests.prompt_hook import Failed, consult
from indexerd.digests.summary_prompts import (
    PREVIOUS_MAX,
    Wish,
    instructions,
    shorter_prompt,
    summary_prompt,
)
from indexerd.digests.talk import Talk, said_in, taken, without_oldest
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
from indexerd.privacy.redactor import Redactor, redactor
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
# names is not told: another hand may have written it, and no word of theirs is for the audit.
_MARK = re.compile(r"\[redacted:[a-z0-9-]+\]")

_HINTS: dict[type[IndexerdError], str] = {
    ProviderError: "try again later",
    RefusedError: "try another model: [digest] model",
    OutputInvalidError: "try again, or another model: [digest] model",
    ContextTooLargeError: "use a model with a larger window: [digest] model",
    DeadlineError: "try again, or raise [model] timeout_seconds",
}

Notify = Callable[[Event, str, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be summed up, and for what. `base.messages` are filled in chunk by chunk."""

    session_id: str
    agent: str
    name: str  # segment, compaction or branch: as the audit calls it
    talk: Talk
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

    def usage(self) -> dict[str, Any]:
        """What it cost, as answers say it."""
        spent = self.spent
        return {
            "inputTokens": spent.input_tokens,
            "outputTokens": spent.output_tokens,
            "costUsd": spent.usd,
            "calls": spent.calls,
            "model": self.model,
            "ms": self.ms,
        }


@dataclass(slots=True)
class _Run:
    """One task on its way."""

    task: Task
    settings: Settings
    clean: Redactor
    wish: Wish
    redactions: dict[str, int]  # of all that the task sends
    spent: Spent = field(default_factory=Spent)
    notes: list[str] = field(default_factory=list)
    bytes: int = 0


class Summaries:
    """Makes summaries, for one daemon; or, without one, for one command."""

    def __init__(
        self,
        *,
        budget: Budget,
        record: Callable[[dict[str, Any]], object],
        clock: Callable[[], float],
        notify: Notify,
    ) -> None:
        """`record` keeps rows of the audit trail.

        `notify(event, session id, fields)` hears of attempts, and of hooks that fail.
        """
        self._budget = budget
        self._keep = record
        self._clock = clock
        self._notify = notify

    async def write(self, task: Task, settings: Settings, models: Sequence[Model]) -> Summary:
        """Sum up. Raises an error of the tree: then there is no summary."""
        if not task.talk.parts:
            raise SessionEmptyError("there is nothing in words to sum up")
        with _asked(task):
            return await self._written(task, settings, models)

    async def _written(self, task: Task, settings: Settings, models: Sequence[Model]) -> Summary:
        started = perf_counter()
        clean, counts = redactor(settings), dict(task.talk.redactions)
        if earlier := len(_MARK.findall(task.base.previous[:PREVIOUS_MAX])):
            counts[EARLIER] = earlier
        wish = await self._wish(task, settings, partial(_counted, clean, counts))
        run = _Run(task, settings, clean, wish, counts)
        text, model = await first_usable(models, partial(self._by, run))
        ms = round((perf_counter() - started) * 1000)
        return Summary(text, model.key, run.spent, tuple(run.notes), ms)

    async def _wish(self, task: Task, settings: Settings, safe: Callable[[str], str]) -> Wish:
        """What the user wants otherwise; a hook that fails is passed over (S3.29)."""
        focus, instead = safe(task.focus), safe(task.instead)
        payload = {
            "task": task.name,
            "strategy": task.strategy,
            "sessionId": task.session_id,
            "agent": task.agent,
            "cwd": task.base.cwd,
            "covering": task.covering,
            "prompt": instead or instructions(task.base),
        }
        wanted = settings.digest
        advice = await consult(wanted.hook, payload, seconds=wanted.hook_seconds)
        if isinstance(advice, Failed):
            self._notify(Event.DIGEST_HOOK_FAILED, task.session_id, {"reason": advice.reason})
            return Wish(focus, instead)
        context = tuple(safe(one) for one in advice.context)
        return Wish(focus, safe(advice.prompt or "") or instead, context)

    # -- texts ---------------------------------------------------------------------------

    async def _by(self, run: _Run, model: Model) -> str:
        """The summary by one model, in as many calls as its text takes."""
        task = run.task
        size = LOCAL_BYTES if model.key.startswith(LOCAL) else CHUNK_BYTES
        left, texts = list(task.talk.parts), list[str]()
        pause, dropped, cut, refusals = PAUSE_SECONDS, 0, 0, 0
        while left:
            chunk, rest = taken(left, size)
            prompt = self._prompt(run, chunk, texts, last=not rest)
            try:
                texts.append(await self._attempts(run, model, prompt))
            except ContextTooLargeError:
                refusals += 1
                if refusals > REFUSALS_MAX:
                    raise
                sent = _size(chunk)
                if task.drops and len(chunk) > 1 and sent <= DROPPED_BYTES:
                    kept = without_oldest(chunk) or chunk[-1:]
                    dropped += len(chunk) - len(kept)
                    left, size = [*kept, *rest], _size(kept)
                elif sent // 2 < SMALLEST_BYTES:
                    raise
                else:
                    size = sent // 2
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

    def _prompt(self, run: _Run, chunk: list[str], texts: list[str], *, last: bool) -> Prompt:
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
            messages=said_in(chunk),
            previous=previous,
            instructions=run.wish.focus,
            max_tokens=tokens,
        )
        text = "\n\n".join(chunk)
        prompt = summary_prompt(text, stretch, secrets.token_hex(8), run.wish)
        run.bytes = len(prompt.user.encode("utf-8", "replace"))
        return prompt

    # -- calls ---------------------------------------------------------------------------

    async def _attempts(self, run: _Run, model: Model, base: Prompt) -> str:
        most = base.max_output_tokens

        def read(reply: Reply) -> str | Rejected:
            text = _cleaned(run.clean, reply.text, most)
            fault = _fault(text, cut=reply.finish is Finish.LENGTH, most=most)
            return Rejected(fault) if fault else text

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
            told = {"model": attempt.model, "attempt": attempt.number, "cost_usd": attempt.usd}
            self._notify(Event.DIGEST_ATTEMPT, task.session_id, told | {"ms": attempt.ms})
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
        self._keep(row)


def _counted(clean: Redactor, counts: dict[str, int], text: str) -> str:
    """A text without what is secret in it, whose finds are added to the counts."""
    safe, found = clean(text)
    for kind, number in found.items():
        counts[kind] = counts.get(kind, 0) + number
    return safe


def _size(parts: Sequence[str]) -> int:
    """Bytes of a text of these parts."""
    return sum(len(one.encode("utf-8", "replace")) + 2 for one in parts)


@contextmanager
def _asked(task: Task) -> Iterator[None]:
    """Give errors hints for somebody who asked: nobody tries it again by itself."""
    try:
        yield
    except IndexerdError as bad:
        if task.asked:
            bad.hint = _HINTS.get(type(bad), bad.hint)
        raise


def _cleaned(clean: Redactor, text: str, tokens: int) -> str:
    """A reply without what was secret in it; no more is looked at than could be used.

    Cleaned first: characters that are not shown could stand within a secret.
    """
    most = 2 * CHARS_PER_TOKEN * tokens
    return clean(clean_text(text[:most], most))[0]


def _fault(text: str, *, cut: bool, most: int) -> str:
    """Why an answer cannot be used; "" where it can."""
    if cut:
        return "it was cut off at its limit; be much briefer"
    if not text:
        return "it was empty"
    if len(text) > CHARS_PER_TOKEN * most:
        return "it was far too long; be much briefer"
    return ""
