"""The web view's way to the daemon: short conversations, each in a thread of its own.

In: a method of the socket and its params. Out: its result, or an error of the tree. Each question
has a connection of its own, so that a daemon that was down or restarted is simply there again.
What can be read without a daemon is then read by `stored`, which whoever starts the view gives.

A daemon may be there and not answer: stopped, or stuck. Whoever reads finds out after
`READ_SECONDS`. Unless it was that one answer that took so long, readers then go to what is stored
at once, and who would change something is told, while one question at a time waits for the daemon.

At most `AT_ONCE` questions are under way; more wait for their turn. The threads are nobody's to
wait for: a view that ends while the daemon is busy does not stay for its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from indexerd.errors import DaemonDownError, DeadlineError, IndexerdError
from indexerd.mcp.daemon import connected, in_thread
from indexerd.paths import Places
from indexerd.settings import Settings, read_config

AT_ONCE = 8
SECONDS = 20.0  # for one answer
READ_SECONDS = 6.0  # for one that can be had without the daemon, which may wait 5 s for its scan
HELLO_SECONDS = 1.0  # that a daemon has to say anything at all, before it counts as silent
PROBE_SECONDS = 15.0  # that the question waits by which a silent daemon is found to be back

Stored = Callable[[str, dict[str, Any]], Any]


class Desk:
    """Where pages go with their questions. `stored` answers what needs no daemon; it may block."""

    def __init__(
        self, where: Places, env: Mapping[str, str], *, home: Path, stored: Stored
    ) -> None:
        self.where = where
        self.env = env
        self.home = home
        self._stored = stored
        self._places = asyncio.Semaphore(AT_ONCE)
        self._looking = asyncio.Semaphore(AT_ONCE)  # what is stored does not wait for the daemon
        self._probing: asyncio.Task[None] | None = None
        self.silent = False  # the daemon is there, and does not answer
        self.on_silent: Callable[[bool], None] = lambda _: None  # called when that changes

    async def ask(self, method: str, params: Mapping[str, Any], *, seconds: float = SECONDS) -> Any:
        """Ask the daemon; the answer may take so many seconds once it is asked.

        Errors as `Client` raises them; DaemonDownError names the place where the socket should be.
        DeadlineError, which is worth another try, for a daemon that does not answer.
        """
        async with self._places:
            if self.silent:
                raise DeadlineError(
                    "the daemon does not answer; nothing was changed",
                    hint="try again in a moment; `indexerd status` says whether it is back",
                )
            return await in_thread(partial(self._converse, method, dict(params), seconds))

    async def read(self, method: str, params: Mapping[str, Any]) -> Any:
        """Ask the daemon, or read what is stored where none runs: for methods that change nothing.

        Errors as for `ask`, and those of `stored`.
        """
        if self._probing is not None and not self.silent:  # what it is, is about to be found out
            await asyncio.wait({self._probing}, timeout=HELLO_SECONDS)
        if not self.silent:
            try:
                return await self.ask(method, params, seconds=READ_SECONDS)
            except DaemonDownError:
                pass
            except DeadlineError:
                if self._probing is None:
                    self._probing = asyncio.get_running_loop().create_task(self._probe())
        async with self._looking:
            return await in_thread(partial(self._stored, method, dict(params)))

    def settings(self) -> Settings:
        """The settings as the configuration is now; where it has mistakes, what still holds."""
        return read_config(self.where, self.env).settings

    async def _probe(self) -> None:
        """Ask what takes no time, until there is an end to it that is not a late answer."""
        seconds = HELLO_SECONDS
        while await self._late(seconds):
            self._mark(silent=True)
            seconds = PROBE_SECONDS
        self._probing = None
        self._mark(silent=False)

    async def _late(self, seconds: float) -> bool:
        try:
            await in_thread(partial(self._converse, "hello", {}, seconds))
        except DeadlineError:
            return True
        except IndexerdError:
            pass  # there is no daemon any more, or one that answers so
        return False

    def _mark(self, *, silent: bool) -> None:
        if silent != self.silent:
            self.silent = silent
            self.on_silent(silent)

    def _converse(self, method: str, params: dict[str, Any], seconds: float) -> Any:
        with connected(self.where, self.env, seconds) as client:
            return client.call(method, params)
