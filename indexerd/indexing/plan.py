"""`index --all`: every session that has enough new messages, now; or only what it would cost."""

from __future__ import annotations

from typing import Any

from indexerd.daemon.pipeline import Pipeline
from indexerd.errors import IndexerdError
from indexerd.models.budget import Budget, tokens_of


async def plan(pipeline: Pipeline, budget: Budget, *, dry_run: bool) -> dict[str, Any]:
    """Queue all due sessions, or (dry run) say how many, how many tokens, what they may cost.

    The figures are the most that one call each may use; `costUsd` is null where a price is
    not known. Nothing is sent in a dry run.
    """
    least = pipeline.settings.min_new_user_messages
    due = [
        session_id
        for session_id, known in pipeline.known.items()
        if known.card.answered and known.card.new_users >= least
    ]
    if not dry_run:
        pipeline.refuse_if_off()
        return {"queued": [session_id for session_id in due if _queue(pipeline, session_id)]}
    models = pipeline.models.available()
    tokens, usd, unreadable = 0, 0.0, 0
    priced = True
    for session_id in due:
        try:
            run = await pipeline.runner.indexer.prepare(session_id, pipeline.settings)
        except IndexerdError:
            unreadable += 1
            continue
        tokens += tokens_of(run.prompt)
        cost = budget.estimate(models[0].key, run.prompt) if models else None
        priced = priced and cost is not None
        usd += cost or 0.0
    return {
        "sessions": len(due),
        "unreadable": unreadable,
        "model": models[0].key if models else None,
        "inputTokens": tokens,
        "costUsd": round(usd, 6) if priced else None,
    }


def _queue(pipeline: Pipeline, session_id: str) -> bool:
    try:
        pipeline.force(session_id)
    except IndexerdError:
        return False
    return True
