"""The daemon in the foreground, without the rest of the command line: it starts where this does.

In: the configuration file to use, or none. Out: an exit code; errors of ours are raised. A service
manager's `indexerd run` comes here at once, without click; every other form by `cli/run.py`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexerd.cli.loading import Loading
from indexerd.errors import IndexerdError, WriteError

if TYPE_CHECKING:
    from collections.abc import Callable

    from indexerd.daemon.daemon import Daemon
    from indexerd.settings import Loaded, Settings


def serve(config: str | None = None) -> int:
    """Run the daemon until a signal; returns its exit code, or raises an error of the tree."""
    with Loading():
        daemon, _ = made(config, once=False)
        from indexerd.daemon.unix_server import UnixServer  # noqa: F401 - loaded with the rest
    return asyncio.run(daemon.serve(_server))


def made(config: str | None, *, once: bool) -> tuple[Daemon, Loaded]:
    """A daemon that may begin, or one pass of it, and the settings it was given."""
    from indexerd import logs
    from indexerd.daemon.daemon import Daemon, Start
    from indexerd.daemon.process import make_private
    from indexerd.paths import places as found
    from indexerd.settings import read_config

    os.umask(0o077)
    places = found(config=config)
    loaded = read_config(places, os.environ)
    make_private(places.state_dir)

    def set_logging(settings: Settings) -> None:
        level = "warning" if once and settings.log.level == "info" else settings.log.level
        logs.configure(level, settings.log.format, log_file=places.log, stderr=sys.stderr)

    set_logging(loaded.settings)
    start = Start(places, loaded, os.environ, Path.home(), set_logging, _view(config))
    try:
        return Daemon(start, watching=not once), loaded
    except WriteError as bad:  # a full disk: unlike 75, exit code 1 has systemd start us again
        raise bad if once else IndexerdError(str(bad), hint=bad.hint) from None


def _view(config: str | None) -> list[str]:
    """The command that serves the web view beside a daemon, but for its address."""
    from indexerd.cli.program import command

    given = ["--config", os.path.abspath(config)] if config else []  # noqa: PTH100 - keeps no `..`
    return [*command(), *given, "web", "--beside-daemon", "--listen"]


def _server(
    path: Path,
    handle: Any,
    on_reject: Callable[[str], None],
    on_error: Callable[[str, BaseException], None],
) -> Any:
    from indexerd.daemon.unix_server import UnixServer

    return UnixServer(path, handle, on_reject, on_error=on_error)
