"""How commands get their answers: from the daemon, or, where none runs, from what it stored.

Without a daemon the same methods are answered in this process, and a note on stderr says so. What
changes something needs the daemon. Standard library only, until a method is answered here.
"""

from __future__ import annotations

import os

from indexerd.cli.streams import aside, safe
from indexerd.client import call_once, socket_path
from indexerd.errors import DaemonDownError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any, Literal

    from indexerd.daemon.local import LocalBackend
    from indexerd.paths import Places
    from indexerd.settings import Loaded, Settings

TIMEOUT = 30.0  # seconds for an answer
QUICK = 10.0  # for one that an agent waits for
STORED = "answering from what is stored"
READING = "reading the session itself"


class App:
    """The options before a command's name, and what follows from them."""

    def __init__(
        self,
        config: str | None = None,
        json: bool = False,
        color: Literal["auto", "always", "never"] = "auto",
    ) -> None:
        self.config = config
        self.json = json
        self.color = color
        self._local: LocalBackend | None = None

    @property
    def places(self) -> Places:
        """Where our files are."""
        from indexerd.paths import places

        return places(config=self.config)

    @property
    def loaded(self) -> Loaded:
        """The settings, with the problems of their file."""
        from indexerd.settings import read_config

        return read_config(self.places, os.environ)

    @property
    def settings(self) -> Settings:
        """The settings."""
        return self.loaded.settings

    @property
    def home(self) -> Path:
        """The user's home directory."""
        from pathlib import Path

        return Path.home()

    def local(self) -> LocalBackend:
        """What answers methods in this process."""
        if self._local is None:
            from indexerd.daemon.local import LocalBackend

            self._local = LocalBackend(
                self.places, os.environ, self.home, lambda text: aside(f"indexerd: {safe(text)}")
            )
        return self._local

    def ask(self, method: str, params: Mapping[str, Any], seconds: float | None = None) -> Any:
        """The daemon's answer; params that are None are left out."""
        given = {key: value for key, value in params.items() if value is not None}
        return call_once(socket_path(os.environ), method, given, seconds or TIMEOUT)

    def read(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        seconds: float | None = None,
        question: bool = False,
        note: str = STORED,
    ) -> Any:
        """The daemon's answer, or this process's; `note` tells the user what that means."""
        try:
            if question:
                seconds = question_seconds(seconds or TIMEOUT)
            return self.ask(method, params, seconds)
        except DaemonDownError:
            if self._local is None:
                aside(f"indexerd: no daemon runs; {note}")
            given = {key: value for key, value in params.items() if value is not None}
            return self.local().call(method, given)


def question_seconds(seconds: float) -> float:
    """How long the daemon may take for a question; it has `seconds` to say so."""
    settings = call_once(socket_path(os.environ), "hello", {}, seconds).get("settings") or {}
    return float(settings.get("queryTimeoutSeconds") or 30.0) + 5.0


def project(named: str | None = None) -> str | None:
    """The directory named, or the current one, absolute; None where it was removed."""
    try:
        return os.path.abspath(named or ".")  # noqa: PTH100 - Path.absolute keeps `..`
    except FileNotFoundError:
        return None
