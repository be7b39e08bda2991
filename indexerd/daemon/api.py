"""The daemon's method table, and the way of a request through it.

Nothing is formatted or printed here. Reads are answered from memory and the store; they never
wait for indexing, and only shortly for the first scan after a start.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from indexerd import __version__
from indexerd.daemon.answers import Answers
from indexerd.daemon.contexts import Contexts
from indexerd.daemon.event_bus import ALIASES
from indexerd.daemon.methods import Handler, SessionMethods, stored_methods
from indexerd.daemon.pipeline import Pipeline
from indexerd.daemon.purge import Purge
from indexerd.daemon.sidecar import Sidecars
from indexerd.errors import IndexerdError, NotFoundError, UsageError
from indexerd.indexing.indexer import as_sent, estimate
from indexerd.models.budget import Budget
from indexerd.privacy.sanitize import clean_line
from indexerd.protocol import methods, params, wire
from indexerd.protocol.limits import NAME_MAX
from indexerd.protocol.params import Params, RefParams
from indexerd.search.names_soon import NamesSoon
from indexerd.times import iso

if TYPE_CHECKING:
    from indexerd.daemon.unix_server import Peer

FIRST_SCAN_PATIENCE = 5.0  # seconds
PROTOCOL = 1
_AT_ONCE = frozenset({"hello", "status", "subscribe"})


class Api:
    """One daemon's answers."""

    def __init__(
        self,
        pipeline: Pipeline,
        answers: Answers,
        budget: Budget,
        *,
        sessions: SessionMethods,
        sidecars: Sidecars,
        contexts: Contexts,
        purge: Purge,
        status: Callable[[], dict[str, Any]],
        clock: Callable[[], float],
    ) -> None:
        self._pipeline = pipeline
        self._answers = answers
        self._names = NamesSoon(answers)
        self._budget = budget
        self._sidecars = sidecars
        self._started = clock()
        self._subscribers: dict[Peer, Callable[[], None]] = {}  # and what ends each
        self._table: dict[str, Handler] = {
            **stored_methods(answers),
            **sessions.table(),
            "hello": self._hello,
            "status": lambda _: status(),
            "list": answers.page,
            "get": self._get,
            "index": self._index,
            "as_sent": self._as_sent,
            "update": self._update,
            "label": self._label,
            "set_relevant_context": contexts.set,
            "resume_context": contexts.resume,
            "purge": purge.purge,
        }

    def handle(self, request: wire.Request, peer: Peer) -> Any:
        """Answer one request, at once where that is possible."""
        method = request.method
        if method not in methods.METHODS:
            return wire.unknown_method(request)
        asked = methods.asked(method, request.params)
        if method in _AT_ONCE or (self._pipeline.scanned.is_set() and not self._waits(request)):
            return self._answer(method, asked, peer)
        return self._soon(request, asked, peer)

    def _waits(self, request: wire.Request) -> bool:
        """Whether names have to be put together first."""
        return self._names.wanted(request.method, request.params)

    async def _soon(self, request: wire.Request, asked: Params, peer: Peer) -> Any:
        """Wait a little for the first scan, and for names, then answer with what is known."""
        try:
            async with asyncio.timeout(FIRST_SCAN_PATIENCE):
                await self._pipeline.scanned.wait()
        except TimeoutError:
            pass
        for _ in range(2):  # names, and what fuzzy ones want
            if self._waits(request):
                await self._names.come()
        found = self._answer(request.method, asked, peer)
        return await found if isinstance(found, Awaitable) else found

    def _answer(self, method: str, asked: Params, peer: Peer) -> Any:
        if isinstance(asked, params.Subscribe):
            return self._subscribe(asked, peer)
        if methods.METHODS[method].exact and isinstance(asked, RefParams):
            row = self._answers.certain(asked.ref, cwd=asked.cwd)
            asked = msgspec.structs.replace(asked, ref=row["sessionId"])
        return self._table[method](asked)

    # -- handlers that need a running daemon ---------------------------------------------

    def _hello(self, _asked: Params) -> dict[str, Any]:
        settings = self._pipeline.settings
        return {
            "version": __version__,
            "protocol": PROTOCOL,
            "capabilities": sorted(methods.METHODS),
            "pid": os.getpid(),
            "startedAt": iso(self._started),
            "settings": {
                "commandName": settings.command_name,
                "statusKey": settings.status_key,
                "notificationAutoClearMs": settings.notification_auto_clear_ms,
                "queryTimeoutSeconds": settings.query.timeout_seconds,
            },
        }

    def _get(self, asked: RefParams) -> dict[str, Any]:
        """What is stored, and how indexing goes."""
        found = self._answers.get(asked)
        known = self._pipeline.known.get(found["session"]["sessionId"])
        if known is not None and known.status is not None:
            settings = self._pipeline.settings
            found["indexing"] = known.status | {
                "key": settings.status_key,
                "clearAfterMs": settings.notification_auto_clear_ms,
            }
        return found

    async def _index(self, asked: params.Index) -> dict[str, Any]:
        if asked.all:
            return await self._index_all(dry_run=asked.dry_run)
        if asked.ref is None:
            raise UsageError("ref is required")
        row = self._answers.row(asked.ref, cwd=asked.cwd, fuzzy=not asked.force)
        session_id = row["sessionId"]
        await self._pipeline.read(int)  # let the loop learn what the store knows already
        known = self._pipeline.known.get(session_id)
        if known is None:
            raise NotFoundError("the session's file is gone", hint="its meta file still stands")
        enough = known.card.new_users >= self._pipeline.settings.min_new_user_messages
        if session_id in self._pipeline.jobs.running and not asked.force:
            return {"status": "already_running"}
        if not asked.force and not enough:
            return {"status": "below_threshold"}
        waiter = self._pipeline.force(session_id)
        if not asked.wait:
            return {"status": "queued"}
        outcome = await asyncio.shield(waiter)
        if isinstance(outcome, IndexerdError):
            raise outcome
        return {"status": "indexed", "costUsd": outcome.usd, "model": outcome.model}

    async def _index_all(self, *, dry_run: bool) -> dict[str, Any]:
        """Queue all sessions with enough new messages, or say what that would cost."""
        pipeline = self._pipeline
        due = pipeline.due()
        if dry_run:
            models, indexer = pipeline.models.available(), pipeline.runner.indexer
            return await estimate(indexer, due, pipeline.settings, models, self._budget)
        pipeline.refuse_if_off()
        queued = []
        for session_id in due:
            with suppress(IndexerdError):
                pipeline.force(session_id)
                queued.append(session_id)
        return {"queued": queued}

    async def _as_sent(self, asked: RefParams) -> dict[str, Any]:
        """The exact prompt that an indexing run would send now; nothing is sent."""
        session_id = self._answers.row(asked.ref, cwd=asked.cwd)["sessionId"]
        pipeline = self._pipeline
        run = await pipeline.runner.indexer.prepare(session_id, pipeline.settings)
        return as_sent(run, pipeline.models.available())

    async def _update(self, asked: params.Update) -> dict[str, Any]:
        """Set or clear the user's title, labels, hint and context sets of a session."""
        return await self._sidecars.update(self._answers.by_id(asked.ref), asked)

    async def _label(self, asked: params.Label) -> dict[str, Any]:
        """Set or clear the user's label of one entry."""
        label = {"entryId": asked.entry_id, "text": asked.text or None}
        await self._update(params.Update(ref=asked.ref, label=label))
        shown = clean_line(asked.text, NAME_MAX) if asked.text else None
        return {"sessionId": asked.ref, "entryId": asked.entry_id, "label": shown or None}

    def _subscribe(self, asked: params.Subscribe, peer: Peer) -> dict[str, Any]:
        """Send these events from now on, in the place of those asked for before."""
        wanted = asked.events
        names = {one for name in wanted or () for one in (name, *ALIASES.get(name, ()))}

        def pass_on(event: dict[str, Any]) -> None:
            if wanted is None or event["event"] in names:
                peer.notify(event)

        before = self._subscribers.pop(peer, None)
        self._subscribers[peer] = self._pipeline.bus.subscribe(pass_on)
        if before is None:
            peer.on_close(partial(self._unsubscribe, peer))
        else:  # it wants others now
            before()
        return {"subscribed": "all" if wanted is None else wanted}

    def _unsubscribe(self, peer: Peer) -> None:
        self._subscribers.pop(peer)()
