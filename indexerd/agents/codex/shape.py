"""The shapes of codex's lines: what of them is decoded, and what is left as bytes.

A line is `{timestamp, type, payload}`, newer with `ordinal`; the oldest files have the item
itself on the line. Both are one Struct here: `body` gives the item wherever it is. Only the
fields that something reads are decoded; those that can be large, or of several types, stay
`Raw` until `value` is asked. A line that does not fit (a payload that is no object, a lone
surrogate) is parsed generically, and has plain values where others have `Raw`.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import Raw

from indexerd.agents.lines import parse, string
from indexerd.privacy.sanitize import scrub

__all__ = [
    "Item",
    "Line",
    "images_in",
    "item_of",
    "parse",
    "parse_line",
    "raw",
    "string",
    "texts_of",
    "value",
]

_NONE = Raw()
_TEXTS = frozenset({"input_text", "output_text", "text"})  # and Text, and others yet to come
_IMAGES = ("image", "Image")  # input_image, local_image, localImage


class Item(msgspec.Struct):
    """What stands in a payload: a response item, an event, or an item within an event."""

    type: Any = None
    role: Any = None
    id: Any = None
    turn_id: Any = None
    call_id: Any = None
    name: Any = None
    phase: Any = None
    content: Raw = _NONE
    arguments: Raw = _NONE
    input: Raw = _NONE
    action: Raw = _NONE
    output: Raw = _NONE
    summary: Raw = _NONE  # of thoughts
    # of events
    message: Raw = _NONE
    images: Raw = _NONE
    local_images: Raw = _NONE
    info: Raw = _NONE
    item: Raw = _NONE
    error: Raw = _NONE
    changes: Raw = _NONE
    parsed_cmd: Raw = _NONE
    success: Any = None
    status: Any = None
    exit_code: Any = None
    num_turns: Any = None
    thread_id: Any = None
    thread_name: Any = None
    model_context_window: Any = None
    # of turn_context and compacted
    cwd: Any = None
    model: Any = None
    effort: Any = None
    replacement_history: Raw = _NONE
    # of session_meta, whose other fields origin.py reads; newer ones say it of a turn, too
    model_provider: Any = None


class Line(Item):
    """A whole line."""

    timestamp: Any = None
    ordinal: Any = None
    payload: Item | None = None
    metadata: Raw = _NONE

    @property
    def body(self) -> Item:
        """The item: the payload, or on a line of the oldest files the line itself."""
        return self.payload or self


_ITEM_FIELDS = frozenset(Item.__struct_fields__)
_LINE_FIELDS = frozenset(Line.__struct_fields__) - {"payload"}
_decode_line = msgspec.json.Decoder(Line).decode
_decode_item = msgspec.json.Decoder(Item).decode


def parse_line(line: bytes) -> Line | None:
    """A line; None where it is no JSON object, ValueError where it is no JSON."""
    try:
        return _decode_line(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    held = parse(line)
    if not isinstance(held, dict):
        return None
    payload = held.get("payload")
    return Line(
        **{key: held[key] for key in _LINE_FIELDS & held.keys()},
        payload=_item(payload) if isinstance(payload, dict) else None,
    )


def item_of(field: Any) -> Item:
    """The item that a field holds; an empty one where it holds none."""
    if isinstance(field, Raw):
        try:
            return _decode_item(field)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    held = value(field)
    return _item(held) if isinstance(held, dict) else Item()


def _item(held: dict[str, Any]) -> Item:
    return Item(**{key: held[key] for key in _ITEM_FIELDS & held.keys()})


def value(field: Any) -> Any:
    """What a field holds, parsed; None where it is absent."""
    if not isinstance(field, Raw):
        return field
    data = bytes(field)
    if not data:
        return None
    try:
        return parse(data)
    except ValueError:
        return None


def raw(field: Any) -> bytes:
    """A field's JSON, as it stands in the file or made anew."""
    return bytes(field) if isinstance(field, Raw) else json.dumps(field).encode()


def texts_of(content: Any) -> list[str]:
    """The text blocks of a parsed content, which may be a string; scrubbed."""
    if isinstance(content, str):
        return [scrub(content)]
    blocks = content if isinstance(content, list) else []
    return [scrub(string(block.get("text"))) for block in blocks if _is_text(block)]


def images_in(content: Any) -> int:
    """How many blocks of a parsed content are pictures."""
    blocks = content if isinstance(content, list) else ()
    return sum([isinstance(one, dict) and _is_image(one.get("type")) for one in blocks])


def _is_image(kind: Any) -> bool:
    return isinstance(kind, str) and kind.endswith(_IMAGES)


def _is_text(block: Any) -> bool:
    kind = block.get("type") if isinstance(block, dict) else None
    return isinstance(kind, str) and (kind in _TEXTS or kind.lower().endswith("text"))
