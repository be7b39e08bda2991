"""`indexerd integrate AGENT [--remove]`: our hooks, extension, plugin or MCP server in an agent.

In: an agent's name. Out: a line for each file, what was done with it and its path; what is left
to do goes to stderr; with `--json` one document with both. May be run twice; a second time says
`unchanged`. A broken configuration of ours does not stop it: defaults are taken then.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from indexerd.cli.ask import show as show_json
from indexerd.cli.ask import where

AGENTS = ("pi", "claude", "codex", "opencode")


@click.command()
@click.argument("agent", type=click.Choice(AGENTS))
@click.option("--remove", is_flag=True, help="Take it out again; everything else stays.")
@click.option("--force", is_flag=True, help="Also where a file of ours was edited.")
@click.pass_context
def integrate(ctx: click.Context, agent: str, remove: bool, force: bool) -> None:
    """Install into an agent: references, questions, context."""
    from importlib.util import find_spec

    from indexerd.cli.streams import put, safe
    from indexerd.service.config import read_config
    from indexerd.service.installs import Host, install, uninstall

    loaded = read_config(where(ctx.obj), os.environ)
    host = Host(
        env=os.environ,
        home=str(Path.home()),
        settings=loaded.settings,
        command=command(),
        serves_mcp=find_spec("mcp") is not None,
        force=force,
    )
    done = (uninstall if remove else install)(agent, host)
    if loaded.problems:
        click.echo("the configuration has problems: see `indexerd config check`", err=True)
    if show_json(ctx.obj, done):
        return
    put(f"{one['did']:<9}  {safe(one['path'], 4096)}" for one in done["changes"])
    for note in done["notes"]:
        click.echo(note, err=True)


def command() -> tuple[str, ...]:
    """How to call this program from anywhere, however this process was started."""
    beside = Path(sys.executable).parent / "indexerd"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("indexerd")
    if found is None:
        return (sys.executable, "-m", "indexerd")
    return (str(Path(found).absolute()),)
