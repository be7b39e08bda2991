"""Hooks and MCP servers in the JSON settings of Claude Code and Codex: ours in, ours out.

In: a settings file's text, and what is to be in it. Out: the text with it, or without anything
of ours; see `integrations.jsonc` for what stays. A hook is known as ours by its command, which
calls our program and does nothing else, and by its event; a server by the program that it starts.
Both are never doubled, and are brought up to date where they stand: the program's path and its
words are ours, all else about them (limits, matchers, whatever is added) is their user's.

ValueError: the text is not JSON, or not of a settings file's shape. UsageError: there is a server
of our name that is not ours.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from indexerd.errors import UsageError
from indexerd.integrations import jsonc

NAME = "indexerd"
EVENTS = ("UserPromptSubmit", "SessionStart")  # for which we install hooks; others are not ours
_PYTHON = re.compile(r"(?:python|pypy|graalpy)[\w.-]*")

_Way = list[tuple[jsonc.Node, int]]  # from the document: each container, and the place in it


def with_hooks(agent: str, groups: Mapping[str, dict[str, Any]], text: str) -> str:
    """The text with a group of hooks for each of some of `EVENTS`."""
    for event, group in groups.items():
        text = _with_group(agent, event, group, text)
    return text


def _with_group(agent: str, event: str, group: dict[str, Any], text: str) -> str:
    """The text with one hook of ours for an event; of one that is there the command is ours."""
    root = _object(text)
    hooks = root.member("hooks")
    if hooks is None:
        return jsonc.insert(text, root, {event: [group]}, "hooks")
    _must_be(dict, hooks, "hooks")
    groups = hooks.member(event)
    if groups is None:
        return jsonc.insert(text, hooks, [group], event)
    _must_be(list, groups, f"hooks.{event}")
    found = _ours(agent, root, event)
    if not found:
        return jsonc.insert(text, groups, group)
    while len(found) > 1:  # of older paths, or put in twice
        text = _without_hook(text, found[-1]) or text
        found = _ours(agent, _object(text), event)
    array, index = found[0][-1]
    command = array.children[index].node.member("command")
    wanted = group["hooks"][0]["command"]
    if command is None or command.value == wanted:
        return text
    return jsonc.replace(text, command, wanted)


def without_hooks(agent: str, text: str) -> str | None:
    """The text without any hook of ours in `EVENTS`; None where nothing is left."""
    while True:
        root = _object(text)
        found = [way for event in EVENTS for way in _ours(agent, root, event)]
        if not found:
            return text
        after = _without_hook(text, found[-1])
        if after is None:
            return None
        text = after


def _without_hook(text: str, way: _Way) -> str | None:
    """The text without one hook, and without its group if that has no other."""
    array, _ = way[-1]
    return jsonc.remove(text, way if len(array.children) > 1 else way[:-2])


def _ours(agent: str, root: jsonc.Node, event: str) -> list[_Way]:
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


def _ways(root: jsonc.Node, *keys: str) -> list[_Way]:
    """The way along some keys; none where they do not lead anywhere."""
    way: _Way = []
    node = root
    for key in keys:
        at = [index for index, child in enumerate(node.children) if child.key == key]
        if not at:
            return []
        way.append((node, at[-1]))
        node = node.children[at[-1]].node
    return [way]


def _calls_us(agent: str, hook: Any) -> bool:
    if not isinstance(hook, dict) or hook.get("type", "command") != "command":
        return False
    command = hook.get("command")
    return isinstance(command, str) and is_hook_command(agent, command)


def is_hook_command(agent: str, command: str) -> bool:
    """Whether a shell's command is a call of our hook for an agent, and nothing besides."""
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


# -- the MCP server ------------------------------------------------------------------------------


def _is_server(held: Any) -> bool:
    """Whether an entry starts our program, wherever that is."""
    if not isinstance(held, dict) or not isinstance(held.get("args"), list):
        return False
    words = [str(held.get("command")), *map(str, held["args"])]
    return words[-1] == "mcp" and _is_program(words[:-1])


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
    for key in ("args", "command"):
        there = _entry(text)
        held = there.member(key)
        if held is not None and held.value != wanted[key]:
            text = jsonc.replace(text, held, wanted[key])
    return text


def _entry(text: str) -> jsonc.Node:
    """Our entry in a text that has one."""
    servers, index = _ways(_object(text), "mcpServers", NAME)[0][-1]
    return servers.children[index].node


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
