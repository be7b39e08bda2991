"""The MCP server's way to the daemon: short conversations, each in a thread of its own.

The blocking client runs in threads that nobody waits for at the end: a host that hangs up while a
question is with a model must not find a process left. Each conversation has a connection of its
own, so that a daemon that was down is simply there again at the next call.

What surprised us: hosts start their servers with hardly any environment (Codex passes on HOME and
PATH, but no XDG_RUNTIME_DIR), and so the socket is looked for where a login session has it, too.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from indexerd.client import Client
from indexerd.errors import (
    AmbiguousError,
    CallLimitError,
    ConfigError,
    DaemonDownError,
    NotFoundError,
    UsageError,
)
from indexerd.mcp.rendering import Answer, Renderer, provenance
from indexerd.paths import Places, socket_places
from indexerd.privacy.patterns import compile_patterns
from indexerd.settings import read_config
from indexerd.times import iso_ms

SECONDS = 20.0  # for one answer; the daemon itself may wait 5 s for its first scan
MODEL_SECONDS = 600.0  # for one that a model makes: the daemon has the shorter limits
MODEL_CALLS = 4  # that may be under way at once; other tools do not wait behind them
PER_MINUTE = 20  # calls of tools that use a model
PATIENCE, PAUSE = 2.0, 0.1  # seconds for a session that has only just begun; between two looks
_HINT = "give `session`: list_sessions shows the newest first"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation with the daemon."""

    client: Client
    renderer: Renderer
    cwd: str | None  # the project; None where all are meant
    agent: str | None  # whose host asks, where that is known
    since: float  # when the server was started, in seconds since the epoch

    def ask(self, method: str, **params: Any) -> Any:
        """The daemon's answer; params that are None, "" or False are left out."""
        given = {
            key: one for key, one in params.items() if one not in (None, "") and one is not False
        }
        return self.client.call(method, given)

    def resolve(self, ref: str, *, scope: str = "project", certain: bool = False) -> Answer:
        """The session that a reference means, never the one that asks; "" means that one.

        `certain`: something is to be changed, so a name that is only close means nothing.
        """
        if not ref:
            return self.running()
        own = self.own_id()
        found: Answer = self.ask("resolve", ref=ref, cwd=self.cwd, scope=scope, exclude=own)
        if certain and found.get("how") == "fuzzy":
            raise AmbiguousError("that is only close to a session's name", [found])
        return found

    def id_of(self, ref: str, *, certain: bool = False) -> str:
        """The id of the session that a reference means."""
        return str(self.resolve(ref, certain=certain)["sessionId"])

    def own_id(self) -> str | None:
        """The id of the session that asks, where it is known."""
        with suppress(AmbiguousError, NotFoundError, UsageError):
            return str(self.running(patience=0.0)["sessionId"])
        return None

    def running(self, *, patience: float = PATIENCE) -> Answer:
        """The row of the one session of this host's agent in use here since the server began.

        Raises UsageError, NotFoundError or AmbiguousError where that cannot be told for certain.
        """
        if self.agent is None or self.cwd is None:
            raise UsageError("which session is yours cannot be told from here", hint=_HINT)
        until = time.monotonic() + patience
        while True:
            rows = self.ask("list", agent=self.agent, cwd=self.cwd, limit=20)["sessions"]
            live = [one for one in rows if iso_ms(str(one["modifiedAt"])) >= self.since * 1000]
            if live or time.monotonic() >= until:
                break
            time.sleep(PAUSE)
        if len(live) > 1:
            raise AmbiguousError("several sessions are in use in this project", live)
        if not live:
            raise NotFoundError("no session in use is known in this project yet", hint=_HINT)
        return dict(live[0])

    def about(self, found: Mapping[str, Any], fields: Answer, by: str = "") -> Answer:
        """An answer about one session: whose words these are, then its rendered fields."""
        row = self.ask("get", ref=found["sessionId"])["session"]
        model = (found.get("usage") or {}).get("model")
        head = {"sessionId": row["sessionId"], "name": row["name"]}
        rendered: Answer = self.renderer.render(head | fields)
        whose = provenance(row, f"; {by} by {model}" if by and model else "")
        return {"provenance": self.renderer.line(whose)} | rendered


@dataclass(slots=True)
class DaemonAccess:
    """Opens conversations for tools, and counts those that cost the user's money."""

    where: Places
    env: Mapping[str, str]
    cwd: str | None = None  # the server's own directory: hosts start it in the project
    started: float = field(default_factory=time.time)
    clock: Callable[[], float] = time.monotonic
    _model_calls: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MODEL_CALLS))
    _recent: deque[float] = field(default_factory=deque)

    async def converse(
        self,
        work: Callable[[Conversation], T],
        *,
        cwd: str = "",
        client: str | None = None,
        calls_model: bool = False,
        verbatim: bool = True,
    ) -> T:
        """Do `work` in a thread, with a connection. Errors as `Client` raises them.

        `client` is what the host calls itself. CallLimitError where models were asked too often
        lately; UsageError where `cwd` can be no directory; ConfigError where a session's own words
        are asked for (`verbatim`) and the user's patterns of secrets cannot be read.
        """
        if calls_model:
            self._count()

        def run() -> T:
            loaded = read_config(self.where, self.env)
            if loaded.problems and verbatim:
                raise ConfigError(loaded.problems)
            redact = loaded.settings.redact
            renderer = Renderer(compile_patterns(redact.extra_patterns), redacting=redact.enabled)
            here = _directory(cwd, self.cwd)
            agents = ("claude", "codex", "opencode")  # as in `claude-code`, `codex-mcp-client`
            agent = next((one for one in agents if (client or "").lower().startswith(one)), None)
            seconds = MODEL_SECONDS if calls_model else SECONDS
            with connected(self.where, self.env, seconds) as to:
                return work(Conversation(to, renderer, here, agent, self.started))

        if not calls_model:
            return await in_thread(run)
        async with self._model_calls:
            return await in_thread(run)

    def _count(self) -> None:
        now = self.clock()
        while self._recent and self._recent[0] <= now - 60:
            self._recent.popleft()
        if len(self._recent) >= PER_MINUTE:
            wait = math.ceil(self._recent[0] + 60 - now)
            raise CallLimitError(
                f"{PER_MINUTE} questions and summaries were asked for in the last minute, and no"
                " more are allowed",
                hint=f"ask again in {wait} s; fewer and better questions may do",
            )
        self._recent.append(now)


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

    def run() -> None:
        settle: Callable[[], None]
        try:
            settle = partial(done.set_result, work())
        except Exception as bad:  # noqa: BLE001 - raised again where it is waited for
            settle = partial(done.set_exception, bad)
        with suppress(RuntimeError):  # the loop has ended, and with it all interest
            loop.call_soon_threadsafe(lambda: None if done.done() else settle())

    threading.Thread(target=run, name="indexerd-mcp", daemon=True).start()
    return await done


def _directory(named: str, own: str | None) -> str | None:
    """The directory that is named, from the server's `own`; that one, if none is named."""
    if not named:
        return own
    hint = "give an absolute path, or leave `cwd` out"
    if "\0" in named:
        raise UsageError("cwd has a NUL in it, which no path can have", hint=hint)
    try:
        return os.path.abspath(Path(own or "", Path(named).expanduser()))  # noqa: PTH100 - drops `..`
    except (RuntimeError, FileNotFoundError):
        raise UsageError("cwd leads to no directory that is known", hint=hint) from None
