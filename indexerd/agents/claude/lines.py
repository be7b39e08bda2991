"""One line of a Claude Code file, with only the fields that matter.

In: a line's bytes. Out: a `Line`, or None for what is no JSON object. Fields are decoded by
type and all others skipped, which is what makes the skim quick: lines are long (prompts, tool
results, base64 images repeat in several places) and little of them matters. Large values stay
raw until somebody asks for them.

A field of another type reads as absent: such a line is decoded once more, generously. So is
one with half a surrogate pair, a number beyond 64 bits, or bytes that are no UTF-8.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, get_args

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.structs import astuple

from indexerd.privacy.sanitize import scrub

_NOTHING = Raw(b"")


class Block(Struct):
    """A block of a message's content; images and the like keep only their type."""

    type: str = ""
    text: str = ""
    is_error: bool = False


class Message(Struct):
    """What was said. One answer of a model is several lines, with one `id`."""

    id: str = ""
    role: str = ""
    model: str = ""
    stop_reason: str | None = None
    content: Raw = _NOTHING
    usage: Raw = _NOTHING


class Origin(Struct):
    """Who made a prompt."""

    kind: str | None = None


class Usage(Struct):
    """The tokens of an answer."""

    input_tokens: Any = 0
    output_tokens: Any = 0
    cache_read_input_tokens: Any = 0
    cache_creation_input_tokens: Any = 0


class Attachment(Struct, rename="camel"):
    """What is put beside a prompt; a prompt typed while the agent worked is one, too."""

    type: str = ""
    prompt: Raw = _NOTHING
    command_mode: str | None = None
    origin: Origin | None = None
    is_meta: bool | None = None
    filename: str = ""
    timestamp: str = ""
    source: str = field(default="", name="source_uuid")


class Line(Struct, rename="camel"):
    """One line of the file, whatever its type."""

    type: str = ""
    uuid: str = ""
    parent_uuid: str | UnsetType | None = UNSET
    logical_parent_uuid: str | None = None
    timestamp: str = ""
    session_id: str = ""
    request_session_id: str | None = None  # on a copied answer: the session that it was copied from
    session_kind: str | None = None
    cwd: str = ""
    git_branch: str | None = None
    subtype: str = ""
    content: Raw = _NOTHING  # of a system line
    is_sidechain: bool | None = None
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    is_visible_in_transcript_only: bool | None = None
    is_api_error_message: bool | None = None
    origin: Origin | None = None
    prompt_source: str | None = None
    plan_content: str | None = None  # on a prompt that the client wrote for a plan
    tool_use_result: Raw = _NOTHING
    tool_denial_kind: str | None = None
    compact_metadata: Raw = _NOTHING
    message: Message | None = None
    attachment: Attachment | None = None
    cost: float | int | None = field(default=None, name="costUSD")
    custom_title: str | None = None
    ai_title: str | None = None
    agent_name: str | None = None
    summary: str | None = None
    leaf_uuid: str | None = None


_line = msgspec.json.Decoder(Line).decode
_blocks = msgspec.json.Decoder(list[Block] | str).decode
_usage = msgspec.json.Decoder(Usage).decode
_any = msgspec.json.Decoder().decode


def decode(data: bytes) -> Line | None:
    """The line; None when it is no JSON object."""
    try:
        return _line(data)
    except (ValueError, RecursionError):
        return _generous(data)


def loads(data: bytes | Raw) -> Any:
    """Any JSON value; ValueError where there is none. Bytes that are no UTF-8 become U+FFFD."""
    try:
        return _any(data)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(bytes(data).decode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def blocks(content: Raw) -> list[Block]:
    """A message's content as blocks: a bare string, alone or in a list, is a text block."""
    try:
        held = _blocks(content)
    except (ValueError, RecursionError):
        return [_pick(Block, one) for one in values(content)]
    return [Block("text", held)] if isinstance(held, str) else held


def values(content: Raw) -> list[dict[str, Any]]:
    """The blocks of a content with all that they hold, each of them a dictionary."""
    try:
        held = loads(content)
    except ValueError:
        return []
    if not isinstance(held, list):
        held = [held]
    whole = ({"type": "text", "text": one} if isinstance(one, str) else one for one in held)
    return [one for one in whole if isinstance(one, dict)]


def mapping(raw: Raw) -> dict[str, Any]:
    """A raw value, if it is an object; else an empty one."""
    try:
        held = loads(raw)
    except ValueError:
        return {}
    return held if isinstance(held, dict) else {}


def usage_of(raw: Raw) -> tuple[Any, ...] | None:
    """Tokens given, made, read from a cache, and written to one; None where nothing is said."""
    if memoryview(raw).nbytes <= len(b"{}"):
        return None
    try:
        return astuple(_usage(raw))
    except (ValueError, RecursionError):  # it is no object
        return None


def _generous(data: bytes) -> Line | None:
    try:
        held = loads(data)
        line: Line | None = _pick(Line, held) if isinstance(held, dict) else None
    except (ValueError, RecursionError):
        return None
    return line


_NESTED = {"message": Message, "attachment": Attachment, "origin": Origin}


@cache
def _wanted(shape: type[Struct]) -> list[tuple[str, str, tuple[type, ...]]]:
    """A shape's fields: the name here, the name in JSON, and the types that are taken."""
    return [
        (one.name, one.encode_name, get_args(one.type) or (one.type,))
        for one in msgspec.structs.fields(shape)
    ]


def _pick(shape: Any, held: dict[str, Any]) -> Any:
    """The fields of a shape that have the right type."""
    found: dict[str, Any] = {}
    for name, key, types in _wanted(shape):
        value = held.get(key, UNSET)
        if value is UNSET:
            continue
        if types == (Raw,):
            found[name] = Raw(json.dumps(value).encode())
        elif name in _NESTED:
            if isinstance(value, dict):
                found[name] = _pick(_NESTED[name], value)
        elif type(value) in types:
            found[name] = scrub(value) if isinstance(value, str) else value
    return shape(**found)
