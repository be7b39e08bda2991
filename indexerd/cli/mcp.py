"""The command `mcp`: the MCP server, and what a host must be told of it."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING

import click

from indexerd.cli.program import command
from indexerd.cli.run import Loading
from indexerd.cli.streams import aside
from indexerd.errors import IndexerdError
from indexerd.mcp.hosts import HOSTS, carried, snippet
from indexerd.paths import places

if TYPE_CHECKING:
    from indexerd.cli.main import App


@click.command()
@click.option(
    "--print-config",
    "host",
    type=click.Choice(HOSTS),
    help="Print what this host's configuration needs, and end.",
)
@click.pass_obj
def mcp(app: App, host: str | None) -> None:
    """Serve coding agents by the Model Context Protocol, on stdin and stdout."""
    from indexerd.cli.backend import project

    if host is not None:
        _print(app, host)
        return
    if importlib.util.find_spec("mcp") is None:
        raise IndexerdError(
            "the MCP server needs the package `mcp`, which is not installed",
            hint="install it with indexerd: `uv tool install 'indexerd[mcp]'`, or"
            " `pip install 'indexerd[mcp]'`",
        )
    with Loading():
        from indexerd.mcp.daemon import DaemonAccess
        from indexerd.mcp.server import serve

    serve(DaemonAccess(places(config=app.config), os.environ, cwd=project()))


def _print(app: App, host: str) -> None:
    config = ["--config", os.path.abspath(app.config)] if app.config else []  # noqa: PTH100 - keeps no `..`
    found = snippet(host, [*command(), *config, "mcp"], carried(os.environ))
    aside(f"# {found.where}:")
    sys.stdout.write(found.text)
