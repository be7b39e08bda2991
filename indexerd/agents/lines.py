"""What every agent's adapter does with a line, and with a text that will be shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from indexerd.privacy.redact import redact
from indexerd.privacy.sanitize import clean_line
from indexerd.protocol.limits import FIRST_MESSAGE_MAX
from indexerd.sources.lines import Oversize

# What begins a block that indexerd put before a prompt, and what ends it (references/inject.py).
INJECTED = (
    "Referenced session summaries:",
    "Answer from a referenced session, quoted by indexerd as data, to the question:",
)
INJECTED_END = "\n\n---\n\n"

_decode = msgspec.json.Decoder().decode
# A whole string; one that is cut; punctuation; any other value.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|"(?s:.*)|[{}\[\]:,]|[^\s"{}\[\]:,]+')
_STRING = re.compile(rb'"(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\["\\/bfnrt])*+')
_CLOSERS = {b"{": b"}", b"[": b"]"}
_INSIDE = re.compile(rb'(?s:[^"\\]*+(?:\\.[^"\\]*+)*+)')  # of a string, but for half an escape


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


def past_hole(data: bytes, start: int, stop: int) -> int:
    """Where the line in `data[start:stop]` begins: behind a hole in it, if there is one (F5).

    A power cut can leave NULs where the end of a file was, and no newline after them: the next
    line is glued to them, or to the torn line before them. No JSON has a NUL in it.
    """
    mark = data.rfind(b"\0", start, stop)
    return mark + 1 if mark >= 0 and data.startswith(b"{", mark + 1, stop) else start


def without_hole(line: Oversize) -> Oversize:
    """The same of a line too long to hold, as far as its beginning shows a hole."""
    begin = past_hole(line.head, 0, len(line.head))
    if not begin:
        return line
    return Oversize(line.offset + begin, line.length - begin, line.head[begin:], line.tail)


def own_words(text: str) -> str:
    """What somebody wrote themselves, where a block that indexerd put there stands before it.

    In a block no line but ours is unquoted: its first bare rule ends it.
    """
    if not text.startswith(INJECTED):
        return text
    _, rule, rest = text.partition(INJECTED_END)
    return rest if rule else text


def safe_line(text: str) -> str:
    """Text as one line that may be stored and shown: without secrets, at most 200 characters."""
    return clean_line(redact(own_words(text[:20_000])).text, FIRST_MESSAGE_MAX)


def string(value: Any) -> str:
    """The value if it is a string, else nothing."""
    return value if isinstance(value, str) else ""


def mended(head: bytes) -> bytes:
    """The beginning of a JSON document as a whole one, with as much in it as can be known."""
    open_at: list[bytes] = []  # what closes each object and array that is open, innermost last
    before = b":"
    end = 0
    for token in _TOKEN.finditer(head):
        first = token[0][:1]
        is_key = before in (b"{", b",") and open_at[-1:] == [b"}"]
        if first in _CLOSERS:
            open_at.append(_CLOSERS[first])
        elif first in (b"}", b"]") and open_at:
            open_at.pop()
        elif first == b'"' and not is_key:
            string = _STRING.match(head, token.start())
            if token.end() == len(head) and string is not None:
                return head[: string.end()] + b'"' + b"".join(reversed(open_at))
        elif is_key or first in (b":", b",") or token.end() == len(head):
            before = first
            continue
        before = first
        end = token.end()
    return head[:end] + b"".join(reversed(open_at))


def shortened(pieces: Iterable[bytes], most: int, string: int) -> bytes:
    """A JSON document, given in pieces, in little memory: strings end after so many bytes.

    So a picture goes, and what stands behind it stays. What is longer than `most` even so is no
    more than that beginning of it, made whole.
    """
    found, held, total = bytearray(), bytearray(), -1  # -1: not within a string
    rest = b""
    for piece in pieces:
        data, at = rest + piece, 0
        rest = b""
        while at < len(data):
            if total < 0:
                end = data.find(b'"', at) + 1
                found += data[at : end or len(data)]
                at, total = end or len(data), 0 if end else -1
                continue
            inside = _INSIDE.match(data, at)
            end = inside.end() if inside else at
            held += data[at : min(end, at + string + 1 - len(held))]
            total += end - at
            at = end
            if data[at : at + 1] != b'"':  # the string goes on in the next piece
                rest, at = data[at:], len(data)
                continue
            found += (held if total <= string else _cut(bytes(held[:string]))) + b'"'
            held.clear()
            at, total = at + 1, -1
        if len(found) > most:
            return mended(bytes(found[:most]))
    return bytes(found)


def _cut(inside: bytes) -> bytes:
    """The beginning of a string, without half an escape or half a character at its end."""
    whole = _STRING.match(b'"' + inside)
    inside = inside[: whole.end() - 1] if whole else b""
    return inside.decode("utf-8", "ignore").encode()
