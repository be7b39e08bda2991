"""One indexing run from a due session to its new row.

    snapshot -> models.attempts (budget inside) -> check -> meta.writer -> library -> events

A failing provider ends the run at once. When the session is tried again is decided by
`policy.after_failure`, and stored over a restart; a run that ends well clears it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from indexerd.errors import IndexerdError, NotFoundError, StateError
from indexerd.indexing.check import validate
from indexerd.indexing.policy import NO_FAILURE, RetryState, SessionRuntime, after_failure
from indexerd.indexing.prompt import retry_prompt
from indexerd.indexing.queue import Job
from indexerd.indexing.snapshot import Library, Read, Snapshot, take_snapshot
from indexerd.logs import Event
from indexerd.meta.model import SCHEMA_VERSION, Metadata, MetaFile, Usage
from indexerd.meta.writer import MetaWriter
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
from indexerd.models.telemetry import INDEX, Telemetry, audit_row
from indexerd.privacy.redact import redactor
from indexerd.protocol.limits import FIRST_MESSAGE_MAX
from indexerd.settings import Settings
from indexerd.times import iso, iso_ms, iso_of_ms

TOPIC = "retry"  # of the store's notes
_decode = msgspec.msgpack.Decoder(RetryState).decode


@dataclass(frozen=True, slots=True)
class Done:
    """A run that ended well. `adopted`: another writer was quicker, and its file stands."""

    session_id: str
    directory: str
    usd: float | None
    model: str
    adopted: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """How a run failed. The error itself is not kept: its traceback holds what was sent."""

    kind: str
    retryable: bool


@dataclass(slots=True)
class _Run:
    session: SessionRuntime
    snapshot: Snapshot
    settings: Settings
    by: str  # user or daemon, for the audit
    spent: Spent = field(default_factory=Spent)


@dataclass
class Indexer:
    """Runs jobs, one call of `run` each; several may be under way.

    `events` is the daemon's `EventBus`, which hears how runs go.
    """

    library: Library
    read: Read
    budget: Budget
    telemetry: Telemetry
    writer: MetaWriter
    events: Any
    clock: Callable[[], float]
    # Of this process, the newest of each session.
    outcomes: dict[str, Done | Failure] = field(default_factory=dict)
    retries: dict[str, RetryState] = field(default_factory=dict)  # of sessions that failed

    async def load(self) -> None:
        """Take over the stored retry states."""
        held = await self.read(self.library.store.notes, TOPIC, _decode)
        # A restart reloads, too.
        self.retries = {key: one for key, one in held.items() if not one.ends_with_reload}

    async def run(
        self, session: SessionRuntime, job: Job, settings: Settings, models: Sequence[Model]
    ) -> list[Any]:
        """Index a session now, by the first of `models` that can be used.

        Returns what changed in the library by it: nothing after a failure, where the old meta file
        stands. Whoever forced the run is answered in either case.
        """
        session_id = job.session_id
        self.events.indexing(session, job.why)
        try:
            done, updates = await self._index(session, job, settings, models)
        except asyncio.CancelledError:
            session.answer(NotFoundError("the session was purged, or the daemon ends"))
            raise
        except IndexerdError as bad:
            await self._failed(session, bad)
            return []
        except Exception as bug:  # noqa: BLE001 - a defect of ours must not end the daemon
            self.events.defect(Event.INDEX_FAILED, session_id, bug)
            await self._failed(session, IndexerdError(f"internal error: {type(bug).__name__}"))
            return []
        self.outcomes[session_id] = done
        await self._keep(session, NO_FAILURE)
        self.events.indexed(session, done)
        session.answer(done)
        return updates

    async def _failed(self, session: SessionRuntime, error: IndexerdError) -> None:
        self.outcomes[session.info.session_id] = Failure(error.kind, error.retryable)
        state = after_failure(session.retry, error, session.info.new_users, self.clock())
        await self._keep(session, state)
        self.events.failed(session, error, state.retry_at)
        session.answer(error)

    async def _index(
        self, session: SessionRuntime, job: Job, settings: Settings, models: Sequence[Model]
    ) -> tuple[Done, list[Any]]:
        """Read, ask, write, take in; raises an IndexerdError."""
        snapshot = await take_snapshot(self.library, self.read, job.session_id, settings)
        run = _Run(session, snapshot, settings, "user" if job.forced else "daemon")
        found, model = await first_usable(models, partial(self._ask, run))
        meta = _meta_file(run, found, model.key, self.clock())
        written = await asyncio.to_thread(  # unless another writer was quicker
            self.writer.write_meta, snapshot.directory, meta, expect=snapshot.stamp
        )
        adopted, directory = not written, str(snapshot.directory)
        done = Done(job.session_id, directory, run.spent.usd, model.key, adopted)
        return done, await self.read(self.library.written, job.session_id, directory)

    async def _ask(self, run: _Run, model: Model) -> Metadata:
        clean, prompt = redactor(run.settings), run.snapshot.prompt

        def read(reply: Reply) -> Metadata | Rejected:
            cut = reply.finish is Finish.LENGTH
            return validate(reply.text, cut=cut, redact=lambda text: clean(text)[0])

        return await ask(
            model,
            prompt,
            self.budget,
            timeout=run.settings.model.timeout_seconds,
            read=read,
            again=lambda reply, error: retry_prompt(prompt, clean(reply.text)[0], error),
            report=partial(self._report, run),
        )

    def _report(self, run: _Run, attempt: Attempt) -> None:
        """Write the audit row of a request that went out, and publish an answer's arrival."""
        snapshot = run.snapshot
        row = audit_row(
            INDEX,
            session_id=snapshot.info.session_id,
            timestamp=iso(self.clock()),
            redactions=snapshot.redactions,
            bytes=snapshot.bytes,
            by=run.by,
            leaf_id=snapshot.leaf_id,
            since=snapshot.since_id,
            **attempt.audit(),
        )
        self.telemetry.append(row)
        if attempt.reply is None or attempt.error == CANCELLED:
            return
        run.spent.add(attempt.reply, attempt.usd)
        which = {"model": attempt.model, "attempt": attempt.number}
        self.events.attempted(run.session, which | {"cost_usd": attempt.usd, "ms": attempt.ms})
        if attempt.error is not None and attempt.number < ATTEMPTS:
            why = {"of": ATTEMPTS - 1, "reason": attempt.error}
            self.events.retry(run.session, which | why)

    async def lift(self, session: SessionRuntime) -> None:
        """The configuration changed: what waited for a model or a price waits no longer."""
        if session.retry.ends_with_reload:
            await self._keep(session, NO_FAILURE)

    async def _keep(self, session: SessionRuntime, state: RetryState) -> None:
        session.retry = state
        await self.note_retry(session.info.session_id, state)

    async def note_retry(self, session_id: str, state: RetryState = NO_FAILURE) -> None:
        """Store what is waited for after a session's failures, or that nothing is."""
        if state == self.retries.get(session_id, NO_FAILURE):
            return
        self.retries[session_id] = state
        packed = msgspec.msgpack.encode(state) if state != NO_FAILURE else None
        with suppress(StateError):  # without the store, a restart tries again
            await self.read(self.library.store.note, TOPIC, session_id, packed)

    async def estimate(
        self, due: Sequence[str], settings: Settings, models: Sequence[Model]
    ) -> dict[str, Any]:
        """Return what indexing these sessions may cost at most, one call each; nothing is sent.

        `costUsd` is None where a price is not known.
        """
        model = models[0] if models else None
        tokens = unreadable = 0
        costs: list[float | None] = []
        for session_id in due:
            try:
                snapshot = await take_snapshot(self.library, self.read, session_id, settings)
            except IndexerdError:
                unreadable += 1
                continue
            tokens += tokens_of(snapshot.prompt)
            costs.append(self.budget.estimate(model.key, snapshot.prompt) if model else None)
        known = [cost for cost in costs if cost is not None]
        return {
            "sessions": len(due),
            "unreadable": unreadable,
            "model": model.key if model else None,
            "inputTokens": tokens,
            "costUsd": round(sum(known), 6) if len(known) == len(costs) else None,
        }


def _meta_file(run: _Run, found: Metadata, model: str, now: float) -> MetaFile:
    """The meta file of a snapshot and the answer to it."""
    snapshot, info, old, spent = run.snapshot, run.snapshot.info, run.snapshot.meta, run.spent
    updated = iso_of_ms(max(round(now * 1000), iso_ms(old.updated_at) + 1 if old else 0))
    return MetaFile(
        **((old.model_extra or {}) if old else {}),  # what others added is theirs
        schema_version=max(SCHEMA_VERSION, old.schema_version if old else 0),
        session_id=info.session_id,
        session_file=snapshot.session_file,
        parent_session_file=info.parent or None,
        **found.model_dump(),
        cwd=info.cwd,
        created_at=old.created_at if old else updated,
        updated_at=updated,
        model=model,
        last_indexed_leaf_id=snapshot.leaf_id,
        agent=info.agent,
        usage=Usage(
            input_tokens=spent.input_tokens,
            output_tokens=spent.output_tokens,
            cost_usd=spent.usd,
            calls=spent.calls,
        ),
        message_count=info.messages,
        user_message_count=info.users,
        first_user_message=info.first_user[:FIRST_MESSAGE_MAX] or None,
        files_read=list(snapshot.facts.files_read),
        files_modified=list(snapshot.facts.files_modified),
        tools_used=snapshot.facts.tools_used,
        redactions=snapshot.redactions or None,
        session_created_at=info.created_at or None,
        session_modified_at=iso_of_ms(info.modified_ms),
    )
