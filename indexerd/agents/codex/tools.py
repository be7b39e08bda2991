"""What codex's tools did: calls, the files they changed, and whether they came to nothing.

A patch that was applied is recorded with absolute paths, in all newer releases. Newest files
(those whose lines have an `ordinal`) record every one, so there a call's own patch adds nothing;
in others its headers count, and its output takes them back where it failed. What a shell command
read or wrote is not guessed; codex's own notes on commands that only show a file are taken.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from msgspec import Raw

from indexerd.agents.codex.lines import Item
from indexerd.agents.lines import as_dict, as_list, mapping, parse, string, value
from indexerd.events import ToolCall
from indexerd.privacy.sanitize import scrub

_DETAIL_MAX = 20_000  # characters
_FILES_MAX = 500  # of one call
_NAME_MAX = 200
_HEADER = re.compile(
    r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.{1,4096})$", re.MULTILINE
)
_MOVED = re.compile(r"""\s*cd ["']?([^"'\s&;|$]{1,4096})["']? *&& *apply_?patch""")
_ABOUT = ("path", "file_path", "query", "q", "pattern", "url", "uri", "ref_id", "input")
_SHELL_FLAGS = frozenset({"-c", "-lc", "-Command", "/c"})

# The openings of outputs, as JSON has them; what follows is another program's, and says nothing.
_EXIT = re.compile(
    rb'(?:Chunk ID: [^\\"]{0,64}\\n)?(?:Wall time: [^\\"]{0,64}\\n)?'
    rb"(?:Process exited with code|Exit code:) (-?\d{1,10})"
)
_NOTHING = re.compile(
    rb'(?:Wall time: [^\\"]{0,64}\\n)?(?:aborted(?: by user)?\b|apply_patch verification failed'
    rb"|patch rejected|[\w ]{0,40}rejected by user|failed to parse function arguments"
    rb"|unsupported call|execution error|failed in sandbox)"
)
_TEXT = re.compile(rb'\[?\s*(?:\{[^{}"]{0,8}(?:"type"\s*:\s*"\w{1,40}"\s*,\s*)?"text"\s*:\s*)?"')
_CODE = re.compile(rb'\\?"exit_code\\?"\s*:\s*(-?\d{1,10})')
_REFUSED = re.compile(rb'\\?"success\\?"\s*:\s*false')
_ENDS = 400  # bytes of an output's beginning and end that are looked at


def failed(output: Raw) -> bool:
    """Whether a tool's output says that the call came to nothing."""
    data = bytes(output)
    head, ends = data[:_ENDS], data[:_ENDS] + data[-_ENDS:]
    if head.startswith(b'"{') and b"metadata" not in ends:
        return False  # another program's JSON
    if head.startswith((b"{", b'"{')):  # {"output": …, "metadata": {"exit_code": 1}}
        code = _CODE.search(ends)
        return int(code[1]) != 0 if code else _REFUSED.search(ends) is not None
    opening = _TEXT.match(head)
    if opening is None:
        return False
    code = _EXIT.match(head, opening.end())
    return int(code[1]) != 0 if code else _NOTHING.match(head, opening.end()) is not None


def call_of(item: Item, *, recorded: bool) -> ToolCall:
    """A call; `recorded`: what it changes is noted on a line of its own."""
    name = (item.name or (item.type or "").removesuffix("_call"))[:_NAME_MAX]
    stored = _stored(item)
    given = _given(stored)
    script = _script(given)
    patch = _patch(name, given, script)
    place = _first(given, "workdir", "working_directory")
    if patch and (moved := _MOVED.match(script)):
        place = _joined(place, moved[1])
    shown = string(given.get("path")) if name == "view_image" else ""
    paths = list(dict.fromkeys(path.strip() for path in _HEADER.findall(patch)))[:_FILES_MAX]
    writes = [_joined(place, path) for path in paths]
    detail = ", ".join(writes) if patch and not script else script or _first(given, *_ABOUT)
    return ToolCall(
        name=name,
        detail=scrub(detail[:_DETAIL_MAX]),
        id=(item.call_id or item.id or "")[:_NAME_MAX],
        reads=(shown,) if shown else (),
        writes=tuple(map(scrub, writes)) if not recorded else (),
        arguments=stored,
    )


def changed(item: Item) -> tuple[str, ...] | None:
    """Files that a recorded patch changed; None where it was not applied."""
    if item.success is not True and (item.status or "").lower() != "completed":
        return None
    changes = mapping(item.changes).items()
    paths = [one for path, change in changes for one in (path, as_dict(change).get("move_path"))]
    return tuple(dict.fromkeys(filter(None, map(string, paths))))[:_FILES_MAX]


def shown(item: Item) -> tuple[str, ...]:
    """Files that a finished command did nothing but show."""
    noted = as_list(value(item.parsed_cmd)) if item.exit_code == 0 else []
    reads = [one for one in map(as_dict, noted) if one.get("type") == "read"]
    place = unquote((item.cwd or "").removeprefix("file://"))
    paths = [_joined(place, path) for one in reads if (path := string(one.get("path")))]
    return tuple(dict.fromkeys(paths))[:_FILES_MAX]


def _stored(item: Item) -> str | dict[str, Any] | None:
    """A call's arguments as they were stored: a text (of JSON, mostly), or an object."""
    for field in (item.arguments, item.input, item.action):
        held = value(field)
        if isinstance(held, str | dict):
            return scrub(held) if isinstance(held, str) else held
    return None


def _given(held: str | dict[str, Any] | None) -> dict[str, Any]:
    """A call's arguments, however they are written; a text that is no JSON becomes `input`."""
    if isinstance(held, str):
        try:
            inner = parse(held.encode("utf-8", "replace")) if held[:1] in "{[" else None
        except ValueError:
            inner = None
        held = inner if isinstance(inner, dict) else {"input": held}
    return held or {}


def _script(given: dict[str, Any]) -> str:
    """The command line of a shell call: of `bash -lc SCRIPT` the script."""
    command = given.get("command") or given.get("cmd")
    if isinstance(command, str):
        return command
    if not isinstance(command, list):
        return ""
    words = [string(word) for word in command]
    if len(words) > 2 and words[1] in _SHELL_FLAGS:  # noqa: PLR2004 - shell, flag, script
        return words[2]
    return " ".join(words)


def _patch(name: str, given: dict[str, Any], script: str) -> str:
    """The patch that a call applies: as its input, or within a shell's command."""
    if name == "apply_patch":
        return _first(given, "input", "patch", "patchText") or script
    head = script[:_ENDS].lstrip()
    applies = "*** Begin Patch" in script and ("apply_patch" in head or "applypatch" in head)
    return script if applies else ""


def _first(given: dict[str, Any], *keys: str) -> str:
    """The first of these arguments that is a text."""
    return next((one for key in keys if (one := string(given.get(key)))), "")


def _joined(place: str, path: str) -> str:
    return path if path.startswith("/") or not place else f"{place.rstrip('/')}/{path}"
