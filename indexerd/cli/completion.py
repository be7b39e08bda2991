"""`indexerd completion SHELL`: click's own completion, under our name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

if TYPE_CHECKING:
    from indexerd.cli.app import App


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
