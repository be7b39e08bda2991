"""`indexerd run`: the daemon in the foreground, or one pass with --once."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from indexerd.cli import render
from indexerd.cli.ask import show, where
from indexerd.errors import ConfigError, IndexerdError, WriteError

if TYPE_CHECKING:
    from indexerd.cli.main import App
    from indexerd.service.once import Report
    from indexerd.settings import Settings


@click.command()
@click.option("--once", is_flag=True, help="Scan, index what is due, and end.")
@click.pass_obj
def run(app: App, once: bool) -> int:
    """Run the daemon in the foreground; --once for a single pass."""
    from indexerd.io import logs
    from indexerd.service.config import read_config
    from indexerd.service.daemon import Daemon, Start
    from indexerd.service.process import make_private

    os.umask(0o077)
    places = where(app)
    loaded = read_config(places, os.environ)
    make_private(places.state_dir)

    def set_logging(settings: Settings) -> None:
        level = "warning" if once and settings.log.level == "info" else settings.log.level
        logs.configure(level, settings.log.format, log_file=places.log, stderr=sys.stderr)

    set_logging(loaded.settings)
    start = Start(places, loaded, os.environ, Path.home(), set_logging, _view(app))
    try:
        daemon = Daemon(start, watching=not once)
    except WriteError as bad:  # a full disk: unlike 75, exit code 1 has systemd start us again
        raise bad if once else IndexerdError(str(bad), hint=bad.hint) from None
    if not once:
        return asyncio.run(daemon.serve(_server))
    report = asyncio.run(daemon.once())
    if loaded.problems:
        raise ConfigError(loaded.problems)
    _print(app, report)
    return report.exit_code


def _view(app: App) -> list[str]:
    """The command that serves the web view beside a daemon, but for its address."""
    from indexerd.cli.integrate import command

    config = ["--config", os.path.abspath(app.config)] if app.config else []  # noqa: PTH100 - keeps no `..`
    return [*command(), *config, "web", "--beside-daemon", "--listen"]


def _server(
    path: Path,
    handle: Any,
    on_reject: Callable[[str], None],
    on_error: Callable[[str, BaseException], None],
) -> Any:
    from indexerd.surfaces.unix import UnixServer

    return UnixServer(path, handle, on_reject, on_error=on_error)


def _print(app: App, report: Report) -> None:
    if show(app, report.to_json()):
        return
    rows = [(done.session_id, "indexed", done.model) for done in report.indexed]
    rows += [(session_id, "digested", "") for session_id in report.digested]
    rows += [(session_id, "failed", kind) for session_id, kind, _ in report.failed]
    render.table(app, ("session", "", "model or reason"), rows)
    click.echo(
        f"{report.sessions} sessions, {len(report.indexed)} indexed, "
        f"{report.skipped} not due, {len(report.failed)} failed",
        err=True,
    )
