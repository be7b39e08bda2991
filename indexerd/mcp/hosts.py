"""The entry for this server in each MCP host's configuration, and the file it belongs in.

Hosts start servers with a minimal PATH and few variables, so the entry has the program's absolute
path and the variables that locate our files, but never a key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

HOSTS = {
    "claude": ".mcp.json of a project, or ~/.claude.json for all projects",
    "codex": "~/.codex/config.toml",
    "opencode": "opencode.json of a project, or ~/.config/opencode/opencode.json",
    "cursor": ".cursor/mcp.json of a project, or ~/.cursor/mcp.json",
    "vscode": ".vscode/mcp.json of a project",
}
PLACES = (
    *("INDEXERD_CONFIG", "INDEXERD_DATA_DIR", "INDEXERD_SOCKET", "INDEXERD_STATE_DIR"),
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"),
)


def snippet(host: str, command: Sequence[str], env: Mapping[str, str]) -> str:
    """Return the text to paste for one of HOSTS; `command` is the whole command line."""
    usual = {"XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}"}
    places = {key: env[key] for key in PLACES if env.get(key) and env[key] != usual.get(key)}
    entry: dict[str, Any] = {"command": command[0], "args": list(command[1:])}
    entry |= {"env": places} if places else {}
    if host == "codex":
        import tomlkit  # noqa: PLC0415 - only for this host

        return tomlkit.dumps({"mcp_servers": {"indexerd": entry}}) + "\n"
    if host == "opencode":  # its default timeout of 5 s is too short for questions
        entry = {"type": "local", "command": list(command), "enabled": True, "timeout": 60_000}
        entry |= {"environment": places} if places else {}
    else:
        entry = {"type": "stdio", **entry}
    key = {"opencode": "mcp", "vscode": "servers"}.get(host, "mcpServers")
    return json.dumps({key: {"indexerd": entry}}, indent=2) + "\n"
