"""Answers methods without a daemon: the same handlers, in this process.

The store is only read, a session's tree comes from its file, and questions and compactions use the
built-in model. Nothing leaves the machine or is kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import Any

from indexerd.daemon.answers import Answers
from indexerd.daemon.forgotten import Forgotten
from indexerd.daemon.library import Library
from indexerd.daemon.methods import READ_FILE, ReadMethods
from indexerd.daemon.open_session import open_session, read_alone
from indexerd.errors import DaemonDownError, UsageError
from indexerd.indexing.snapshot import take_snapshot
from indexerd.meta.writer import MetaWriter
from indexerd.models.budget import Budget
from indexerd.models.extractive import Extractive
from indexerd.models.registry import Models
from indexerd.paths import Places
from indexerd.privacy.exclusions import Exclusions, at_home
from indexerd.protocol import methods
from indexerd.protocol.params import Params, RefParams, SessionParams
from indexerd.references.services import Services
from indexerd.search.index import TextIndex
from indexerd.settings import Settings, read_config
from indexerd.sources.session_reader import OpenSession, SessionReaderPool
from indexerd.sources.stores import stores
from indexerd.store.store import StateStore


class LocalBackend:
    """Answers methods as `Client` does. Not thread-safe."""

    def __init__(
        self,
        places: Places,
        env: Mapping[str, str],
        home: Path,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`warn` is called once if the answers will be incomplete."""
        self._places = places
        self._env = env
        self._user_home = home
        self.settings: Settings = read_config(places, env).settings
        store = StateStore(places.store, readonly=True)
        texts = TextIndex(places.search, store, readonly=True)
        texts.open()
        if not places.store.exists():
            warn("nothing is stored yet: `indexerd run --once` reads your sessions")
        elif store.problem:
            warn(store.problem)
        exclude = at_home(self.settings.privacy.exclude, home)
        self._exclusions = Exclusions(lambda: exclude)
        self._exclusions.forgotten = Forgotten(places.state_dir).agents
        self._exclusions.renew()
        self.answers = Answers(texts, self._hides, home=self._meta_dir)

    def call(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """Return the method's result; DaemonDownError if only a daemon can answer."""
        spec = methods.METHODS.get(method)
        if spec is None:
            raise UsageError(f"unknown method: {method}")
        if spec.needs_daemon:
            raise DaemonDownError(f"{method} needs a running daemon")
        return asyncio.run(self._answer(method, methods.asked(method, params or {})))

    async def _answer(self, method: str, asked: Params) -> Any:
        with ExitStack() as stack:
            library: Library | None = None
            if method in READ_FILE and isinstance(asked, RefParams | SessionParams):
                ref = asked.ref if isinstance(asked, RefParams) else asked.session
                row = self.answers.row(ref, cwd=asked.cwd)
                alone = read_alone(row, self.settings, self._env, self._user_home)
                library = stack.enter_context(alone)
            if library is not None and method == "as_sent":
                snapshot = await take_snapshot(library, _here, row["sessionId"], self.settings)
                return snapshot.as_sent(Models(self.settings, self._env).available())
            found = ReadMethods(self.answers, self._services(library)).table()[method](asked)
            return await found if isawaitable(found) else found

    def _services(self, library: Library | None) -> Services:
        return Services(
            rows=self.answers,
            pool=SessionReaderPool(partial(_open, library), _here),
            settings=lambda: self.settings,
            models=lambda: [Extractive()],
            summarizers=lambda: [Extractive()],
            budget=Budget(self._places.budget, lambda: self.settings, time.time, lambda *_: None),
            events=_NoEvents(),
            excluded=lambda: self.settings.digest.exclude,
            writer=MetaWriter(),
        )

    def _hides(self, row: dict[str, Any]) -> bool:
        """Whether the user excluded a session that no daemon has removed since."""
        return self._exclusions.match(row["sessionFile"], row["cwd"], row["sessionId"])

    def _meta_dir(self, session_id: str) -> str | None:
        file = self.answers.by_id(session_id)["sessionFile"]
        found = stores(self.settings, self._env, self._user_home)
        return next((one.meta for one in found if one.holds(file)), None)


class _NoEvents:
    def log(self, *_: object) -> None:
        """Do nothing: there are no subscribers here."""

    publish = defect = log


def _open(library: Library | None, session_id: str, leaf: str | None) -> OpenSession | None:
    if library is None:  # a question in a prompt to expand
        raise DaemonDownError("questions need the daemon")
    return open_session(library, session_id, leaf)


async def _here(work: Callable[..., Any], *args: Any) -> Any:
    return work(*args)
