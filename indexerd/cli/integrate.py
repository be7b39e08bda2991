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

from indexerd.cli import declare
from indexerd.cli.ask import show as show_json
from indexerd.cli.ask import where
from indexerd.cli.program import command
from indexerd.cli.streams import aside, put, safe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from indexerd.cli.app import App

AGENTS = ("pi", "claude", "codex", "opencode")


@declare.command()
@declare.argument("agent", of=AGENTS)
@declare.option("--remove", is_flag=True, help="Take it out again; everything else stays.")
@declare.option("--force", is_flag=True, help="Also where a file of ours was edited.")
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
