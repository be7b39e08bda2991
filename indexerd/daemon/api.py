"""Every method of the socket: typed question in, the result of interfaces.md §5 out.

Formats nothing and prints nothing. Reads are answered from memory and catalog; they never wait
for indexing, and only shortly for the first scan after a start.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol

from indexerd import __version__
from indexerd.daemon.answers import Answers, flag, word
from indexerd.daemon.news import ALIASES
from indexerd.daemon.pipeline import Pipeline
from indexerd.daemon.sidecar import Sidecars
from indexerd.daemon.trees import Trees
from indexerd.errors import IndexerdError, NotFoundError, UsageError
from indexerd.indexing.indexing import Done
from indexerd.indexing.plan import plan
from indexerd.indexing.preview import as_sent
from indexerd.models.budget import Budget
from indexerd.protocol import wire
from indexerd.references.looks import Looks
from indexerd.search.names_soon import NamesSoon
from indexerd.times import iso

FIRST_SCAN_PATIENCE = 5.0  # seconds
PROTOCOL = 1
_AT_ONCE = frozenset({"hello", "status", "subscribe"})
# What changes something, and names its session by `ref`; others that do see to it themselves.
_CHANGES = frozenset({"update", "label", "branch", "digest", "branch_summary"})


class Peer(Protocol):
    """Whoever asks, as far as answers care: it may want to hear of events."""

    def notify(self, event: Mapping[str, Any]) -> bool:
        """Send an event, never waiting."""
        ...

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back once when the connection ends."""
        ...


Method = Callable[[dict[str, Any], Peer], Any]


class Api:
    """One daemon's answers."""

    def __init__(
        self,
        pipeline: Pipeline,
        answers: Answers,
        budget: Budget,
        sidecars: Sidecars,
        clock: Callable[[], float],
        *,
        status: Callable[[], dict[str, Any]],
        looks: Looks,
        more: Mapping[str, Method] | None = None,
    ) -> None:
        """`status()` says how things stand; `more` are methods of parts that answer themselves."""
        self._told = status
        self._pipeline = pipeline
        self._answers = answers
        self._names = NamesSoon(answers)
        self._budget = budget
        self._sidecars = sidecars
        self._clock = clock
        self._started = clock()
        self._ears: dict[Peer, Callable[[], None]] = {}  # who subscribed, and what ends that
        self._methods: dict[str, Method] = {
            "hello": self._hello,
            "status": self._status,
            "list": lambda params, _: answers.page(params),
            "get": self._get,
            "resolve": lambda params, _: answers.resolve(params),
            "complete": lambda params, _: answers.complete(params),
            "search": self._search,
            "index": self._index,
            "as_sent": self._as_sent,
            "subscribe": self._subscribe,
            "update": self._update,
        }
        trees = Trees(answers, looks=looks, update=self._update, clock=clock)
        self._methods |= trees.methods() | dict(more or {})
        for name in _CHANGES & self._methods.keys():
            self._methods[name] = partial(self._certainly, self._methods[name])

    def handle(self, request: wire.Request, peer: Peer) -> Any:
        """Answer one request, at once where that is possible."""
        method = self._methods.get(request.method)
        if method is None:
            return wire.unknown_method(request)
        if request.method in _AT_ONCE:
            return method(request.params, peer)
        wanted = self._names.wanted
        if self._pipeline.scanned.is_set() and not wanted(request.method, request.params):
            return method(request.params, peer)
        return self._soon(method, request, peer)

    async def _soon(self, method: Method, request: wire.Request, peer: Peer) -> Any:
        """Wait a little for the first scan, and for names, then answer with what is known."""
        try:
            async with asyncio.timeout(FIRST_SCAN_PATIENCE):
                await self._pipeline.scanned.wait()
        except TimeoutError:
            pass
        for _ in range(2):  # names, and what fuzzy ones want
            if self._names.wanted(request.method, request.params):
                await self._names.come()
        found = method(request.params, peer)
        return await found if isinstance(found, Awaitable) else found

    def _certainly(self, method: Method, params: dict[str, Any], peer: Peer) -> Any:
        """Have a method change the session that is meant, and no other: it is given the id."""
        ref = params.get("ref")
        if isinstance(ref, str) and ref:
            row = self._answers.certain(ref, cwd=word(params, "cwd"))
            params = params | {"ref": row["sessionId"]}
        return method(params, peer)

    # -- methods -------------------------------------------------------------------------

    def _hello(self, _params: dict[str, Any], _peer: Peer) -> dict[str, Any]:
        settings = self._pipeline.settings
        return {
            "version": __version__,
            "protocol": PROTOCOL,
            "capabilities": sorted(self._methods),
            "pid": os.getpid(),
            "startedAt": iso(self._started),
            "settings": {
                "commandName": settings.command_name,
                "statusKey": settings.status_key,
                "notificationAutoClearMs": settings.notification_auto_clear_ms,
                "queryTimeoutSeconds": settings.query.timeout_seconds,
            },
        }

    def _status(self, _params: dict[str, Any], _peer: Peer) -> dict[str, Any]:
        return self._told()

    def _get(self, params: dict[str, Any], _peer: Peer) -> dict[str, Any]:
        found: dict[str, Any] = self._answers.get(params, self._meta_dir)
        known = self._pipeline.known.get(found["session"]["sessionId"])
        if known is not None and known.status is not None:
            settings = self._pipeline.settings
            found["indexing"] = known.status | {
                "key": settings.status_key,
                "clearAfterMs": settings.notification_auto_clear_ms,
            }
        return found

    def _meta_dir(self, row: dict[str, Any]) -> str | None:
        return self._pipeline.library.home(row["sessionId"])

    async def _search(self, params: dict[str, Any], _peer: Peer) -> dict[str, Any]:
        behind = self._pipeline.library.texts.unread
        return await asyncio.to_thread(self._answers.search, params, behind)

    async def _index(self, params: dict[str, Any], _peer: Peer) -> dict[str, Any]:
        if flag(params, "all"):
            return await plan(self._pipeline, self._budget, dry_run=flag(params, "dryRun"))
        force, wait = flag(params, "force"), flag(params, "wait")
        row = self._answers.row(_ref(params), cwd=word(params, "cwd"), fuzzy=not force)
        session_id = row["sessionId"]
        await self._pipeline.read(int)  # let the loop learn what the catalog knows already
        known = self._pipeline.known.get(session_id)
        if known is None:
            raise NotFoundError("the session's file is gone", hint="its meta file still stands")
        enough = known.card.new_users >= self._pipeline.settings.min_new_user_messages
        if session_id in self._pipeline.jobs.running and not force:
            return {"status": "already_running"}
        if not force and not enough:
            return {"status": "below_threshold"}
        waiter = self._pipeline.force(session_id)
        if not wait:
            return {"status": "queued"}
        outcome = await asyncio.shield(waiter)
        if isinstance(outcome, IndexerdError):
            raise outcome
        return _indexed(outcome)

    async def _as_sent(self, params: dict[str, Any], _peer: Peer) -> dict[str, Any]:
        """The exact prompt that an indexing run would send now; nothing is sent."""
        session_id = self._answers.row(_ref(params), cwd=word(params, "cwd"))["sessionId"]
        pipeline = self._pipeline
        run = await pipeline.runner.indexer.prepare(session_id, pipeline.settings)
        return as_sent(run, pipeline.models)

    def _subscribe(self, params: dict[str, Any], peer: Peer) -> dict[str, Any]:
        """Send these events from now on, in the place of those asked for before."""
        wanted = params.get("events")
        if wanted is not None and not (
            isinstance(wanted, list) and all(isinstance(one, str) for one in wanted)
        ):
            raise UsageError("events is a list of event names")

        names = {one for name in wanted or () for one in (name, *ALIASES.get(name, ()))}

        def pass_on(event: dict[str, Any]) -> None:
            if wanted is None or event["event"] in names:
                peer.notify(event)

        before = self._ears.pop(peer, None)
        self._ears[peer] = self._pipeline.news.subscribe(pass_on)
        if before is None:
            peer.on_close(partial(self._unsubscribe, peer))
        else:  # it wants others now
            before()
        return {"subscribed": "all" if wanted is None else wanted}

    def _unsubscribe(self, peer: Peer) -> None:
        self._ears.pop(peer)()

    async def _update(self, params: dict[str, Any], _peer: Peer) -> dict[str, Any]:
        """Set or clear the user's title, labels, hint and context sets of a session."""
        row = self._answers.row(_ref(params), cwd=word(params, "cwd"))
        return await self._sidecars.update(row, params)


def _indexed(done: Done) -> dict[str, Any]:
    return {"status": "indexed", "costUsd": done.usd, "model": done.model}


def _ref(params: dict[str, Any]) -> str:
    ref = params.get("ref")
    if not isinstance(ref, str) or not ref:
        raise UsageError("ref is required, and is a string")
    return ref
