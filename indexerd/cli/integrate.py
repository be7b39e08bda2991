"""`indexerd integrate AGENT [--remove]`: our hooks, extension, plugin or MCP server in an agent.

In: an agent's name. Out: a line for each file, what was done with it and its path; what is left
to do goes to stderr; with `--json` one document with both. May be run twice; a second time says
`unchanged`. What stands in the place of a file of ours, and is not ours, is left alone, and its
line says `kept: not ours`. A broken configuration of ours does not stop it: defaults are taken
then.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from indexerd.cli.ask import show as show_json
from indexerd.cli.ask import where
from indexerd.cli.program import command

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
    width = max((len(one["did"]) for one in done["changes"]), default=0)
    put(f"{one['did']:<{width}}  {safe(one['path'], 4096)}" for one in done["changes"])
    for note in done["notes"]:
        click.echo(safe(note, 8192), err=True)
