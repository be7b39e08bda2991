"""The MCP server's way to the daemon: short conversations, each in a thread of its own.

In: what a tool wants to ask. Out: its answer, or the daemon's error. The blocking client is used
in threads that nobody waits for at the end: a host that hangs up while a question is with a model
must not find a process left. Each conversation has a connection of its own, so that a daemon that
was down, or was restarted, is simply there again at the next call.

Questions wait for a model, and so they have places of their own: no other tool waits behind them.
So have summaries, which may take minutes.
What surprised us: hosts start their servers with hardly any environment (Codex passes on HOME and
PATH, but no XDG_RUNTIME_DIR), and so the socket is looked for where a login session has it, too.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from indexerd.client import Client
from indexerd.errors import ConfigError, DaemonDownError
from indexerd.mcp.limits import Shelf, Window
from indexerd.mcp.texts import Safe
from indexerd.mcp.where import directory, meant
from indexerd.paths import Places, socket_places
from indexerd.privacy.redact_extra import compile_extra
from indexerd.settings import Settings
from indexerd.settings.file import read_config

AT_ONCE = 8  # conversations at the same time
ASKING_AT_ONCE = 2  # of those that wait for a model, beside the others
SUMMING_AT_ONCE = 2  # beside both
SECONDS = 20.0  # for one answer; the daemon itself may wait 5 s for its first scan
BEYOND = 5.0  # more than the daemon allows a question

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Talk:
    """One conversation. `safe` makes foreign texts fit for a model."""

    client: Client
    safe: Safe
    cwd: str | None  # the project; None where it was removed, and all are meant
    agent: str | None  # whose host asks, where that is known
    since: float  # when the server was started, in seconds since the epoch
    trees: Shelf
    linked: bool = False  # `cwd` is not the directory that was named, but what that leads to

    def ask(self, method: str, **params: Any) -> Any:
        """Ask; what is None is left out."""
        given = {key: value for key, value in params.items() if value is not None}
        return self.client.call(method, given)


@dataclass(slots=True)
class Desk:
    """Where tools go with their questions."""

    where: Places
    env: Mapping[str, str]
    cwd: str | None = None  # the server's own directory: hosts start it in the project
    started: float = field(default_factory=time.time)
    clock: Callable[[], float] = time.monotonic
    _quick: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, AT_ONCE))
    _asking: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, ASKING_AT_ONCE))
    _summing: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, SUMMING_AT_ONCE))
    _window: Window = field(init=False)
    _trees: Shelf = field(init=False)

    def __post_init__(self) -> None:
        self._window = Window(self.clock)
        self._trees = Shelf(self.clock)

    async def talk(
        self,
        work: Callable[[Talk], T],
        *,
        cwd: str = "",
        agent: str | None = None,
        questions: int = 0,
        seconds: float = 0.0,
        verbatim: bool = False,
    ) -> T:
        """Do `work` in a thread, with a connection. Errors as `Client` raises them.

        `questions`: so many may be put to a model, which takes its time; CallLimitError where
        there were too many lately. `seconds`: they are summaries, and each answer may take that
        long, since it may need several calls of the model. `verbatim`: a session's own words come
        back, which need the user's own patterns of what is secret: ConfigError where the
        configuration cannot be read.
        UsageError where `cwd` can be no directory.
        """
        if questions:
            self._window.take(questions)

        def converse() -> T:
            settings = self._settings(verbatim=verbatim)
            extra = compile_extra(settings.redact.extra_patterns)
            safe = Safe(extra, redacting=settings.redact.enabled)
            here = directory(cwd, self.cwd)
            with self._connect(seconds or self._patience(questions, settings)) as client:
                here, linked = meant(client, here)
                talk = Talk(client, safe, here, agent, self.started, self._trees, linked)
                return work(talk)

        place = self._summing if seconds else self._asking if questions else self._quick
        async with place:
            return await in_thread(converse)

    def _patience(self, questions: int, settings: Settings) -> float:
        """How many seconds an answer may take; the daemon's settings count, not our copy."""
        if not questions:
            return SECONDS
        with self._connect(SECONDS) as client:
            told = client.call("hello").get("settings", {}).get("queryTimeoutSeconds")
        known = isinstance(told, int | float)  # an older daemon does not say
        return questions * ((told if known else settings.query.timeout_seconds) + BEYOND)

    def _settings(self, *, verbatim: bool) -> Settings:
        loaded = read_config(self.where, self.env)
        if verbatim and loaded.problems:
            raise ConfigError(loaded.problems)
        return loaded.settings

    def _connect(self, seconds: float) -> Client:
        return connected(self.where, self.env, seconds)


def connected(where: Places, env: Mapping[str, str], seconds: float) -> Client:
    """A connection. DaemonDownError names the place where the socket should be."""
    missing: DaemonDownError | None = None
    for path in socket_places(where, env):
        try:
            return Client(path, seconds)
        except DaemonDownError as bad:
            missing = missing or bad
    raise missing or DaemonDownError("no daemon answers")


async def in_thread(work: Callable[[], T]) -> T:
    """Do `work` in a thread that the end of the process does not wait for."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(found: T | None, bad: Exception | None) -> None:
        if done.done():  # cancelled meanwhile
            return
        if bad is None:
            done.set_result(found)  # type: ignore[arg-type]  # T may well be None
        else:
            done.set_exception(bad)

    def run() -> None:
        found: T | None = None
        problem: Exception | None = None
        try:
            found = work()
        except Exception as bad:  # noqa: BLE001 - raised again where it is waited for
            problem = bad
        with suppress(RuntimeError):  # the loop has ended, and with it all interest
            loop.call_soon_threadsafe(settle, found, problem)

    threading.Thread(target=run, name="indexerd-mcp", daemon=True).start()
    return await done
