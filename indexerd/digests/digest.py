"""The methods about long sessions: `digest`, `history`, `stats`, and the two compactions.

A segment's facts (files, tools, decisions, figures) are not left to a model: they are counted
here. It is stored when its text is whole; whatever fails before leaves the file as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from indexerd.digests import segments, transcript
from indexerd.digests.compact_opencode import pruned
from indexerd.digests.compaction import branch_summary, compact
from indexerd.digests.history import history
from indexerd.digests.prompts import SEGMENT_TOKENS
from indexerd.digests.segments import Segment, ToolUse, chain_at, covered
from indexerd.digests.stats import outgrown, stats
from indexerd.digests.summarize import Row, Services, Task, summarize, usage_of
from indexerd.errors import NotFoundError
from indexerd.events import Entry, Kind, Stretch
from indexerd.logs import Event
from indexerd.models.extractive.sentences import decisions, key_words
from indexerd.privacy.exclusions import matches
from indexerd.privacy.redact import Redactor, redactor
from indexerd.privacy.sanitize import clean_line, clean_text, escape_path
from indexerd.protocol import params
from indexerd.sessions.clipped import SUMMED
from indexerd.sessions.context import Read, context_messages, passing_messages
from indexerd.sessions.facts import ActivityStats
from indexerd.sessions.positions import message_rows, name_at, rows_between
from indexerd.settings import Settings
from indexerd.sources.session_reader import OpenSession
from indexerd.threads import Check

AFTER_REPLY = 0.02  # seconds: who asked for a history has it before others hear of that
LEAST_BY_TOKENS = 10  # messages that a segment covers which is made for a context's size alone
RESULT_MAX = 500  # characters of a tool's result that are summarized
TOPICS_MAX, COMMANDS_MAX = 6, 10
COMMAND_MAX = 200  # characters of one command
SPAN_MAX = 1000  # messages of one segment, which are in memory together
LEAST_TOKENS = 150  # a segment may always take
PREVIOUS_SEGMENTS = 3  # newest ones that the next one's model is shown
_SHELLS = frozenset({"bash", "shell", "exec_command", "local_shell", "container.exec", "execute"})


@dataclass(slots=True)
class Plan:
    """What would be summarized; without a span there is nothing to do, and `why` says why."""

    total: int  # messages on the path
    chain: list[Segment]  # that holds on it
    home: Path | None
    target: float
    span: tuple[int, int] | None = None
    why: str = ""
    text: transcript.RedactedTranscript = transcript.NO_PARTS
    previous: str = ""
    facts: dict[str, Any] = field(default_factory=dict)  # of the segment
    told: dict[str, list[str]] = field(default_factory=dict)  # topics, commands
    tokens: int = 0  # of what is covered, as estimated
    tokens_before: int = 0  # of segments and messages that no segment covers
    max_tokens: int = SEGMENT_TOKENS

    def figures(self, segment: Segment | None = None) -> dict[str, Any]:
        """What the segment saves; without one, how things are.

        Messages are those of the assembled context: the verbatim ones, and one for each segment.
        Tokens saved are negative where the summary is longer than what it stands for.
        """
        before = len(self.chain) + self.total - covered(self.chain)
        gone = segment.messages - 1 if segment else 0
        saved = self.tokens - segment.token_count if segment else 0
        part = segment.token_count / self.tokens if segment and self.tokens > 0 else None
        return {
            "before": before,
            "after": before - gone,
            "reduction": round(100 * gone / before, 1) if before > 0 else 0.0,
            "tokensSaved": saved,
            "tokensBefore": self.tokens_before,
            "tokensAfter": self.tokens_before - saved,
            "compression": None if part is None else round(part, 4),
            "targetCompression": self.target,
            "targetMet": part is not None and part <= self.target,
        }


def next_span(total: int, covered: int, keep: int) -> tuple[int, int] | None:
    """The messages that segments do not cover, but for the newest `keep`; None for none."""
    last = total - keep - 1
    return (covered, last) if covered <= last else None


def plan_segment(session: OpenSession, check: Check, settings: Settings, *, manual: bool) -> Plan:
    """The next segment; one that nobody asked for only where it is due."""
    state, wanted = session.state, settings.digest
    rows = message_rows(state)
    chain = chain_at(state, session.home, session.info.session_id)
    plan = Plan(len(rows), chain, session.home, wanted.target_compression)
    span = next_span(len(rows), covered(chain), wanted.preserve_recent)
    due = manual or len(rows) - covered(chain) > wanted.trigger_threshold
    large = span is not None and span[1] - span[0] + 1 >= LEAST_BY_TOKENS
    with session.reading(check, SUMMED) as read:
        if span is None:
            plan.why = f"all but the newest {wanted.preserve_recent} messages are summed up"
        elif due or (wanted.token_trigger and large and outgrown(session, read, wanted)):
            plan.span = span[0], min(span[1], span[0] + SPAN_MAX - 1)  # the next one goes on there
            _fill(plan, rows, session, read, settings)
        else:
            plan.why = "no more messages than the threshold are not summed up"
        if plan.span is None and not manual:
            return plan
        start = covered(chain) if plan.span is None else plan.span[1] + 1
        recent = rows_between(state.path(), rows, start, len(rows) - 1)
        messages = passing_messages(state, read, recent)
        verbatim = transcript.tokens_of(messages, state, session.info.agent)
    plan.tokens_before = sum(one.token_count for one in chain) + plan.tokens + verbatim
    return plan


def _fill(
    plan: Plan, rows: list[int], session: OpenSession, read: Read, settings: Settings
) -> None:
    """Complete the plan with what the messages of its span say."""
    state, clean, wanted = session.state, redactor(settings), settings.digest
    first, last = plan.span or (0, -1)
    entries = {row: read(row) for row in rows_between(state.path(), rows, first, last)}
    messages = context_messages(state, entries.__getitem__, entries)
    plan.tokens = transcript.tokens_of(messages, state, session.info.agent)
    kept = pruned(messages) if wanted.prune_tool_output else messages
    said = transcript.summarizable_messages(kept, state, session.info.agent)
    plan.text = transcript.redact_parts(said, clean, RESULT_MAX)
    words = plan.text.words()
    topics = (clean_text(text[:4000], 4000) for role, text in words if role == "user")
    plan.told = {
        "topics": list(key_words(topics, TOPICS_MAX)),
        "commands": _commands(entries.values(), clean),
    }
    plan.previous = clean("\n\n".join(one.content for one in plan.chain[-PREVIOUS_SEGMENTS:]))[0]
    aim = wanted.target_compression * sum(len(one.text) + 2 for one in plan.text.parts) / 4
    plan.max_tokens = min(SEGMENT_TOKENS, max(LEAST_TOKENS, int(aim)))
    activity = ActivityStats()
    for entry in entries.values():
        activity.add(entry, session.info.cwd)
    done = activity.facts()
    plan.facts = {
        "covering": (first, last),
        "leaf_id": name_at(state, rows[last]),
        "key_decisions": decisions(text for _, text in words),
        "files_modified": tuple(escape_path(clean(one)[0]) for one in done.files_modified),
        "tools_used": tuple(
            ToolUse(tool, count, tuple(clean(one)[0] for one in done.tool_uses.get(tool, ())))
            for tool, count in done.tools_used.items()
        ),
    }


def _commands(entries: Iterable[Entry], clean: Redactor) -> list[str]:
    """Command lines that the agent or its user ran, the newest that differ."""
    found: dict[str, None] = {}
    for entry in entries:
        ran = [call.detail for call in entry.tools if call.name.lower() in _SHELLS]
        if entry.kind is Kind.BASH:
            ran = [entry.text.partition("\n")[0].removeprefix("$ ")]
        for line in ran:
            shown = clean_line(clean(line[: 10 * COMMAND_MAX])[0], COMMAND_MAX)
            found.pop(shown, None)
            found[shown] = None
    return list(filter(None, found))[-COMMANDS_MAX:]


class Digests:
    """Answers these methods."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.compact = partial(compact, services)
        self.branch_summary = partial(branch_summary, services)

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

    async def make(self, session_id: str, *, manual: bool, dry: bool = False) -> dict[str, Any]:
        """Make the next segment of a session, and return the result of `digest`.

        Where nobody asked, only if more messages than the threshold are in no segment. With `dry`
        only the figures of what there is. Raises an IndexerdError: nothing is changed then.
        """
        services, off = self._services, ""
        row = services.rows.by_id(session_id)
        if not services.settings().digest.enabled:
            off = "digests are switched off: [digest] enabled"
        elif matches(services.excluded(), row["sessionFile"], row["cwd"]):
            off = "digests are switched off for this session: [digest] exclude"
        nothing: dict[str, Any] = {"sessionId": session_id, "segment": None}
        if off and not manual:
            return nothing | {"reason": off}
        async with self._locks.setdefault(session_id, asyncio.Lock()):
            work = partial(plan_segment, settings=services.settings(), manual=manual)
            plan = await services.pool.read(session_id, None, work)
            if off or dry or plan.span is None:
                return nothing | {"reason": off or plan.why} | plan.figures()
            return await self._made(row, plan, manual=manual)

    async def _made(self, row: Row, plan: Plan, *, manual: bool) -> dict[str, Any]:
        services, session_id, home, facts = self._services, row["sessionId"], plan.home, plan.facts
        if home is None:
            raise NotFoundError("there is no place for this session's sidecar")
        first, last = facts["covering"]
        started = {"session": session_id, "count": last - first + 1}
        services.events.log(Event.DIGEST_STARTED, started)
        base = Stretch(
            "segment",
            (),
            files_modified=facts["files_modified"],
            tools_used={one.tool: one.count for one in facts["tools_used"]},
            cwd=row["cwd"],
            previous=plan.previous,
            max_tokens=plan.max_tokens,
        )
        task = Task(row, "segment", plan.text, base, covering=plan.span, asked=manual)
        summary = await summarize(services, task)
        segment = segments.new_segment(summary.text, summary.model, services.clock(), **facts)
        services.rows.by_id(session_id)  # NotFoundError: it was forgotten meanwhile
        await asyncio.to_thread(segments.store_segment, services.writer, home, session_id, segment)
        report = plan.figures(segment) | {
            "covering": list(segment.covering),
            "files": list(segment.files_modified),
            **plan.told,
            "decisions": list(segment.key_decisions),
            "model": summary.model,
            "costUsd": summary.spent.usd,
        }
        logged = {"model": summary.model, "cost_usd": summary.spent.usd, "ms": summary.ms}
        services.events.log(Event.DIGEST_WRITTEN, started | logged)
        services.events.publish("digest.created", session_id, {"segmentId": segment.id, **report})
        made = {"sessionId": session_id, "segment": segments.encode(segment), **report}
        return made | {"usage": usage_of([summary]), "notes": list(summary.notes)}
