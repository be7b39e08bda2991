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
from indexerd.indexing.prompt import retry_prompt
from indexerd.indexing.transcript import size_of
from indexerd.models.attempts import Calls, Rejected, first_usable
from indexerd.models.base import LOCAL, Model, Reply
from indexerd.privacy.redact import Redactor, redactor
from indexerd.privacy.sanitize import clean_text
from indexerd.protocol.methods import coded
from indexerd.protocol.params import QuerySession
from indexerd.references.question_context import Answer, read_context, validate_answer
from indexerd.references.services import Services
from indexerd.settings import Settings

QUESTION_MAX = 4000  # characters
LOCAL_BYTES = 2_000_000  # of a session, for the built-in model
TURNS_MAX = 1000  # whose questions are counted; the oldest are forgotten


@dataclass(slots=True)
class _Run:
    """A question being answered."""

    session_id: str
    question: str
    leaf: str | None
    settings: Settings
    clean: Redactor
    calls: Calls
    notes: list[str] = field(default_factory=list)


class Questions:
    """Answers questions."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._turns: dict[str, int] = {}  # questions, by turn

    async def query(self, asked: QuerySession) -> dict[str, Any]:
        with coded("query_session"):
            session_id = self._services.rows.row(asked.session, cwd=asked.cwd)["sessionId"]
            return await self.answer(session_id, asked.question, asked.turn_id, asked.leaf)

    async def answer(
        self, session_id: str, question: str, turn_id: str | None = None, leaf: str | None = None
    ) -> dict[str, Any]:
        """Answer from one session, as seen from its leaf or from another entry.

        With a `turn_id`, at most `query.max_calls_per_turn` questions are answered for it.
        """
        started, settings = perf_counter(), self._services.settings()
        clean, asked = redactor(settings), clean_text(question, len(question))
        if not 0 < len(asked) <= QUESTION_MAX:
            raise errors.UsageError(f"a question has 1 to {QUESTION_MAX} characters")
        name = self._services.rows.by_id(session_id)["name"]
        kind = "query-session:query_session"
        audit = {"customType": kind, "sessionId": session_id, "bytes": 0}
        calls = Calls(self._services.budget, audit)
        run = _Run(session_id, clean(asked)[0], leaf, settings, clean, calls)
        self._count(turn_id, settings.query.max_calls_per_turn)
        seconds = settings.query.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                models = self._services.models()
                answer, model = await first_usable(models, partial(self._ask, run))
        except TimeoutError:
            hint = "ask again, or raise [query] timeout_seconds"
            raise errors.DeadlineError(f"no answer within {seconds:g} s", hint=hint) from None
        return {
            "sessionId": session_id,
            "name": name,
            **answer,
            "notes": [*run.notes, *answer["notes"]],
            "usage": {
                **calls.usage,
                "model": model.key,
                "ms": round((perf_counter() - started) * 1000),
                "bytes": calls.audit["bytes"],
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
        context = await self._services.pool.read(run.session_id, run.leaf, work)
        if not context.sections:
            raise errors.SessionEmptyError("no user/assistant conversation to ask about")
        run.calls.audit |= {"bytes": size_of(context.text), "redactions": context.redactions}
        base = context.prompt(run.question, local=local)

        def read(reply: Reply) -> Answer | Rejected:
            said = context.sections
            return validate_answer(reply.text, cut=reply.cut, clean=run.clean, sections=said)

        try:
            found = await run.calls.ask(
                model,
                base,
                timeout=run.settings.model.timeout_seconds,
                read=read,
                again=lambda reply, error: retry_prompt(base, run.clean(reply.text)[0], error),
            )
        except errors.ModelError as bad:
            run.notes.append(f"No answer from {model.key}: {bad}")
            raise
        run.notes += context.notes
        return found
