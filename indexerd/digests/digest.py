"""The methods for long sessions: `digest`, `history`, `stats`, and the two compactions.

A segment's facts (files, tools, decisions, figures) are counted here, never left to a model.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from indexerd.digests import transcript
from indexerd.digests.compaction import branch_summary, compact, pruned
from indexerd.digests.prompts import SEGMENT_TOKENS
from indexerd.digests.segments import Segment, chain_at, covered, encode, history, store_segment
from indexerd.digests.stats import outgrown, stats
from indexerd.digests.summarize import Row, Summarizer
from indexerd.entries import Entry, Stretch
from indexerd.errors import IndexerdError
from indexerd.indexing.indexer import Failure
from indexerd.indexing.policy import SessionRuntime, settled_at
from indexerd.indexing.transcript import Section
from indexerd.models.extractive.sentences import decisions, key_words
from indexerd.privacy.exclusions import matches
from indexerd.privacy.redact import redactor
from indexerd.privacy.sanitize import clean_text, escape_path
from indexerd.protocol import params
from indexerd.references.services import Services
from indexerd.sessions.clipped import Keep
from indexerd.sessions.context import context_messages
from indexerd.sessions.facts import ActivityStats
from indexerd.sessions.state import message_rows, name_at, rows_between
from indexerd.settings import Settings
from indexerd.sources.session_reader import OpenSession

AFTER_REPLY = 0.02  # seconds: `context.load` follows the answer to `history`
LEAST_BY_TOKENS = 10  # messages of a segment that only the size of the context asks for
RESULT_MAX = 500  # characters of a tool's result that are summarized
KEPT = Keep(result=2000, head=10_000, tail=5_000, given=5_000)  # of one message
SPAN_MAX, SPAN_BYTES = 1000, 2_000_000  # messages of a segment, and bytes of text in memory at once
_SHELLS = frozenset({"bash", "shell", "exec_command", "local_shell", "container.exec", "execute"})


@dataclass(slots=True)
class Plan:
    """The next segment; without a `stretch` there is none, and `why` is the reason."""

    home: Path | None
    before: int  # messages of the assembled context: verbatim messages, and one per segment
    why: str = ""
    stretch: Stretch | None = None
    text: Sequence[Section] = ()
    tokens: int = 0  # estimated, of the messages covered
    facts: dict[str, Any] = field(default_factory=dict)  # of the segment
    report: dict[str, Any] = field(default_factory=dict)  # topics, commands

    def figures(self, target: float, segment: Segment | None = None) -> dict[str, Any]:
        gone, size = (segment.messages - 1, segment.token_count) if segment else (0, self.tokens)
        part = size / self.tokens if segment and self.tokens > 0 else None
        return {
            "before": self.before,
            "after": self.before - gone,
            "reduction": round(100 * gone / self.before, 1) if self.before > 0 else 0.0,
            "tokensSaved": self.tokens - size,
            "compression": None if part is None else round(part, 4),
            "targetCompression": target,
            "targetMet": part is not None and part <= target,
        }


def plan_segment(session: OpenSession, row: Row, settings: Settings, *, manual: bool) -> Plan:
    """Plan the next segment; an automatic one only if it is due."""
    state, wanted = session.state, settings.digest
    rows = message_rows(state)
    chain = chain_at(state, session.home, session.info.session_id)
    verbatim = len(rows) - covered(chain)
    plan = Plan(session.home, len(chain) + verbatim)
    first, end = covered(chain), len(rows) - wanted.preserve_recent
    if end <= first:
        plan.why = f"all but the newest {wanted.preserve_recent} messages are already summarised"
        return plan
    last, size = first, 0  # the next segment continues there
    for last in range(first, min(end, first + SPAN_MAX)):
        size += min(state.lengths[rows[last]], KEPT.head + KEPT.tail)
        if size > SPAN_BYTES:
            break
    large = wanted.token_trigger and last - first + 1 >= LEAST_BY_TOKENS
    with session.reading(KEPT) as read:
        due = manual or verbatim > wanted.trigger_threshold
        if not due and not (large and outgrown(session, read, wanted)):
            plan.why = "there are not more messages without a summary than the threshold"
            return plan
        entries = {at: read(at) for at in rows_between(state.path(), rows, first, last)}
    _fill(plan, entries, session, settings)
    plan.facts |= {"covering": (first, last), "leaf_id": name_at(state, rows[last])}
    aim = int(wanted.target_compression * sum(len(str(part)) + 2 for part in plan.text) / 4)
    plan.stretch = Stretch(
        "segment",
        (),
        cwd=row["cwd"],
        previous=redactor(settings)("\n\n".join(segment.content for segment in chain[-3:]))[0],
        max_tokens=min(SEGMENT_TOKENS, max(150, aim)),
    )
    return plan


def _fill(plan: Plan, entries: dict[int, Entry], session: OpenSession, settings: Settings) -> None:
    """Add the text and the facts of a segment's entries to the plan."""
    state, agent, clean = session.state, session.info.agent, redactor(settings)
    messages = list(context_messages(state, entries.__getitem__, list(entries)))
    plan.tokens = transcript.message_tokens(messages, state, agent)
    kept = pruned(messages) if settings.digest.prune_tool_output else messages
    selected = transcript.summarizable_messages(kept, state, agent)
    plan.text = transcript.redact_parts(selected, clean, RESULT_MAX)
    words = transcript.words_in(plan.text)
    topics = (clean_text(text[:4000], 4000) for role, text in words if role == "user")
    activity = ActivityStats()
    for entry in entries.values():
        activity.add(entry, session.info.cwd)
    done = activity.facts()
    uses = {tool: [clean(use)[0] for use in used] for tool, used in done.tool_uses.items()}
    commands = [use for tool, used in uses.items() if tool.lower() in _SHELLS for use in used]
    plan.report = {"topics": [*map(str.lower, key_words(topics))], "commands": commands}
    plan.facts = {
        "key_decisions": decisions(text for _, text in words),
        "files_modified": tuple(escape_path(clean(path)[0]) for path in done.files_modified),
        "tools_used": tuple(
            {"tool": tool, "count": count, "notable_uses": uses.get(tool, [])}
            for tool, count in done.tools_used.items()
        ),
    }


class Digests:
    """Answers the methods for long sessions."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._locks = defaultdict[str, asyncio.Lock](asyncio.Lock)  # by session id
        self.compact = partial(compact, services)
        self.branch_summary = partial(branch_summary, services)

    async def stats(self, args: params.RefParams) -> dict[str, Any]:
        row, settings = self._row(args), self.services.settings().digest
        work = partial(stats, row=row, settings=settings)
        return await self.services.pool.read(row["sessionId"], None, work)

    async def history(self, args: params.History) -> dict[str, Any]:
        services, session_id = self.services, self._row(args)["sessionId"]
        work = partial(history, wanted=services.settings().digest, full=args.full)
        answer = await services.pool.read(session_id, args.leaf, work)
        asyncio.get_running_loop().call_later(AFTER_REPLY, services.on_history, session_id)
        return answer

    async def digest(self, args: params.RefParams) -> dict[str, Any]:
        return await self.make(self._row(args)["sessionId"], manual=True)

    def _row(self, args: params.RefParams) -> Row:
        return self.services.rows.row(args.ref, cwd=args.cwd)

    async def make(self, session_id: str, *, manual: bool) -> dict[str, Any]:
        """Make a session's next segment, an automatic one only if it is due.

        An IndexerdError means that nothing has changed.
        """
        services, off = self.services, ""
        row, settings = services.rows.by_id(session_id), services.settings()
        if not settings.digest.enabled:
            off = "digests are off: [digest] enabled"
        elif matches(settings.digest.exclude, row["sessionFile"], row["cwd"]):
            off = "digests are off for this session: [digest] exclude"
        answer: dict[str, Any] = {"sessionId": session_id, "segment": None}
        if off and not manual:
            return answer | {"reason": off}
        async with self._locks[session_id]:
            work = partial(plan_segment, row=row, settings=settings, manual=manual)
            plan = await services.pool.read(session_id, None, work)
            if off or plan.stretch is None:
                figures = plan.figures(settings.digest.target_compression)
                return answer | {"reason": off or plan.why} | figures
            return answer | await self._made(plan, plan.stretch, row, manual=manual)

    async def _made(self, plan: Plan, base: Stretch, row: Row, *, manual: bool) -> dict[str, Any]:
        services, session_id, covering = self.services, row["sessionId"], plan.facts["covering"]
        started = {"session": session_id, "count": covering[1] - covering[0] + 1}
        services.events.log("digest.started", started)
        writer = Summarizer(services, row, "segment", covering=covering, manual=manual)
        text = await writer.write(plan.text, base)
        facts = plan.facts | {"model": writer.model}
        segment = await store_segment(services, plan.home, session_id, text, **facts)
        report = {
            **plan.figures(services.settings().digest.target_compression, segment),
            **plan.report,
            "covering": list(covering),
            "files": list(segment.files_modified),
            "decisions": list(segment.key_decisions),
            "model": writer.model,
            "costUsd": writer.usage["costUsd"],
        }
        logged = {"model": writer.model, "cost_usd": report["costUsd"], "ms": writer.ms}
        services.events.log("digest.written", started | logged)
        services.events.publish("digest.created", session_id, {"segmentId": segment.id, **report})
        return {"segment": encode(segment), **report, "usage": writer.usage, "notes": writer.notes}


class AutoDigests:
    """Makes digests of those `known` sessions that have grown, at the end of each turn.

    A failure is retried at the end of the next turn.
    """

    def __init__(
        self, digests: Digests, known: Mapping[str, SessionRuntime], off: Callable[[], bool]
    ) -> None:
        self._digests, self._known, self._off = digests, known, off
        self._settings, self._events = digests.services.settings, digests.services.events
        self.digested: list[str] = []  # session ids, since the start
        self.failed: dict[str, Failure] = {}
        self._due: dict[str, float] = {}  # when to look at a session
        self._wake = asyncio.Event()

    def grown(self, session_id: str) -> None:
        self._due[session_id] = time.time()
        self._wake.set()

    async def run(self, *, once: bool = False) -> None:
        """Make digests when they are due, until cancelled; with `once`, until none is due."""
        while True:
            self._wake.clear()
            now = time.time()
            for session_id in [key for key, at in self._due.items() if at <= now]:
                del self._due[session_id]
                await self._look(session_id)
            if once and not self._due:
                return
            pause = min(self._due.values()) - time.time() if self._due else None
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    async def _look(self, session_id: str) -> None:
        known, settings = self._known.get(session_id), self._settings()
        wanted = settings.digest
        if known is None or self._off() or not wanted.enabled:
            return
        info, ready = known.info, settled_at(known, settings)
        least = wanted.preserve_recent if wanted.token_trigger else wanted.trigger_threshold
        if not info.answered or info.messages <= least or ready is None:  # in the middle of a turn
            return
        if ready > time.time():
            self._due[session_id] = ready
            return
        try:
            answer = await self._digests.make(session_id, manual=False)
        except IndexerdError as bad:
            self.failed[session_id] = bad.kind, bad.retryable
            fields = {"kind": bad.kind, "message": str(bad), "retryable": bad.retryable}
            self._events.publish("digest.failed", session_id, fields)
            logged = {"session": session_id, "reason": str(bad), "kind": bad.kind}
            self._events.log("digest.failed", logged)
        except Exception as bug:  # noqa: BLE001 - our own defect must not end the daemon
            self._events.defect("digest.failed", session_id, bug)
        else:
            if answer["segment"] is not None:
                self.digested.append(session_id)
                if answer["after"] > wanted.trigger_threshold:  # more than one segment can cover
                    self.grown(session_id)
