"""`indexerd run`: the daemon in the foreground, or one pass with --once."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from indexerd.cli import printing as render
from indexerd.cli.backend import show
from indexerd.cli.streams import aside
from indexerd.errors import ConfigError, IndexerdError, WriteError

if TYPE_CHECKING:
    from collections.abc import Callable

    from indexerd.cli.main import App
    from indexerd.daemon.daemon import Daemon
    from indexerd.daemon.once import Report
    from indexerd.settings import Loaded, Settings


class Loading:
    """Around the imports of a server."""

    def __enter__(self) -> None:
        gc.disable()

    def __exit__(self, *_: object) -> None:
        gc.freeze()
        gc.enable()


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


@click.command()
@click.option("--once", is_flag=True, help="Scan, index what is due, and end.")
@click.pass_obj
def run(app: App, once: bool) -> int:
    """Run the daemon in the foreground; --once for a single pass."""
    if not once:
        return serve(app.config)
    daemon, loaded = made(app.config, once=True)
    import asyncio

    report = asyncio.run(daemon.once())
    if loaded.problems:
        raise ConfigError(loaded.problems)
    _print(app, report)
    return report.exit_code


def _print(app: App, report: Report) -> None:
    if show(app, report.to_json()):
        return
    rows = [(done.session_id, "indexed", done.model) for done in report.indexed]
    rows += [(session_id, "digested", "") for session_id in report.digested]
    rows += [(session_id, "failed", kind) for session_id, kind, _ in report.failed]
    render.table(app, ("session", "", "model or reason"), rows)
    aside(
        f"{report.sessions} sessions, {len(report.indexed)} indexed, "
        f"{report.skipped} not due, {len(report.failed)} failed"
    )
