"""Hooks and MCP servers in the JSON settings of Claude Code and Codex: ours in, ours out.

In: a settings file's text, and what is to be in it. Out: the text with it, or without anything
of ours; see `core.jsonc` for what stays. A hook is known as ours by its command, a server by the
program that it starts; both are brought up to date where they stand, and are never doubled.

ValueError: the text is not JSON, or not of a settings file's shape. UsageError: there is a server
of our name that is not ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexerd.core import jsonc
from indexerd.errors import UsageError

NAME = "indexerd"


def with_hooks(agent: str, groups: Mapping[str, dict[str, Any]], text: str) -> str:
    """The text with a group of hooks for each of some events."""
    for event, group in groups.items():
        text = _with_group(agent, event, group, text)
    return text


def _with_group(agent: str, event: str, group: dict[str, Any], text: str) -> str:
    """The text with one group of hooks for an event; one of ours that is there is brought up."""
    root = _object(text)
    hooks = root.member("hooks")
    if hooks is None:
        return jsonc.insert(text, root, {event: [group]}, "hooks")
    _must_be(dict, hooks, "hooks")
    groups = hooks.member(event)
    if groups is None:
        return jsonc.insert(text, hooks, [group], event)
    _must_be(list, groups, f"hooks.{event}")
    for path in _ours(agent, root, event):
        array, index = path[-1]
        holder, at = path[-3]
        if len(array.children) == 1:
            there, wanted = holder.children[at].node, group
        else:  # the user has put it beside others
            there, wanted = array.children[index].node, group["hooks"][0]
        return text if there.value == wanted else jsonc.replace(text, there, wanted)
    return jsonc.insert(text, groups, group)


def without_hooks(agent: str, text: str) -> str | None:
    """The text without any hook of ours, whatever the event; None where nothing is left."""
    while True:
        root = _object(text)
        hooks = root.member("hooks")
        events = [one.key for one in hooks.children if one.key] if hooks is not None else []
        found = [path for event in events for path in _ours(agent, root, event)]
        if not found:
            return text
        array, _ = found[-1][-1]
        path = found[-1] if len(array.children) > 1 else found[-1][:-2]
        after = jsonc.remove(text, path)
        if after is None:
            return None
        text = after


def _ours(agent: str, root: jsonc.Node, event: str) -> list[list[tuple[jsonc.Node, int]]]:
    """The ways from the document to each hook of ours for an event."""
    found = []
    for way in _ways(root, "hooks", event):
        groups = way[-1][0].children[way[-1][1]].node
        for at, one in enumerate(groups.children):
            inner = [
                (one.node, index)
                for index, child in enumerate(one.node.children)
                if child.key == "hooks"
            ]
            for step in inner:
                array = step[0].children[step[1]].node
                found += [
                    [*way, (groups, at), step, (array, index)]
                    for index, child in enumerate(array.children)
                    if _calls_us(agent, child.node.value)
                ]
    return found


def _ways(root: jsonc.Node, *keys: str) -> list[list[tuple[jsonc.Node, int]]]:
    """The way along some keys; none where they do not lead anywhere."""
    way: list[tuple[jsonc.Node, int]] = []
    node = root
    for key in keys:
        at = [index for index, child in enumerate(node.children) if child.key == key]
        if not at:
            return []
        way.append((node, at[-1]))
        node = node.children[at[-1]].node
    return [way]


def _calls_us(agent: str, hook: Any) -> bool:
    command = hook.get("command") if isinstance(hook, dict) else None
    return isinstance(command, str) and NAME in command and f" hook {agent}" in command


# -- the MCP server ------------------------------------------------------------------------------


def _is_server(held: Any) -> bool:
    """Whether an entry starts our program, wherever that is."""
    if not isinstance(held, dict) or not isinstance(held.get("args"), list):
        return False
    words = [str(held.get("command")), *map(str, held["args"])]
    return words[-1] == "mcp" and (words[0].endswith(f"/{NAME}") or words[1:-1] == ["-m", NAME])


def with_server(wanted: Mapping[str, Any], text: str) -> str:
    """The text with this entry for our MCP server; what else its user gave it stays."""
    root = _object(text)
    servers = root.member("mcpServers")
    if servers is None:
        return jsonc.insert(text, root, {NAME: wanted}, "mcpServers")
    _must_be(dict, servers, "mcpServers")
    there = servers.member(NAME)
    if there is None:
        return jsonc.insert(text, servers, wanted, NAME)
    if not _is_server(there.value):
        raise UsageError(
            f"there is an MCP server {NAME} that is not ours",
            hint=f"rename it, or take it away: claude mcp remove -s user {NAME}",
        )
    new = there.value | {key: wanted[key] for key in ("command", "args")}
    return text if there.value == new else jsonc.replace(text, there, new)


def without_server(text: str) -> str | None:
    """The text without our MCP server; None where nothing is left."""
    root = _object(text)
    for way in _ways(root, "mcpServers", NAME):
        servers, index = way[-1]
        if _is_server(servers.children[index].node.value):
            return jsonc.remove(text, way)
    return text


def _object(text: str) -> jsonc.Node:
    root = jsonc.parse(text)
    _must_be(dict, root, "the document")
    return root


def _must_be(kind: type, node: jsonc.Node, what: str) -> None:
    if not isinstance(node.value, kind):
        raise ValueError(f"{what} is no {'object' if kind is dict else 'list'}")
