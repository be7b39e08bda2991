"""Commands that set things up: config, service, integrate, completion."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class

from indexerd.cli import printing as render
from indexerd.cli.backend import show as show_json
from indexerd.cli.backend import where
from indexerd.cli.program import command
from indexerd.cli.streams import aside, put, safe
from indexerd.errors import ConfigError, DaemonDownError, UsageError

if TYPE_CHECKING:
    from indexerd.cli.main import App
    from indexerd.integrations.service import Host, Outcome


@click.group()
def config() -> None:
    """Show and check the configuration."""


@config.command()
@click.pass_obj
def path(app: App) -> None:
    """Print the configuration file's path, whether it exists or not."""
    file = where(app).config_file
    if not show_json(app, {"path": str(file), "exists": file.exists()}):
        put([render.exact(str(file))])


@config.command()
@click.pass_obj
def show(app: App) -> None:
    """Print every setting, its value, and where that came from."""
    from indexerd.settings import read_config

    loaded = read_config(where(app), os.environ)
    rows = [
        (key, value, str(loaded.sources.get(key, "default")))
        for key, value in leaves(loaded.settings.model_dump(mode="json"))
    ]
    if show_json(app, {key: {"value": value, "source": source} for key, value, source in rows}):
        return
    render.table(
        app, ("key", "value", "source"), [(key, json.dumps(value), src) for key, value, src in rows]
    )


@config.command()
@click.pass_obj
def check(app: App) -> None:
    """Check the configuration; exit code 78 when something is wrong."""
    from indexerd.settings import read_config

    loaded = read_config(where(app), os.environ)
    if loaded.problems:
        if not app.json:
            for bad in loaded.problems:
                click.echo(f"{bad['file']}: {bad['key']}: {bad['message']}", err=True)
                click.echo(f"  hint: {bad['hint']}", err=True)
        raise ConfigError(loaded.problems)
    if not show_json(app, {"ok": True, "path": str(where(app).config_file)}):
        put(["the configuration is sound"])


def leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and their values."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


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
@click.pass_obj
def uninstall(app: App) -> None:
    """Stop the service, and remove its file."""
    from indexerd.integrations import service as services

    done = services.uninstall(_host())
    _print(app, done, "removed" if done.changed else "not installed")


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
    from indexerd.cli import printing as render
    from indexerd.cli.streams import put

    if show_json(app, done.data()):
        return
    put([f"{word}: {done.path}", "running" if done.running else "not running"])
    render.facts(done.details.items())
    for note in done.notes:
        click.echo(note, err=True)


AGENTS = ("pi", "claude", "codex", "opencode")


@click.command()
@click.argument("agent", type=click.Choice(AGENTS))
@click.option("--remove", is_flag=True, help="Take it out again; everything else stays.")
@click.option("--force", is_flag=True, help="Also where a file of ours was edited.")
@click.pass_obj
def integrate(app: App, agent: str, remove: bool, force: bool) -> None:
    """Install into an agent: references, questions, context."""
    from importlib.util import find_spec

    from indexerd.integrations.install import Host
    from indexerd.integrations.install import integrate as change
    from indexerd.settings import read_config

    loaded = read_config(where(app), os.environ)
    host = Host(
        env=os.environ,
        home=str(Path.home()),
        settings=loaded.settings,
        command=command(),
        serves_mcp=find_spec("mcp") is not None,
        force=force,
        remove=remove,
    )
    done = change(agent, host)
    if loaded.problems:
        aside("the configuration has problems: see `indexerd config check`")
    if show_json(app, done):
        return
    width = max((len(one["did"]) for one in done["changes"]), default=0)
    put(f"{one['did']:<{width}}  {safe(one['path'], 4096)}" for one in done["changes"])
    for note in done["notes"]:
        aside(safe(note, 8192))


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish", "powershell"]))
@click.pass_obj
def completion(_app: App, shell: str) -> None:
    """Print a shell's completion script; source it in the shell's start-up file."""
    from indexerd.cli.main import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"this version of click does not complete for {shell}")
    click.echo(kind(cli, {}, "indexerd", "_INDEXERD_COMPLETE").source())
