"""Find the pictures that one line of a session stores, in any agent's format.

Only types that browsers show as mere pixels count, and only if the data begins like its type: an
SVG can hold a program. A picture that a line repeats is one.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from indexerd.agents.json_lines import as_dict, parse_object, string

PICTURE_MAX = 8_000_000  # characters of base64
_DATA = re.compile(r"data:[\w.+/-]{1,60};base64,")
_DEPTH = 12  # levels of a line that are searched
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


class Picture(NamedTuple):
    """A picture, as stored; its type is what its data begins with."""

    media_type: str
    data: str  # base64

    @property
    def size(self) -> int:
        """The decoded length in bytes, roughly."""
        return len(self.data) * 3 // 4

    def decode(self) -> bytes:
        """Decode the data; empty if it is damaged."""
        try:
            return base64.b64decode(self.data, validate=True)
        except (binascii.Error, ValueError):
            return b""


def pictures_in(line: bytes) -> list[Picture]:
    """List a line's pictures in their order; a line that is two has them in the second."""
    try:
        value = parse_object(line[line.rstrip().rfind(b"\n") + 1 :])
    except ValueError:
        return []
    stored = dict.fromkeys(_stored(value, 0))
    return [Picture(kind, data) for data in stored if (kind := _type_of(data))]


def _stored(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, list):
        for item in value if depth < _DEPTH else ():
            yield from _stored(item, depth + 1)
    elif isinstance(value, str):
        if start := _DATA.match(value):
            yield value[start.end() :]
    elif isinstance(value, dict) and depth < _DEPTH:
        source = as_dict(value.get("source"))
        if value.get("type") == "image" and source.get("type") == "base64":
            yield string(source.get("data"))
        elif value.get("type") == "image" and "mimeType" in value:
            yield string(value.get("data"))
        else:
            for item in value.values():
                yield from _stored(item, depth + 1)


def _type_of(data: str) -> str:
    """Return the media type of base64 data, or "" if it is no picture or too large."""
    if not 0 < len(data) <= PICTURE_MAX:
        return ""
    try:
        head = base64.b64decode(data[:32].ljust(-(-len(data[:32]) // 4) * 4, "="), validate=True)
    except (binascii.Error, ValueError):
        return ""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC if head.startswith(magic)), "")
