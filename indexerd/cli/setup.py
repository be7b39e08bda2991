"""Commands that set things up."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

from indexerd.cli import printing as render
from indexerd.cli.backend import aside, put, safe
from indexerd.cli.main import argument, as_json, cli, command, current, flag, option
from indexerd.errors import ConfigError, DaemonDownError, UsageError


@click.group()
def config() -> None:
    """Show and check the configuration."""


@command()
def path() -> str:
    """Print the configuration file's path, whether it exists or not."""
    file = current().places.config_file
    return "" if as_json({"path": str(file), "exists": file.exists()}) else render.exact(str(file))


@command()
def show() -> Iterator[str]:
    """Print every setting, its value, and where the value came from."""
    loaded = current().loaded
    shown = {
        key: {"value": value, "source": str(loaded.sources.get(key, "default"))}
        for key, value in _leaves(loaded.settings.model_dump(mode="json"))
    }
    if not as_json(shown):
        rows = [(key, json.dumps(one["value"]), one["source"]) for key, one in shown.items()]
        yield from render.table(("key", "value", "source"), rows)


def _leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


@command()
def check() -> str:
    """Check the configuration; exit code 78 when something is wrong."""
    app = current()
    if problems := app.loaded.problems:
        for bad in () if app.json else problems:
            aside(safe(f"{bad['file']}: {bad['key']}: {bad['message']}", 4000))
            aside(safe(f"  hint: {bad['hint']}", 4000))
        raise ConfigError(problems)
    found = {"ok": True, "path": str(app.places.config_file)}
    return "" if as_json(found) else "the configuration is valid"


@click.group()
def service() -> None:
    """Run the daemon at every login (systemd or launchd)."""


PROGRAM = option("--program", "named", "Path of the installed program, if it is not found.")


@command(PROGRAM)
def install(named: str | None) -> int:
    """Write the service file, and start the service."""
    from indexerd.cli.serve import program

    app = current()
    words = (str(Path(named).expanduser().absolute()),) if named else program()
    if len(words) > 1 or not os.access(words[0], os.X_OK):
        hint = "name it: indexerd service install --program PATH"
        raise UsageError(f"not an installed program: {words[0]}", hint=hint)
    return _service("install", Path(words[0]), app.places, app.loaded.settings)


@command()
def uninstall() -> int:
    """Stop the service, and remove its file."""
    _service("uninstall")
    return 0


@command()
def status() -> int:
    """Show what the service manager reports about the service."""
    return _service("status")


for one in (path, show, check):
    config.add_command(one)
for one in (install, uninstall, status):
    service.add_command(one)


def _service(action: str, *given: Any) -> int:
    from indexerd.integrations import service as services

    host = services.Host(os.environ, Path.home(), os.getuid())
    done = getattr(services, action)(host, *given)
    if not as_json(asdict(done) | {"path": str(done.path)}):
        state = "installed" if done.installed else "not installed"
        put([f"{state}: {done.path}", "running" if done.running else "not running"])
        put(render.fields(done.details))
        for note in done.notes:
            aside(safe(note, 8192))
    return 0 if done.running else DaemonDownError.exit_code


AGENT = argument("agent", type=click.Choice(("pi", "claude", "codex", "opencode")))
FORCE = flag("--force", "Also replace files of indexerd that were edited.")


@command(AGENT, flag("--remove", "Remove it again; everything else stays."), FORCE)
def integrate(agent: str, *, remove: bool, force: bool) -> Iterator[str]:
    """Add references, questions and context to an agent."""
    from indexerd.cli.serve import program
    from indexerd.integrations import install as installing

    host = installing.Host(
        env=os.environ,
        home=str(Path.home()),
        settings=current().loaded.settings,
        command=program(),
        serves_mcp=find_spec("mcp") is not None,
        force=force,
        remove=remove,
    )
    done = installing.integrate(agent, host)
    if as_json(done):
        return
    yield from (f"{one['did']}\t{safe(one['path'], 4096)}" for one in done["changes"])
    for note in done["notes"]:
        aside(safe(note, 8192))


@command(argument("shell", type=click.Choice(["bash", "zsh", "fish", "powershell"])))
def completion(shell: str) -> str:
    """Print a shell's completion script; source it in the shell's start-up file."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"this version of click does not complete for {shell}")
    return kind(cli, {}, "indexerd", "_INDEXERD_COMPLETE").source()
