"""Lines of JSON for every adapter: decoding, lines cut short, previews.

A line is decoded once, into a Struct with the fields that matter; what can be large stays `Raw`
until it is asked for. What does not fit the types is decoded again with the standard library, and
a field of another type reads as absent. So are half a surrogate pair, a number beyond 64 bits, and
bytes that are no UTF-8.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Raw, Struct

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

_S = TypeVar("_S", bound=Struct)
_decode = msgspec.json.Decoder().decode


def scan_lines(
    tree: Tree, data: bytes, base: int, decode: Callable[[bytes], _S]
) -> Iterator[tuple[_S, int, bytes]]:
    """The lines of a block that hold an object: decoded, their offset in the file, their bytes.

    A power cut can leave NULs where the end of a file was, and no newline after them: the next
    line is glued to them, or to the torn line before them (F5). No JSON has a NUL in it.
    """
    holed, at = b"\0" in data, base
    for text in data.split(b"\n"):
        line, offset = text, at
        at += len(line) + 1
        if not line:
            continue
        if holed and (begin := _past_hole(line)):
            tree.bad_lines += 1
            offset, line = offset + begin, line[begin:]
        if not offset and line.startswith(_BOM):
            offset, line = len(_BOM), line[len(_BOM) :]
        try:
            found = decode(line)
        except ValueError:
            tree.bad_lines += bool(line.strip())
        else:
            yield found, offset, line


def _past_hole(line: bytes) -> int:
    mark = line.rfind(b"\0")
    return mark + 1 if mark >= 0 and line.startswith(b"{", mark + 1) else 0


def from_ends(
    tree: Tree, ends: Oversize, decode: Callable[[bytes], _S]
) -> tuple[_S | None, int, bytes]:
    """A line too long to hold as far as its beginning tells: decoded, its offset, its beginning."""
    begin = _past_hole(ends.head)
    tree.oversized += not ends.readable
    text = close_truncated_json(ends.head[begin:])
    try:
        return decode(text), ends.offset + begin, text
    except ValueError:
        return None, ends.offset + begin, text


def tail_value(tail: bytes, key: str) -> Any:
    """The last string or `true` of that name before a line's end; None where there is none."""
    pattern = rb'(?<!\\)"%s"\s*:\s*("(?:[^"\\]|\\.){0,2000}+"|true)' % key.encode()
    found = re.findall(pattern, tail, re.DOTALL)
    try:
        return parse(found[-1]) if found else None
    except ValueError:
        return None


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
    return as_dict(value(raw)) if is_object(raw) else {}


def is_object(raw: Raw) -> bool:
    """Whether a field holds an object."""
    return bytes(memoryview(raw)[:1]) == b"{"


def as_dict(held: Any) -> dict[str, Any]:
    """The value if it is an object; else an empty one."""
    return held if isinstance(held, dict) else {}


def as_list(held: Any) -> list[Any]:
    """The value if it is a list; else an empty one."""
    return held if isinstance(held, list) else []


def string(held: Any) -> str:
    """The value if it is a string, scrubbed; else nothing."""
    return scrub(held) if isinstance(held, str) else ""


def decoder(shape: type[_S]) -> Callable[[bytes | Raw], _S]:
    """A decoder of objects of one shape; it raises ValueError for anything else."""
    strictly = msgspec.json.Decoder(shape).decode

    def decode(data: bytes | Raw) -> _S:
        try:
            return strictly(data)
        except (ValueError, RecursionError):
            held = parse(data)
        if isinstance(held, dict):
            return pick(shape, held)
        raise ValueError("not an object")

    return decode


def pick(shape: type[_S], held: dict[str, Any]) -> _S:
    """The fields of a shape, out of a parsed object, as far as they have the right type."""
    found: dict[str, Any] = {}
    for name, key, decode, nested, several in _fields(shape):
        if key not in held:
            continue
        one = held[key]
        text = json.dumps(scrub(one) if isinstance(one, str) else one).encode()
        try:
            found[name] = Raw(text) if decode is None else decode(text)
        except (ValueError, RecursionError):
            if nested and not several and isinstance(one, dict):
                found[name] = pick(nested, one)
            elif nested and several and isinstance(one, list):
                found[name] = [pick(nested, inner) for inner in one if isinstance(inner, dict)]
    return shape(**found)


@cache
def _fields(shape: type[Struct]) -> list[tuple[str, str, Any, type[Struct] | None, bool]]:
    """A shape's fields: name here, name in JSON, decoder, Struct in it, whether in a list."""
    found = []
    for one in msgspec.structs.fields(shape):
        kinds = [one.type, *get_args(one.type)]
        inner = [part for kind in kinds for part in get_args(kind)]
        nested = [k for k in (*kinds, *inner) if isinstance(k, type) and issubclass(k, Struct)]
        decode = None if one.type is Raw else msgspec.json.Decoder(one.type).decode
        several = bool(nested) and nested[0] not in kinds
        found.append((one.name, one.encode_name, decode, nested[0] if nested else None, several))
    return found


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
    return [
        Block("text", scrub(one)) if isinstance(one, str) else pick(Block, one)
        for one in (held if isinstance(held, list) else [held])
        if isinstance(one, str | dict)
    ]


def texts_in(found: Iterable[Block]) -> list[str]:
    """The texts of blocks."""
    return [one.text for one in found if one.type == "text"]


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
    before, end = b":", 0
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
        before, end = first, token.end()
    return head[:end] + b"".join(reversed(open_at))


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


def in_directory(cwd: str, command: str, *arguments: str) -> str:
    """A shell command that is run where a session ran."""
    there = f"cd {shlex.quote(cwd)} && " if cwd else ""
    return f"{there}{command} {shlex.join(arguments)}"
