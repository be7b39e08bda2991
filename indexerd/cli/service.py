"""`indexerd service install|uninstall|status`: the daemon as a user service.

In: options, the environment, the configuration (for the directories it names). Out: what was
done on stdout, what is left to do on stderr; with `--json` one document with both. Exit code 0
where the service runs (or was removed), 69 where it does not; errors are raised for the frame
to print. A broken configuration does not stop an installation: the daemon starts with one too,
and says so.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from indexerd.cli.ask import show as show_json
from indexerd.cli.ask import where
from indexerd.errors import DaemonDownError, UsageError

if TYPE_CHECKING:
    from indexerd.cli.app import App
    from indexerd.integrations.service import Host, Outcome


@click.group()
def service() -> None:
    """Run the daemon at every login (systemd or launchd)."""


@service.command()
@click.option("--program", help="The installed program, where it is not found by itself.")
@click.pass_context
def install(ctx: click.Context, program: str | None) -> None:
    """Write the service file, and start the service."""
    from indexerd.integrations import service as services
    from indexerd.settings import read_config

    places = where(ctx.obj)
    loaded = read_config(places, os.environ)
    done = services.install(_host(), _program(program), places, loaded.settings)
    if loaded.problems:
        click.echo("the configuration has problems: see `indexerd config check`", err=True)
    _print(ctx.obj, done, "installed" if done.changed else "already installed")
    ctx.exit(0 if done.running else DaemonDownError.exit_code)


@service.command()
@click.pass_context
def uninstall(ctx: click.Context) -> None:
    """Stop the service, and remove its file."""
    from indexerd.integrations import service as services

    done = services.uninstall(_host())
    _print(ctx.obj, done, "removed" if done.changed else "not installed")


@service.command()
@click.pass_context
def status(ctx: click.Context) -> None:
    """Show what the service manager says of the service."""
    from indexerd.integrations import service as services

    found = services.status(_host())
    _print(ctx.obj, found, "installed" if found.installed else "not installed")
    ctx.exit(0 if found.running else DaemonDownError.exit_code)


def _host() -> Host:
    from indexerd.integrations.service import Host

    return Host(os.environ, Path.home(), os.getuid())


def _program(named: str | None) -> Path:
    """The program as the user starts it; a link that an upgrade moves along is not resolved."""
    if named is not None:
        found = Path(named).expanduser().absolute()
        if not _starts(found):
            raise UsageError(f"not a program: {found}")
        return found
    beside = Path(sys.executable).parent / "indexerd"
    on_path = shutil.which("indexerd")
    for candidate in (Path(sys.argv[0]), beside, *([Path(on_path)] if on_path else [])):
        if candidate.name == "indexerd" and _starts(candidate):
            return candidate.absolute()
    raise UsageError(
        "cannot find the installed program", hint="name it: indexerd service install --program PATH"
    )


def _starts(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _print(app: App, done: Outcome, word: str) -> None:
    from indexerd.cli import render
    from indexerd.cli.streams import put

    if show_json(app, done.data()):
        return
    put([f"{word}: {done.path}", "running" if done.running else "not running"])
    render.facts(done.details.items())
    for note in done.notes:
        click.echo(note, err=True)
