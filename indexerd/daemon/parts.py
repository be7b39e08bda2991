"""The parts of a daemon that answer for themselves, put together.

Each gets what it needs of what all share, and nothing else. Data flows one way: what follows the
files knows nothing of these; they hear of growth, and ask.

A part is made when somebody asks for it first, and its modules are loaded then, by a thread: they
are half of all there is to load, and on most days nobody asks most of them (`LATE` says which).
Where another version was installed meanwhile, none is loaded any more: its modules beside those
that run would be a program that nobody has ever tried.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

import indexerd
from indexerd.daemon.answers import Answers
from indexerd.daemon.context_methods import Contexts, Resumes
from indexerd.daemon.forgotten import Forgotten
from indexerd.daemon.news import News
from indexerd.daemon.pipeline import Pipeline
from indexerd.daemon.purge import Purge
from indexerd.daemon.relations import Family
from indexerd.daemon.sidecar import Sidecars
from indexerd.digests.auto_digest import AutoDigests, Pending
from indexerd.errors import DaemonDownError
from indexerd.logs import Event
from indexerd.meta.writer import MetaWriter
from indexerd.models.base import Model
from indexerd.models.budget import Budget
from indexerd.models.telemetry import Telemetry
from indexerd.references.issued import Issued
from indexerd.references.looks import Looks
from indexerd.settings import Settings
from indexerd.store.ledger import Ledger

if TYPE_CHECKING:
    from indexerd.digests.compactions import Compactions
    from indexerd.digests.digests import Digests
    from indexerd.digests.stats import Stats
    from indexerd.digests.summaries import Summaries
    from indexerd.references.ask import Questions
    from indexerd.references.expand import References

# Methods of the socket, by the part that answers them and is loaded when one is asked first.
LATE = {
    "questions": ("query_session",),
    "references": ("expand",),
    "digests": ("digest", "history"),
    "compactions": ("compact", "branch_summary"),
    "stats": ("stats",),
}
MODULES = {
    "questions": "indexerd.references.ask",
    "references": "indexerd.references.expand",
    "digests": "indexerd.digests.digests",
    "compactions": "indexerd.digests.compactions",
    "stats": "indexerd.digests.stats",
}


@dataclass(frozen=True, slots=True)
class Shared:
    """What parts are made of. `models()` are those that a question may go to, in order."""

    pipeline: Pipeline
    answers: Answers
    ledger: Ledger
    budget: Budget
    telemetry: Telemetry
    writer: MetaWriter
    forgotten: Forgotten
    news: News
    settings: Callable[[], Settings]
    models: Callable[[], list[Model]]
    notify: Callable[[Event, str, dict[str, Any]], None]
    at_home: Callable[[list[str]], list[str]]  # globs with the user's home in the place of `~`
    clock: Callable[[], float]
    since: float  # when the last daemon was at work; where there was none, when this one began


def installed() -> tuple[int, ...]:
    """What tells the program on disk from another that takes its place."""
    try:
        found = os.stat(indexerd.__file__)  # noqa: PTH116 - nothing else of pathlib is needed
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns


class Parts:
    """Every part of one daemon."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._installed = installed()
        pipeline = shared.pipeline
        self.sidecars = Sidecars(pipeline, shared.answers, shared.writer)
        self.looks = Looks(pipeline.library, pipeline.read)
        self._issued = Issued(shared.ledger, pipeline.read, shared.clock)
        self._resumes = Resumes(shared.ledger, pipeline.read, shared.clock)
        self.contexts = self._contexts()
        self.auto_digests = self._auto_digests()
        self.purge = Purge(
            pipeline,
            shared.answers,
            self.sidecars,
            writer=shared.writer,
            forgotten=shared.forgotten,
            forget=(self._issued.forget, self._resumes.forget),
            clock=shared.clock,
        )
        self.family = Family(shared.answers)
        pipeline.on_meeting = self.auto_digests.met
        pipeline.on_growth = self.auto_digests.grown

    def methods(self) -> dict[str, Any]:
        """What they answer, by its name."""
        found: dict[str, Any] = {}
        for part in (self.contexts, self.purge, self.family):
            found |= part.methods()
        for late, names in LATE.items():
            found |= {name: partial(self._answer, late, name) for name in names}
        return found

    async def _answer(self, part: str, name: str, params: dict[str, Any], peer: Any) -> Any:
        made = await self._part(part)
        found = made.methods()[name](params, peer)
        return await found if isawaitable(found) else found

    async def _part(self, name: str) -> Any:
        """A part that is loaded late; the loop goes on meanwhile. DaemonDownError: see the head."""
        if name not in vars(self):
            if installed() != self._installed:
                raise DaemonDownError(
                    "indexerd was replaced on disk since this daemon began",
                    hint="restart the daemon, and ask again",
                )
            await asyncio.to_thread(import_module, MODULES[name])
        return getattr(self, name)

    async def _make_digest(self, session_id: str) -> dict[str, Any]:
        """Make a digest that fell due by itself."""
        digests: Digests = await self._part("digests")
        return await digests.make(session_id, manual=False)

    def _auto_digests(self) -> AutoDigests:
        shared, pipeline = self._shared, self._shared.pipeline
        return AutoDigests(
            self._make_digest,
            pipeline.known,
            settings=shared.settings,
            off=lambda: pipeline.indexing_off,
            news=shared.news,
            clock=shared.clock,
            pending=Pending(shared.ledger, pipeline.read),
            ready=pipeline.scanned.wait,
            since=shared.since,
        )

    def _contexts(self) -> Contexts:
        shared = self._shared
        return Contexts(
            self.sidecars,
            shared.answers,
            shared.news,
            resumes=self._resumes,
            record=shared.telemetry.append,
            clock=shared.clock,
        )

    # -- loaded late ---------------------------------------------------------------------

    @cached_property
    def questions(self) -> Questions:
        """Questions about one session."""
        from indexerd.references.ask import Questions  # noqa: PLC0415 - see the head

        shared = self._shared
        return Questions(
            shared.pipeline.library,
            shared.answers,
            read=shared.pipeline.read,
            models=shared.models,
            settings=shared.settings,
            budget=shared.budget,
            telemetry=shared.telemetry,
            clock=shared.clock,
            notify=shared.notify,
        )

    @cached_property
    def references(self) -> References:
        """What `@@` stands for."""
        from indexerd.references.expand import References  # noqa: PLC0415 - see the head

        shared = self._shared
        return References(
            shared.answers,
            self._issued,
            ask=self._ask,
            home=shared.pipeline.library.home,
            settings=shared.settings,
            record=shared.telemetry.append,
            ready=shared.pipeline.scanned.is_set,
            clock=shared.clock,
        )

    async def _ask(self, session_id: str, question: str, **more: Any) -> dict[str, Any]:
        """A question in a prompt."""
        questions: Questions = await self._part("questions")
        return await questions.answer(session_id, question, **more)

    @cached_property
    def _summaries(self) -> Summaries:
        from indexerd.digests.summaries import Summaries  # noqa: PLC0415 - see the head

        shared = self._shared
        return Summaries(
            budget=shared.budget,
            record=shared.telemetry.append,
            clock=shared.clock,
            notify=shared.notify,
        )

    @cached_property
    def digests(self) -> Digests:
        """Digests of long sessions."""
        from indexerd.digests.digests import Digests  # noqa: PLC0415 - see the head

        shared = self._shared
        made = Digests(
            shared.answers,
            looks=self.looks,
            summaries=self._summaries,
            models=self._summarisers,
            settings=shared.settings,
            writer=shared.writer,
            news=shared.news,
            clock=shared.clock,
            excluded=lambda: shared.at_home(shared.settings().digest.exclude),
        )
        made.on_history = self.contexts.opened
        return made

    @cached_property
    def compactions(self) -> Compactions:
        """Sums of sessions and branches that go on elsewhere."""
        from indexerd.digests.compactions import Compactions  # noqa: PLC0415 - see the head

        shared = self._shared
        return Compactions(
            shared.answers,
            looks=self.looks,
            summaries=self._summaries,
            models=self._summarisers,
            settings=shared.settings,
            writer=shared.writer,
            clock=shared.clock,
        )

    @cached_property
    def stats(self) -> Stats:
        """How full a session's context is."""
        from indexerd.digests.stats import Stats  # noqa: PLC0415 - see the head

        return Stats(self._shared.answers, looks=self.looks, settings=self._shared.settings)

    def _summarisers(self) -> list[Model]:
        """The models of digests and compaction: the one that was set for them alone (S2.19)."""
        key = self._shared.settings().digest.model
        usable = self._shared.models()
        if not key:
            return usable
        model = self._shared.pipeline.models.get(key)
        off = self._shared.pipeline.indexing_off
        return [one for one in (model,) if not (off and one.remote)]
