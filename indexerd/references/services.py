"""The parts of a daemon that references, questions and digests use; light to import."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from indexerd.indexing.indexer import Events
from indexerd.meta.model import MetaFile
from indexerd.meta.writer import MetaWriter
from indexerd.models.base import Model
from indexerd.models.budget import Budget
from indexerd.references.inject import InjectionCache
from indexerd.references.resolve import Match
from indexerd.settings import Settings
from indexerd.sources.session_reader import SessionReaderPool


class NamedRows(Protocol):
    """Rows, and the names by which sessions are found."""

    def match(self, ref: str, *, cwd: str | None, exclude: str | None) -> Match: ...
    def row(self, ref: str, *, cwd: str | None = None) -> dict[str, Any]: ...
    def by_id(self, session_id: str) -> dict[str, Any]: ...
    def meta(self, row: dict[str, Any]) -> MetaFile | None: ...


@dataclass(frozen=True, slots=True)
class Services:
    """The shared parts. The defaults are for answers without a daemon."""

    rows: NamedRows
    pool: SessionReaderPool
    settings: Callable[[], Settings]
    models: Callable[[], list[Model]]  # for questions, in the user's order
    summarizers: Callable[[], list[Model]]  # for digests and compactions
    budget: Budget
    events: Events
    writer: MetaWriter
    injected: InjectionCache | None = None  # None: injected texts are not kept
    on_history: Callable[[str], object] = lambda _: None  # called when a history is opened
