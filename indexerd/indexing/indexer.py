"""One indexing run from a due session to its new row.

    snapshot -> models.attempts (budget inside) -> check -> meta.writer -> library -> events

A failing provider ends the run at once; `policy.after_failure` says when the session is tried
again, and that is stored until a run succeeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from indexerd.errors import IndexerdError, NotFoundError, StateError
from indexerd.indexing.check import validate
from indexerd.indexing.policy import NO_FAILURE, RetryState, SessionRuntime, after_failure
from indexerd.indexing.prompt import retry_prompt
from indexerd.indexing.snapshot import Library, Read, Snapshot, take_snapshot
from indexerd.meta.model import SCHEMA_VERSION, Metadata, MetaFile, Usage
from indexerd.meta.writer import MetaWriter
from indexerd.models.attempts import ATTEMPTS, Calls, Rejected, first_usable
from indexerd.models.base import Model, Reply
from indexerd.models.budget import Budget, tokens_of
from indexerd.privacy.redact import redactor
from indexerd.protocol.limits import FIRST_MESSAGE_MAX
from indexerd.settings import Settings
from indexerd.times import iso_ms, iso_of_ms

TOPIC = "retry"  # of the store's notes


@dataclass(frozen=True, slots=True)
class Done:
    """A run that succeeded; `adopted`: another program wrote the meta file first, and it stays."""

    session_id: str
    directory: str
    usd: float | None
    model: str
    adopted: bool


# The kind of an error, and whether a retry may help; its traceback would hold the prompt.
Failure = tuple[str, bool]


@dataclass
class Indexer:
    """Indexes sessions; several runs may be under way. `events`: an `EventBus`."""

    library: Library
    read: Read
    budget: Budget
    writer: MetaWriter
    events: Any
    outcomes: dict[str, Done | Failure] = field(default_factory=dict)  # newest of each session
    retries: dict[str, RetryState] = field(default_factory=dict)  # of sessions that failed

    async def load(self) -> None:
        """Load the stored retry states that a reload does not end, since a restart is one."""
        decode = msgspec.msgpack.Decoder(RetryState).decode
        held = await self.read(self.library.store.notes, TOPIC, decode)
        self.retries = {key: one for key, one in held.items() if not one.ends_with_reload}

    async def run(
        self, session: SessionRuntime, why: str, settings: Settings, models: Sequence[Model]
    ) -> list[Any]:
        """Index a session now, by the first of `models` that can be used.

        Returns the changes in the library, none after a failure; answers a forced run's caller.
        """
        session_id = session.info.session_id
        self.events.indexing(session, why)
        try:
            done, updates = await self._index(session, settings, models)
        except asyncio.CancelledError:
            session.answer(NotFoundError("the session was purged, or the daemon ends"))
            raise
        except IndexerdError as bad:
            await self._failed(session, bad)
            return []
        except Exception as bug:  # noqa: BLE001 - a defect of ours must not end the daemon
            self.events.defect("index.failed", session_id, bug)
            await self._failed(session, IndexerdError(f"internal error: {type(bug).__name__}"))
            return []
        self.outcomes[session_id] = done
        await self._keep(session, NO_FAILURE)
        self.events.indexed(session, done)
        session.answer(done)
        return updates

    async def _failed(self, session: SessionRuntime, error: IndexerdError) -> None:
        self.outcomes[session.info.session_id] = error.kind, error.retryable
        state = after_failure(session.retry, error, session.info.new_users, self.budget.clock())
        await self._keep(session, state)
        self.events.failed(session, error, state.retry_at)
        session.answer(error)

    async def _index(
        self, session: SessionRuntime, settings: Settings, models: Sequence[Model]
    ) -> tuple[Done, list[Any]]:
        """Read the session, ask the model, write the answer; raises IndexerdError."""
        session_id = session.info.session_id
        snapshot = await take_snapshot(self.library, self.read, session_id, settings)
        clean, prompt = redactor(settings), snapshot.prompt
        audit = {
            "customType": "session-index:index",
            "sessionId": session_id,
            "redactions": snapshot.redactions,
            "bytes": snapshot.bytes,
            "by": "user" if session.forced else "daemon",
            "leafId": snapshot.leaf_id,
            "since": snapshot.since_id,
        }
        calls = Calls(self.budget, audit, partial(self._publish, session))

        def read(reply: Reply) -> Metadata | Rejected:
            return validate(reply.text, cut=reply.cut, redact=lambda text: clean(text)[0])

        def ask_model(model: Model) -> Awaitable[Metadata]:
            return calls.ask(
                model,
                prompt,
                timeout=settings.model.timeout_seconds,
                read=read,
                again=lambda reply, error: retry_prompt(prompt, clean(reply.text)[0], error),
            )

        found, model = await first_usable(models, ask_model)
        meta = _meta_file(snapshot, found, model.key, calls, self.budget.clock())
        written = await asyncio.to_thread(
            self.writer.write_meta, snapshot.directory, meta, expect=snapshot.stamp
        )
        directory = str(snapshot.directory)
        usd = calls.usage["costUsd"]
        done = Done(session_id, directory, usd, model.key, adopted=not written)
        return done, await self.read(self.library.written, session_id, directory)

    def _publish(self, session: SessionRuntime, fields: dict[str, Any], error: str) -> None:
        self.events.log("index.attempt", {"session": session.info.session_id, **fields})
        if error and fields["attempt"] < ATTEMPTS:
            which = {"model": fields["model"], "attempt": fields["attempt"]}
            self.events.retry(session, which | {"of": ATTEMPTS - 1, "reason": error})

    async def lift(self, session: SessionRuntime) -> None:
        """End a wait for a model or the budget, as the configuration changed."""
        if session.retry.ends_with_reload:
            await self._keep(session, NO_FAILURE)

    async def _keep(self, session: SessionRuntime, state: RetryState) -> None:
        session.retry = state
        await self.note_retry(session.info.session_id, state)

    async def note_retry(self, session_id: str, state: RetryState = NO_FAILURE) -> None:
        """Store a session's retry state, or remove it."""
        if state == self.retries.get(session_id, NO_FAILURE):
            return
        self.retries[session_id] = state
        packed = msgspec.msgpack.encode(state) if state != NO_FAILURE else None
        with suppress(StateError):  # not stored: it is tried again after a restart
            await self.read(self.library.store.note, TOPIC, session_id, packed)

    async def estimate(
        self, due: Sequence[str], settings: Settings, models: Sequence[Model]
    ) -> dict[str, Any]:
        """Return the most that indexing these sessions may cost, one call each; sends nothing.

        `costUsd` is None if a price is not known.
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


def _meta_file(
    snapshot: Snapshot, found: Metadata, model: str, calls: Calls, now: float
) -> MetaFile:
    """Build the meta file from a snapshot and the answer to it."""
    info, old = snapshot.info, snapshot.meta
    updated = iso_of_ms(max(round(now * 1000), iso_ms(old.updated_at) + 1 if old else 0))
    return MetaFile(
        **((old.model_extra or {}) if old else {}),  # unknown fields stay
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
        usage=Usage.model_validate(calls.usage),
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
