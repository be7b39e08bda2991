"""The handlers that look at sessions, by the names of their methods.

A daemon answers with them, and so does `daemon/local.py` in any other process: `Services` is all
the difference. A handler takes the params that `protocol/params.py` declares, and gives a result,
or an awaitable of one.

Questions, references and digests are imported when somebody asks for them first, by a thread:
they are half of all there is to load, and on most days nobody asks. Where another version was
installed meanwhile none is imported any more: its modules beside those that run would be a
program that nobody has ever tried.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

import indexerd
from indexerd.daemon.answers import Answers
from indexerd.daemon.library import Library
from indexerd.daemon.trees import VIEWS, make_branch, open_session, show
from indexerd.errors import DaemonDownError
from indexerd.logs import Event
from indexerd.meta import context_sets as sets
from indexerd.meta.writer import MetaWriter
from indexerd.models.base import Model
from indexerd.models.budget import Budget
from indexerd.protocol import params
from indexerd.protocol.params import RefParams
from indexerd.references.injection_cache import InjectionCache
from indexerd.settings import Settings
from indexerd.sources.session_reader import SessionReaderPool

if TYPE_CHECKING:
    from indexerd.digests.digest import Digests
    from indexerd.digests.summarize import Events
    from indexerd.references.expand import References
    from indexerd.references.questions import Questions

Handler = Callable[[Any], Any]

# Methods whose handler is imported when it is first asked for: module, attribute, its method.
LATE = {
    "query_session": ("indexerd.references.questions", "questions", "query"),
    "expand": ("indexerd.references.expand", "references", "expand"),
    "digest": ("indexerd.digests.digest", "digests", "digest"),
    "history": ("indexerd.digests.digest", "digests", "history"),
    "compact": ("indexerd.digests.digest", "digests", "compact"),
    "branch_summary": ("indexerd.digests.digest", "digests", "branch_summary"),
    "stats": ("indexerd.digests.digest", "digests", "stats"),
}


def stored_methods(answers: Answers) -> dict[str, Handler]:
    """The handlers that need the store and meta files alone, by their methods."""

    async def search(asked: params.Search) -> dict[str, Any]:
        return await asyncio.to_thread(answers.search, asked)

    async def family(asked: RefParams) -> dict[str, Any]:
        row = answers.row(asked.ref, cwd=asked.cwd)  # names belong to the loop
        return await asyncio.to_thread(answers.family_of, row)

    async def get_relevant_context(asked: params.GetContext) -> dict[str, Any]:
        row = answers.row(asked.session, cwd=asked.cwd)
        held = await asyncio.to_thread(answers.held, row)
        text, context = sets.told(held.context, asked.set_name)
        where = {"sessionId": row["sessionId"], "cwd": row["cwd"]}
        return {"text": text, "context": context, **where}

    async def footer(asked: RefParams) -> dict[str, Any]:
        row = answers.row(asked.ref, cwd=asked.cwd)
        held = await asyncio.to_thread(answers.held, row)
        return {"sessionId": row["sessionId"], **sets.footer(held.context, row["cwd"])}

    return {
        "list": answers.list,
        "get": answers.get,
        "resolve": answers.resolve,
        "complete": answers.complete,
        "search": search,
        "family": family,
        "get_relevant_context": get_relevant_context,
        "footer": footer,
    }


@dataclass(frozen=True, slots=True)
class Services:
    """What the handlers that read sessions are made of."""

    answers: Answers
    library: Library | None  # None: no session can be opened
    read: Callable[..., Awaitable[Any]]  # does work in the thread that owns the library
    settings: Callable[[], Settings]
    models: Callable[[], list[Model]]  # for questions, in the user's order
    summarizers: Callable[[], list[Model]]  # for digests and compactions
    budget: Budget
    record: Callable[[Mapping[str, Any]], Any]  # writes a row of telemetry
    notify: Callable[[Event, str, dict[str, Any]], None]
    writer: MetaWriter
    injected: InjectionCache | None  # None: what is injected is not kept
    ready: Callable[[], bool]  # whether all sessions are known
    on_history: Callable[[str], object]  # hears whose history was opened
    events: Events
    excluded: Callable[[], list[str]]  # globs of sessions that get no digests
    clock: Callable[[], float]


def installed() -> tuple[int, ...]:
    """What tells the program on disk from another that takes its place."""
    try:
        found = os.stat(indexerd.__file__)  # noqa: PTH116 - nothing else of pathlib is needed
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns


class SessionMethods:
    """The handlers, and what they share."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._installed = installed()
        if (library := services.library) is not None:
            opener = partial(open_session, library)
            self.pool = SessionReaderPool(opener, library.reread, services.read)

    def table(self) -> dict[str, Handler]:
        """Every handler, by its method."""
        looks = {method: partial(self._look, partial(show, method)) for method in VIEWS}
        late = {method: self._late(*where) for method, where in LATE.items()}
        return looks | late | {"branch": self._branch}

    async def _look(self, work: Callable[..., Any], asked: Any) -> Any:
        """Do work with a session that is open at a leaf."""
        row = self._services.answers.row(asked.ref, cwd=asked.cwd)
        return await self.pool.read(row["sessionId"], asked.leaf, partial(work, asked))

    async def _branch(self, asked: params.Branch) -> Any:
        now = self._services.clock()
        return await self._look(lambda *given: make_branch(given[0], now, *given[1:]), asked)

    # -- imported late -------------------------------------------------------------------

    def _late(self, module: str, part: str, method: str) -> Handler:
        async def handler(asked: Any) -> Any:
            await self._load(module, part)
            found = getattr(getattr(self, part), method)(asked)
            return await found if isawaitable(found) else found

        return handler

    async def _load(self, module: str, part: str) -> None:
        """Import a module in a thread. DaemonDownError: another version was installed."""
        if part in vars(self):
            return
        if installed() != self._installed:
            raise DaemonDownError(
                "indexerd was replaced on disk since this daemon began",
                hint="restart the daemon, and ask again",
            )
        await asyncio.to_thread(import_module, module)

    async def make_digest(self, session_id: str) -> dict[str, Any]:
        """Make a digest that fell due by itself."""
        await self._load(LATE["digest"][0], "digests")
        return await self.digests.make(session_id, manual=False)

    async def ask(self, session_id: str, question: str, **more: Any) -> dict[str, Any]:
        """Answer a question that stands in a prompt."""
        if self._services.library is None:
            raise DaemonDownError("questions need the daemon")
        await self._load(LATE["query_session"][0], "questions")
        return await self.questions.answer(session_id, question, **more)

    @cached_property
    def questions(self) -> Questions:
        """Questions about one session."""
        from indexerd.references.questions import Questions  # noqa: PLC0415 - see the head

        services = self._services
        return Questions(
            services.answers,
            pool=self.pool,
            models=services.models,
            settings=services.settings,
            budget=services.budget,
            record=services.record,
            clock=services.clock,
            notify=services.notify,
        )

    @cached_property
    def references(self) -> References:
        """What `@@` stands for."""
        from indexerd.references.expand import References  # noqa: PLC0415 - see the head

        services = self._services
        return References(
            services.answers,
            services.injected,
            ask=self.ask,
            home=services.answers.home,
            settings=services.settings,
            record=services.record,
            ready=services.ready,
            clock=services.clock,
        )

    @cached_property
    def digests(self) -> Digests:
        """Digests of long sessions."""
        from indexerd.digests.digest import Digests  # noqa: PLC0415 - see the head
        from indexerd.digests.summarize import Services  # noqa: PLC0415 - see the head

        services = self._services
        return Digests(
            Services(
                rows=services.answers,
                pool=self.pool,
                settings=services.settings,
                models=services.summarizers,
                budget=services.budget,
                record=services.record,
                writer=services.writer,
                events=services.events,
                on_history=services.on_history,
                excluded=services.excluded,
                clock=services.clock,
            )
        )
