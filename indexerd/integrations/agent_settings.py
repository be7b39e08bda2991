"""Our hooks and MCP server in agents' settings: JSON for Claude Code and Codex, TOML for Codex.

A hook is ours if its command calls only our program, a server if it starts our program. Of existing
entries only path and arguments are updated; other keys belong to the user. Settings are copied
before the first change. Removal restores the copy if only our entries differ, or else removes them.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from indexerd.errors import UsageError
from indexerd.integrations.changes import BACKUP, NAME, Edit, Text, read

EVENTS = ("UserPromptSubmit", "SessionStart")  # of our hooks
_INDENT = re.compile(r"\n([ \t]+)\S")

Value = MutableMapping[str, Any]
Change = Callable[[Value], None]


def settings_edits(path: str, put: Change, take: Change, *, remove: bool) -> list[Edit]:
    """Copy a settings file and add our entries with `put`, or remove them with `take`."""
    target, toml = Path(os.path.realpath(path)), path.endswith(".toml")
    backup = target.with_name(target.name + BACKUP)

    def changed(change: Change, text: Text) -> str:
        try:
            return _changed(change, text, toml=toml)
        except ValueError as bad:
            put(entry := dict[str, Any]())
            todo = "remove what calls indexerd" if remove else f"add {json.dumps(entry)}"
            by_hand = "" if toml else f", or, if it has comments, {todo} by hand"
            raise ValueError(f"{bad}; nothing was changed; fix the file{by_hand}") from None

    def taken(before: Text) -> Text:
        if before is None or (after := changed(take, before)) == before:
            return before
        old = read(backup)
        if old is not None and changed(put, old) == before:
            return old
        return None if old is None and after.strip() in ("", "{}") else after

    def copied(before: Text) -> Text:
        text = read(target)
        return text if text is not None and changed(take, text) == text else before

    if remove:
        return [Edit(path, taken, removing=True), Edit(str(backup), lambda _: None, removing=True)]
    return [Edit(str(backup), copied), Edit(path, lambda before: changed(put, before))]


def _changed(change: Change, text: Text, *, toml: bool) -> str:
    """Apply `change` to JSON or TOML, whose comments stay; without effect, return the same text."""
    body = text or "" if toml or (text and text.strip()) else "{\n  }\n"  # two spaces
    try:
        value: Any = tomlkit.parse(body) if toml else json.loads(body)
    except TOMLKitError:
        raise ValueError("invalid TOML") from None
    except json.JSONDecodeError as bad:
        raise ValueError(f"invalid JSON in line {bad.lineno}") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    before = copy.deepcopy(value)
    change(value)
    if value == before and text is not None:
        return text
    if toml:
        return tomlkit.dumps(value)
    indent = _INDENT.search(body)
    end = "\n" if body.endswith("\n") else ""
    return json.dumps(value, indent=indent and indent[1], ensure_ascii=False) + end


def _member(value: Value, key: str, kind: type) -> Any:
    entry = value.setdefault(key, kind())
    if not isinstance(entry, kind):
        raise ValueError(f"{key} is not a {'list' if kind is list else 'table'}")
    return entry


def put_hooks(agent: str, groups: Mapping[str, Value], value: Value) -> None:
    """Add our hook for each event, or update the command of an existing one."""
    hooks = _member(value, "hooks", dict)
    for event, group in groups.items():
        listed = _member(hooks, event, list)
        ours = [hook for group in listed for hook in _our_hooks(agent, group)]
        for hook in ours:
            hook["command"] = group["hooks"][0]["command"]
        if not ours:
            listed.append(copy.deepcopy(group))


def take_hooks(agent: str, value: Value) -> None:
    """Remove our hooks, and the lists that this leaves empty."""
    hooks: Any = value.get("hooks")
    for event in EVENTS if isinstance(hooks, dict) else ():
        groups: Any = hooks.get(event)
        listed = groups if isinstance(groups, list) else []
        for group, hook in [(each, hook) for each in listed for hook in _our_hooks(agent, each)]:
            group["hooks"].remove(hook)
            if not group["hooks"]:
                groups.remove(group)
            if not groups:
                del hooks[event]
            if not hooks:
                del value["hooks"]


def _our_hooks(agent: str, group: Any) -> Iterator[dict[str, Any]]:
    inner = group.get("hooks") if isinstance(group, dict) else None
    for hook in inner if isinstance(inner, list) else ():
        command = hook.get("command") if isinstance(hook, dict) else None
        if isinstance(command, str) and is_hook_command(agent, command):
            yield hook


def is_hook_command(agent: str, command: str) -> bool:
    """Whether a shell command only calls our hook for an agent."""
    try:
        words = shlex.split(command)
    except ValueError:  # an unclosed quote
        return False
    if words[-2:] == ["||", "true"]:
        del words[-2:]
    return words[-2:] == ["hook", agent] and _is_program(words[:-2])


def _is_program(words: Sequence[str]) -> bool:
    """Whether these words start our program, from any path."""
    by_python = [*words[1:]] in (["-m", NAME], ["-P", "-m", NAME])
    return by_python or (len(words) == 1 and words[0].rpartition("/")[2] == NAME)


def put_server(key: str, wanted: Mapping[str, Any], value: Value) -> None:
    """Add our MCP server under a key, or update its command and arguments."""
    ours = _member(value, key, dict).setdefault(NAME, dict(wanted))
    if not _is_server(ours):
        raise UsageError(
            f"another MCP server is named {NAME}",
            hint=f"rename {NAME} in {key}, or remove it if you do not need it, then try again",
        )
    for part in ("command", "args"):
        if ours[part] != wanted[part]:
            ours[part] = wanted[part]


def take_server(key: str, value: Value) -> None:
    servers = value.get(key)
    if isinstance(servers, dict) and _is_server(servers.get(NAME)):
        del servers[NAME]
        if not servers:
            del value[key]


def _is_server(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("args"), list):
        return False
    words = [str(entry.get("command")), *map(str, entry["args"])]
    return words[-1] == "mcp" and _is_program(words[:-1])
