"""Skim: every byte of a pi session once, keeping only where things are.

Nothing a file holds raises here: a line that is not a JSON object is counted and skipped, as
pi itself does. The rules of pi that matter here (formats.md §1, formats-observed.md):

- the first parseable record must be a `session` header with a string id, else the file is not
  a session; a later header is a repeat of the first and is passed over;
- the leaf is the last entry of the file, whatever its type; only the harness's `leaf` entry
  names another one;
- version 1 has no ids: we make them from the entry's ordinal, so that they hold across
  re-reads; version 2 calls custom messages `hookMessage`;
- a line written by pi 3 begins in one fixed way, which a Struct of fixed offsets recognises
  without parsing; anything else is parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from struct import Struct
from typing import Any

from indexerd.agents.lines import parse, past_hole, safe_line, string, without_hole
from indexerd.agents.pi.read import packed_code, preview, turn_of, when, words
from indexerd.events import MESSAGE, Header, Kind, Turn, code
from indexerd.privacy.redact import redact
from indexerd.privacy.sanitize import scrub
from indexerd.protocol.limits import FIRST_MESSAGE_MAX
from indexerd.sessions.chain import Chain
from indexerd.sessions.state import NOWHERE, SessionState
from indexerd.sources.lines import Oversize

WORD_MAX = 64  # characters of a time that are kept
PATH_MAX = 8192
VERSION_MAX = 1_000_000
ENDS_LOOKED_AT = 4096  # bytes of an oversized line's beginning in which its own fields stand
TURN_WINDOW = 512  # an answer's stopReason and a tool's usage stand within the line's last bytes

_FIRST_WITH_IDS = 2
_NEVER = 1 << 62
_NEWLINE, _BRACE = b"\n}"
_FIXED = Struct("24s8s22s39x31s")  # its beginning, id, parent's key and id, time, the role's key
_SIZE = _FIXED.size
_unpack = _FIXED.unpack_from
_K_OPEN = b'{"type":"message","id":"'
_K_PARENT = b'","parentId":"'
_ROLE_USER = b'","message":{"role":"user","con'
_ROLE_ASSISTANT = b'","message":{"role":"assistant"'
_ROLE_TOOL = b'","message":{"role":"toolResult'
_STOP = b'"stopReason":"'
_STOP_SIZE = len(_STOP)
_USAGE = b'"usage":{'
_TIME = b',"timestamp":'

_CODE_USER = code(Kind.USER, message=True)
_CODE_TOOL = code(Kind.TOOL, message=True)
_CODES_ASSISTANT = {turn: code(Kind.ASSISTANT, turn=turn, message=True) for turn in Turn}
_CODES_BY_STOP = {  # eight bytes: the reason, its quote, and what follows as pi writes it
    f'{word}","tim'.encode()[:8]: _CODES_ASSISTANT[turn_of(word)]
    for word in ("stop", "toolUse", "length", "aborted", "error")
}
_TIMED = frozenset({_CODE_USER, *_CODES_ASSISTANT.values()})


def skim(state: SessionState, data: bytes, base: int) -> None:
    """Take in whole lines that stand at file offset `base`.

    The fixed form proves a line's beginning and end, not that it is whole JSON: a torn line to
    which the next one was glued looks just so. It shows in what follows, an entry whose parent
    is unknown; the block's last line, which nothing follows yet, is searched for a second one.
    """
    start, end, holed = 0, len(data), _holed(data, 0)
    before = (0, 0)  # the line before, if it was taken on its looks
    newest: dict[int, tuple[int, int]] = {}  # packed code -> the newest such line
    opened = _NEVER  # all rows from this one on stand below a human message that was read
    while start < end:
        chain = _gathered(state, data, (start, holed), opened) if _fast(state) else None
        if chain is not None:
            if chain.parent not in state.index:
                _doubt(state, data[before[0] : before[1]])
            if state.index.get(chain.parent, NOWHERE) < opened:
                opened = len(state) if chain.opened else _NEVER
            state.extend(chain, base)
            newest |= chain.newest()
            before = chain.starts[-1], chain.end - 1
            start = chain.end
            continue
        stop = data.find(b"\n", start)
        if start >= holed:
            begin = past_hole(data, start, stop)
            state.bad_lines += begin > start
            start, holed = begin, _holed(data, stop + 1)
        _one(state, data[start:stop], base + start, data[before[0] : before[1]])
        if len(state) and (state.parents[-1] < opened or state.codes[-1] == _CODE_USER):
            opened = _NEVER
        before = (0, 0)
        start = stop + 1
    for packed in newest.keys() - {_CODE_TOOL}:
        first, last = newest[packed]
        _note_activity(state, data[first:last])


def _holed(data: bytes, start: int) -> int:
    """Where the next line begins that has a NUL in it; no such line is taken on its looks."""
    mark = data.find(b"\0", start)
    return len(data) if mark < 0 else max(start, data.rfind(b"\n", start, mark) + 1)


def _one(state: SessionState, line: bytes, offset: int, before: bytes) -> None:
    """A line that is to be parsed; `before` is the one before, if that was taken on its looks."""
    held = _object(state, line)
    if held is None:
        _doubt(state, before)  # where the disk was full, lines are torn one after the other
        return
    if string(held.get("parentId")).encode("utf-8", "replace") not in state.index:
        _doubt(state, before)
    _take(state, held, offset, len(line))


def _fast(state: SessionState) -> bool:
    return _has_ids(state) and not state.strict


def _has_ids(state: SessionState) -> bool:
    return state.header is not None and state.header.version >= _FIRST_WITH_IDS


def _gathered(state: SessionState, data: bytes, span: tuple[int, int], opened: int) -> Chain | None:
    """The lines of a span that begin and end as pi 3 writes messages, each below the one before.

    A path's first human message is none of them: it is to be read. This loop is where the time
    of a scan goes; of each line it makes no more objects than it needs.
    """
    start, last = span[0], span[1] - _SIZE - 1
    find, rfind, ends = data.find, data.rfind, _CODES_BY_STOP
    opening, own, above, role = _unpack(data, start) if start <= last else (b"", b"", b"", b"")
    if opening != _K_OPEN or not above.startswith(_K_PARENT):
        return None
    chain = Chain(above[len(_K_PARENT) :])
    ids, starts, codes = chain.ids, chain.starts, chain.codes
    expected, asked = above, state.index.get(chain.parent, NOWHERE) >= opened
    while above == expected and opening == _K_OPEN:
        stop = find(_NEWLINE, start)
        if data[stop - 1] != _BRACE or data[stop - 2] != _BRACE or stop - start <= _SIZE:
            break  # it ends otherwise
        near = stop - TURN_WINDOW if stop > TURN_WINDOW else 0
        if role == _ROLE_TOOL and rfind(_USAGE, near, stop) < start:  # it asked no model
            packed = _CODE_TOOL
        elif role == _ROLE_ASSISTANT:
            mark = rfind(_STOP, near, stop)
            if mark < start:
                break
            mark += _STOP_SIZE
            packed = ends.get(data[mark : mark + 8]) or _other_end(data, mark)
        elif role == _ROLE_USER and (asked or not state.opens(chain.parent)):
            packed, asked = _CODE_USER, True
        else:
            break
        ids.append(own)
        starts.append(start)
        codes.append(packed)
        start = stop + 1
        if start > last:
            break
        expected = _K_PARENT + own
        opening, own, above, role = _unpack(data, start)
    chain.end, chain.opened = start, asked
    if start >= len(data) and ids and data.find(_K_OPEN, starts[-1] + 1, start) > 0:
        chain.drop_last()
    return chain if ids else None


def _other_end(data: bytes, mark: int) -> int:
    """The packed code of an answer that stopped for the reason that stands there."""
    word = data[mark : data.find(b'"', mark)]
    return _CODES_ASSISTANT[turn_of(word.decode("ascii", "replace"))]


def _doubt(state: SessionState, before: bytes) -> None:
    """Take the line before back, if it was taken on its looks and is no JSON."""
    if not before:
        return
    try:
        parse(before)
    except ValueError:
        state.take_back()


def _note_activity(state: SessionState, line: bytes) -> None:
    """Keep the newest time that something was said; it stands near a line's end."""
    mark = line.rfind(_TIME, max(0, len(line) - TURN_WINDOW))
    digits = line[mark + len(_TIME) : mark + len(_TIME) + 13]
    if mark > 0 and digits.isdigit():
        state.activity_ms = max(state.activity_ms, int(digits))
        return
    try:
        held = parse(line)
    except ValueError:
        return
    if isinstance(held, dict):
        state.activity_ms = max(state.activity_ms, when(held))


def _object(state: SessionState, line: bytes) -> dict[str, Any] | None:
    """The JSON object that a line holds; anything else is counted, and blank lines are not."""
    if state.header is None:
        line = line.removeprefix(b"\xef\xbb\xbf")
    if not line.strip():
        return None
    try:
        held = parse(line)
    except ValueError:
        state.bad_lines += 1
        return None
    if isinstance(held, dict):
        return held
    state.bad_lines += 1
    if held is not None and state.header is None:
        state.foreign = True
    return None


def _take(state: SessionState, held: dict[str, Any], offset: int, length: int) -> None:
    if state.header is None:
        _header(state, held)
    elif held.get("type") != "session":
        _entry(state, held, offset, length)


def _header(state: SessionState, held: dict[str, Any]) -> None:
    """The first record: a session header, or this is no session (S1.3)."""
    session_id = held.get("id")
    if state.foreign or held.get("type") != "session" or not isinstance(session_id, str):
        state.foreign = True
        return
    version = held.get("version")
    parent = held.get("parentSession") or held.get("branchedFrom")
    state.header = Header(
        session_id=scrub(session_id[:PATH_MAX]),
        cwd=scrub(string(held.get("cwd"))[:PATH_MAX]),
        created_at=scrub(string(held.get("timestamp")))[:WORD_MAX],
        version=version if type(version) is int and 0 <= version <= VERSION_MAX else 1,
        parent=scrub(parent[:PATH_MAX]) if isinstance(parent, str) else None,
    )


def _entry(state: SessionState, held: dict[str, Any], offset: int, length: int) -> None:
    kind_of = string(held.get("type"))
    entry_id, parent = _ids(state, held)
    packed = packed_code(held)
    state.add(entry_id, parent, packed, offset, length)
    if kind_of == "message":
        _said(state, held, packed)
    elif kind_of == "session_info":
        state.name = safe_line(string(held.get("name"))) or None
    elif kind_of == "label":
        _label(state, held)
    elif kind_of == "leaf":
        target = held.get("targetId")
        state.move_leaf(target.encode("utf-8", "replace") if isinstance(target, str) else None)


def _said(state: SessionState, held: dict[str, Any], packed: int) -> None:
    """What a message tells of its session."""
    if packed == _CODE_USER and not state.first_user:
        state.first_user = preview(words(held))
    if packed in _TIMED:
        state.activity_ms = max(state.activity_ms, when(held))


def _ids(state: SessionState, held: dict[str, Any]) -> tuple[bytes, bytes | None]:
    """An entry's id and parent; those of version 1 are made from its ordinal (S1.8)."""
    if not _has_ids(state):
        row = len(state.ids)
        return _made_id(row), _made_id(row - 1) if row else None
    entry_id, parent = held.get("id"), held.get("parentId")
    return (
        entry_id.encode("utf-8", "replace") if isinstance(entry_id, str) else b"",
        parent.encode("utf-8", "replace") if isinstance(parent, str) and parent else None,
    )


def _made_id(row: int) -> bytes:
    return b"%08x" % row


def _label(state: SessionState, held: dict[str, Any]) -> None:
    target, label = held.get("targetId"), _as_kept(string(held.get("label")))
    if isinstance(target, str):
        if label:
            state.labels[scrub(target)] = label
        else:
            state.labels.pop(scrub(target), None)


def _as_kept(label: str) -> str:
    """A label that may be stored and shown, with the spaces around it, which pi keeps."""
    told = redact(label[:20_000]).text
    if told.isprintable():
        return told[:FIRST_MESSAGE_MAX]
    before = len(told) - len(told.lstrip(" "))
    after = len(told) - len(told.rstrip(" "))
    plain = safe_line(told)
    return (" " * before + plain + " " * after)[:FIRST_MESSAGE_MAX] if plain else ""


def skim_oversize(state: SessionState, line: Oversize) -> None:
    """Take in a line too long to hold, from its two ends: the tree is whole (F8).

    Of a first human message only the words before a picture are known: behind one, none are.
    """
    line = without_hole(line)
    state.oversized += not line.readable
    if state.header is None:
        state.foreign = True
        return
    held: dict[str, Any] = dict(_outer_strings(line.head[:ENDS_LOOKED_AT]))
    for key in ("id", "parentId"):
        if key not in held:
            held[key] = _last_text(line.tail, key)
    role = re.search(rb'"message":\s*\{\s*"role":\s*"(\w{1,40})"', line.head)
    held["message"] = {
        "role": role[1].decode() if role else None,
        "stopReason": _last_text(line.tail, "stopReason"),
        "content": _first_words(line.head),
    }
    if held.get("type") != "session":
        entry_id, parent = _ids(state, held)
        packed = packed_code(held)
        state.add(entry_id, parent, packed, line.offset, line.readable)
        if packed & MESSAGE:
            _said(state, held, packed)


_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*+)"(\s*:\s*"((?:[^"\\]|\\.)*+)")?|[{}\[\]]')


def _outer_strings(head: bytes) -> Iterator[tuple[str, str]]:
    """The string fields of the outermost object, as far as `head` goes."""
    depth = 0
    for token in _TOKEN.finditer(head):
        if token[1] is None:
            depth += 1 if token[0] in b"{[" else -1
        elif depth == 1 and token[3] is not None:
            yield token[1].decode("utf-8", "replace"), token[3].decode("utf-8", "replace")


# What a message begins with, if that is text: all of it, or as much as its preview looks at.
_WORDS = re.compile(
    rb'"content":\s*(?:\[\s*\{\s*"type":\s*"text",\s*"text":\s*)?'
    rb'("(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\["\\/bfnrt]){0,20000}+)'
)


def _first_words(head: bytes) -> str:
    found = _WORDS.search(head)
    return json.loads(found[1].decode("utf-8", "replace") + '"', strict=False) if found else ""


def _last_text(tail: bytes, key: str) -> str | None:
    """The last string field of that name before the line's end."""
    found: list[bytes] = re.findall(rb'"%s":\s*"([^"\\]{0,200})"' % key.encode(), tail)
    return found[-1].decode("utf-8", "replace") if found else None
