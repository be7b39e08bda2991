"""Digests: a long session's segments, made on request or by themselves, and its history.

A segment is stored in `<id>.digest.jsonl`, by the one writer, when its text is whole; whatever
fails before leaves the file as it was (S2.20). Of one session one digest is made at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol
from weakref import WeakValueDictionary

from indexerd.digests.history import history
from indexerd.digests.segment_plan import Plan, plan_segment
from indexerd.digests.segments import (
    Segment,
    encode,
    new_id,
    parse,
    require_room,
    store_segment,
    text_tokens,
)
from indexerd.digests.summarize import Summarizer, Summary, Task, usage_of
from indexerd.errors import NotFoundError
from indexerd.events import Stretch
from indexerd.logs import Event
from indexerd.meta.writer import MetaWriter
from indexerd.models.base import Model
from indexerd.privacy.exclusions import Exclusions
from indexerd.protocol import params
from indexerd.settings import Settings
from indexerd.sources.session_reader import SessionReaderPool, SessionRows
from indexerd.times import iso

AFTER_REPLY = 0.02  # seconds: who asked for a history has it before others hear of that

Row = dict[str, Any]


class Events(Protocol):
    """The part of the event bus that digests use."""

    def say(self, event: Event, fields: dict[str, Any]) -> None:
        """Write to the log."""
        ...

    def tell(self, event: str, session_id: str | None, fields: dict[str, Any]) -> None:
        """Send to the subscribers."""
        ...


class Digests:
    """Makes digests."""

    def __init__(
        self,
        rows: SessionRows,
        *,
        pool: SessionReaderPool,
        summarizer: Summarizer,
        models: Callable[[], list[Model]],
        settings: Callable[[], Settings],
        writer: MetaWriter,
        events: Events,
        clock: Callable[[], float],
        excluded: Callable[[], list[str]],
        on_history: Callable[[str], object],
    ) -> None:
        """`models()` are those of digests, in the user's order; `excluded()` globs of sessions.

        `on_history(session id)` hears whose history was opened.
        """
        self._rows = rows
        self._pool = pool
        self._summarizer = summarizer
        self._models = models
        self._settings = settings
        self._writer = writer
        self._events = events
        self._clock = clock
        self._exclusions = Exclusions(excluded)
        self._on_history = on_history
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def digest(self, asked: params.Digest) -> dict[str, Any]:
        """The result of `digest`."""
        return await self.make(self._session(asked), manual=True, dry=asked.dry_run)

    async def history(self, asked: params.History) -> dict[str, Any]:
        """The result of `history`."""
        session_id = self._session(asked)
        work = partial(history, wanted=self._settings().digest, full=asked.full)
        found = await self._pool.read(session_id, asked.leaf, work)
        asyncio.get_running_loop().call_later(AFTER_REPLY, self._on_history, session_id)
        return found

    def _session(self, asked: params.RefParams) -> str:
        return str(self._rows.row(asked.ref, cwd=asked.cwd)["sessionId"])

    def off(self, row: Row) -> str:
        """Why no digests are made of a session; "" where they are (S2.2)."""
        if not self._settings().digest.enabled:
            return "digests are switched off: [digest] enabled"
        self._exclusions.renew()
        if self._exclusions.match(row["sessionFile"], row["cwd"]):
            return "digests are switched off for this session: [digest] exclude"
        return ""

    async def make(self, session_id: str, *, manual: bool, dry: bool = False) -> dict[str, Any]:
        """Make the next segment of a session, and return the result of `digest`.

        Where nobody asked, only if more messages than the threshold are in no segment. With `dry`
        only the figures of what there is. Raises an error of the tree: nothing is changed then.
        """
        row = self._rows.by_id(session_id)
        off = self.off(row)
        if off and not manual:
            return _nothing(session_id, off)
        lock = self._locks.setdefault(session_id, asyncio.Lock())
        async with lock:
            work = partial(plan_segment, settings=self._settings(), manual=manual)
            plan = await self._pool.read(session_id, None, work)
            if off or dry or plan.span is None:
                return _nothing(session_id, off or plan.why) | plan.figures()
            return await self._made(row, plan, plan.span, manual=manual)

    async def _made(
        self, row: Row, plan: Plan, span: tuple[int, int], *, manual: bool
    ) -> dict[str, Any]:
        session_id, home, count = row["sessionId"], plan.home, span[1] - span[0] + 1
        if home is None:
            raise NotFoundError("there is no place for this session's sidecar")
        await asyncio.to_thread(require_room, home, session_id)
        self._events.say(Event.DIGEST_STARTED, {"session": session_id, "count": count})
        task = _task(row, plan, asked=manual)
        summary = await self._summarizer.write(task, self._settings(), self._models())
        segment = self._segment(plan, summary, span)
        self._rows.by_id(session_id)  # NotFoundError: it was forgotten meanwhile
        await asyncio.to_thread(store_segment, self._writer, home, session_id, segment)
        return self._report(session_id, plan, segment, summary)

    def _segment(self, plan: Plan, summary: Summary, span: tuple[int, int]) -> Segment:
        made = Segment(
            id=new_id(),
            first=span[0],
            last=span[1],
            content=summary.text,
            key_decisions=plan.decisions,
            files_modified=plan.files_modified,
            tools_used=plan.tools_used,
            generated_at=iso(self._clock()),
            token_count=text_tokens(summary.text),
            model=summary.model,
            leaf_id=plan.leaf_id,
        )
        return parse(encode(made)) or made  # as whoever reads it will see it

    def _report(
        self, session_id: str, plan: Plan, segment: Segment, summary: Summary
    ) -> dict[str, Any]:
        report = plan.figures(segment) | {
            "covering": [segment.first, segment.last],
            "topics": list(plan.topics),
            "files": list(segment.files_modified),
            "commands": list(plan.commands),
            "decisions": list(segment.key_decisions),
            "model": summary.model,
            "costUsd": summary.spent.usd,
        }
        logged = {"model": summary.model, "cost_usd": summary.spent.usd, "ms": summary.ms}
        self._events.say(
            Event.DIGEST_WRITTEN, {"session": session_id, "count": segment.messages, **logged}
        )
        self._events.tell("digest.created", session_id, {"segmentId": segment.id, **report})
        return {
            "sessionId": session_id,
            "segment": encode(segment),
            **report,
            "usage": usage_of([summary]),
            "notes": list(summary.notes),
        }


def _task(row: Row, plan: Plan, *, asked: bool) -> Task:
    base = Stretch(
        kind="segment",
        messages=(),
        files_modified=plan.files_modified,
        tools_used={one.tool: one.count for one in plan.tools_used},
        cwd=row["cwd"],
        previous=plan.previous,
        max_tokens=plan.max_tokens,
    )
    return Task(
        session_id=row["sessionId"],
        agent=row["agent"],
        name="segment",
        transcript=plan.transcript,
        base=base,
        covering=plan.span,
        asked=asked,
    )


def _nothing(session_id: str, why: str) -> dict[str, Any]:
    return {
        "sessionId": session_id,
        "segment": None,
        "before": 0,
        "after": 0,
        "reduction": 0.0,
        "tokensSaved": 0,
        "reason": why,
    }
