"""opencode's tools: what was called, with what, and what came back; pictures, too.

In: a message's line, parsed. Out: its calls, the results that stand in the same parts, and how
many pictures there are. A call that is not finished has no result; one that was interrupted has
what it had given by then, or else its error. Of one whose output opencode itself shows its model
no more (`time.compacted`, or `time.pruned` of version 2), the output is still there: `cleared`
says so. Version 2 keeps a result in several pieces, its pictures among them.
What was allowed, snapshots and patches of the work tree are never looked at (S3.28).
"""

from __future__ import annotations

import re
from typing import Any

from indexerd.agents.lines import string
from indexerd.agents.opencode.kinds import parts_of, status_of
from indexerd.events import ToolCall, ToolResult
from indexerd.privacy.sanitize import scrub

_READS = frozenset({"read"})
_WRITES = frozenset({"write", "edit", "multiedit"})
_PATCHES = frozenset({"apply_patch", "patch"})
_HEADERS = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+)", re.MULTILINE)
_DONE = ("completed", "success", None)  # a tuple: a status may be of any type
_FAILED = ("error",)
_ENDED = (*_DONE, *_FAILED)
_PICTURED = ("file", "tool")
_SAYS = ("command", "pattern", "url", "query", "description")  # what a call is about
_FILES = ("attachments", "content")  # where a result has pictures
_IMAGE = "image/"


Parts = list[dict[str, Any]]


def tools_in(parts: Parts) -> Parts:
    """Those of a message's parts that are calls."""
    return [part for part in parts if part.get("type") == "tool"]


def calls(tools: Parts) -> tuple[ToolCall, ...]:
    """What was called, in order."""
    return tuple([_tool(part) for part in tools])


def _tool(part: dict[str, Any]) -> ToolCall:
    """A call of a tool. One that failed, or was never run, did nothing to any file."""
    name = scrub(string(part.get("tool")))
    state = part.get("state")
    held = given(state) if isinstance(state, dict) else {}
    path = scrub(string(held.get("filePath")) or string(held.get("path")))
    says = (string(held.get(key)) for key in _SAYS)
    patched = _patched(held) if name in _PATCHES else ()
    detail = next((scrub(one) for one in says if one), path) or ", ".join(patched)
    done = status_of(part) in _DONE and name != "invalid"
    written = (path,) if path and name in _WRITES else patched
    return ToolCall(
        name=name,
        detail=detail,
        id=scrub(string(part.get("callID"))),
        reads=(path,) if done and path and name in _READS else (),
        writes=written if done else (),
        arguments=state.get("input") if isinstance(state, dict) else None,
    )


def results(tools: Parts) -> tuple[ToolResult, ...]:
    """What the calls came back with, in order; of one that failed its error."""
    return tuple([_result(part) for part in tools if status_of(part) in _ENDED])


def _result(part: dict[str, Any]) -> ToolResult:
    held = part.get("state")
    state: dict[str, Any] = held if isinstance(held, dict) else {}
    return ToolResult(
        call=scrub(string(part.get("callID"))),
        name=scrub(string(part.get("tool"))),
        text=scrub(_gave(state)),
        cleared=_is_cleared(part, state),
    )


def _gave(state: dict[str, Any]) -> str:
    """A result's text, the first that there is of those that stand for it."""
    if state.get("status") in _FAILED:
        told = state.get("metadata")
        kept = isinstance(told, dict) and told.get("interrupted") is True and told.get("output")
        return string(kept) or string(state.get("error")) or _pieces(state)
    return string(state.get("output")) or _pieces(state)


def _pieces(state: dict[str, Any]) -> str:
    """The texts of a result of version 2, joined as opencode does it."""
    texts = (one.get("text") for one in parts_of(state, "content"))
    return "\n".join([text for text in texts if isinstance(text, str)])


def _is_cleared(part: dict[str, Any], state: dict[str, Any]) -> bool:
    several = ((state.get("time"), "compacted"), (part.get("time"), "pruned"))
    return any(isinstance(time, dict) and bool(time.get(key)) for time, key in several)


def failed(tools: Parts) -> tuple[str, ...]:
    """Ids of the calls that came to nothing."""
    bad = [string(part.get("callID")) for part in tools if status_of(part) in _FAILED]
    return tuple([scrub(call) for call in bad if call])


def images(parts: Parts) -> int:
    """How many pictures a message has: beside a prompt, or in results that the model still sees."""
    return sum([_images(part) for part in parts if part.get("type") in _PICTURED])


def _images(part: dict[str, Any]) -> int:
    if part.get("type") == "file":
        return _is_image(part)
    state = part.get("state")
    if not isinstance(state, dict) or _is_cleared(part, state):
        return 0
    return sum([_is_image(one) for key in _FILES for one in parts_of(state, key)])


def _is_image(file: dict[str, Any]) -> bool:
    return string(file.get("mime")).startswith(_IMAGE)


def given(state: dict[str, Any]) -> dict[str, Any]:
    """What a tool was given; while a call is being written it may be a string."""
    held = state.get("input")
    return held if isinstance(held, dict) else {}


def _patched(held: dict[str, Any]) -> tuple[str, ...]:
    """The files that a patch names."""
    text = string(held.get("patchText")) or string(held.get("patch"))
    return tuple(dict.fromkeys(scrub(one.strip()) for one in _HEADERS.findall(text)))
