"""Scan: every line of a pi session once, keeping only where things are.

Nothing a file holds raises here: a line that is not a JSON object is counted and skipped, as
pi itself does. The rules of pi that matter here (formats.md §1, formats-observed.md):

- the first parseable record must be a `session` header with a string id, else the file is not
  a session; a later header is a repeat of the first and is passed over;
- the leaf is the last entry of the file, whatever its type; only the harness's `leaf` entry
  names another one;
- version 1 has no ids: we make them from the entry's ordinal, so that they hold across re-reads.
"""

from __future__ import annotations

import re

from indexerd.agents.base import PATH_MAX, WORD_MAX, Oversize, Tree
from indexerd.agents.lines import (
    PREVIEWED,
    close_truncated_json,
    safe_line,
    whole_lines,
    without_hole,
)
from indexerd.agents.pi.lines import (
    ANSWERS,
    USER,
    Line,
    code_of,
    decode,
    made_id,
    preview,
    when,
    words,
)
from indexerd.events import Header
from indexerd.privacy.redact import redact
from indexerd.protocol.limits import FIRST_MESSAGE_MAX

VERSION_MAX = 1_000_000
_FIRST_WITH_IDS = 2
_TIMED = frozenset({USER, *ANSWERS.values()})


def scan(tree: Tree, data: bytes, base: int) -> None:
    """Take in whole lines that stand at file offset `base`."""
    for offset, text in whole_lines(tree, data, base):
        try:
            line = decode(text)
        except ValueError:
            tree.bad_lines += 1
            continue
        if line is not None:
            _take(tree, line, offset, len(text))
            continue
        tree.bad_lines += 1
        if tree.header is None and text.strip() != b"null":
            tree.foreign = True


def scan_oversize(tree: Tree, ends: Oversize) -> None:
    """Take in a line too long to hold, from its two ends: the tree is whole (F8).

    Of a first human message only the words before a picture are known: behind one, none are.
    """
    ends = without_hole(ends)
    tree.oversized += not ends.readable
    if tree.header is None:
        tree.foreign = True
        return
    try:
        line = decode(close_truncated_json(ends.head)) or Line()
    except ValueError:
        line = Line()
    line.id = line.id or _last(ends.tail, b"id")
    line.parent_id = line.parent_id or _last(ends.tail, b"parentId")
    if line.message is not None:
        line.message.stop_reason = _last(ends.tail, b"stopReason")
    if line.type != "session":
        _take(tree, line, ends.offset, ends.readable)


def _last(tail: bytes, key: bytes) -> str | None:
    """The last string field of that name before the line's end."""
    found: list[bytes] = re.findall(rb'"%s":\s*"([^"\\]{0,200})"' % key, tail)
    return found[-1].decode("utf-8", "replace") if found else None


def _take(tree: Tree, line: Line, offset: int, length: int) -> None:
    if tree.header is None:
        _header(tree, line)
        return
    if line.type == "session":
        return
    if tree.header.version >= _FIRST_WITH_IDS:
        entry_id, parent = line.id or "", line.parent_id or None
    else:
        row = len(tree)
        entry_id, parent = made_id(row), made_id(row - 1) if row else None
    packed = code_of(line)
    tree.add(entry_id, parent, packed, offset, length)
    if packed in _TIMED:
        tree.activity_ms = max(tree.activity_ms, when(line))
        if packed == USER and not tree.first_user:
            tree.first_user = preview(words(line))
    elif line.type == "session_info":
        tree.name = safe_line(line.name or "") or None
    elif line.type == "label":
        _label(tree, line)
    elif line.type == "leaf":
        tree.move_leaf(line.target_id)


def _header(tree: Tree, line: Line) -> None:
    """The first record: a session header, or this is no session (S1.3)."""
    if tree.foreign or line.type != "session" or line.id is None:
        tree.foreign = True
        return
    version, parent = line.version, line.parent_session or line.branched_from
    tree.header = Header(
        session_id=line.id[:PATH_MAX],
        cwd=(line.cwd or "")[:PATH_MAX],
        created_at=(line.timestamp or "")[:WORD_MAX],
        version=version if type(version) is int and 0 <= version <= VERSION_MAX else 1,
        parent=parent[:PATH_MAX] if parent is not None else None,
    )


def _label(tree: Tree, line: Line) -> None:
    if line.target_id is None:
        return
    label = _as_kept(line.label or "")
    if label:
        tree.labels[line.target_id] = label
    else:
        tree.labels.pop(line.target_id, None)


def _as_kept(label: str) -> str:
    """A label that may be stored and shown, with the spaces around it, which pi keeps."""
    safe = redact(label[:PREVIEWED]).text
    if safe.isprintable():
        return safe[:FIRST_MESSAGE_MAX]
    before = len(safe) - len(safe.lstrip(" "))
    after = len(safe) - len(safe.rstrip(" "))
    plain = safe_line(safe)
    return (" " * before + plain + " " * after)[:FIRST_MESSAGE_MAX] if plain else ""
