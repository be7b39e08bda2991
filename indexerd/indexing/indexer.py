"""One indexing run: snapshot, prompt, model, check, write (S0.18 to S0.45).

Each retry carries the previous reply and what was wrong with it (`models.attempts` has the loop).
A failing provider ends the run at once; whether to try again, and when, is decided elsewhere.

An answer that was paid for is never thrown away because a disk is full: it is kept here and
written by the next run of its session, without another call (A3).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from indexerd.errors import IndexerdError, WriteError
from indexerd.events import Prompt
from indexerd.indexing.check import validate
from indexerd.indexing.prompt import carried, index_prompt, retry_prompt
from indexerd.indexing.retry import RetryState, wait_for_models
from indexerd.indexing.snapshot import Library, Snapshot, take
from indexerd.indexing.transcript import Caps
from indexerd.logs import Event
from indexerd.meta.model import SCHEMA_VERSION, Metadata, MetaFile, Usage
from indexerd.meta.writer import Conflict, MetaWriter
from indexerd.models.attempts import (
    ATTEMPTS,
    CANCELLED,
    Attempt,
    Rejected,
    Spent,
    ask,
    first_usable,
)
from indexerd.models.base import Finish, Model, Reply
from indexerd.models.budget import Budget, tokens_of
from indexerd.models.telemetry import Telemetry, index_row
from indexerd.privacy.redact import redactor
from indexerd.protocol.limits import FIRST_MESSAGE_MAX
from indexerd.settings import Settings
from indexerd.times import iso, iso_ms, iso_of_ms

Reader = Callable[..., Awaitable[Any]]
Notify = Callable[[Event, str, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Done:
    """A run that ended well. `adopted`: another writer was quicker, and its file stands."""

    session_id: str
    directory: str
    usd: float | None
    model: str = ""
    adopted: bool = False


@dataclass(slots=True)
class Prepared:
    """One run on its way: what will be sent, and what was spent so far."""

    snap: Snapshot
    prompt: Prompt
    sent_bytes: int = 0  # of what was said, and of what an earlier run made of it
    by: str | None = None  # user or daemon, for the audit
    spent: Spent = field(default_factory=Spent)


@dataclass(frozen=True, slots=True)
class _Unwritten:
    """An answer that is to be written."""

    snap: Snapshot
    meta: MetaFile
    usd: float | None


class Indexer:
    """Runs jobs, one call of `run` each; several may be under way."""

    def __init__(
        self,
        library: Library,
        *,
        reader: Reader,
        budget: Budget,
        telemetry: Telemetry,
        writer: MetaWriter,
        notify: Notify,
        clock: Callable[[], float],
    ) -> None:
        self._library = library
        self._reader = reader
        self._budget = budget
        self._telemetry = telemetry
        self._writer = writer
        self._notify = notify
        self._clock = clock
        self._held: dict[str, _Unwritten] = {}

    @property
    def unwritten(self) -> int:
        """Answers that wait for a disk that takes them."""
        return len(self._held)

    async def run(
        self,
        session_id: str,
        settings: Settings,
        models: list[Model],
        *,
        asked: bool | None = None,
    ) -> Done:
        """Index one session now, by the first of `models` that can be used.

        `asked` says, for the audit, whether somebody did or the daemon does it by itself. Raises
        an error of the tree; the old meta file then stands.
        """
        held = self._held.get(session_id)
        if held is not None:
            return await self._write(session_id, held)
        run = await self.prepare(session_id, settings)
        run.by = None if asked is None else "user" if asked else "daemon"
        found, model = await first_usable(models, lambda model: self._ask(run, model, settings))
        meta = _meta_file(run, found, model, self._clock())
        return await self._write(session_id, _Unwritten(run.snap, meta, run.spent.usd))

    def wait(self, session_id: str, models: list[Model], state: RetryState) -> float:
        """Return the seconds until a run is worth a try; 0 where it has only to be written."""
        return 0.0 if session_id in self._held else wait_for_models(self._budget, models, state)

    def drop(self, session_id: str) -> None:
        """Forget an answer that could not be written."""
        self._held.pop(session_id, None)

    async def prepare(self, session_id: str, settings: Settings) -> Prepared:
        """Snapshot and prompt; nothing leaves the machine.

        A first run wants all that was done in a session: its lines are read step by step, and
        other work of the reader gets its turn between, however long the session is (F9, V2).
        """
        while not await self._reader(self._library.texts.index, session_id):
            pass
        made: Prepared = await self._reader(_prepared, self._library, session_id, settings)
        return made

    # -- models --------------------------------------------------------------------------

    async def _ask(self, run: Prepared, model: Model, settings: Settings) -> Metadata:
        clean = redactor(settings)

        def read(reply: Reply) -> Metadata | Rejected:
            cut = reply.finish is Finish.LENGTH
            return validate(reply.text, cut=cut, redact=lambda text: clean(text)[0])

        return await ask(
            model,
            run.prompt,
            self._budget,
            seconds=lambda _error: settings.model.timeout_seconds,
            read=read,
            again=lambda reply, error: retry_prompt(run.prompt, clean(reply.text)[0], error),
            report=lambda attempt: self._report(run, attempt),
        )

    def _report(self, run: Prepared, attempt: Attempt) -> None:
        """Write the audit row of a request that went out, and tell who watches."""
        session_id = run.snap.card.session_id
        row = index_row(
            session_id=session_id,
            timestamp=iso(self._clock()),
            redactions=run.snap.transcript.redactions,
            bytes=run.sent_bytes,
            by=run.by,
            leaf_id=run.snap.leaf_id,
            since=run.snap.since_id,
            **attempt.audit(),
        )
        self._telemetry.append(row)
        if attempt.reply is None or attempt.error == CANCELLED:
            return
        run.spent.add(attempt.reply, attempt.usd)
        told = {"model": attempt.model, "attempt": attempt.number}
        spent = {"cost_usd": attempt.usd, "ms": attempt.ms}
        self._notify(Event.INDEX_ATTEMPT, session_id, told | spent)
        if attempt.error is not None and attempt.number < ATTEMPTS:
            more = {"of": ATTEMPTS - 1, "reason": attempt.error}
            self._notify(Event.INDEX_RETRY, session_id, told | more)

    # -- writing -------------------------------------------------------------------------

    async def _write(self, session_id: str, held: _Unwritten) -> Done:
        """Write an answer, unless another writer was quicker (the older pi extension)."""
        directory = held.snap.directory
        try:
            written = await asyncio.to_thread(
                self._writer.write_meta, directory, held.meta, expect=held.snap.stamp
            )
        except WriteError:
            self._held[session_id] = held
            raise
        self._held.pop(session_id, None)
        adopted = isinstance(written, Conflict)
        return Done(session_id, str(directory), held.usd, held.meta.model, adopted)


def prepare(library: Library, session_id: str, settings: Settings) -> Prepared:
    """Take snapshot and prompt of one session all at once, without a daemon."""
    while not library.texts.index(session_id):
        pass
    return _prepared(library, session_id, settings)


def _prepared(library: Library, session_id: str, settings: Settings) -> Prepared:
    """Snapshot and prompt of one session. Blocks, in the thread that owns the library."""
    caps = Caps(settings.index.max_bytes, settings.index.max_lines)
    merge = settings.index.merge_previous_summary
    snap = take(library, session_id, caps, redactor(settings), merge=merge)
    prompt = index_prompt(
        snap.transcript.text,
        nonce=secrets.token_hex(8),
        schema=Metadata.model_json_schema(),
        previous_summary=snap.facts.previous_summary,
        since=snap.since,
        facts=snap.facts,
    )
    again = carried(snap.facts.previous_summary, snap.since)
    size = snap.transcript.bytes + len(again.encode("utf-8", "replace"))
    return Prepared(snap, prompt, size)


def as_sent(run: Prepared, models: list[Model]) -> dict[str, Any]:
    """Return what would be sent now, and to whom (S0.45)."""
    model = models[0] if models else None
    return {
        "sessionId": run.snap.card.session_id,
        "model": model.key if model else None,
        "leavesTheMachine": bool(model and model.remote),
        "system": run.prompt.system,
        "user": run.prompt.user,
        "truncated": run.snap.transcript.truncated,
        "redactions": run.snap.transcript.redactions,
    }


async def estimate(
    indexer: Indexer, due: list[str], settings: Settings, models: list[Model], budget: Budget
) -> dict[str, Any]:
    """Return what indexing the `due` sessions may cost at most, one call each; nothing is sent.

    `costUsd` is None where a price is not known.
    """
    model = models[0] if models else None
    tokens, unreadable = 0, 0
    costs: list[float | None] = []
    for session_id in due:
        try:
            run = await indexer.prepare(session_id, settings)
        except IndexerdError:
            unreadable += 1
            continue
        tokens += tokens_of(run.prompt)
        costs.append(budget.estimate(model.key, run.prompt) if model else None)
    known = [cost for cost in costs if cost is not None]
    return {
        "sessions": len(due),
        "unreadable": unreadable,
        "model": model.key if model else None,
        "inputTokens": tokens,
        "costUsd": round(sum(known), 6) if len(known) == len(costs) else None,
    }


def _meta_file(run: Prepared, found: Metadata, model: Model, now: float) -> MetaFile:
    """The meta file of a snapshot and the answer to it."""
    snap, card, old = run.snap, run.snap.card, run.snap.meta
    spent = run.spent
    updated = iso_of_ms(max(round(now * 1000), iso_ms(old.updated_at) + 1 if old else 0))
    return MetaFile(
        **((old.model_extra or {}) if old else {}),  # what others added is theirs
        schema_version=max(SCHEMA_VERSION, old.schema_version if old else 0),
        session_id=card.session_id,
        session_file=snap.row.get("sessionFile", card.path),
        parent_session_file=card.parent or None,
        name=found.name,
        description=found.description,
        summary=found.summary,
        tags=found.tags,
        cwd=card.cwd,
        created_at=old.created_at if old else updated,
        updated_at=updated,
        model=model.key,
        last_indexed_leaf_id=snap.leaf_id,
        agent=card.agent,
        usage=Usage(
            input_tokens=spent.input_tokens,
            output_tokens=spent.output_tokens,
            cost_usd=spent.usd,
            calls=spent.calls,
        ),
        message_count=card.messages,
        user_message_count=card.users,
        first_user_message=card.first_user[:FIRST_MESSAGE_MAX] or None,
        files_read=list(snap.facts.files_read),
        files_modified=list(snap.facts.files_modified),
        tools_used=snap.facts.tools_used,
        redactions=snap.transcript.redactions or None,
        session_created_at=card.created_at or None,
        session_modified_at=iso_of_ms(card.modified_ms),
    )
