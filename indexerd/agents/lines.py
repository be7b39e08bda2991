"""What every agent's adapter does with a line, and with a text that will be shown."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from indexerd.core.clean import clean_line
from indexerd.core.inject import own_words
from indexerd.core.redact import redact
from indexerd.meta import FIRST_MESSAGE_MAX

_decode = msgspec.json.Decoder().decode


def parse(line: bytes) -> Any:
    """One line's JSON value; ValueError for a line that holds none. Bad UTF-8 becomes U+FFFD."""
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(line.decode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def safe_line(text: str) -> str:
    """Text as one line that may be stored and shown: without secrets, at most 200 characters."""
    return clean_line(redact(own_words(text[:20_000])).text, FIRST_MESSAGE_MAX)


def string(value: Any) -> str:
    """The value if it is a string, else nothing."""
    return value if isinstance(value, str) else ""
