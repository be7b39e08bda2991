"""Questions about one past session: `query_session`.

The answer is from that session alone, with citations that were held against what the model had
read. A model that leaves the machine gets the newest part of the path, redacted; the built-in one
looks through all of it. Neither the question nor the answer is kept, logged or in the telemetry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

from indexerd.errors import (
    CallLimitError,
    ContextTooLargeError,
    DeadlineError,
    IndexerdError,
    ModelError,
    SessionEmptyError,
    UsageError,
)
from indexerd.events import Prompt
from indexerd.indexing.prompt import retry_prompt
from indexerd.indexing.transcript import size_of
from indexerd.logs import Event
from indexerd.models.attempts import Attempt, Rejected, Spent, ask, first_usable
from indexerd.models.base import LOCAL, Finish, Model, Reply
from indexerd.models.budget import Budget
from indexerd.models.telemetry import QUERY, audit_row
from indexerd.privacy.redact import Redactor, redactor
from indexerd.privacy.sanitize import clean_text
from indexerd.protocol.params import QuerySession
from indexerd.references.cited_answer import Cited, validate_answer
from indexerd.references.query_codes import coded
from indexerd.references.question_context import Context, read_context
from indexerd.settings import Settings
from indexerd.sources.session_reader import SessionReaderPool, SessionRows
from indexerd.times import iso

QUESTION_MAX = 4000  # characters
LOCAL_BYTES = 4_000_000  # that the built-in model looks at
SMALLEST_BYTES = 2048  # a text that is too large for a model is halved, but not below this
TURNS_MAX = 1000  # whose questions are counted; those asked in longest ago are forgotten


@dataclass(slots=True)
class _Run:
    """One question on its way."""

    row: dict[str, Any]
    question: str
    leaf: str | None
    settings: Settings
    clean: Redactor
    started: float = field(default_factory=perf_counter)
    spent: Spent = field(default_factory=Spent)
    notes: list[str] = field(default_factory=list)
    bytes: int = 0  # of the text that was sent last
    called: bool = False  # a model was

    def facts(self) -> dict[str, Any]:
        """What the log says of it."""
        ms = round((perf_counter() - self.started) * 1000)
        return {"session": self.row["sessionId"], "ms": ms, "cost_usd": self.spent.usd}


@dataclass
class Questions:
    """Answers questions. `models()` are in the user's order; `record` keeps audit rows."""

    rows: SessionRows
    pool: SessionReaderPool
    models: Callable[[], list[Model]]
    settings: Callable[[], Settings]
    budget: Budget
    record: Callable[[dict[str, Any]], object]
    clock: Callable[[], float]
    log: Callable[[Event, dict[str, Any]], None]
    _turns: dict[str, int] = field(default_factory=dict)  # questions, by turn

    async def query(self, asked: QuerySession) -> dict[str, Any]:
        """The result of `query_session`."""
        with coded():
            row = self.rows.row(asked.session, cwd=asked.cwd)
        return await self.answer(
            row["sessionId"], asked.question, turn_id=asked.turn_id, leaf=asked.leaf
        )

    async def answer(
        self,
        session_id: str,
        question: str,
        *,
        turn_id: str | None = None,
        leaf: str | None = None,
    ) -> dict[str, Any]:
        """Answer from one session, as seen from its leaf or from another entry.

        Raises an IndexerdError, with `upstream` set. With a `turn_id` no more questions are
        answered for it than `query.max_calls_per_turn`.
        """
        with coded():
            settings = self.settings()
            clean, asked = redactor(settings), clean_text(question, len(question))
            if not 0 < len(asked) <= QUESTION_MAX:
                raise UsageError(f"a question has 1 to {QUESTION_MAX} characters")
            run = _Run(self.rows.by_id(session_id), clean(asked)[0], leaf, settings, clean)
            self._count(turn_id, settings.query.max_calls_per_turn)
            try:
                cited, model = await self._answered(run)
            except IndexerdError as bad:
                self.log(Event.QUERY_FAILED, {"reason": bad.kind, **run.facts()})
                raise
            finally:
                if turn_id in self._turns and not run.called:
                    self._turns[turn_id] -= 1
        facts = {"model": model.key, "bytes": run.bytes, **run.facts()}
        self.log(Event.QUERY_ANSWERED, facts)
        return {
            "sessionId": session_id,
            "name": run.row["name"],
            "answerMarkdown": cited.markdown,
            "confidence": cited.confidence,
            "citations": cited.citations,
            "notes": [*run.notes, *cited.notes],
            "usage": {
                "inputTokens": run.spent.input_tokens,
                "outputTokens": run.spent.output_tokens,
                "costUsd": run.spent.usd,
                "calls": run.spent.calls,
                "model": model.key,
                "ms": facts["ms"],
                "bytes": run.bytes,
            },
        }

    def _count(self, turn_id: str | None, limit: int) -> None:
        """Count a question in its turn; CallLimitError where there were too many."""
        if turn_id is None:
            return
        if (count := self._turns.pop(turn_id, 0)) >= limit:
            self._turns[turn_id] = count
            raise CallLimitError(
                f"as many questions as are allowed in a turn ({limit}) came before"
            )
        self._turns[turn_id] = count + 1
        if len(self._turns) > TURNS_MAX:
            del self._turns[next(iter(self._turns))]

    async def _answered(self, run: _Run) -> tuple[Cited, Model]:
        seconds = run.settings.query.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await first_usable(self.models(), partial(self._ask, run))
        except TimeoutError:
            raise DeadlineError(f"no answer within {seconds:g} s") from None

    async def _ask(self, run: _Run, model: Model) -> Cited:
        """Ask one model, and again with half of the text where all of it is too large."""
        local = model.key.startswith(LOCAL)
        size = LOCAL_BYTES if local else run.settings.query.max_bytes
        while True:
            work = partial(read_context, max_bytes=size, clean=run.clean)
            context = await self.pool.read(run.row["sessionId"], run.leaf, work)
            if not context.sections:
                raise SessionEmptyError("no user/assistant conversation to ask about")
            run.bytes = size_of(context.text)
            prompt = context.local_prompt if local else context.prompt
            try:
                found = await self._attempts(run, model, context, prompt(run.question))
            except ModelError as bad:
                size = min(size, run.bytes) // 2
                if isinstance(bad, ContextTooLargeError) and size >= SMALLEST_BYTES:
                    continue
                run.notes.append(f"Not to be had: {bad}")
                raise
            run.notes += context.notes
            return found

    async def _attempts(self, run: _Run, model: Model, context: Context, base: Prompt) -> Cited:
        def read(reply: Reply) -> Cited | Rejected:
            return validate_answer(
                reply.text,
                cut=reply.finish is Finish.LENGTH,
                redact=lambda text: run.clean(text)[0],
                sections=context.sections,
            )

        def report(attempt: Attempt) -> None:
            run.called = True
            if attempt.reply is not None:
                run.spent.add(attempt.reply, attempt.usd)
            row = audit_row(
                QUERY,
                session_id=run.row["sessionId"],
                timestamp=iso(self.clock()),
                bytes=run.bytes,
                redactions=context.redactions,
                **attempt.audit(),
            )
            self.record(row)

        return await ask(
            model,
            base,
            self.budget,
            timeout=run.settings.model.timeout_seconds,
            read=read,
            again=lambda reply, error: retry_prompt(base, run.clean(reply.text)[0], error),
            report=report,
        )
