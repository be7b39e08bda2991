"""Questions about one past session: `query_session`.

The answer comes from that session alone. A model that leaves the machine gets the newest part of
the path, redacted; the built-in one searches all of it. Neither question nor answer is kept, logged
or in the telemetry.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

from indexerd import errors
from indexerd.events import Prompt
from indexerd.indexing.prompt import retry_prompt
from indexerd.indexing.transcript import size_of
from indexerd.logs import Event
from indexerd.models.attempts import Calls, Rejected, first_usable
from indexerd.models.base import LOCAL, Finish, Model, Reply
from indexerd.models.telemetry import QUERY
from indexerd.privacy.redact import Redactor, redactor
from indexerd.privacy.sanitize import clean_text
from indexerd.protocol.params import QuerySession
from indexerd.references.cited_answer import Answer, validate_answer
from indexerd.references.query_codes import coded
from indexerd.references.question_context import Context, read_context
from indexerd.references.services import Services
from indexerd.settings import Settings

QUESTION_MAX = 4000  # characters
LOCAL_BYTES = 4_000_000  # of a session, for the built-in model
TURNS_MAX = 1000  # whose questions are counted; the oldest are forgotten


@dataclass(slots=True)
class _Run:
    """A question being answered."""

    row: dict[str, Any]
    question: str
    leaf: str | None
    settings: Settings
    clean: Redactor
    calls: Calls
    started: float = field(default_factory=perf_counter)
    notes: list[str] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        ms = round((perf_counter() - self.started) * 1000)
        return {"session": self.row["sessionId"], "ms": ms, "cost_usd": self.calls.usd}


class Questions:
    """Answers questions."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._turns: dict[str, int] = {}  # questions, by turn

    async def query(self, asked: QuerySession) -> dict[str, Any]:
        with coded():
            session_id = self._services.rows.row(asked.session, cwd=asked.cwd)["sessionId"]
        return await self.answer(session_id, asked.question, asked.turn_id, asked.leaf)

    async def answer(
        self, session_id: str, question: str, turn_id: str | None = None, leaf: str | None = None
    ) -> dict[str, Any]:
        """Answer from one session, as seen from its leaf or from another entry.

        With a `turn_id`, at most `query.max_calls_per_turn` questions are answered for it.
        """
        with coded():
            settings = self._services.settings()
            clean, asked = redactor(settings), clean_text(question, len(question))
            if not 0 < len(asked) <= QUESTION_MAX:
                raise errors.UsageError(f"a question has 1 to {QUESTION_MAX} characters")
            row = self._services.rows.by_id(session_id)
            audit = {"customType": QUERY, "sessionId": session_id, "bytes": 0}
            calls = Calls(self._services.budget, audit)
            run = _Run(row, clean(asked)[0], leaf, settings, clean, calls)
            self._count(turn_id, settings.query.max_calls_per_turn)
            seconds = settings.query.timeout_seconds
            try:
                async with asyncio.timeout(seconds):
                    models = self._services.models()
                    answer, model = await first_usable(models, partial(self._ask, run))
            except (TimeoutError, errors.IndexerdError) as bad:
                late = errors.DeadlineError(f"no answer within {seconds:g} s")
                failed = late if isinstance(bad, TimeoutError) else bad
                log = {"reason": failed.kind, **run.facts()}
                self._services.events.log(Event.QUERY_FAILED, log)
                raise failed from None
        facts = {"model": model.key, "bytes": calls.audit["bytes"], **run.facts()}
        self._services.events.log(Event.QUERY_ANSWERED, facts)
        return {
            "sessionId": session_id,
            "name": run.row["name"],
            **answer,
            "notes": [*run.notes, *answer["notes"]],
            "usage": {
                **calls.usage(),
                "model": model.key,
                "ms": facts["ms"],
                "bytes": facts["bytes"],
            },
        }

    def _count(self, turn_id: str | None, limit: int) -> None:
        if turn_id is None:
            return
        count = self._turns.pop(turn_id, 0)
        self._turns[turn_id] = min(count + 1, limit)
        if len(self._turns) > TURNS_MAX:
            del self._turns[next(iter(self._turns))]
        if count >= limit:
            raise errors.CallLimitError(f"a turn may ask {limit} questions, and this one has")

    async def _ask(self, run: _Run, model: Model) -> Answer:
        local = model.key.startswith(LOCAL)
        size = LOCAL_BYTES if local else run.settings.query.max_bytes
        work = partial(read_context, max_bytes=size, clean=run.clean)
        context = await self._services.pool.read(run.row["sessionId"], run.leaf, work)
        if not context.sections:
            raise errors.SessionEmptyError("no user/assistant conversation to ask about")
        run.calls.audit |= {"bytes": size_of(context.text), "redactions": context.redactions}
        prompt = context.local_prompt if local else context.prompt
        try:
            found = await self._attempts(run, model, context, prompt(run.question))
        except errors.ModelError as bad:
            run.notes.append(f"No answer from {model.key}: {bad}")
            raise
        run.notes += context.notes
        return found

    async def _attempts(self, run: _Run, model: Model, context: Context, base: Prompt) -> Answer:
        def read(reply: Reply) -> Answer | Rejected:
            return validate_answer(
                reply.text,
                cut=reply.finish is Finish.LENGTH,
                redact=lambda text: run.clean(text)[0],
                sections=context.sections,
            )

        return await run.calls.ask(
            model,
            base,
            timeout=run.settings.model.timeout_seconds,
            read=read,
            again=lambda reply, error: retry_prompt(base, run.clean(reply.text)[0], error),
        )
