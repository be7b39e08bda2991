"""Questions about one past session: `query_session`.

The answer is from that session alone, with citations that were held against what the model had
read. A model that leaves the machine gets the newest part of the path, redacted; the built-in one
looks through all of it. Nothing is kept: not the question, not the answer.

Every failure carries `upstream`, the code of the tool that this one follows. Neither the log nor
the telemetry holds a word of the question, of the session or of the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any

from indexerd.errors import (
    CallLimitError,
    ContextTooLargeError,
    DeadlineError,
    FileGoneError,
    IndexerdError,
    ModelError,
    NotFoundError,
    SessionEmptyError,
    SessionUnreadableError,
    UsageError,
)
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
from indexerd.references.query_codes import INVALID, MISSING, coded
from indexerd.references.question_context import Context, read_context
from indexerd.settings import Settings
from indexerd.sources.session_reader import SessionReaderPool, SessionRows
from indexerd.times import iso

QUESTION_MAX = 4000  # characters
LOCAL_BYTES = 4_000_000  # that the built-in model looks at
SMALLEST_BYTES = 2048  # a text that is too large for a model is halved, but not below this
LEAST_SECONDS = 1.0  # in which one more attempt may come to something
TURN_ID_MAX = 1000  # characters
TURNS_MAX = 1000  # whose questions are counted; those asked in longest ago are forgotten


@dataclass(slots=True)
class _Run:
    """One question on its way."""

    row: dict[str, Any]
    question: str
    leaf: str | None
    settings: Settings
    clean: Redactor
    deadline: float  # of the loop's clock
    started: float = field(default_factory=perf_counter)
    spent: Spent = field(default_factory=Spent)
    notes: list[str] = field(default_factory=list)
    bytes: int = 0  # of the text that was sent last
    called: bool = False  # a model was

    def left(self) -> float:
        """Seconds until the deadline; DeadlineError where none are left."""
        left = self.deadline - asyncio.get_running_loop().time()
        if left <= 0:
            raise DeadlineError(f"no answer within {self.settings.query.timeout_seconds:g} s")
        return left

    @property
    def ms(self) -> int:
        """How long it has taken so far."""
        return round((perf_counter() - self.started) * 1000)

    def facts(self) -> dict[str, Any]:
        """What the log is told of it."""
        return {"session": self.row["sessionId"], "ms": self.ms, "cost_usd": self.spent.usd}


class Questions:
    """Answers questions."""

    def __init__(
        self,
        rows: SessionRows,
        *,
        pool: SessionReaderPool,
        models: Callable[[], list[Model]],
        settings: Callable[[], Settings],
        budget: Budget,
        record: Callable[[dict[str, Any]], object],
        clock: Callable[[], float],
        log: Callable[[Event, dict[str, Any]], None],
    ) -> None:
        """`models()` are in the user's order; `record` keeps rows of the audit trail."""
        self._rows = rows
        self._pool = pool
        self._models = models
        self._settings = settings
        self._budget = budget
        self._record = record
        self._clock = clock
        self._log = log
        self._turns: dict[str, int] = {}  # questions, by turn

    async def query(self, asked: QuerySession) -> dict[str, Any]:
        """The result of `query_session`."""
        with coded():
            row = self._rows.row(asked.session, cwd=asked.cwd)
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

        Raises an error of the tree, with `upstream` set. With a `turn_id` no more questions are
        answered for it than `query.max_calls_per_turn`.
        """
        with coded():
            run = self._run(session_id, question, turn_id, leaf)
            self._count(run, turn_id)
            try:
                cited, model = await first_usable(self._models(), partial(self._ask, run))
            except IndexerdError as bad:
                self._log(Event.QUERY_FAILED, {"reason": bad.kind, **run.facts()})
                raise
            finally:
                if turn_id in self._turns and not run.called:
                    self._turns[turn_id] -= 1
        fields = {"model": model.key, "bytes": run.bytes, **run.facts()}
        self._log(Event.QUERY_ANSWERED, fields)
        return _result(run, cited, model.key)

    def _run(self, session_id: str, question: str, turn_id: str | None, leaf: str | None) -> _Run:
        settings = self._settings()
        clean = redactor(settings)
        if turn_id is not None and not 0 < len(turn_id) <= TURN_ID_MAX:
            raise UsageError(f"turnId is a string of 1 to {TURN_ID_MAX} characters")
        if leaf == "":
            raise UsageError("leaf is an entry's id")
        asked = clean_text(question, len(question))
        if not 0 < len(asked) <= QUESTION_MAX:
            raise UsageError(f"a question has 1 to {QUESTION_MAX} characters")
        row = self._rows.by_id(session_id)
        deadline = asyncio.get_running_loop().time() + settings.query.timeout_seconds
        return _Run(row, clean(asked)[0], leaf, settings, clean, deadline)

    def _count(self, run: _Run, turn_id: str | None) -> None:
        """Count a question in its turn; CallLimitError where there were too many."""
        if turn_id is None:
            return
        limit, count = run.settings.query.max_calls_per_turn, self._turns.pop(turn_id, 0)
        self._turns[turn_id] = min(count + 1, max(count, limit))
        while len(self._turns) > TURNS_MAX:
            del self._turns[next(iter(self._turns))]
        if count >= limit:
            asked = "1 question" if limit == 1 else f"{limit} questions"
            raise CallLimitError(f"{asked} of this turn, as many as are allowed, came before")

    async def _ask(self, run: _Run, model: Model) -> Cited:
        """Ask one model, and again with half of the text where all of it is too large."""
        local = model.key.startswith(LOCAL)
        size = LOCAL_BYTES if local else run.settings.query.max_bytes
        while True:
            context = await self._read(run, size, local=local)
            run.bytes = size_of(context.text)
            try:
                found = await self._attempts(run, model, context, local=local)
            except ModelError as bad:
                size = min(size, run.bytes) // 2
                if isinstance(bad, ContextTooLargeError) and size >= SMALLEST_BYTES:
                    continue
                run.notes.append(f"Not to be had: {bad}")
                raise
            run.notes += context.notes
            if local and context.notes:  # it says itself that it has not looked at everything
                first, gap, rest = found.markdown.partition("\n\n")
                found = replace(found, markdown=f"{first} {context.notes[0]}{gap}{rest}")
            return found

    async def _read(self, run: _Run, size: int, *, local: bool) -> Context:
        """What a model of that kind may read, in at most `size` bytes."""
        work = partial(read_context, max_bytes=size, clean=run.clean, local=local)
        run.left()
        try:
            async with asyncio.timeout_at(run.deadline):
                context = await self._pool.read(run.row["sessionId"], run.leaf, work)
        except TimeoutError:
            raise DeadlineError("the session could not be read in time") from None
        except FileGoneError:
            gone = SessionUnreadableError(
                "the session's file is gone",
                hint="`indexerd show REF` shows what is stored",
                upstream=MISSING,
            )
            gone.retryable = False  # it does not come back by itself
            raise gone from None
        except NotFoundError as unknown:  # the entry, not the session
            unknown.upstream = INVALID
            raise
        if not context.sections:
            raise SessionEmptyError("no user/assistant conversation to ask about")
        return context

    async def _attempts(self, run: _Run, model: Model, context: Context, *, local: bool) -> Cited:
        base = context.local_prompt(run.question) if local else context.prompt(run.question)

        def seconds(error: str) -> float:
            left = run.left()
            if error and left < LEAST_SECONDS:
                raise DeadlineError(f"no answer of the right shape in time: {error}")
            return max(0.1, round(min(left, run.settings.model.timeout_seconds), 1))

        def read(reply: Reply) -> Cited | Rejected:
            return validate_answer(
                reply.text,
                cut=reply.finish is Finish.LENGTH,
                redact=lambda text: run.clean(text)[0],
                sections=context.sections,
            )

        return await ask(
            model,
            base,
            self._budget,
            seconds=seconds,
            read=read,
            again=lambda reply, error: retry_prompt(base, run.clean(reply.text)[0], error),
            report=partial(self._report, run, context),
        )

    def _report(self, run: _Run, context: Context, attempt: Attempt) -> None:
        """Keep what an attempt cost, and its row of the audit trail."""
        run.called = True
        if attempt.reply is not None:
            run.spent.add(attempt.reply, attempt.usd)
        row = audit_row(
            QUERY,
            session_id=run.row["sessionId"],
            timestamp=iso(self._clock()),
            bytes=run.bytes,
            redactions=context.redactions,
            **attempt.audit(),
        )
        self._record(row)


def _result(run: _Run, cited: Cited, model: str) -> dict[str, Any]:
    return {
        "sessionId": run.row["sessionId"],
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
            "model": model,
            "ms": run.ms,
            "bytes": run.bytes,
        },
    }
