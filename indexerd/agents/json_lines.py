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
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Raw, Struct

from indexerd.agents.base import TIME_MAX, Adapter, Oversize, Tree
from indexerd.events import Tokens
from indexerd.privacy.redact import redact
from indexerd.privacy.sanitize import clean_line, without_surrogates
from indexerd.protocol.limits import FIRST_MESSAGE_MAX

PREVIEWED = 20_000  # characters of a text that its preview looks at
NOTHING = Raw(b"")
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

_L = TypeVar("_L")
_S = TypeVar("_S", bound=Struct)
_decode = msgspec.json.Decoder().decode


def scan_lines(
    tree: Tree, data: bytes, base: int, decode: Callable[[bytes], _L]
) -> Iterator[tuple[_L, int, bytes]]:
    """The lines of a block that hold an object: decoded, their offset in the file, their bytes.

    A power cut can leave NULs where the end of a file was, and no newline after them: the next
    line is glued to them, or to the torn line before them. No JSON has a NUL in it.
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


def scan_oversize(adapter: Adapter, tree: Tree, ends: Oversize) -> None:
    """Take in a line too long to hold, as far as its two ends tell: the tree is whole.

    What makes a line long is a picture, a result or a file; what tells what the line is stands
    before it, or at the line's end. An id between two long values is lost.
    """
    begin = _past_hole(ends.head)
    tree.oversized += not ends.readable
    text = close_truncated_json(ends.head[begin:])
    known = as_dict(value(Raw(text)))
    for key in adapter.behind:
        pattern = rb'(?<!\\)"%s"\s*:\s*("(?:[^"\\]|\\.){0,2000}+"|true)' % key.encode()
        found = re.findall(pattern, ends.tail, re.DOTALL)
        if found and not known.get(key) and text.endswith(b"}"):
            text = b'%s,"%s":%s}' % (text[:-1], key.encode(), found[-1])
    at, end = ends.offset + begin, ends.offset + ends.length - 1
    adapter.scan(tree, text, at)
    for row in reversed(range(len(tree))):  # mostly the last; it may have come again
        if tree.offsets[row] + tree.lengths[row] == at + len(text):
            tree.lengths[row] = end - tree.offsets[row] if ends.readable else 0
            break


# -- decoding ------------------------------------------------------------------------------------


def parse(line: bytes | Raw) -> Any:
    """A JSON value; ValueError for bytes that hold none. Bad UTF-8 becomes U+FFFD."""
    try:
        return _decode(line)
    except (ValueError, RecursionError):
        pass
    try:
        return without_surrogates(json.loads(bytes(line).decode("utf-8", "replace")))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_object(line: bytes) -> dict[str, Any]:
    """The object that a line holds; ValueError for anything else."""
    held = parse(line)
    if isinstance(held, dict):
        return held
    raise ValueError("not an object")


def value(raw: Raw) -> Any:
    """What a field holds; None where it is absent, or no JSON."""
    try:
        return parse(raw)
    except ValueError:
        return None


def as_dict(held: Any) -> dict[str, Any]:
    """The value if it is an object; else an empty one."""
    return held if isinstance(held, dict) else {}


def as_list(held: Any) -> list[Any]:
    """The value if it is a list; else an empty one."""
    return held if isinstance(held, list) else []


def string(held: Any) -> str:
    """The value if it is a string; else nothing."""
    return held if isinstance(held, str) else ""


def decoder(shape: type[_S]) -> Callable[[bytes | Raw], _S]:
    """A decoder of objects of one shape; it raises ValueError for anything else."""
    strictly = msgspec.json.Decoder(shape).decode

    def decode(data: bytes | Raw) -> _S:
        try:
            return strictly(data)
        except (ValueError, RecursionError):
            return pick(shape, parse_object(bytes(data)))

    return decode


def pick(shape: type[_S], held: dict[str, Any]) -> _S:
    """The fields of a shape, out of a parsed object, as far as they have the right type."""
    found: dict[str, Any] = {}
    for name, key, kind, nested in _fields(shape):
        if key not in held:
            continue
        one = held[key]
        try:
            raw = kind is Raw
            found[name] = Raw(json.dumps(one).encode()) if raw else msgspec.convert(one, kind)
        except (ValueError, RecursionError):
            if nested and isinstance(one, dict):
                found[name] = pick(nested, one)
    return shape(**found)


@cache
def _fields(shape: type[Struct]) -> list[tuple[str, str, Any, type[Struct] | None]]:
    """A shape's fields: name here, name in JSON, type, Struct in it."""
    found = []
    for one in msgspec.structs.fields(shape):
        kinds = [kind for kind in (one.type, *get_args(one.type)) if isinstance(kind, type)]
        nested = next((kind for kind in kinds if issubclass(kind, Struct)), None)
        found.append((one.name, one.encode_name, one.type, nested))
    return found


def as_blocks(held: Any) -> list[dict[str, Any]]:
    """A message's content as blocks: a bare string, alone or in a list, is a block of text."""
    return [
        {"type": "text", "text": one} if isinstance(one, str) else one
        for one in (held if isinstance(held, list) else [held])
        if isinstance(one, str | dict)
    ]


def texts_in(found: Iterable[dict[str, Any]]) -> list[str]:
    """The texts of blocks."""
    return [string(one.get("text")) for one in found if one.get("type") == "text"]


def number(held: Any, most: float = _TOKENS_MAX) -> int:
    """A number of things as a whole number; 0 for one that cannot be."""
    # True is an int, too.
    return int(held) if type(held) in (int, float) and 0 < held < most else 0


def time_ms(held: Any) -> int:
    """A time in ms since the epoch; 0 for anything else."""
    return number(held, TIME_MAX)


def tokens_of(
    counts: Iterable[Any], *, total: Any = 0, cost: Any = None, answer: str = ""
) -> Tokens:
    """The tokens of a call: given, made, read from a cache, written to it; and what it cost."""
    given, output, read, written = map(number, counts)
    fine = type(cost) in (int, float) and 0 <= cost < _USD_MAX
    whole = number(total) or given + output + read + written
    return Tokens(given, output, read, written, float(cost) if fine else None, answer, whole)


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
