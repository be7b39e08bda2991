"""The parts of a daemon that answer for themselves, put together.

Each gets what it needs of what all share, and nothing else. Data flows one way: what follows the
files knows nothing of these; they hear of growth, and ask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from indexerd.io.forgotten import Forgotten
from indexerd.io.ledger import Ledger
from indexerd.io.logs import Event
from indexerd.io.telemetry import Telemetry
from indexerd.io.writer import MetaWriter
from indexerd.llm.base import Model
from indexerd.service.answers import Answers
from indexerd.service.auto_digest import AutoDigests, Pending
from indexerd.service.compactions import Compactions
from indexerd.service.contexts import Contexts, Resumes
from indexerd.service.digests import Digests
from indexerd.service.family import Family
from indexerd.service.issued import Issued
from indexerd.service.looks import Looks
from indexerd.service.news import News
from indexerd.service.pipeline import Pipeline
from indexerd.service.purge import Purge
from indexerd.service.questions import Questions
from indexerd.service.references import References
from indexerd.service.sidecar import Sidecars
from indexerd.service.stats import Stats
from indexerd.service.summaries import Summaries
from indexerd.service.treasury import Treasury
from indexerd.settings import Settings


@dataclass(frozen=True, slots=True)
class Shared:
    """What parts are made of. `models()` are those that a question may go to, in order."""

    pipeline: Pipeline
    answers: Answers
    ledger: Ledger
    treasury: Treasury
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


class Parts:
    """Every part of one daemon."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        pipeline = shared.pipeline
        self.sidecars = Sidecars(pipeline, shared.answers, shared.writer)
        self.looks = Looks(pipeline.library, pipeline.read)
        self._issued = Issued(shared.ledger, pipeline.read, shared.clock)
        self._resumes = Resumes(shared.ledger, pipeline.read, shared.clock)
        self.questions = self._questions()
        self.references = self._references()
        self.contexts = self._contexts()
        self._summaries = Summaries(
            treasury=shared.treasury,
            record=shared.telemetry.append,
            clock=shared.clock,
            notify=shared.notify,
        )
        self.digests = self._digests()
        self.compactions = Compactions(
            shared.answers,
            looks=self.looks,
            summaries=self._summaries,
            models=self._summarisers,
            settings=shared.settings,
            writer=shared.writer,
            clock=shared.clock,
        )
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
        self.stats = Stats(shared.answers, looks=self.looks, settings=shared.settings)
        pipeline.on_meeting = self.auto_digests.met
        pipeline.on_growth = self.auto_digests.grown
        self.digests.on_history = self.contexts.opened

    def _auto_digests(self) -> AutoDigests:
        shared, pipeline = self._shared, self._shared.pipeline
        return AutoDigests(
            self.digests,
            pipeline.known,
            settings=shared.settings,
            off=lambda: pipeline.indexing_off,
            news=shared.news,
            clock=shared.clock,
            pending=Pending(shared.ledger, pipeline.read),
            ready=pipeline.scanned.wait,
            since=shared.since,
        )

    def methods(self) -> dict[str, Any]:
        """What they answer, by its name."""
        found: dict[str, Any] = {}
        for part in (
            self.questions,
            self.references,
            self.contexts,
            self.digests,
            self.compactions,
            self.purge,
            self.stats,
            self.family,
        ):
            found |= part.methods()
        return found

    def _questions(self) -> Questions:
        shared = self._shared
        return Questions(
            shared.pipeline.library,
            shared.answers,
            read=shared.pipeline.read,
            models=shared.models,
            settings=shared.settings,
            treasury=shared.treasury,
            telemetry=shared.telemetry,
            clock=shared.clock,
            notify=shared.notify,
        )

    def _references(self) -> References:
        shared = self._shared
        return References(
            shared.answers,
            self._issued,
            ask=self.questions.answer,
            home=shared.pipeline.library.home,
            settings=shared.settings,
            record=shared.telemetry.append,
            ready=shared.pipeline.scanned.is_set,
            clock=shared.clock,
        )

    def _contexts(self) -> Contexts:
        shared = self._shared
        return Contexts(
            self.sidecars,
            shared.answers,
            shared.news,
            resumes=Resumes(shared.ledger, shared.pipeline.read, shared.clock),
            record=shared.telemetry.append,
            clock=shared.clock,
        )

    def _digests(self) -> Digests:
        shared = self._shared
        return Digests(
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

    def _summarisers(self) -> list[Model]:
        """The models of digests and compaction: the one that was set for them alone (S2.19)."""
        key = self._shared.settings().digest.model
        usable = self._shared.models()
        if not key:
            return usable
        model = self._shared.pipeline.models.get(key)
        off = self._shared.pipeline.indexing_off
        return [one for one in (model,) if not (off and one.remote)]
