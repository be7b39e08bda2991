"""Install into each agent, or remove, what `indexerd integrate` offers.

A hook's command ends in `|| true`, because the exit code 127 or 2 of a missing or older program
would show an error at every prompt, or block it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from indexerd.client import absolute
from indexerd.errors import NotFoundError
from indexerd.integrations import agent_settings, changes
from indexerd.integrations.changes import NAME, Edit
from indexerd.mcp.hosts import PLACES
from indexerd.settings import Settings
from indexerd.sources.roots import pi_dir

MORE_SECONDS = 10  # for a hook or a tool, in addition to the time for a question
# The part of a skill that is always in an agent's context.
_SKILL = f"""---
name: {NAME}
description: >-
  When to call set_relevant_context (a central file read or edited, a design document named,
  endpoints, ports or applets in use, before finishing), so that a resumed session knows what it
  was working with; and when to ask past sessions instead of guessing.
---

"""
_NEW_SESSIONS = "new sessions will use it"


@dataclass(frozen=True, slots=True)
class Host:
    """The user's machine, our program, and the options of the command."""

    env: Mapping[str, str]
    home: str
    settings: Settings
    command: tuple[str, ...]  # starts our program, by its absolute path
    force: bool = False
    remove: bool = False

    def base(self, variable: str, default: str) -> str:
        named = self.env.get(variable, "")  # by XDG a relative value is ignored
        return named if named.startswith("/") else f"{self.home}/{default}"

    def present(self, agent: str, places: Iterable[str]) -> list[str]:
        """List the existing directories of an agent; NotFoundError if there is none."""
        named = list(dict.fromkeys(absolute(place, self.env, self.home) for place in places))
        existing = [place for place in named if Path(place).is_dir()]
        if not existing and not self.remove:
            raise NotFoundError(
                f"{agent} was not found: there is no {' or '.join(named)}",
                hint=f"start {agent} once, or set its variable or [agents.{agent}] roots",
            )
        return existing

    def own_file(self, path: str, body: str, *, skip_foreign: bool = False) -> Edit:
        text = None if self.remove else body
        return changes.own_file(path, text, force=self.force, skip_foreign=skip_foreign)

    def skill(self, home: str) -> Edit:
        """Put the instructions into an agent's skills, unless the user has one of that name."""
        text = (files("indexerd") / "integrations" / "instructions.md").read_text(encoding="utf-8")
        return self.own_file(f"{home}/skills/{NAME}/SKILL.md", _SKILL + text, skip_foreign=True)


def integrate(agent: str, host: Host) -> dict[str, Any]:
    """Install into an agent, or remove. Raises NotFoundError, or what `changes.apply` raises."""
    edits, notes = _AGENTS[agent](host)
    did = changes.apply(edits)
    kept = [change["path"] for change in did if change["did"] == changes.NOT_OURS]
    notes += [f"{p} is not indexerd's and was kept; move it, then run this again" for p in kept]
    return {"agent": agent, "changes": did, "notes": [] if host.remove else notes}


def _packaged(agent: str, command: Iterable[str]) -> dict[str, str]:
    named = json.dumps(list(command))
    return {
        file.name: file.read_text(encoding="utf-8").replace("__INDEXERD_COMMAND__", named)
        for file in (files("indexerd") / "integrations" / agent).iterdir()
        if file.is_file()
    }


def _pi(host: Host) -> tuple[list[Edit], list[str]]:
    chosen = host.settings.agents.pi.roots or [pi_dir(host.env, host.home)]
    edits: list[Edit] = []
    for root in host.present("pi", chosen):
        home = f"{root}/extensions/{NAME}"
        bodies = _packaged("pi", host.command)
        edits += [host.own_file(f"{home}/{name}", bodies[name]) for name in sorted(bodies)]
        edits.append(host.skill(root))
    return edits, ["use /reload in running sessions"]


def _opencode(host: Host) -> tuple[list[Edit], list[str]]:
    config = host.base("XDG_CONFIG_HOME", ".config") + "/opencode"
    host.present("opencode", (config, host.base("XDG_DATA_HOME", ".local/share") + "/opencode"))
    bodies = _packaged("opencode", host.command)
    edits = [host.own_file(f"{config}/plugins/{name}", body) for name, body in bodies.items()]
    return [*edits, host.skill(config)], [_NEW_SESSIONS]


def _claude(host: Host) -> tuple[list[Edit], list[str]]:
    named = host.env.get("CLAUDE_CONFIG_DIR", "")
    usual = (f"{host.home}/.claude", host.base("XDG_CONFIG_HOME", ".config") + "/claude")
    chosen = [named] if named else host.settings.agents.claude.roots
    roots = host.present("claude", chosen or usual)
    if not chosen and not host.remove:
        del roots[1:]  # Claude Code uses the second only where the first is missing
    edits = [edit for root in roots for edit in _hooks(host, "claude", f"{root}/settings.json")]
    program, *words = host.command
    server = {"type": "stdio", "command": program, "args": [*words, "mcp"], "env": {}}
    at_home = () if named else usual  # their `.claude.json` is in the home directory
    for folder in dict.fromkeys(host.home if root in at_home else root for root in roots):
        edits += _server(host, f"{folder}/.claude.json", "mcpServers", server)
    return [*edits, *map(host.skill, roots)], [_NEW_SESSIONS]


def _codex(host: Host) -> tuple[list[Edit], list[str]]:
    named = host.env.get("CODEX_HOME", "")
    program, *words = host.command
    server = {
        "command": program,
        "args": [*words, "mcp"],
        "env_vars": [*PLACES],  # Codex passes on only named variables
        "tool_timeout_sec": max(60, int(host.settings.query.timeout_seconds + MORE_SECONDS)),
    }
    edits: list[Edit] = []
    chosen = [named] if named else host.settings.agents.codex.roots or ["~/.codex"]
    for root in host.present("codex", chosen):
        edits += _hooks(host, "codex", f"{root}/hooks.json")
        edits += _server(host, f"{root}/config.toml", "mcp_servers", server)
        edits.append(host.skill(root))
    return edits, [
        "Codex runs new hooks after you trust them: it asks at its next start, or use /hooks",
        "versions of Codex without hooks.json only get the MCP server",
    ]


_AGENTS: dict[str, Callable[[Host], tuple[list[Edit], list[str]]]] = {
    "pi": _pi,
    "claude": _claude,
    "codex": _codex,
    "opencode": _opencode,
}


def _hooks(host: Host, agent: str, path: str) -> list[Edit]:
    command = f"{shlex.join([*host.command, 'hook', agent])} || true"
    hook = {"type": "command", "command": command}
    prompt = int(host.settings.query.timeout_seconds + MORE_SECONDS)
    groups: dict[str, dict[str, Any]] = {
        "UserPromptSubmit": {"hooks": [hook | {"timeout": prompt}]},
        "SessionStart": {"matcher": "resume", "hooks": [hook | {"timeout": 10}]},
    }
    put = partial(agent_settings.put_hooks, agent, groups)
    take = partial(agent_settings.take_hooks, agent)
    return agent_settings.settings_edits(path, put, take, remove=host.remove)


def _server(host: Host, path: str, key: str, server: dict[str, Any]) -> list[Edit]:
    put = partial(agent_settings.put_server, key, server)
    take = partial(agent_settings.take_server, key)
    return agent_settings.settings_edits(path, put, take, remove=host.remove)
