"""What codex's tools did: calls, the files they changed, and whether they came to nothing.

A patch that was applied is recorded with absolute paths, in all newer releases. Newest files
(those whose lines have an `ordinal`) record every one, so there a call's own patch adds nothing;
in others its headers count, and its output takes them back where it failed. What a shell command
read or wrote is not guessed; codex's own notes on commands that only show a file are taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from msgspec import Raw

from indexerd.agents.codex.lines import Item, Line
from indexerd.agents.lines import mapping, parse, string, value
from indexerd.events import ToolCall
from indexerd.privacy.sanitize import scrub

DETAIL_MAX = 20_000  # characters
FILES_MAX = 500  # of one call
NAME_MAX = 200
_HEADER = re.compile(
    r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.{1,4096})$", re.MULTILINE
)
_BEGIN = "*** Begin Patch"
_MOVED = re.compile(r"""\s*cd ["']?([^"'\s&;|$]{1,4096})["']? *&& *apply_?patch""")
_ABOUT = ("path", "file_path", "query", "q", "pattern", "url", "uri", "ref_id")
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


def call_of(line: Line) -> ToolCall:
    """A call, from the line of a response item."""
    item = line.body
    name = (item.name or (item.type or "").removesuffix("_call"))[:NAME_MAX]
    stored = _stored(item)
    given = _given(stored)
    script = _script(given)
    patch = _patch(name, given, script)
    place = string(given.get("workdir")) or string(given.get("working_directory"))
    moved = _MOVED.match(script) if patch else None
    place = _joined(place, moved[1]) if moved else place
    shown = string(given.get("path")) if name == "view_image" else ""
    writes = [_joined(place, path) for path in _patched(patch)]
    detail = ", ".join(writes) if patch and not script else script or _about(given)
    return ToolCall(
        name=name,
        detail=scrub(detail[:DETAIL_MAX]),
        id=(item.call_id or item.id or "")[:NAME_MAX],
        reads=(shown,) if shown else (),
        writes=tuple(map(scrub, writes)) if line.ordinal is None else (),
        arguments=stored,
    )


def changed(item: Item) -> tuple[str, ...] | None:
    """Files that a recorded patch changed; None where it was not applied."""
    if item.success is not True and (item.status or "").lower() != "completed":
        return None
    found: dict[str, None] = {}
    for path, change in mapping(item.changes).items():
        found[scrub(path)] = None
        moved = change.get("move_path") if isinstance(change, dict) else None
        if isinstance(moved, str) and moved:
            found[scrub(moved)] = None
    return tuple(found)[:FILES_MAX]


def shown(item: Item) -> tuple[str, ...]:
    """Files that a finished command did nothing but show."""
    noted = value(item.parsed_cmd) if item.exit_code == 0 else None
    place = unquote((item.cwd or "").removeprefix("file://"))
    found = dict.fromkeys(
        _joined(place, string(one.get("path")))
        for one in (noted if isinstance(noted, list) else ())
        if isinstance(one, dict) and one.get("type") == "read" and string(one.get("path"))
    )
    return tuple(found)[:FILES_MAX]


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
        texts = (string(given.get(key)) for key in ("input", "patch", "patchText"))
        return next((text for text in texts if text), "") or script
    head = script[:_ENDS].lstrip()
    if _BEGIN in script and ("apply_patch" in head or "applypatch" in head):
        return script
    return ""


def _patched(patch: str) -> Iterator[str]:
    found = dict.fromkeys(path.strip() for path in _HEADER.findall(patch))
    yield from list(found)[:FILES_MAX]


def _about(given: dict[str, Any]) -> str:
    """What a call is about: a path, a query; else the text it was given."""
    found = (string(given.get(key)) for key in _ABOUT)
    return next((one for one in found if one), "") or string(given.get("input"))


def _joined(place: str, path: str) -> str:
    return path if path.startswith("/") or not place else f"{place.rstrip('/')}/{path}"
