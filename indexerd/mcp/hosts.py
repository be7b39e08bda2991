"""How each MCP host is told of this server: the snippet for its configuration, and where it goes.

Hosts start servers with a bare PATH and few variables, so the program is named by its absolute
path and the variables that say where our socket and files are go along, as they are now. Keys are
never among them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

HOSTS = ("claude", "codex", "opencode", "cursor", "vscode")
NAME = "indexerd"
PATIENCE_MS = 60_000  # opencode gives a tool 5 s by itself, and a question takes longer
_PLACES = (
    *("INDEXERD_CONFIG", "INDEXERD_DATA_DIR", "INDEXERD_SOCKET", "INDEXERD_STATE_DIR"),
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"),
)
_WHERE = {
    "claude": ".mcp.json of a project, or the same entry in ~/.claude.json for all of them",
    "codex": "~/.codex/config.toml",
    "opencode": "opencode.json of a project, or ~/.config/opencode/opencode.json",
    "cursor": ".cursor/mcp.json of a project, or ~/.cursor/mcp.json",
    "vscode": ".vscode/mcp.json of a project",
}


class Snippet(NamedTuple):
    """What to paste, and the file that it goes into."""

    text: str
    where: str


def carried(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that say where our things are, if they are not where they usually are."""
    usual = {"XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}"}
    return {key: env[key] for key in _PLACES if env.get(key) and env[key] != usual.get(key)}


def snippet(host: str, command: Sequence[str], env: Mapping[str, str]) -> Snippet:
    """The snippet for one of HOSTS. `command` is the whole command line."""
    entry: dict[str, Any] = {"command": command[0], "args": list(command[1:])}
    entry |= {"env": dict(env)} if env else {}
    if host == "codex":
        import tomlkit  # noqa: PLC0415 - for this host alone

        return Snippet(tomlkit.dumps({"mcp_servers": {NAME: entry}}) + "\n", _WHERE[host])
    stdio = {"type": "stdio", **entry}
    own = {"type": "local", "command": list(command), "enabled": True, "timeout": PATIENCE_MS}
    own |= {"environment": dict(env)} if env else {}
    shapes: dict[str, dict[str, Any]] = {
        "claude": {"mcpServers": {NAME: stdio}},
        "cursor": {"mcpServers": {NAME: entry}},
        "vscode": {"servers": {NAME: stdio}},
        "opencode": {"$schema": "https://opencode.ai/config.json", "mcp": {NAME: own}},
    }
    return Snippet(json.dumps(shapes[host], indent=2) + "\n", _WHERE[host])
