"""One summary of a conversation, by the first model that can be used.

Long text goes in chunks: each call carries the summary so far. What a model calls too large is cut
into smaller chunks; below DROPPED_BYTES a compaction leaves out the oldest parts, as the agents'
own do, and a segment never does, as it stands for all of its messages.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Protocol

from indexerd import errors
from indexerd.digests.prompt_hook import consult
from indexerd.digests.prompts import NO_WISH, Wish, instructions, summary_prompt
from indexerd.digests.transcript import Part, RedactedTranscript, words_in
from indexerd.events import Prompt, Stretch
from indexerd.logs import Event
from indexerd.meta.writer import MetaWriter
from indexerd.models.attempts import Attempt, Rejected, Spent, ask, first_usable
from indexerd.models.base import LOCAL, Finish, Model, Reply
from indexerd.models.budget import Budget
from indexerd.models.telemetry import DIGEST, audit_row
from indexerd.privacy.redact import redactor
from indexerd.privacy.sanitize import clean_text
from indexerd.sessions.clipped import clip
from indexerd.settings import Settings
from indexerd.sources.session_reader import SessionReaderPool, SessionRows
from indexerd.times import iso

CHUNK_BYTES = 200_000  # of one call: about 50,000 tokens
LOCAL_BYTES = 8_000_000
DROPPED_BYTES = 32_000  # what any model takes: if even that is too large, the oldest of it goes
SMALLEST_BYTES = 2048  # a text that is too large for a model is halved, but not below this
CHARS_PER_TOKEN = 8  # more than any model writes: a longer answer is not usable
LEAST_TOKENS = 250  # that one of several chunks of a segment may take
REFUSALS_MAX = 12  # of texts that were too large, for one summary
PAUSE_SECONDS, LONGEST_PAUSE = 0.25, 4.0  # before a smaller text is tried

Row = dict[str, Any]


class Events(Protocol):
    """The part of the event bus that digests use."""

    def log(self, event: Event, fields: dict[str, Any]) -> None: ...
    def publish(self, event: str, session_id: str | None, fields: dict[str, Any]) -> None: ...
    def defect(self, event: Event, session_id: str, bug: Exception) -> None: ...


@dataclass(frozen=True, slots=True)
class Services:
    """What digests need of the daemon."""

    rows: SessionRows
    pool: SessionReaderPool
    settings: Callable[[], Settings]
    models: Callable[[], list[Model]]  # of digests, in the user's order
    budget: Budget
    record: Callable[[Mapping[str, Any]], Any]  # appends a row to the audit trail
    writer: MetaWriter
    events: Events
    on_history: Callable[[str], object]  # called with the session whose history was opened
    excluded: Callable[[], list[str]]  # globs of sessions that get no digests
    clock: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be summarized, and for what. `base.messages` are filled in chunk by chunk."""

    row: Row
    name: str  # segment, compaction or branch: as the audit calls it
    transcript: RedactedTranscript
    base: Stretch
    wish: Wish = NO_WISH
    strategy: str = ""
    covering: tuple[int, int] | None = None
    asked: bool = True  # by somebody; else it came by itself


@dataclass(slots=True)
class Summary:
    """A summary, and how it was made."""

    text: str = ""
    model: str = ""
    spent: Spent = field(default_factory=Spent)
    notes: list[str] = field(default_factory=list)
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


async def summarize(services: Services, task: Task) -> Summary:
    """Summarize. Raises an IndexerdError: then there is no summary."""
    if not task.transcript.parts:
        raise errors.SessionEmptyError("there is nothing in words to sum up")
    started, run = perf_counter(), _Run(services, task)
    try:
        await run.consult_hook()
        text, model = await first_usable(services.models(), run.in_chunks)
    except errors.ModelError as bad:
        if task.asked and bad.kind not in ("budget_exhausted", "model_unavailable"):
            bad.hint = "try again later, or another model: [digest] model"
        raise
    ms = round((perf_counter() - started) * 1000)
    run.made.text, run.made.model, run.made.ms = text, model.key, ms
    return run.made


class _Run:
    def __init__(self, services: Services, task: Task) -> None:
        self._services, self._task = services, task
        self._settings = services.settings()
        self._clean = redactor(self._settings)
        self.made = Summary()
        self._redactions = Counter(task.transcript.redactions)  # of all that the task sends
        self._wish = Wish(self._safe(task.wish.focus), self._safe(task.wish.instead))

    def _safe(self, text: str) -> str:
        clean, found = self._clean(text)
        self._redactions.update(found)
        return clean

    def _log(self, event: Event, fields: dict[str, Any]) -> None:
        self._services.events.log(event, {"session": self._task.row["sessionId"], **fields})

    async def consult_hook(self) -> None:
        """Learn what the user wants otherwise; a hook that fails is passed over."""
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

    async def in_chunks(self, model: Model) -> str:
        """The summary by one model, in as many calls as its text takes."""
        segment = self._task.name == "segment"
        size = LOCAL_BYTES if model.key.startswith(LOCAL) else CHUNK_BYTES
        left, texts = list(self._task.transcript.parts), list[str]()
        dropped = cut = refusals = 0
        while left:
            chunk, rest = _take(left, size)
            try:
                texts.append(await self._ask(model, self._prompt(chunk, texts, last=not rest)))
            except errors.ContextTooLargeError:
                sent = sum(one.size for one in chunk)
                drop = not segment and len(chunk) > 1 and sent <= DROPPED_BYTES
                if refusals == REFUSALS_MAX or (not drop and sent // 2 < SMALLEST_BYTES):
                    raise
                size = sent // 2
                if drop:
                    kept = _without_oldest(chunk)
                    dropped += len(chunk) - len(kept)
                    left, size = [*kept, *rest], sum(one.size for one in kept)
                await asyncio.sleep(min(PAUSE_SECONDS * 2**refusals, LONGEST_PAUSE))
                refusals += 1
                continue
            cut += chunk[0] != left[0]
            left = rest
        if cut:
            self.made.notes.append(f"{cut} messages were too long to be read whole")
        if dropped:
            self.made.notes.append(f"{dropped} of the oldest parts were too much for {model.key}")
        return "\n\n".join(texts) if segment else texts[-1]

    def _prompt(self, chunk: list[Part], texts: list[str], *, last: bool) -> Prompt:
        """Ask about one chunk; `texts` are the answers so far."""
        base = self._task.base
        tokens, previous = base.max_tokens, base.previous
        if base.kind == "segment":
            previous = "\n\n".join([previous, *texts]).strip()
            if texts or not last:
                tokens = max(LEAST_TOKENS, tokens // 2)
        elif texts:
            previous = texts[-1]
        stretch = replace(
            base,
            messages=tuple(words_in(chunk)),
            previous=previous,
            instructions=self._wish.focus,
            max_tokens=tokens,
        )
        text = "\n\n".join(one.text for one in chunk)
        return summary_prompt(text, stretch, secrets.token_hex(8), self._wish)

    async def _ask(self, model: Model, base: Prompt) -> str:
        most = CHARS_PER_TOKEN * base.max_output_tokens
        size = len(base.user.encode("utf-8", "replace"))

        def read(reply: Reply) -> str | Rejected:
            # Cleaned first: characters that are not shown could stand within a secret.
            text = self._clean(clean_text(reply.text[: 2 * most], 2 * most))[0]
            if reply.finish is Finish.LENGTH:
                return Rejected("it was cut off at its limit; be much briefer")
            if not text:
                return Rejected("it was empty")
            return text if len(text) <= most else Rejected("it was far too long; be much briefer")

        def again(_reply: Reply, error: str) -> Prompt:
            problem = f"Your previous answer could not be used: {error}."
            return replace(base, user=f"{base.user}\n\n{problem}")

        return await ask(
            model,
            base,
            self._services.budget,
            timeout=self._settings.model.timeout_seconds,
            read=read,
            again=again,
            report=lambda attempt: self._report(attempt, size),
        )

    def _report(self, attempt: Attempt, size: int) -> None:
        task = self._task
        if attempt.reply is not None:
            self.made.spent.add(attempt.reply, attempt.usd)
            fields = {"model": attempt.model, "attempt": attempt.number, "cost_usd": attempt.usd}
            self._log(Event.DIGEST_ATTEMPT, fields | {"ms": attempt.ms})
        row = audit_row(
            DIGEST,
            task=task.name,
            by="user" if task.asked else "daemon",
            covering_messages=task.covering,
            session_id=task.row["sessionId"],
            timestamp=iso(self._services.clock()),
            bytes=size,
            redactions=dict(self._redactions),
            **attempt.audit(),
        )
        self._services.record(row)


def _take(parts: Sequence[Part], size: int) -> tuple[list[Part], list[Part]]:
    """The first parts that fit into `size` bytes, and the rest; of a longer first part its ends."""
    held = 0
    for at, part in enumerate(parts):
        held += part.size
        if held > size:
            ends = size // 8  # 4 bytes a character
            first = parts[:at] or [Part(clip(part.text, ends, ends), part.role)]
            return list(first), list(parts[max(1, at) :])
    return list(parts), []


def _without_oldest(parts: Sequence[Part]) -> list[Part]:
    """The parts without their oldest fourth, and without results whose calls went with it."""
    total, gone = sum(len(one.text) for one in parts), 0
    for at, part in enumerate(parts):
        if 4 * gone >= total and not part.text.startswith("[Tool result]: "):
            return list(parts[at:])
        gone += len(part.text)
    return list(parts[-1:])
