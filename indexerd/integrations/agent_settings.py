"""Our hooks and MCP server in agents' settings: JSON of Claude Code and Codex, TOML of Codex.

Text in, text out. A hook is ours if its command calls our program and does nothing else; a server
is ours if it starts our program. Of entries that are there only the program's path and arguments
are brought up to date: limits, matchers and further keys belong to the user.

ValueError: a text cannot be parsed, has another shape, or would not survive being rewritten (JSON
with comments). UsageError: there is a server of our name that is not ours.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from indexerd.errors import UsageError

NAME = "indexerd"
EVENTS = ("UserPromptSubmit", "SessionStart")  # of the hooks that we install
_PYTHON = re.compile(r"(?:python|pypy|graalpy)[\w.-]*")
_INDENT = re.compile(r"\n([ \t]+)\S")

Value = dict[str, Any]


# -- JSON ----------------------------------------------------------------------------------------


def change_json(change: Callable[[Value], None], text: str | None) -> str:
    """The text with `change` done to its object; the same text where that changes nothing."""
    bom = "\ufeff" if (text or "").startswith("\ufeff") else ""
    body = (text or "").removeprefix(bom)
    before = _parse(body) if body.strip() else {}
    after = copy.deepcopy(before)
    change(after)
    if after == before and text is not None:
        return text
    found = _INDENT.search(body)
    indent: str | None = found[1] if found else ("  " if not body.strip() else None)
    shown = json.dumps(after, indent=indent, ensure_ascii=False, allow_nan=False)
    ends = "\n" if not body.strip() or body.endswith("\n") else ""
    shown = (shown + ends).replace("\n", "\r\n" if "\r\n" in body else "\n")
    return bom + shown


def _parse(text: str) -> Value:
    try:
        found = json.loads(text)
        json.dumps(found, allow_nan=False)  # a number that is too large would not come back
    except json.JSONDecodeError as bad:
        raise ValueError(f"not JSON in line {bad.lineno}") from None
    except (ValueError, RecursionError):
        raise ValueError("it cannot be written again as it is") from None
    if not isinstance(found, dict):
        raise ValueError("it holds no object")
    return found


def _member(value: Value, key: str, kind: type) -> Any:
    """What is under a key, made where there is nothing. ValueError for another type."""
    entry = value.setdefault(key, kind())
    if not isinstance(entry, kind):
        raise ValueError(f"{key} is no {'object' if kind is dict else 'list'}")
    return entry


def put_hooks(agent: str, groups: Mapping[str, Value], value: Value) -> None:
    """Have one hook of ours for each event; of one that is there the command is brought up."""
    hooks = _member(value, "hooks", dict)
    for event, group in groups.items():
        listed = _member(hooks, event, list)
        ours = list(_our_hooks(agent, listed))
        if not ours:
            listed.append(copy.deepcopy(group))
            continue
        ours[0][1]["command"] = group["hooks"][0]["command"]
        for inner, hook in ours[1:]:  # of older paths
            _drop(inner, hook)
        _drop_empty_groups(hooks, event, [inner for inner, _ in ours[1:]])


def take_hooks(agent: str, value: Value) -> None:
    """Remove our hooks, and the lists that this leaves empty."""
    hooks = value.get("hooks")
    if not isinstance(hooks, dict):
        return
    for event in EVENTS:
        ours = list(_our_hooks(agent, hooks.get(event)))
        for inner, hook in ours:
            _drop(inner, hook)
        _drop_empty_groups(hooks, event, [inner for inner, _ in ours])
    if not hooks:
        del value["hooks"]


def _our_hooks(agent: str, groups: Any) -> Iterator[tuple[list[Any], Value]]:
    """Each hook of ours, and the list that it is in."""
    for group in groups if isinstance(groups, list) else ():
        inner = group.get("hooks") if isinstance(group, dict) else None
        for hook in inner if isinstance(inner, list) else ():
            if not isinstance(hook, dict) or hook.get("type", "command") != "command":
                continue
            command = hook.get("command")
            if inner and isinstance(command, str) and is_hook_command(agent, command):
                yield inner, hook


def _drop(inner: list[Any], hook: Value) -> None:
    inner[:] = [one for one in inner if one is not hook]


def _drop_empty_groups(hooks: Value, event: str, changed: Sequence[list[Any]]) -> None:
    """Remove the groups whose lists are among `changed` and empty now; and the event's list."""
    emptied = {id(one) for one in changed if not one}
    if emptied:
        hooks[event][:] = [one for one in hooks[event] if id(one.get("hooks")) not in emptied]
        if not hooks[event]:
            del hooks[event]


def is_hook_command(agent: str, command: str) -> bool:
    """Whether a shell command calls our hook for an agent, and does nothing besides."""
    if "\n" in command:
        return False
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.whitespace_split, words.commenters = True, ""
    try:
        found = list(words)
    except ValueError:  # quotes that do not end
        return False
    if found[-2:] == ["||", "true"]:
        del found[-2:]
    return _is_program(found[:-2]) and found[-2:] == ["hook", agent]


def _is_program(words: Sequence[str]) -> bool:
    """Whether these words start our program, wherever that is."""
    name = words[0].rpartition("/")[2] if words else ""
    return (name == NAME and len(words) == 1) or (
        _PYTHON.fullmatch(name) is not None and [*words[1:]] in (["-m", NAME], ["-P", "-m", NAME])
    )


def put_server(wanted: Mapping[str, Any], value: Value) -> None:
    """Have an entry for our MCP server; what else its user gave it stays."""
    servers = _member(value, "mcpServers", dict)
    if NAME not in servers:
        servers[NAME] = dict(wanted)
    elif not _is_server(servers[NAME]):
        raise UsageError(
            f"there is an MCP server {NAME} that is not ours",
            hint=f"rename it, or take it away: claude mcp remove -s user {NAME}",
        )
    servers[NAME] |= {key: wanted[key] for key in ("command", "args")}


def take_server(value: Value) -> None:
    """Remove our MCP server."""
    servers = value.get("mcpServers")
    if isinstance(servers, dict) and _is_server(servers.get(NAME)):
        del servers[NAME]
        if not servers:
            del value["mcpServers"]


def _is_server(entry: Any) -> bool:
    """Whether an entry starts our program, wherever that is."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("args"), list):
        return False
    words = [str(entry.get("command")), *map(str, entry["args"])]
    return words[-1] == "mcp" and _is_program(words[:-1])


# -- TOML ----------------------------------------------------------------------------------------


def put_toml_server(wanted: Mapping[str, Any], text: str | None) -> str:
    """The text with a table of our MCP server; of one that is there the program is brought up."""
    text = text or ""
    servers = _toml(text).get("mcp_servers", {})
    if not isinstance(servers, Mapping):
        raise ValueError("mcp_servers is no table")
    if NAME not in servers:
        table = tomlkit.table()
        table.update(wanted)
        added = tomlkit.document()
        added["mcp_servers"] = tomlkit.table(is_super_table=True).append(NAME, table)
        joined = f"{text}\n{tomlkit.dumps(added)}" if text else tomlkit.dumps(added)
        if _is_toml(joined):  # not where the servers are written in one line
            return joined
        raise ValueError("[mcp_servers] is written in one line; write it as a table")
    if not _is_server(servers[NAME]):
        raise UsageError(
            f"there is a [mcp_servers.{NAME}] that is not ours",
            hint=f"remove [mcp_servers.{NAME}] if you do not need it, then try again",
        )
    document = tomlkit.parse(text)
    table = document["mcp_servers"][NAME]
    for key in ("command", "args"):
        if table[key] != wanted[key]:
            table[key] = wanted[key]
    return tomlkit.dumps(document)


def take_toml_server(text: str) -> str:
    """The text without our table, and without the line break that we put before it."""
    servers = _toml(text).get("mcp_servers")
    if not isinstance(servers, Mapping) or not _is_server(servers.get(NAME)):
        return text
    document = tomlkit.parse(text)
    del document["mcp_servers"][NAME]
    if not document["mcp_servers"]:
        del document["mcp_servers"]
    left = tomlkit.dumps(document)
    return left.removesuffix("\n") if text.startswith(left) else left


def _toml(text: str) -> Value:
    try:
        tomlkit.parse(text)
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, TOMLKitError, RecursionError):
        raise ValueError("it is not TOML") from None


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True
