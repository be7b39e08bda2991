"""Questions about one past session: `query_session` (S0.60 to S0.67).

The answer is from that session alone, with citations that were held against what the model had
read. A model that leaves the machine gets the newest part of the path, redacted; the built-in one
looks through all of it. Nothing is kept: not the question, not the answer.

Every failure carries `upstream`, the code of the tool that this one follows. Neither the log nor
the telemetry holds a word of the question, of the session or of the answer.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
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
    UsageError,
)
from indexerd.indexing.prompt import retry_prompt
from indexerd.logs import Event
from indexerd.models.attempts import Attempt, Rejected, Spent, ask, first_usable
from indexerd.models.base import LOCAL, Finish, Model, Reply
from indexerd.models.budget import Budget
from indexerd.models.telemetry import query_row
from indexerd.privacy.redact import Redactor, redactor
from indexerd.privacy.sanitize import clean_text
from indexerd.protocol.params import QuerySession
from indexerd.references.cited_answer import Cited, judge_answer, partly
from indexerd.references.query_codes import INVALID, coded, no_session, session_gone
from indexerd.references.question_context import Context, Gathered, compose, gather_session
from indexerd.references.question_prompt import local_prompt, question_prompt
from indexerd.settings import Settings
from indexerd.sources.session_reader import SessionReaderPool, SessionRows
from indexerd.times import iso

QUESTION_MAX = 4000  # characters
LOCAL_BYTES = 4_000_000  # that the built-in model looks at
SMALLEST_BYTES = 2048  # a text that is too large for a model is halved, but not below this
LEAST_SECONDS = 1.0  # in which one more attempt may come to something
TURN_ID_MAX = 1000  # characters
TURNS_MAX = 1000  # whose questions are counted; those asked in longest ago are forgotten

Row = dict[str, Any]


@dataclass(slots=True)
class _Run:
    """One question on its way."""

    row: Row
    question: str
    leaf: str | None
    turn_id: str | None
    settings: Settings
    clean: Redactor
    deadline: float  # of the loop's clock
    started: float = field(default_factory=perf_counter)
    spent: Spent = field(default_factory=Spent)
    notes: list[str] = field(default_factory=list)
    gathered: dict[bool, Gathered] = field(default_factory=dict)  # for the built-in model, others
    passed_by: list[str] = field(default_factory=list)  # models that could not be used, and why
    bytes: int = 0  # of the text that was sent last
    counted: bool = False  # in its turn
    called: bool = False  # a model was

    def left(self) -> float:
        """Seconds until the deadline; DeadlineError where none are left."""
        left = self.deadline - asyncio.get_running_loop().time()
        if left <= 0:
            raise self.too_late()
        return left

    def too_late(self) -> DeadlineError:
        """The error for a deadline that has passed."""
        return DeadlineError(f"no answer within {self.settings.query.timeout_seconds:g} s")

    @property
    def ms(self) -> int:
        """How long it has taken so far."""
        return round((perf_counter() - self.started) * 1000)


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
        notify: Callable[[Event, str, dict[str, Any]], None],
    ) -> None:
        """`models()` are in the user's order; `record` keeps rows of the audit trail.

        `notify(event, session id, fields)` hears how each question ended.
        """
        self._rows = rows
        self._pool = pool
        self._models = models
        self._settings = settings
        self._budget = budget
        self._record = record
        self._clock = clock
        self._notify = notify
        self._turns: OrderedDict[str, int] = OrderedDict()  # questions, by turn

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
        answered for it than `query.max_calls_per_turn` (S0.64).
        """
        with coded():
            run = self._run(session_id, question, turn_id, leaf)
            try:
                cited, model = await first_usable(self._models(), partial(self._ask, run))
            except IndexerdError as bad:
                fields = {"reason": bad.kind, "ms": run.ms, "cost_usd": run.spent.usd}
                self._notify(Event.QUERY_FAILED, session_id, fields)
                raise
            finally:
                if run.counted and not run.called and turn_id and turn_id in self._turns:
                    self._turns[turn_id] -= 1
        fields = {"model": model.key, "ms": run.ms, "cost_usd": run.spent.usd, "bytes": run.bytes}
        self._notify(Event.QUERY_ANSWERED, session_id, fields)
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
        return _Run(row, clean(asked)[0], leaf, turn_id, settings, clean, deadline)

    def _count(self, run: _Run) -> None:
        """Count a question in its turn; CallLimitError where there were too many."""
        if run.counted or run.turn_id is None:
            return
        limit = run.settings.query.max_calls_per_turn
        count = self._turns.pop(run.turn_id, 0)
        self._turns[run.turn_id] = min(count + 1, max(count, limit))
        while len(self._turns) > TURNS_MAX:
            self._turns.popitem(last=False)
        if count >= limit:
            asked = "1 question" if limit == 1 else f"{limit} questions"
            raise CallLimitError(f"{asked} of this turn, as many as are allowed, came before")
        run.counted = True

    # -- reading -------------------------------------------------------------------------

    async def _gathered(self, run: _Run, size: int, *, local: bool) -> Gathered:
        """What a model of that kind may read, for a text of `size` bytes; read once."""
        if local in run.gathered:
            return run.gathered[local]
        run.left()
        work = partial(gather_session, max_bytes=size, clean=run.clean)
        try:
            async with asyncio.timeout_at(run.deadline):
                found = await self._pool.read(run.row["sessionId"], run.leaf, work)
        except TimeoutError:
            raise DeadlineError("the session could not be read in time") from None
        except FileGoneError:
            exists = await asyncio.to_thread(Path(run.row["sessionFile"]).exists)
            raise (no_session() if exists else session_gone()) from None
        except NotFoundError as unknown:  # the entry, not the session
            unknown.upstream = INVALID
            raise
        run.gathered[local] = found
        return found

    # -- asking --------------------------------------------------------------------------

    async def _ask(self, run: _Run, model: Model) -> Cited:
        """Ask one model, and again with half of the text where all of it is too large (S3.24)."""
        local = model.key.startswith(LOCAL)
        size = LOCAL_BYTES if local else run.settings.query.max_bytes
        gathered = await self._gathered(run, size, local=local)
        self._count(run)
        while True:
            context = await asyncio.to_thread(compose, gathered, size, local=local)
            run.bytes = context.bytes
            try:
                found = await self._attempts(run, model, context, local=local)
            except ContextTooLargeError as bad:
                size = min(size, context.bytes) // 2
                if size < SMALLEST_BYTES:
                    run.passed_by.append(str(bad))
                    raise
            except ModelError as bad:
                run.passed_by.append(str(bad))
                raise
            else:
                run.notes += [f"Not to be had: {why}" for why in run.passed_by]
                run.notes += context.notes
                return partly(found, context) if local else found

    async def _attempts(self, run: _Run, model: Model, context: Context, *, local: bool) -> Cited:
        base = (local_prompt if local else question_prompt)(context, run.question)

        def seconds(error: str) -> float:
            left = run.left()
            if error and left < LEAST_SECONDS:
                raise DeadlineError(f"no answer of the right shape in time: {error}")
            return max(0.1, round(min(left, run.settings.model.timeout_seconds), 1))

        def read(reply: Reply) -> Cited | Rejected:
            return judge_answer(
                reply.text,
                cut=reply.finish is Finish.LENGTH,
                redact=lambda text: run.clean(text)[0],
                sections=context.sections,
            )

        async with AsyncExitStack() as stack:
            if local:  # looking through a session is work of the processor, as reading is
                try:
                    async with asyncio.timeout_at(run.deadline):
                        await stack.enter_async_context(self._pool.place(context.bytes))
                except TimeoutError:
                    raise run.too_late() from None
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
        row = query_row(
            session_id=run.row["sessionId"],
            timestamp=iso(self._clock()),
            bytes=context.bytes,
            redactions=context.redactions,
            **attempt.audit(),
        )
        self._record(row)


def _result(run: _Run, cited: Cited, model: str) -> dict[str, Any]:
    notes: Sequence[str] = [*run.notes, *cited.notes]
    return {
        "sessionId": run.row["sessionId"],
        "name": run.row["name"],
        "answerMarkdown": cited.markdown,
        "confidence": cited.confidence,
        "citations": list(cited.citations),
        "notes": notes,
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
