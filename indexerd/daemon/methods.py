"""The method table: the handler of each method of the socket.

`ReadMethods` has the handlers that only read. `Api` is the daemon's whole table, and dispatches
requests; `LocalBackend` answers without a daemon. A handler takes the params that
`protocol/params.py` declares, and returns a result or an awaitable result.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from indexerd import __version__
from indexerd.daemon.answers import Answers, Row
from indexerd.daemon.event_bus import ALIASES, EventBus
from indexerd.daemon.forgotten import Forgotten
from indexerd.daemon.library import Library
from indexerd.daemon.open_session import branches, make_branch, open_session, read_alone
from indexerd.digests.digest import Digests
from indexerd.errors import DaemonDownError, IndexerdError, NotFoundError, UsageError
from indexerd.indexing.indexer import take_snapshot
from indexerd.meta.writer import MetaWriter
from indexerd.models.budget import Budget
from indexerd.models.extractive import Extractive
from indexerd.models.registry import Models
from indexerd.paths import Places, directory_of
from indexerd.privacy.exclusions import Exclusions
from indexerd.privacy.sanitize import clean_line
from indexerd.protocol import methods, params, wire
from indexerd.protocol.limits import NAME_MAX
from indexerd.protocol.params import Params, RefParams
from indexerd.references.expand import expand
from indexerd.references.questions import Questions
from indexerd.references.services import Services
from indexerd.search.index import TextIndex
from indexerd.search.meaning import Meaning
from indexerd.sessions import tree_answers
from indexerd.sessions.context import ReadRow
from indexerd.settings import read_config
from indexerd.sources.projects import Projects
from indexerd.sources.roots import session_roots
from indexerd.sources.session_reader import OpenSession, SessionReaderPool
from indexerd.store.store import StateStore
from indexerd.times import iso, iso_of_ms

if TYPE_CHECKING:  # a command without a daemon needs none of these
    from indexerd.daemon.fleet import FleetPart
    from indexerd.daemon.pipeline import Pipeline
    from indexerd.daemon.purge import Purge
    from indexerd.daemon.sidecars import Sidecars
    from indexerd.daemon.unix_server import Peer

Handler = Callable[[Any], Any]
FIRST_SCAN_PATIENCE = 5.0  # seconds
_DIGESTS = ("digest", "history", "compact", "branch_summary", "stats")


class ReadMethods:
    """The handlers that read sessions."""

    def __init__(self, answers: Answers, services: Services) -> None:
        self.answers = answers
        self._pool = services.pool
        self.digests = Digests(services)
        self._services, self._questions = services, Questions(services)

    def table(self) -> dict[str, Handler]:
        answers = self.answers
        return {
            "list": answers.list,
            "counts": answers.counts,
            "usage": lambda a: asyncio.to_thread(answers.usage, a, self._services.budget.path),
            "get": answers.get,
            "resolve": answers.resolve,
            "complete": answers.complete,
            "search": lambda args: asyncio.to_thread(answers.search, args),
            "family": partial(self._of_row, answers.family),
            "footer": partial(self._of_row, answers.footer),
            "get_relevant_context": partial(self._of_row, answers.context),
            "query_session": self._questions.query,
            "expand": partial(expand, self._services, self._questions.answer),
            "branch": self._branch,
            "tree": partial(self._view, tree_answers.tree),
            "branches": partial(self._view, branches),
            "path": partial(self._view, tree_answers.path),
            "context": partial(self._view, tree_answers.context),
            **{name: getattr(self.digests, name) for name in _DIGESTS},
        }

    async def _of_row(self, answer: Callable[[Row, Any], Row], args: Any) -> Row:
        row = self.answers.row_of(args)  # names belong to the event loop
        return await asyncio.to_thread(answer, row, args)

    async def _view(self, view: Callable[[OpenSession, ReadRow, Any], Row], args: Any) -> Row:
        def answer(session: OpenSession) -> Row:
            with session.reading() as read:
                return view(session, read, args)

        return await self._pool.read(self.answers.row_of(args)["sessionId"], args.leaf, answer)

    async def _branch(self, args: params.Branch) -> Row:
        row = self.answers.row_of(args)
        make = partial(make_branch, args, directory_of(row))
        return await self._pool.read(row["sessionId"], args.leaf, make)


class Api(ReadMethods):
    """One daemon's answers."""

    def __init__(
        self,
        answers: Answers,
        services: Services,
        *,
        pipeline: Pipeline,
        sidecars: Sidecars,
        purge: Purge,
        fleet: FleetPart,
        status: Callable[[], Awaitable[Row]],
    ) -> None:
        super().__init__(answers, services)
        self.pipeline = pipeline
        self._sidecars = sidecars
        self._started = iso(time.time())
        self._handlers = self.table() | {  # `get` replaces that of ReadMethods
            "hello": self._hello,
            "status": lambda _: status(),
            "get": self._get,
            "index": self._index,
            "as_sent": self._as_sent,
            "update": sidecars.update,
            "label": self._label,
            "set_relevant_context": sidecars.set,
            "resume_context": sidecars.resume,
            "purge": purge.purge,
            "fleet": fleet.command,
            "move": self._move,
        }

    async def handle(self, request: wire.Request, peer: Peer) -> Any:
        """Answer one request; just after a start, most methods wait for the first scan."""
        method = request.method
        if method not in methods.METHODS:
            return wire.unknown_method(request)
        args = methods.decode_params(method, request.params)
        if isinstance(args, params.Subscribe):
            return self._subscribe(args, peer)
        if method not in {"hello", "status"}:
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_SCAN_PATIENCE):
                    await self.pipeline.scanned.wait()
        if cwd := getattr(args, "cwd", None):
            args = msgspec.structs.replace(args, cwd=await self.pipeline.asked(cwd))
        if methods.METHODS[method].exact and isinstance(args, RefParams):
            row = self.answers.row(args.ref, cwd=args.cwd, fuzzy=False)
            args = msgspec.structs.replace(args, ref=row["sessionId"])
        answer = self._handlers[method](args)
        return await answer if isinstance(answer, Awaitable) else answer

    def _hello(self, _asked: Params) -> Row:
        settings = self.pipeline.settings
        return {
            "version": __version__,
            "protocol": 1,
            "capabilities": sorted(methods.METHODS),
            "pid": os.getpid(),
            "startedAt": self._started,
            "settings": {
                "commandName": settings.command_name,
                "statusKey": settings.status_key,
                "notificationAutoClearMs": settings.notification_auto_clear_ms,
                "queryTimeoutSeconds": settings.query.timeout_seconds,
            },
        }

    def _get(self, args: RefParams) -> Row:
        answer, settings = self.answers.get(args), self.pipeline.settings
        known = self.pipeline.known.get(answer["session"]["sessionId"])
        if known is not None and known.status is not None:
            clear = settings.notification_auto_clear_ms
            answer["indexing"] = known.status | {"key": settings.status_key, "clearAfterMs": clear}
        return answer

    async def _index(self, args: params.Index) -> Row:
        pipeline = self.pipeline
        if args.all:
            return await self._index_all(dry_run=args.dry_run)
        if args.ref is None:
            raise UsageError("ref is required")
        row = self.answers.row(args.ref, cwd=args.cwd, fuzzy=not args.force)
        session_id = row["sessionId"]
        await pipeline.read(int)  # wait for updates that are already stored to reach the loop
        known = pipeline.known.get(session_id)
        if known is None:
            place = f"on {row['machine']}" if row.get("machine") else "gone"
            raise NotFoundError(f"the session's file is {place}", hint="it cannot be indexed here")
        if session_id in pipeline.running and not args.force:
            return {"status": "already_running"}
        if not args.force and known.info.new_users < pipeline.settings.min_new_user_messages:
            return {"status": "below_threshold"}
        waiter = pipeline.force(session_id)
        if not args.wait:
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

    async def _move(self, args: params.Move) -> Row:
        """Note or take back the move of a project; list the moves."""
        answer: Row = {}
        if args.old or args.new:
            old, new = map(os.path.normpath, (args.old or "", args.new or ""))
            if not (old.startswith("/") and new.startswith("/")):
                raise UsageError("old and new must be absolute paths")
            if old == new:
                raise UsageError("old and new are the same directory")
            if "" in (old.strip("/"), new.strip("/")) and not args.undo:
                raise UsageError("the root directory is no project", hint="name the project's")
            answer["sessions"] = await self.pipeline.move(old, new, undo=args.undo)
        moves = self.pipeline.library.projects.moves
        return answer | {"moves": [move._asdict() | {"at": iso_of_ms(move.at)} for move in moves]}

    async def _as_sent(self, args: RefParams) -> Row:
        """Return the exact prompt that an index run would send now; nothing is sent."""
        session_id, pipeline = self.answers.row_of(args)["sessionId"], self.pipeline
        library, settings = pipeline.library, pipeline.settings
        snapshot = await take_snapshot(library, pipeline.read, session_id, settings)
        return snapshot.as_sent(pipeline.models.available())

    async def _label(self, args: params.Label) -> Row:
        label = params.EntryLabel(entry_id=args.entry_id, text=args.text)
        await self._sidecars.update(params.Update(ref=args.ref, label=label))
        shown = clean_line(args.text, NAME_MAX) if args.text else None
        return {"sessionId": args.ref, "entryId": args.entry_id, "label": shown or None}

    def _subscribe(self, args: params.Subscribe, peer: Peer) -> Row:
        """Send these events from now on; they replace an earlier subscription's."""
        wanted = args.events
        names = {alias for name in wanted or () for alias in (name, *ALIASES.get(name, ()))}

        def pass_on(event: dict[str, Any]) -> None:
            if wanted is None or event["event"] in names:
                peer.notify(event)

        peer.on_close()
        peer.on_close = self.pipeline.bus.subscribe(pass_on)
        return {"subscribed": "all" if wanted is None else wanted}


class LocalBackend:
    """Answers methods in this process, as `Client` does through the socket. Not thread-safe.

    The store is opened read-only, a session's tree is read from its file, and questions and
    compactions use the built-in model. Nothing leaves the machine or is stored.
    """

    def __init__(
        self,
        places: Places,
        env: Mapping[str, str],
        home: Path,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`warn` is called once if answers may be incomplete."""
        self._places = places
        self._env = env
        self._user_home = home
        self.settings = read_config(places, env).settings
        self._projects = Projects(places.state_dir)
        store = StateStore(places.store, readonly=True)
        texts = TextIndex(places.search, store, readonly=True)
        texts.open()
        if not places.store.exists():
            warn("nothing is stored yet: `indexerd run --once` reads your sessions")
        elif store.problem:
            warn(store.problem)
        exclusions = Exclusions(lambda: self.settings.privacy.exclude)
        exclusions.forgotten = Forgotten(places.state_dir).agents
        # Sessions that were excluded since a daemon last ran.
        rows = store.select("SELECT id, file, cwd FROM session")
        if hidden := {key for key, file, cwd in rows if exclusions.match(file, cwd, key)}:
            store.leave_out(hidden)
        meaning = Meaning(texts, places.vectors)
        self.answers = Answers(texts, home=self._meta_dir, meaning=meaning)

    def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """Return the method's result; DaemonDownError if only a daemon can answer."""
        if methods.METHODS[method].needs_daemon:
            raise DaemonDownError(f"{method} needs a running daemon")
        return asyncio.run(self._answer(method, methods.decode_params(method, params)))

    async def _answer(self, method: str, args: Any) -> Any:
        if cwd := getattr(args, "cwd", None):
            args = msgspec.structs.replace(args, cwd=self._projects.asked(cwd))
        with ExitStack() as stack:

            def read(session_id: str) -> Library:
                row, env, home = self.answers.by_id(session_id), self._env, self._user_home
                return stack.enter_context(read_alone(row, self.settings, env, home))

            def open_(session_id: str, leaf: str | None) -> OpenSession | None:
                if method == "expand":
                    raise DaemonDownError("questions need the daemon")
                return open_session(read(session_id), session_id, leaf)

            if method == "as_sent":
                session_id = self.answers.row_of(args)["sessionId"]
                snapshot = await take_snapshot(read(session_id), _here, session_id, self.settings)
                return snapshot.as_sent(Models(self.settings, self._env).available())
            pool = SessionReaderPool(open_, _here)
            answer = ReadMethods(self.answers, self._services(pool)).table()[method](args)
            return await answer if isawaitable(answer) else answer

    def _services(self, pool: SessionReaderPool) -> Services:
        bus = EventBus()  # without subscribers and log
        return Services(
            rows=self.answers,
            pool=pool,
            settings=lambda: self.settings,
            models=lambda: [Extractive()],
            summarizers=lambda: [Extractive()],
            budget=Budget(self._places.budget, lambda: self.settings, time.time, bus.log),
            events=bus,
            writer=MetaWriter(),
        )

    def _meta_dir(self, session_id: str) -> str | None:
        file = self.answers.by_id(session_id)["sessionFile"]
        roots = session_roots(self.settings, self._env, self._user_home)
        return next((root.meta for root in roots if root.contains(file)), None)


async def _here(work: Callable[..., Any], *args: Any) -> Any:
    return work(*args)
