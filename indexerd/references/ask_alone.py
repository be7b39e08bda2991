"""A question without a daemon: read the one session, and look through it with the built-in model.

Nothing leaves the machine, nothing is counted, and nothing is kept.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any

from indexerd.daemon.library import Library
from indexerd.daemon.views import changed
from indexerd.errors import OutputInvalidError
from indexerd.models.attempts import Rejected, Spent
from indexerd.models.extractive import Extractive
from indexerd.privacy.redactor import Redactor, redactor
from indexerd.references.ask import LOCAL_BYTES, question_of, result_of, usage_of
from indexerd.references.cited_answer import judge_answer, partly
from indexerd.references.query_codes import coded
from indexerd.references.question_prompt import Gathered, compose, local_prompt
from indexerd.references.recall import gathered_of, taken_of
from indexerd.settings import Settings


def answer_alone(
    library: Library,
    row: dict[str, Any],
    question: str,
    settings: Settings,
    *,
    leaf: str | None = None,
) -> dict[str, Any]:
    """The result of `query_session`, for the session of a row, here and now."""
    started = perf_counter()
    with coded():
        clean = redactor(settings)
        asked = question_of(question, clean)
        gathered = _gathered(library, row["sessionId"], leaf, clean)
        context = compose(gathered, LOCAL_BYTES, local=True)
        model = Extractive()
        prompt = local_prompt(context, asked)
        reply = asyncio.run(model.generate(prompt, timeout=settings.query.timeout_seconds))
        cited = judge_answer(
            reply.text,
            cut=False,
            redact=lambda text: clean(text)[0],
            sections=context.sections,
        )
        if isinstance(cited, Rejected):
            raise OutputInvalidError(cited.error)
    ms = round((perf_counter() - started) * 1000)
    usage = usage_of(Spent(calls=1), model.key, ms, context.bytes)
    return result_of(row, partly(cited, context), context.notes, usage)


def _gathered(library: Library, session_id: str, leaf: str | None, clean: Redactor) -> Gathered:
    try:
        return gathered_of(taken_of(library, session_id, leaf), LOCAL_BYTES, clean)
    except ValueError:  # a line was not what it looked like: once more, parsing them all
        if library.reread(session_id):
            return _gathered(library, session_id, leaf, clean)
        raise changed() from None
