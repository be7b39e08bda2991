"""The methods about long sessions: `digest`, `history`, `stats`, and the two compactions.

A segment is stored in `<id>.digest.jsonl`, by the one writer, when its text is whole; whatever
fails before leaves the file as it was (S2.20). Of one session one digest is made at a time.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from indexerd.digests.compaction import branch_summary, compact
from indexerd.digests.history import history
from indexerd.digests.segment_plan import Plan, plan_segment
from indexerd.digests.segments import encode, new_segment, require_room, store_segment
from indexerd.digests.stats import stats
from indexerd.digests.summarize import Row, Services, Task, summarize, usage_of
from indexerd.errors import NotFoundError
from indexerd.events import Stretch
from indexerd.logs import Event
from indexerd.privacy.exclusions import matches
from indexerd.protocol import params

AFTER_REPLY = 0.02  # seconds: who asked for a history has it before others hear of that


class Digests:
    """Answers them."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def compact(self, asked: params.Compact) -> dict[str, Any]:
        """The result of `compact`."""
        return await compact(self._services, asked)

    async def branch_summary(self, asked: params.BranchSummary) -> dict[str, Any]:
        """The result of `branch_summary`."""
        return await branch_summary(self._services, asked)

    async def stats(self, asked: params.RefParams) -> dict[str, Any]:
        """The result of `stats`."""
        row, settings = self._row(asked), self._services.settings().digest
        work = partial(stats, row=row, settings=settings)
        return await self._services.pool.read(row["sessionId"], None, work)

    async def history(self, asked: params.History) -> dict[str, Any]:
        """The result of `history`."""
        session_id, services = str(self._row(asked)["sessionId"]), self._services
        work = partial(history, wanted=services.settings().digest, full=asked.full)
        found = await services.pool.read(session_id, asked.leaf, work)
        asyncio.get_running_loop().call_later(AFTER_REPLY, services.on_history, session_id)
        return found

    async def digest(self, asked: params.Digest) -> dict[str, Any]:
        """The result of `digest`."""
        return await self.make(self._row(asked)["sessionId"], manual=True, dry=asked.dry_run)

    def _row(self, asked: params.RefParams) -> Row:
        return self._services.rows.row(asked.ref, cwd=asked.cwd)

    def _off(self, row: Row) -> str:
        """Why no digests are made of a session; "" where they are (S2.2)."""
        if not self._services.settings().digest.enabled:
            return "digests are switched off: [digest] enabled"
        if matches(self._services.excluded(), row["sessionFile"], row["cwd"]):
            return "digests are switched off for this session: [digest] exclude"
        return ""

    async def make(self, session_id: str, *, manual: bool, dry: bool = False) -> dict[str, Any]:
        """Make the next segment of a session, and return the result of `digest`.

        Where nobody asked, only if more messages than the threshold are in no segment. With `dry`
        only the figures of what there is. Raises an error of the tree: nothing is changed then.
        """
        services = self._services
        row = services.rows.by_id(session_id)
        off = self._off(row)
        if off and not manual:
            return _nothing(session_id, off)
        lock = self._locks.setdefault(session_id, asyncio.Lock())
        async with lock:
            work = partial(plan_segment, settings=services.settings(), manual=manual)
            plan = await services.pool.read(session_id, None, work)
            if off or dry or plan.span is None:
                return _nothing(session_id, off or plan.why) | plan.figures()
            return await self._made(row, plan, manual=manual)

    async def _made(self, row: Row, plan: Plan, *, manual: bool) -> dict[str, Any]:
        services, session_id, home, facts = self._services, row["sessionId"], plan.home, plan.facts
        if home is None:
            raise NotFoundError("there is no place for this session's sidecar")
        await asyncio.to_thread(require_room, home, session_id)
        first, last = facts["covering"]
        started = {"session": session_id, "count": last - first + 1}
        services.events.say(Event.DIGEST_STARTED, started)
        base = Stretch(
            "segment",
            (),
            files_modified=facts["files_modified"],
            tools_used={one.tool: one.count for one in facts["tools_used"]},
            cwd=row["cwd"],
            previous=plan.previous,
            max_tokens=plan.max_tokens,
        )
        task = Task(row, "segment", plan.transcript, base, covering=plan.span, asked=manual)
        summary = await summarize(services, task)
        segment = new_segment(summary.text, summary.model, services.clock(), **facts)
        services.rows.by_id(session_id)  # NotFoundError: it was forgotten meanwhile
        await asyncio.to_thread(store_segment, services.writer, home, session_id, segment)
        report = plan.figures(segment) | {
            "covering": list(segment.covering),
            "topics": list(plan.topics),
            "files": list(segment.files_modified),
            "commands": list(plan.commands),
            "decisions": list(segment.key_decisions),
            "model": summary.model,
            "costUsd": summary.spent.usd,
        }
        logged = {"model": summary.model, "cost_usd": summary.spent.usd, "ms": summary.ms}
        services.events.say(Event.DIGEST_WRITTEN, started | logged)
        services.events.tell("digest.created", session_id, {"segmentId": segment.id, **report})
        usage, notes = usage_of([summary]), list(summary.notes)
        made = {"sessionId": session_id, "segment": encode(segment)}
        return made | report | {"usage": usage, "notes": notes}


def _nothing(session_id: str, why: str) -> dict[str, Any]:
    none = {"before": 0, "after": 0, "reduction": 0.0, "tokensSaved": 0}
    return {"sessionId": session_id, "segment": None, **none, "reason": why}
