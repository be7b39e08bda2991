"""Commands for the set-up: configuration, service, integrations, completion."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

from indexerd.cli import printing as render
from indexerd.cli.backend import aside, put, safe
from indexerd.cli.main import AGENTS, argument, as_json, cli, command, current, flag, option
from indexerd.cli.serve import program
from indexerd.errors import ConfigError, DaemonDownError, UsageError


@command()
def path() -> str:
    """Print the configuration file's path, whether it exists or not."""
    file = current().places.config_file
    return "" if as_json({"path": str(file), "exists": file.exists()}) else render.exact(str(file))


@command()
def show() -> Iterator[str]:
    """Print every setting with its value and its source."""
    from indexerd.settings import leaves

    loaded = current().loaded
    shown = {
        key: {"value": value, "source": str(loaded.sources.get(key, "default"))}
        for key, value in leaves(loaded.settings.model_dump(mode="json"))
    }
    if not as_json(shown):
        rows = [(key, json.dumps(item["value"]), item["source"]) for key, item in shown.items()]
        yield from render.table(("key", "value", "source"), rows)
    if loaded.problems:  # what is shown are defaults
        raise ConfigError(loaded.problems)


@command()
def check() -> str:
    """Check the configuration; exit code 78 if it is invalid."""
    if problems := current().loaded.problems:
        raise ConfigError(problems)
    answer = {"ok": True, "path": str(current().places.config_file)}
    return "" if as_json(answer) else "the configuration is valid"


config = click.Group("config", [path, show, check], help="Show and check the configuration.")


@command(option("--program", "named", "Path of the installed program.", metavar="PATH"))
def install(named: str | None) -> int:
    """Write the service file and start the service."""
    app = current()
    words = (str(Path(named).expanduser().absolute()),) if named else program()
    if len(words) > 1 or not os.access(words[0], os.X_OK):
        hint = "pass its path: indexerd service install --program PATH"
        raise UsageError(f"not an installed program: {words[0]}", hint=hint)
    return _service("install", Path(words[0]), app.places, app.loaded.settings)


@command()
def uninstall() -> None:
    """Stop the service and remove its file."""
    _service("uninstall")


@command()
def status() -> int:
    """Show what the service manager reports about the service."""
    return _service("status")


def _service(action: str, *args: Any) -> int:
    from indexerd.integrations import service as services

    host = services.Host(os.environ, Path.home(), os.getuid())
    done = getattr(services, action)(host, *args)
    if not as_json(asdict(done) | {"path": str(done.path)}):
        state = "installed" if done.installed else "removed" if done.changed else "not installed"
        put([f"{state}: {done.path}", "running" if done.running else "not running"])
        put(render.fields(done.details))
        for note in done.notes:
            aside(safe(note, 8192))
    return 0 if done.running else DaemonDownError.exit_code


service = click.Group(
    "service",
    [install, uninstall, status],
    help="Run the daemon at every login (systemd or launchd).",
)


@command(
    argument("agent", type=AGENTS),
    flag("--remove", "Remove the integration; everything else stays."),
    flag("--force", "Also replace or remove indexerd's files that were edited."),
)
def integrate(agent: str, **wished: bool) -> Iterator[str]:
    """Add references, questions and context to an agent."""
    from indexerd.integrations import install as installing

    host = installing.Host(
        env=os.environ,
        home=str(Path.home()),
        settings=current().loaded.settings,
        command=program(),
        **wished,
    )
    done = installing.integrate(agent, host)
    if as_json(done):
        return
    yield from (f"{change['did']}\t{safe(change['path'], 4096)}" for change in done["changes"])
    for note in done["notes"]:
        aside(safe(note, 8192))


@command(
    argument("shell", metavar="SHELL", type=click.Choice(("bash", "zsh", "fish", "powershell")))
)
def completion(shell: str) -> str:
    """Print the completion script of bash, zsh, fish or powershell."""
    completer = get_completion_class(shell)
    script = completer(cli, {}, "indexerd", "_INDEXERD_COMPLETE").source() if completer else ""
    return "" if as_json({"shell": shell, "script": script}) else script
