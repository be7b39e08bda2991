"""How each MCP host is told of this server: the snippet for its configuration, and where it goes.

Hosts start servers with a bare PATH and few variables, so the program is named by its absolute
path, and the variables that say where our things are go along, but never a key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

NAME = "indexerd"
PATIENCE_MS = 60_000  # opencode gives a tool 5 s by itself, and a question takes longer
HOSTS = {
    "claude": ".mcp.json of a project, or the same entry in ~/.claude.json for all of them",
    "codex": "~/.codex/config.toml",
    "opencode": "opencode.json of a project, or ~/.config/opencode/opencode.json",
    "cursor": ".cursor/mcp.json of a project, or ~/.cursor/mcp.json",
    "vscode": ".vscode/mcp.json of a project",
}
_PLACES = (
    *("INDEXERD_CONFIG", "INDEXERD_DATA_DIR", "INDEXERD_SOCKET", "INDEXERD_STATE_DIR"),
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"),
)


def carried(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that say where our things are, if they are not where they usually are."""
    usual = {"XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}"}
    return {key: env[key] for key in _PLACES if env.get(key) and env[key] != usual.get(key)}


def snippet(host: str, command: Sequence[str], env: Mapping[str, str]) -> str:
    """What to paste for one of HOSTS. `command` is the whole command line."""
    entry: dict[str, Any] = {"command": command[0], "args": list(command[1:])}
    entry |= {"env": dict(env)} if env else {}
    if host == "codex":
        import tomlkit  # noqa: PLC0415 - for this host alone

        return tomlkit.dumps({"mcp_servers": {NAME: entry}}) + "\n"
    key = {"opencode": "mcp", "vscode": "servers"}.get(host, "mcpServers")
    if host == "opencode":
        entry = {"type": "local", "command": list(command), "enabled": True, "timeout": PATIENCE_MS}
        entry |= {"environment": dict(env)} if env else {}
    else:
        entry = {"type": "stdio", **entry}
    return json.dumps({key: {NAME: entry}}, indent=2) + "\n"
