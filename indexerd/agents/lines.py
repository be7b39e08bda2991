"""Lines of JSON for every adapter: whole lines, typed decoding, lines cut short, previews.

A line is decoded once, into a Struct that has only the fields that matter; what can be large
stays `Raw` until it is asked for. What does not fit the types is decoded again with the standard
library, and a field of another type reads as absent. So are half a surrogate pair, a number
beyond 64 bits, and bytes that are no UTF-8.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Raw, Struct

from indexerd.agents.base import Oversize, Tree
from indexerd.events import Tokens
from indexerd.privacy.redact import redact
from indexerd.privacy.sanitize import clean_line, scrub
from indexerd.protocol.limits import FIRST_MESSAGE_MAX

PREVIEWED = 20_000  # characters of a text that its preview looks at
NOTHING = Raw(b"")
NUMBERS = frozenset({int, float})  # True is an int, too
# What begins a block that indexerd put before a prompt, and what ends it (references/inject.py).
INJECTED = (
    "Referenced session summaries:",
    "Answer from a referenced session, quoted by indexerd as data, to the question:",
)
INJECTED_END = "\n\n---\n\n"

_TOKENS_MAX, _USD_MAX = 1 << 53, 1_000_000
_BOM = b"\xef\xbb\xbf"
# A whole string; one that is cut; punctuation; any other value.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|"(?s:.*)|[{}\[\]:,]|[^\s"{}\[\]:,]+')
_STRING = re.compile(rb'"(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\["\\/bfnrt])*+')
_CLOSERS = {b"{": b"}", b"[": b"]"}
_INSIDE = re.compile(rb'(?s:[^"\\]*+(?:\\.[^"\\]*+)*+)')  # of a string, but for half an escape

_S = TypeVar("_S", bound=Struct)
_decode = msgspec.json.Decoder().decode


def whole_lines(tree: Tree, data: bytes, base: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a block that are not blank, and their offsets in the file.

    A power cut can leave NULs where the end of a file was, and no newline after them: the next
    line is glued to them, or to the torn line before them (F5). No JSON has a NUL in it.
    """
    holed, at = b"\0" in data, base
    for line in data.split(b"\n"):
        offset, at = at, at + len(line) + 1
        if holed and (begin := _past_hole(line)):
            tree.bad_lines += 1
            offset, line = offset + begin, line[begin:]  # noqa: PLW2901 - the rest of the same
        if not offset and line.startswith(_BOM):
            offset, line = len(_BOM), line[len(_BOM) :]  # noqa: PLW2901
        if line and not line.isspace():
            yield offset, line


def _past_hole(line: bytes) -> int:
    """Where a line begins: behind a hole in it, if there is one."""
    mark = line.rfind(b"\0")
    return mark + 1 if mark >= 0 and line.startswith(b"{", mark + 1) else 0


def without_hole(line: Oversize) -> Oversize:
    """The same of a line too long to hold, as far as its beginning shows a hole."""
    begin = _past_hole(line.head)
    if not begin:
        return line
    return Oversize(line.offset + begin, line.length - begin, line.head[begin:], line.tail)


# -- decoding ------------------------------------------------------------------------------------


def parse(line: bytes | Raw) -> Any:
    """A JSON value; ValueError for bytes that hold none. Bad UTF-8 becomes U+FFFD."""
    try:
        return _decode(line)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(bytes(line).decode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def value(raw: Raw) -> Any:
    """What a field holds; None where it is absent, or no JSON."""
    try:
        return parse(raw)
    except ValueError:
        return None


def mapping(raw: Raw) -> dict[str, Any]:
    """What a field holds, if it is an object; else an empty one."""
    held = value(raw) if is_object(raw) else None
    return held if isinstance(held, dict) else {}


def is_object(raw: Raw) -> bool:
    """Whether a field holds an object."""
    return raw is not NOTHING and bytes(memoryview(raw)[:1]) == b"{"


def listed(raw: Raw) -> list[Any]:
    """What a field holds, if it is a list; else an empty one."""
    held = value(raw) if bytes(memoryview(raw)[:1]) == b"[" else None
    return held if isinstance(held, list) else []


def string(held: Any) -> str:
    """The value if it is a string, scrubbed; else nothing."""
    return scrub(held) if isinstance(held, str) else ""


def decoder(shape: type[_S]) -> Callable[[bytes | Raw], _S | None]:
    """A way to decode objects of one shape.

    It returns None for JSON that is no object, and raises ValueError for what is no JSON.
    """
    strictly = msgspec.json.Decoder(shape).decode

    def decode(data: bytes | Raw) -> _S | None:
        try:
            return strictly(data)
        except (ValueError, RecursionError):
            held = parse(data)
        return pick(shape, held) if isinstance(held, dict) else None

    return decode


class Block(Struct):
    """A block of a message's content; pictures and the like keep only their type."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    is_error: bool | None = None
    tool_use_id: str = ""
    arguments: Raw = NOTHING
    input: Raw = NOTHING
    content: Raw = NOTHING


_blocks = msgspec.json.Decoder(list[Block] | str).decode


def blocks(content: Raw) -> list[Block]:
    """A message's content as blocks: a bare string, alone or in a list, is a block of text."""
    try:
        held = _blocks(content)
    except (ValueError, RecursionError):
        return as_blocks(value(content))
    return [Block("text", held)] if isinstance(held, str) else held


def as_blocks(held: Any) -> list[Block]:
    """The same of a content that is parsed already."""
    several = held if isinstance(held, list) else [held]
    return [
        Block("text", scrub(one)) if isinstance(one, str) else pick(Block, one)
        for one in several
        if isinstance(one, str | dict)
    ]


def pick(shape: type[_S], held: dict[str, Any]) -> _S:
    """The fields of a shape, out of a parsed object, as far as they have the right type."""
    found: dict[str, Any] = {}
    for name, key, taken, several in _fields(shape):
        one = held.get(key, UNSET)
        if one is UNSET:
            continue
        nested = next((kind for kind in taken if issubclass(kind, Struct)), None)
        if Raw in taken:
            found[name] = Raw(json.dumps(one).encode())
        elif nested is not None and not several and isinstance(one, dict):
            found[name] = pick(nested, one)
        elif nested is not None and several and isinstance(one, list):
            found[name] = [pick(nested, inner) for inner in one if isinstance(inner, dict)]
        elif object in taken or type(one) in taken:
            found[name] = scrub(one) if isinstance(one, str) else one
    return shape(**found)


@cache
def _fields(shape: type[Struct]) -> list[tuple[str, str, tuple[type, ...], bool]]:
    """A shape's fields: the name here, the name in JSON, the types taken, whether in a list."""
    found = []
    for one in msgspec.structs.fields(shape):
        union = get_origin(one.type) in (Union, types.UnionType)
        several = get_args(one.type) if union else (one.type,)
        lists = any(get_origin(kind) is list for kind in several)
        plain = (get_args(kind)[0] if get_origin(kind) is list else kind for kind in several)
        taken = tuple(object if kind is Any else kind for kind in plain)
        found.append((one.name, one.encode_name, taken, lists))
    return found


def count(held: Any, most: int = _TOKENS_MAX) -> int:
    """A number of things as a whole number; 0 for one that cannot be."""
    return int(held) if type(held) in NUMBERS and 0 < held < most else 0


def tokens_of(
    counts: Sequence[Any], *, total: Any = 0, cost: Any = None, answer: str = ""
) -> Tokens:
    """The tokens of a call: given, made, read from a cache, written to it; and what it cost."""
    given, output, read, written = map(count, counts)
    fine = type(cost) in NUMBERS and 0 <= cost < _USD_MAX
    whole = count(total) or given + output + read + written
    return Tokens(given, output, read, written, float(cost) if fine else None, answer, whole)


# -- lines that are cut --------------------------------------------------------------------------


def close_truncated_json(head: bytes) -> bytes:
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
            whole = _STRING.match(head, token.start())
            if token.end() == len(head) and whole is not None:
                return head[: whole.end()] + b'"' + b"".join(reversed(open_at))
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
            return close_truncated_json(bytes(found[:most]))
    return bytes(found)


def _cut(inside: bytes) -> bytes:
    """The beginning of a string, without half an escape or half a character at its end."""
    whole = _STRING.match(b'"' + inside)
    inside = inside[: whole.end() - 1] if whole else b""
    return inside.decode("utf-8", "ignore").encode()


# -- texts that are shown ------------------------------------------------------------------------


def safe_line(text: str) -> str:
    """Text as one line that may be stored and shown: without secrets, at most 200 characters."""
    return clean_line(redact(own_words(text[:PREVIEWED])).text, FIRST_MESSAGE_MAX)


def own_words(text: str) -> str:
    """What somebody wrote themselves, where a block that indexerd put there stands before it.

    In a block no line but ours is unquoted: its first bare rule ends it.
    """
    if not text.startswith(INJECTED):
        return text
    _, rule, rest = text.partition(INJECTED_END)
    return rest if rule else text
