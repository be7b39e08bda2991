"""`indexerd config path|show|check`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from indexerd.cli import render
from indexerd.cli.ask import show as show_json
from indexerd.cli.ask import where
from indexerd.cli.streams import put
from indexerd.errors import ConfigError

if TYPE_CHECKING:
    from indexerd.cli.app import App


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
