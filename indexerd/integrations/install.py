"""What `indexerd integrate` puts into each agent, and takes out again.

In: an agent, and a `Host` that says where we are and how our program is called. Out: what was
done, path by path, and notes for the user; `integrations.edits` does it, and says what it never
does.

* pi: an extension of our own directory. opencode: one plugin, which brings its MCP server along.
* Claude Code: two hooks in its settings, and an MCP server where `claude mcp add` puts one.
* Codex: an MCP server in its configuration, and the same two hooks; its user must trust them.
* Each of them: a skill, which says when to note context, and when to ask past sessions (S4.27).

A hook's command ends in `|| true`: where our program has gone or is an older one, a shell's 127
or 2 would show at every prompt, or block it.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Protocol

from indexerd.agents import pi
from indexerd.errors import NotFoundError
from indexerd.integrations import agent_settings, own_files
from indexerd.integrations import edits as installs
from indexerd.integrations.agent_settings import NAME
from indexerd.integrations.edits import Change, Edit
from indexerd.settings import Settings

AGENTS = ("pi", "claude", "codex", "opencode")
TABLE = f"mcp_servers.{NAME}"
PLACEHOLDER = "__INDEXERD_COMMAND__"
RESUME_SECONDS = 10
MORE_SECONDS = 10.0  # for a hook or a tool, beyond what a question may take
_OPENCODE_WAITS = (
    "once it has any plugin, opencode installs a package of its own from the network; while there"
    " is no network, it waits for that at every start, for more than a minute (74 s in 1.18)"
)
# What agents keep in mind of a skill; they read the rest when they need it.
_SKILL = f"""---
name: {NAME}
description: >-
  When to call set_relevant_context (a central file read or edited, a design document named,
  endpoints, ports or applets in use, before finishing), so that a resumed session knows what it
  was working with; and when to ask past sessions instead of guessing.
---

"""
# Codex hands these on to an MCP server only where they are named.
PASSED_ON = (
    *("INDEXERD_SOCKET", "INDEXERD_CONFIG", "INDEXERD_STATE_DIR", "INDEXERD_DATA_DIR"),
    *("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"),
)


@dataclass(frozen=True, slots=True)
class Host:
    """Where agents are looked for, and how they are to call us."""

    env: Mapping[str, str]
    home: str
    settings: Settings
    command: tuple[str, ...]  # our program, by its absolute path
    serves_mcp: bool = True  # whether `indexerd mcp` has what it needs
    force: bool = False

    def path(self, named: str) -> str:
        """A path as the user writes it, made absolute."""
        whole = self.home + named[1:] if named == "~" or named.startswith("~/") else named
        return os.path.abspath(whole)  # noqa: PTH100 - a link in it stays

    def base(self, variable: str, default: str) -> str:
        """A directory of the XDG's; a relative value is none."""
        named = self.env.get(variable, "")
        return named if named.startswith("/") else f"{self.home}/{default}"


@dataclass(frozen=True, slots=True)
class Work:
    """The edits of one agent, the directories of ours that they may leave empty, and notes."""

    edits: tuple[Edit, ...]
    directories: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class _Planned(Protocol):
    def __call__(self, host: Host, *, remove: bool) -> Work: ...


def install(agent: str, host: Host) -> dict[str, Any]:
    """Install into an agent. NotFoundError where it is not there; else as `edits.apply`."""
    return _done(agent, _WORK[agent](host, remove=False), remove=False)


def uninstall(agent: str, host: Host) -> dict[str, Any]:
    """Take out of an agent what `install` put there, and nothing else."""
    return _done(agent, _WORK[agent](host, remove=True), remove=True)


def _done(agent: str, work: Work, *, remove: bool) -> dict[str, Any]:
    changes = installs.apply(work.edits)
    for directory in work.directories if remove else ():
        installs.drop_directory(directory)
    notes = [] if remove else [*work.notes, *_left_alone(changes)]
    return {"agent": agent, "changes": [asdict(one) for one in changes], "notes": notes}


def _left_alone(changes: Iterable[Change]) -> list[str]:
    """What to do where a skill of the user's stands in the place of ours."""
    return [
        f"{one.path} is not ours, and was left alone; move it away and integrate again to have ours"
        for one in changes
        if one.did == "kept: not ours"
    ]


def _there(agent: str, places: Iterable[str], *, remove: bool) -> list[str]:
    """The directories of an agent that are there; NotFoundError where none is."""
    all_of_them = list(dict.fromkeys(places))
    found = [one for one in all_of_them if os.path.isdir(one)]  # noqa: PTH112 - text paths
    if not found and not remove:
        raise NotFoundError(
            f"{agent} is not here: there is no {' or '.join(all_of_them)}",
            hint=f"start {agent} once; or set its variable, or [agents.{agent}] roots",
        )
    return found


# -- pi and opencode: files of ours --------------------------------------------------------------


def _pi(host: Host, *, remove: bool) -> Work:
    chosen = host.settings.agents.pi.roots or pi.agent_dirs(host.env, host.home)
    roots = _there("pi", map(host.path, chosen), remove=remove)
    homes = [f"{root}/extensions/{NAME}" for root in roots]
    edits = [edit for home in homes for edit in _copied(host, "pi", home, remove=remove)]
    skills = [_skill(host, root, remove=remove) for root in roots]
    ours = [path for home in homes for path in own_files.owned(home)]
    left = {*homes, *_made([*ours, *(one.path for one in skills)])}
    notes = ("sessions that run now take it up with /reload",)
    return Work((*edits, *skills), tuple(sorted(left, key=len, reverse=True)), notes)


def _made(paths: Iterable[str]) -> tuple[str, ...]:
    """The directories that were made for files of ours, those within others first."""
    made = {one for path in paths for one in own_files.directories(path)}
    return tuple(sorted(made, key=len, reverse=True))


def _skill(host: Host, home: str, *, remove: bool) -> Edit:
    """The instruction text, in an agent's directory of skills; the user's own goes first."""
    path = f"{home}/skills/{NAME}/SKILL.md"
    if remove:
        return installs.no_own_file(path, force=host.force)
    text = (files("indexerd") / "integrations" / "instructions.md").read_text(encoding="utf-8")
    return installs.own_file(path, _SKILL + text, force=host.force, yields=True)


def _copied(host: Host, agent: str, home: str, *, remove: bool) -> list[Edit]:
    """Every packaged file of an agent, to one directory; files of older versions go."""
    ours = {f"{home}/{name}": body for name, body in packaged(agent, host.command).items()}
    gone = (
        ours.keys() | set(own_files.owned(home))
        if remove
        else set(own_files.owned(home)) - ours.keys()
    )
    edits = [installs.no_own_file(path, force=host.force) for path in sorted(gone)]
    if not remove:
        edits += [installs.own_file(path, ours[path], force=host.force) for path in sorted(ours)]
    return edits


def packaged(agent: str, command: Iterable[str]) -> dict[str, str]:
    """The files that belong into an agent, by their names."""
    source: Traversable = files("indexerd") / "integrations" / agent
    told = json.dumps(list(command))
    held = {
        one.name: one.read_text(encoding="utf-8").replace(PLACEHOLDER, told)
        for one in source.iterdir()
        if one.is_file() and not one.name.startswith(".")
    }
    return dict(sorted(held.items()))


def _opencode(host: Host, *, remove: bool) -> Work:
    config = host.base("XDG_CONFIG_HOME", ".config") + "/opencode"
    data = host.base("XDG_DATA_HOME", ".local/share") + "/opencode"
    _there("opencode", (config, data), remove=remove)
    bodies = packaged("opencode", host.command if host.serves_mcp else ())
    ours = {f"{config}/plugins/{name}": body for name, body in bodies.items()}
    edits = [
        installs.no_own_file(path, force=host.force)
        if remove
        else installs.own_file(path, body, force=host.force)
        for path, body in ours.items()
    ]
    edits.append(_skill(host, config, remove=remove))
    made = _made(one.path for one in edits)
    notes = (
        "it is there in sessions that start from now on",
        _OPENCODE_WAITS,
        *_mcp_notes(host),
    )
    return Work(tuple(edits), made, notes)


# -- Claude Code and Codex: lines in files of theirs ---------------------------------------------


def _claude(host: Host, *, remove: bool) -> Work:
    named = host.env.get("CLAUDE_CONFIG_DIR", "")
    chosen = [named] if named else host.settings.agents.claude.roots
    roots = _there("claude", map(host.path, chosen or _usual(host)), remove=remove)
    if not chosen and not remove:
        del roots[1:]  # the second is Claude Code's where the first is not there
    edits = [_hooks(host, "claude", f"{root}/settings.json", remove=remove) for root in roots]
    if host.serves_mcp or remove:
        server = partial(agent_settings.with_server, _server(host.command))
        change = agent_settings.without_server if remove else server
        states = dict.fromkeys(_claude_state(host, root) for root in roots)
        edits += [installs.json_edit(path, change, removing=remove) for path in states]
    skills = [_skill(host, root, remove=remove) for root in roots]
    notes = ("it is there in sessions that start from now on", *_mcp_notes(host))
    return Work((*edits, *skills), _made(one.path for one in skills), notes)


def _usual(host: Host) -> tuple[str, str]:
    """Where Claude Code is; the first that is there counts."""
    return host.path("~/.claude"), host.base("XDG_CONFIG_HOME", ".config") + "/claude"


def _claude_state(host: Host, root: str) -> str:
    """The file in which Claude Code keeps the servers of a user."""
    old = f"{root}/.config.json"
    if os.path.isfile(old) and os.path.getsize(old):  # noqa: PTH113, PTH202 - text paths
        return old
    usual = root in _usual(host) and not host.env.get("CLAUDE_CONFIG_DIR")
    return host.path("~/.claude.json") if usual else f"{root}/.claude.json"


def _codex(host: Host, *, remove: bool) -> Work:
    named = host.env.get("CODEX_HOME", "")
    chosen = [named] if named else host.settings.agents.codex.roots or ["~/.codex"]
    edits: list[Edit] = []
    skills: list[Edit] = []
    for root in _there("codex", map(host.path, chosen), remove=remove):
        edits.append(_hooks(host, "codex", f"{root}/hooks.json", remove=remove))
        path, lines = f"{root}/config.toml", _codex_server(host)
        if remove:
            edits.append(installs.no_toml_table(path, TABLE, lines))
        elif host.serves_mcp:
            edits.append(installs.toml_edit(path, TABLE, lines))
        skills.append(_skill(host, root, remove=remove))
    notes = (
        "Codex runs new hooks once you have trusted them: it asks at its next start, or use /hooks",
        "a Codex that does not know hooks.json yet has the MCP server alone",
        *_mcp_notes(host),
    )
    return Work((*edits, *skills), _made(one.path for one in skills), notes)


def _codex_server(host: Host) -> list[str]:
    program, *words = host.command
    told: dict[str, Any] = {"command": program, "args": [*words, "mcp"]}
    told["env_vars"] = list(PASSED_ON)
    told["tool_timeout_sec"] = max(60, int(host.settings.query.timeout_seconds + MORE_SECONDS))
    # What JSON and TOML both call a string, or a list of them; DEL alone is written differently.
    return [
        f"{key} = {json.dumps(value)}".replace("\x7f", "\\u007f") for key, value in told.items()
    ]


def _mcp_notes(host: Host) -> tuple[str, ...]:
    told = "the MCP server is left out: install indexerd[mcp], and integrate again"
    return () if host.serves_mcp else (told,)


_WORK: dict[str, _Planned] = {
    "pi": _pi,
    "claude": _claude,
    "codex": _codex,
    "opencode": _opencode,
}


# -- hooks ---------------------------------------------------------------------------------------


def hook_command(agent: str, command: Iterable[str]) -> str:
    """What an agent's shell runs."""
    return f"{shlex.join([*command, 'hook', agent])} || true"


def _hooks(host: Host, agent: str, path: str, *, remove: bool) -> Edit:
    command = hook_command(agent, host.command)
    prompt = int(host.settings.query.timeout_seconds + MORE_SECONDS)
    told = {"type": "command", "command": command}
    groups: dict[str, dict[str, Any]] = {
        "UserPromptSubmit": {"hooks": [told | {"timeout": prompt}]},
        "SessionStart": {"matcher": "resume", "hooks": [told | {"timeout": RESUME_SECONDS}]},
    }
    put_in = partial(agent_settings.with_hooks, agent, groups)
    change = partial(agent_settings.without_hooks, agent) if remove else put_in
    return installs.json_edit(path, change, removing=remove)


def _server(command: tuple[str, ...]) -> dict[str, Any]:
    """As `claude mcp add` writes it."""
    return {"type": "stdio", "command": command[0], "args": [*command[1:], "mcp"], "env": {}}
