"""Questions about one past session: `query_session` (S0.60 to S0.67).

In: a session, a question, and perhaps the entry from which the session is seen. Out: an answer
from that session alone, with citations that were held against what the model had read. A model
that leaves the machine gets the newest part of the path, redacted; the built-in one looks
through all of it. Nothing is kept: not the question, not the answer.

Every failure carries `upstream`, the code of the tool that this one follows. Neither the log nor
the telemetry holds a word of the question, of the session or of the answer.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

from indexerd.daemon.answers import Answers
from indexerd.daemon.library import Library
from indexerd.errors import (
    ContextTooLargeError,
    DeadlineError,
    IndexerdError,
    ModelError,
    UsageError,
)
from indexerd.events import Prompt
from indexerd.indexing.prompt import retry_prompt
from indexerd.logs import Event
from indexerd.models.attempts import Attempt, Rejected, Spent, ask, first_usable
from indexerd.models.base import LOCAL, Finish, Model, Reply
from indexerd.models.budget import Budget
from indexerd.models.telemetry import query_row
from indexerd.privacy.redactor import Redactor, redactor
from indexerd.privacy.sanitize import clean_text
from indexerd.protocol.params import QuerySession
from indexerd.references.cited_answer import EXCERPT_MAX, SCHEMA, Cited, judge_answer, partly
from indexerd.references.query_codes import coded
from indexerd.references.question_prompt import (
    QUESTION_MAX,
    Context,
    compose,
    local_prompt,
    question_prompt,
)
from indexerd.references.readings import Readings, Text, Wanted
from indexerd.references.turns import Turns
from indexerd.settings import Settings
from indexerd.times import iso

LOCAL_BYTES = 4_000_000  # that the built-in model looks at
SMALLEST_BYTES = 2048  # a text that is too large for a model is halved, but not below this
LEAST_SECONDS = 1.0  # in which one more attempt may come to something
TURN_ID_MAX = 1000  # characters

ANSWERED, FAILED = Event.QUERY_ANSWERED, Event.QUERY_FAILED
Notify = Callable[[Event, str, dict[str, Any]], None]


@dataclass(slots=True)
class _Run:
    """One question on its way."""

    session_id: str
    question: str
    leaf: str | None
    turn_id: str | None
    settings: Settings
    clean: Redactor
    deadline: float  # of the loop's clock
    started: float = field(default_factory=perf_counter)
    spent: Spent = field(default_factory=Spent)
    notes: list[str] = field(default_factory=list)
    texts: dict[bool, Text] = field(default_factory=dict)  # for the built-in model, and others
    passed_by: list[str] = field(default_factory=list)  # models that could not be used, and why
    bytes: int = 0  # of the text that was sent last
    counted: bool = False  # in its turn
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


class Questions:
    """Answers questions, for one daemon."""

    def __init__(
        self,
        library: Library,
        answers: Answers,
        *,
        read: Callable[..., Awaitable[Any]],
        models: Callable[[], list[Model]],
        settings: Callable[[], Settings],
        budget: Budget,
        record: Callable[[dict[str, Any]], object],
        clock: Callable[[], float],
        notify: Notify,
    ) -> None:
        """`read` does work in the thread of the library; `models()` are in the user's order.

        `notify(event, session id, fields)` hears how each question ended.
        """
        self._answers = answers
        self._models = models
        self._settings = settings
        self._budget = budget
        self._record_row = record
        self._clock = clock
        self._notify = notify
        self._turns = Turns()
        self._readings = Readings(library, read)

    async def query(self, asked: QuerySession) -> dict[str, Any]:
        """The result of `query_session`."""
        with coded():
            row = self._answers.row(asked.session, cwd=asked.cwd)
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
        """Answer from one session, as `query_session` says it; `leaf` is any entry's id.

        Raises an error of the tree, with `upstream` set. With a `turn_id` no more questions are
        answered for it than `query.max_calls_per_turn`.
        """
        with coded():
            run = self._run(session_id, question, turn_id, leaf)
            row = self._answers.by_id(session_id)
            try:
                cited, model = await first_usable(self._models(), partial(self._ask, run))
            except IndexerdError as bad:
                told = {"reason": bad.kind, "ms": run.ms, "cost_usd": run.spent.usd}
                self._notify(FAILED, session_id, told)
                raise
            finally:
                if run.counted and not run.called:
                    self._turns.give_back(turn_id)
        told = {"model": model.key, "ms": run.ms, "cost_usd": run.spent.usd, "bytes": run.bytes}
        self._notify(ANSWERED, session_id, told)
        return result_of(row, cited, run.notes, usage_of(run.spent, model.key, run.ms, run.bytes))

    def _run(self, session_id: str, question: str, turn_id: str | None, leaf: str | None) -> _Run:
        settings = self._settings()
        clean = redactor(settings)
        if turn_id is not None and not 0 < len(turn_id) <= TURN_ID_MAX:
            raise UsageError(f"turnId is a string of 1 to {TURN_ID_MAX} characters")
        if leaf == "":
            raise UsageError("leaf is an entry's id")
        deadline = asyncio.get_running_loop().time() + settings.query.timeout_seconds
        asked = question_of(question, clean)
        return _Run(session_id, asked, leaf, turn_id, settings, clean, deadline)

    # -- reading -------------------------------------------------------------------------

    async def _text(self, run: _Run, size: int, *, local: bool) -> Text:
        """What a model of that kind gets to read, in `size` bytes; read once."""
        if local not in run.texts:
            run.left()
            redaction = run.settings.redact.model_dump_json()
            wanted = Wanted(run.session_id, run.leaf, size, local, redaction)
            try:
                async with asyncio.timeout_at(run.deadline):
                    run.texts[local] = await self._readings.text(wanted, run.clean)
            except TimeoutError:
                raise DeadlineError("the session could not be read in time") from None
        return run.texts[local]

    # -- asking --------------------------------------------------------------------------

    async def _ask(self, run: _Run, model: Model) -> Cited:
        """Ask one model, and again with half of the text where all of it is too large (S3.24)."""
        local = _is_built_in(model)
        size = LOCAL_BYTES if local else run.settings.query.max_bytes
        text = await self._text(run, size, local=local)
        context = text.context
        if not run.counted:
            self._turns.take(run.turn_id, run.settings.query.max_calls_per_turn)
            run.counted = True
        while True:
            run.bytes = context.bytes
            try:
                found = await self._attempts(run, model, context)
            except ContextTooLargeError as bad:
                size = min(size, context.bytes) // 2
                if size < SMALLEST_BYTES:
                    run.passed_by.append(str(bad))
                    raise
                context = await asyncio.to_thread(compose, text.gathered, size, local=local)
            except ModelError as bad:
                run.passed_by.append(str(bad))
                raise
            else:
                run.notes += [f"Not to be had: {why}" for why in run.passed_by]
                run.notes += context.notes
                return partly(found, context) if local else found

    async def _attempts(self, run: _Run, model: Model, context: Context) -> Cited:
        base = _prompt(model, context, run.question)
        asked = self._readings.looking(model, context.bytes) if _is_built_in(model) else model

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

        def admitted() -> None:
            run.called = True

        return await ask(
            asked,
            base,
            self._budget,
            seconds=seconds,
            read=read,
            again=lambda reply, error: retry_prompt(base, run.clean(reply.text)[0], error),
            report=partial(self._report, run, context),
            admitted=admitted,
        )

    def _report(self, run: _Run, context: Context, attempt: Attempt) -> None:
        """Keep what an attempt cost, and its row of the audit trail."""
        if attempt.reply is not None:
            run.spent.add(attempt.reply, attempt.usd)
        row = query_row(
            session_id=run.session_id,
            timestamp=iso(self._clock()),
            bytes=context.bytes,
            redactions=context.redactions,
            **attempt.audit(),
        )
        self._record_row(row)


def question_of(question: str, clean: Redactor) -> str:
    """A question, safe to send; UsageError for an empty one, and one that is too long."""
    asked = clean_text(question, len(question))
    if not 0 < len(asked) <= QUESTION_MAX:
        raise UsageError(f"a question has 1 to {QUESTION_MAX} characters")
    return clean(asked)[0]


def _is_built_in(model: Model) -> bool:
    return model.key.startswith(LOCAL)


def _prompt(model: Model, context: Context, question: str) -> Prompt:
    if _is_built_in(model):
        return local_prompt(context, question)
    return question_prompt(
        context,
        question,
        nonce=secrets.token_hex(8),
        schema=SCHEMA,
        excerpt_max=EXCERPT_MAX,
    )


def usage_of(spent: Spent, model: str, ms: int, size: int) -> dict[str, Any]:
    """What an answer cost; `size` is in bytes of the session's text."""
    return {
        "inputTokens": spent.input_tokens,
        "outputTokens": spent.output_tokens,
        "costUsd": spent.usd,
        "calls": spent.calls,
        "model": model,
        "ms": ms,
        "bytes": size,
    }


def result_of(
    row: dict[str, Any], cited: Cited, notes: Sequence[str], usage: dict[str, Any]
) -> dict[str, Any]:
    """The method's result."""
    return {
        "sessionId": row["sessionId"],
        "name": row["name"],
        "answerMarkdown": cited.markdown,
        "confidence": cited.confidence,
        "citations": list(cited.citations),
        "notes": [*notes, *cited.notes],
        "usage": usage,
    }
