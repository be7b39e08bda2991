"""Digests: a long session's segments, made on request or by themselves, and its history.

`digest` sums up what a session has folded into no segment yet, but for its newest messages;
`history` shows the segments and what follows them. A segment is stored in `<id>.digest.jsonl`,
by the one writer, when its text is whole; whatever fails before leaves the file as it was (S2.20).
Of one session one digest is made at a time. Segments belong to paths: digests/segments.py.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol
from weakref import WeakValueDictionary

from indexerd.daemon.answers import Answers
from indexerd.digests.assembled import Figures
from indexerd.digests.digest_plans import Plan, planned
from indexerd.digests.histories import history
from indexerd.digests.segments import Segment, encode, parse
from indexerd.digests.stored_digest import require_room, store_segment
from indexerd.digests.summaries import Summaries, Summary, Task
from indexerd.errors import NotFoundError
from indexerd.events import Stretch
from indexerd.logs import Event
from indexerd.meta.writer import MetaWriter
from indexerd.models.base import Model
from indexerd.privacy.exclusions import Exclusions
from indexerd.protocol import params
from indexerd.protocol.params import RefParams
from indexerd.references.looks import Looks
from indexerd.settings import Settings
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
    """Makes digests, for one daemon."""

    def __init__(
        self,
        answers: Answers,
        *,
        looks: Looks,
        summaries: Summaries,
        models: Callable[[], list[Model]],
        settings: Callable[[], Settings],
        writer: MetaWriter,
        news: Events,
        clock: Callable[[], float],
        excluded: Callable[[], list[str]],
    ) -> None:
        """`models()` are those of digests, in the user's order; `excluded()` globs of sessions."""
        self._answers = answers
        self._looks = looks
        self._summaries = summaries
        self._models = models
        self._settings = settings
        self._writer = writer
        self._news = news
        self._clock = clock
        self._exclusions = Exclusions(excluded)
        self.on_history: Callable[[str], object] = len  # a session's id; heard by nobody so far
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def digest(self, asked: params.Digest) -> dict[str, Any]:
        """The result of `digest`."""
        return await self.make(self._session(asked), manual=True, dry=asked.dry_run)

    async def history(self, asked: params.History) -> dict[str, Any]:
        """The result of `history`."""
        session_id = self._session(asked)
        work = partial(history, wanted=self._settings().digest, full=asked.full)
        found = await self._looks.at(session_id, asked.leaf, work)
        asyncio.get_running_loop().call_later(AFTER_REPLY, self.on_history, session_id)
        return found

    def _session(self, asked: RefParams) -> str:
        return str(self._answers.row(asked.ref, cwd=asked.cwd)["sessionId"])

    def off(self, row: Row) -> str:
        """Why no digests are made of a session; "" where they are (S2.2)."""
        if not self._settings().digest.enabled:
            return "digests are switched off: [digest] enabled"
        self._exclusions.renew()
        if self._exclusions.match(row["sessionFile"], row["cwd"]):
            return "digests are switched off for this session: [digest] exclude"
        return ""

    async def make(self, session_id: str, *, manual: bool, dry: bool = False) -> dict[str, Any]:
        """Make the next segment of a session, and say what that came to; as `digest` answers it.

        By itself only where more messages than the threshold are folded into none. With `dry`
        only the figures of what there is. Raises an error of the tree: nothing is changed then.
        """
        row = self._answers.by_id(session_id)
        why = self.off(row)
        if why and not manual:
            return _nothing(session_id, why)
        lock = self._locks.setdefault(session_id, asyncio.Lock())
        async with lock:
            return await self._made(row, why, manual=manual, dry=dry)

    async def _made(self, row: Row, off: str, *, manual: bool, dry: bool) -> dict[str, Any]:
        settings, session_id = self._settings(), row["sessionId"]
        work = partial(planned, settings=settings, manual=manual)
        plan = await self._looks.at(session_id, None, work)
        if off or dry or plan.span is None:
            return _nothing(session_id, off or plan.why) | _told(plan.figures())
        first, last = plan.span
        if plan.home is None:
            raise NotFoundError("there is no place for this session's sidecar")
        await asyncio.to_thread(require_room, plan.home, session_id)
        self._news.say(Event.DIGEST_STARTED, {"session": session_id, "count": plan.messages})
        summary = await self._summaries.write(
            _task(row, plan, asked=manual), settings, self._models()
        )
        segment = self._segment(plan, summary, first, last)
        self._answers.by_id(session_id)  # NotFoundError: it was forgotten meanwhile
        store = partial(store_segment, self._writer, plan.home, session_id, segment)
        await asyncio.to_thread(store)
        return self._report(row, plan, segment, summary)

    def _segment(self, plan: Plan, summary: Summary, first: int, last: int) -> Segment:
        made = Segment(
            id=f"seg_{secrets.token_hex(6)}",
            first=first,
            last=last,
            content=summary.text,
            key_decisions=plan.decisions,
            files_modified=plan.files_modified,
            tools_used=plan.tools_used,
            generated_at=iso(self._clock()),
            token_count=-(-len(summary.text) // 4),
            model=summary.model,
            leaf_id=plan.leaf_id,
        )
        return parse(encode(made)) or made  # as whoever reads it will see it

    def _report(self, row: Row, plan: Plan, segment: Segment, summary: Summary) -> dict[str, Any]:
        session_id = row["sessionId"]
        figures = plan.figures(segment)
        told = _told(figures) | {
            "covering": [segment.first, segment.last],
            "topics": list(plan.topics),
            "files": list(segment.files_modified),
            "commands": list(plan.commands),
            "decisions": list(segment.key_decisions),
            "model": summary.model,
            "costUsd": summary.spent.usd,
        }
        logged = {"model": summary.model, "cost_usd": summary.spent.usd, "ms": summary.ms}
        self._news.say(
            Event.DIGEST_WRITTEN, {"session": session_id, "count": plan.messages, **logged}
        )
        self._news.tell("digest.created", session_id, {"segmentId": segment.id, **told})
        return {
            "sessionId": session_id,
            "segment": encode(segment),
            **told,
            "usage": summary.usage(),
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
        talk=plan.talk,
        base=base,
        covering=plan.span,
        asked=asked,
    )


def _told(figures: Figures) -> dict[str, Any]:
    return {
        "before": figures.before,
        "after": figures.after,
        "reduction": figures.reduction,
        "tokensSaved": figures.tokens_saved,
        "tokensBefore": figures.tokens_before,
        "tokensAfter": figures.tokens_after,
        "compression": figures.compression,
        "targetCompression": figures.target,
        "targetMet": figures.met,
    }


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
