"""The method table: what answers each method of the socket.

`ReadMethods` look at sessions; `daemon/local.py` answers with them without a daemon. `Api` is the
daemon's whole table, and dispatches requests. A handler takes the params that
`protocol/params.py` declares, and returns a result or an awaitable of one.

Questions, references and digests are imported when they are first used: they are half of all code,
and often not needed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import msgspec

from indexerd import __version__
from indexerd.daemon.answers import Answers
from indexerd.daemon.event_bus import ALIASES
from indexerd.daemon.open_session import VIEWS, make_branch, show
from indexerd.errors import IndexerdError, NotFoundError, UsageError
from indexerd.indexing.snapshot import take_snapshot
from indexerd.privacy.sanitize import clean_line
from indexerd.protocol import methods, params, wire
from indexerd.protocol.limits import NAME_MAX
from indexerd.protocol.params import Params, RefParams, SessionParams
from indexerd.references.services import Services
from indexerd.times import iso

if TYPE_CHECKING:
    from indexerd.daemon.pipeline import Pipeline
    from indexerd.daemon.purge import Purge
    from indexerd.daemon.sidecars import Sidecars
    from indexerd.daemon.unix_server import Peer
    from indexerd.digests.digest import Digests
    from indexerd.references.expand import References
    from indexerd.references.questions import Questions

Handler = Callable[[Any], Any]
Row = dict[str, Any]

FIRST_SCAN_PATIENCE = 5.0  # seconds
_DIGESTS = ("digest", "history", "compact", "branch_summary", "stats")
READ_FILE = frozenset({"as_sent", "query_session", *VIEWS, *_DIGESTS})  # a session's own file


@dataclass(eq=False)
class ReadMethods:
    """The handlers that look at sessions."""

    answers: Answers
    services: Services

    def table(self) -> dict[str, Handler]:
        answers = self.answers
        return {
            "list": answers.list,
            "get": answers.get,
            "resolve": answers.resolve,
            "complete": answers.complete,
            "search": self._search,
            "family": partial(self._of_row, answers.family),
            "footer": partial(self._of_row, answers.footer),
            "get_relevant_context": partial(self._of_row, answers.context),
            "query_session": partial(self._call, "questions", "query"),
            "expand": partial(self._call, "references", "expand"),
            "branch": lambda asked: self._of_file(partial(make_branch, time.time()), asked),
            **{one: partial(self._of_file, partial(show, one)) for one in VIEWS},
            **{one: partial(self._call, "digests", one) for one in _DIGESTS},
        }

    async def _search(self, asked: params.Search) -> Row:
        return await asyncio.to_thread(self.answers.search, asked)

    def _row(self, asked: RefParams | SessionParams) -> Row:
        ref = asked.ref if isinstance(asked, RefParams) else asked.session
        return self.answers.row(ref, cwd=asked.cwd)

    async def _of_row(self, answer: Callable[[Row, Any], Row], asked: Any) -> Row:
        return await asyncio.to_thread(answer, self._row(asked), asked)  # names belong to the loop

    async def _of_file(self, answer: Callable[..., Row], asked: Any) -> Row:
        session_id = self._row(asked)["sessionId"]
        return await self.services.pool.read(session_id, asked.leaf, partial(answer, asked))

    def _call(self, part: str, method: str, asked: Any) -> Any:
        return getattr(getattr(self, part), method)(asked)  # the part is made at its first call

    async def _ask(self, session_id: str, question: str, turn_id: str) -> Row:
        return await self.questions.answer(session_id, question, turn_id=turn_id)

    @cached_property
    def questions(self) -> Questions:
        from indexerd.references.questions import Questions  # noqa: PLC0415 - see the head

        return Questions(self.services)

    @cached_property
    def references(self) -> References:
        from indexerd.references.expand import References  # noqa: PLC0415 - see the head

        return References(self.services, self._ask)

    @cached_property
    def digests(self) -> Digests:
        from indexerd.digests.digest import Digests  # noqa: PLC0415 - see the head

        return Digests(self.services)


@dataclass(eq=False)
class Api(ReadMethods):
    """One daemon's answers."""

    pipeline: Pipeline
    sidecars: Sidecars
    purge: Purge
    status: Callable[[], Row]
    started: str = field(default_factory=lambda: iso(time.time()))

    @cached_property
    def handlers(self) -> dict[str, Handler]:
        return {
            **self.table(),
            "hello": self._hello,
            "status": lambda _: self.status(),
            "get": self._get,
            "index": self._index,
            "as_sent": self._as_sent,
            "update": self.sidecars.update,
            "label": self._label,
            "set_relevant_context": self.sidecars.set,
            "resume_context": self.sidecars.resume,
            "purge": self.purge.purge,
        }

    async def handle(self, request: wire.Request, peer: Peer) -> Any:
        """Answer one request; just after a start, most wait a little for the first scan."""
        method = request.method
        if method not in methods.METHODS:
            return wire.unknown_method(request)
        asked = methods.asked(method, request.params)
        if isinstance(asked, params.Subscribe):
            return self._subscribe(asked, peer)
        if method not in {"hello", "status"}:
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_SCAN_PATIENCE):
                    await self.pipeline.scanned.wait()
        if methods.METHODS[method].exact and isinstance(asked, RefParams):
            row = self.answers.row(asked.ref, cwd=asked.cwd, fuzzy=False)
            asked = msgspec.structs.replace(asked, ref=row["sessionId"])
        found = self.handlers[method](asked)
        return await found if isinstance(found, Awaitable) else found

    def _hello(self, _asked: Params) -> Row:
        settings = self.pipeline.settings
        return {
            "version": __version__,
            "protocol": 1,
            "capabilities": sorted(methods.METHODS),
            "pid": os.getpid(),
            "startedAt": self.started,
            "settings": {
                "commandName": settings.command_name,
                "statusKey": settings.status_key,
                "notificationAutoClearMs": settings.notification_auto_clear_ms,
                "queryTimeoutSeconds": settings.query.timeout_seconds,
            },
        }

    def _get(self, asked: RefParams) -> Row:
        found, settings = self.answers.get(asked), self.pipeline.settings
        known = self.pipeline.known.get(found["session"]["sessionId"])
        if known is not None and known.status is not None:
            clear = settings.notification_auto_clear_ms
            found["indexing"] = known.status | {"key": settings.status_key, "clearAfterMs": clear}
        return found

    async def _index(self, asked: params.Index) -> Row:
        pipeline = self.pipeline
        if asked.all:
            return await self._index_all(dry_run=asked.dry_run)
        if asked.ref is None:
            raise UsageError("ref is required")
        session_id = self.answers.row(asked.ref, cwd=asked.cwd, fuzzy=not asked.force)["sessionId"]
        await pipeline.read(int)  # let the loop learn what the store knows already
        known = pipeline.known.get(session_id)
        if known is None:
            raise NotFoundError("the session's file is gone", hint="its meta file is still there")
        if session_id in pipeline.running and not asked.force:
            return {"status": "already_running"}
        if not asked.force and known.info.new_users < pipeline.settings.min_new_user_messages:
            return {"status": "below_threshold"}
        waiter = pipeline.force(session_id)
        if not asked.wait:
            return {"status": "queued"}
        outcome = await asyncio.shield(waiter)
        if isinstance(outcome, IndexerdError):
            raise outcome
        return {"status": "indexed", "costUsd": outcome.usd, "model": outcome.model}

    async def _index_all(self, *, dry_run: bool) -> Row:
        """Queue all sessions with enough new messages, or estimate their cost."""
        pipeline = self.pipeline
        due = pipeline.due()
        if dry_run:
            models = pipeline.models.available()
            return await pipeline.indexer.estimate(due, pipeline.settings, models)
        pipeline.refuse_if_off()
        queued = []
        for session_id in due:
            with suppress(IndexerdError):
                pipeline.force(session_id)
                queued.append(session_id)
        return {"queued": queued}

    async def _as_sent(self, asked: RefParams) -> Row:
        """Return the exact prompt that an index run would send now; nothing is sent."""
        session_id, pipeline = (
            self.answers.row(asked.ref, cwd=asked.cwd)["sessionId"],
            self.pipeline,
        )
        library, settings = pipeline.library, pipeline.settings
        snapshot = await take_snapshot(library, pipeline.read, session_id, settings)
        return snapshot.as_sent(pipeline.models.available())

    async def _label(self, asked: params.Label) -> Row:
        label = params.EntryLabel(entry_id=asked.entry_id, text=asked.text)
        await self.sidecars.update(params.Update(ref=asked.ref, label=label))
        shown = clean_line(asked.text, NAME_MAX) if asked.text else None
        return {"sessionId": asked.ref, "entryId": asked.entry_id, "label": shown or None}

    def _subscribe(self, asked: params.Subscribe, peer: Peer) -> Row:
        """Send these events from now on, instead of those of an earlier subscription."""
        wanted = asked.events
        names = {one for name in wanted or () for one in (name, *ALIASES.get(name, ()))}

        def pass_on(event: dict[str, Any]) -> None:
            if wanted is None or event["event"] in names:
                peer.notify(event)

        peer.on_close()
        peer.on_close = self.pipeline.bus.subscribe(pass_on)
        return {"subscribed": "all" if wanted is None else wanted}
