"""Scan: every line of a pi session once, keeping only where things are.

- the first record must be a `session` header with a string id, else the file is not a session;
  a later header is a repeat of the first and is passed over;
- the leaf is the last entry of the file, whatever its type; only the harness's `leaf` entry
  names another one;
- version 1 has no ids: we make them from the entry's row, so that they hold across re-reads.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from indexerd.agents import json_lines as lines
from indexerd.agents.base import ANSWERS, PATH_MAX, WORD_MAX, Tree
from indexerd.agents.json_lines import PREVIEWED, safe_line, time_ms
from indexerd.agents.pi.read import ROLES, TYPES, made_id, read
from indexerd.events import MESSAGE, PAID, Header, Turn
from indexerd.privacy.redact import redact
from indexerd.protocol.limits import FIRST_MESSAGE_MAX
from indexerd.times import iso_ms

_VERSION_MAX = 1_000_000
_TURNS = {"toolUse": Turn.OPEN, "error": Turn.FAILED, "aborted": Turn.FAILED}
_WRAPPED = re.compile(r"<(skill|file)\b[^>]{0,500}>.*?</\1>", re.DOTALL)


class Usage(Struct):
    """What a call took: here only whether it is said."""


class Message(Struct, rename="camel"):
    """What a scan needs of a message."""

    role: str | None = None
    stop_reason: str | None = None
    timestamp: Any = None
    usage: Usage | None = None


class Line(Struct, rename="camel"):
    """What a scan needs of a line; the fields of a session's header come last."""

    type: str | None = None
    id: str | None = None
    parent_id: str | None = None
    timestamp: str | None = None
    message: Message | None = None
    usage: Usage | None = None
    target_id: str | None = None
    name: str | None = None
    label: str | None = None
    stop_reason: str | None = None  # of a message, from the end of a line too long to hold
    version: Any = None
    cwd: str | None = None
    parent_session: str | None = None
    branched_from: str | None = None


_decode = lines.decoder(Line)


def scan(tree: Tree, data: bytes, base: int) -> None:
    """Take in whole lines that stand at file offset `base`."""
    for line, offset, text in lines.scan_lines(tree, data, base, _decode):
        if tree.header is None:
            _header(tree, line)
        elif line.type != "session":
            _take(tree, line, offset, len(text), text)


def _take(tree: Tree, line: Line, offset: int, length: int, text: bytes) -> None:
    message, kind = line.message, line.type
    packed = _code(line)
    if tree.header is not None and tree.header.version > 1:
        tree.add(line.id or "", line.parent_id or None, packed, offset, length)
    else:
        row = len(tree)
        tree.add(made_id(row), made_id(row - 1) if row else None, packed, offset, length)
    if message is not None and message.role in ("user", "assistant") and kind == "message":
        at = time_ms(message.timestamp) or iso_ms(line.timestamp or "")
        tree.activity_ms = max(tree.activity_ms, at)
        if message.role == "user" and not tree.first_user:
            tree.first_user = preview(read(text, "").text)
    elif kind == "session_info":
        tree.name = safe_line(line.name or "") or None
    elif kind == "label" and line.target_id is not None:
        tree.labels[line.target_id] = label = _label(line.label or "")
        if not label:
            del tree.labels[line.target_id]
    elif kind == "leaf":
        tree.move_leaf(line.target_id)


def _code(line: Line) -> int:
    kind, message, stop = line.type, line.message, line.stop_reason
    if kind != "message":
        return TYPES.get(kind or "", 0) | (PAID if line.usage else 0)
    if message is None:
        return MESSAGE
    if message.role == "assistant":
        return ANSWERS[_TURNS.get(message.stop_reason or stop or "", Turn.ENDED)]
    return ROLES.get(message.role or "", 0) | MESSAGE | (PAID if message.usage else 0)


def _header(tree: Tree, line: Line) -> None:
    """The first record: a session header, or this is no session."""
    if tree.foreign or line.type != "session" or line.id is None:
        tree.foreign = True
        return
    version, parent = line.version, line.parent_session or line.branched_from
    tree.header = Header(
        session_id=line.id[:PATH_MAX],
        cwd=(line.cwd or "")[:PATH_MAX],
        created_at=(line.timestamp or "")[:WORD_MAX],
        version=version if type(version) is int and 0 <= version <= _VERSION_MAX else 1,
        parent=parent[:PATH_MAX] if parent is not None else None,
    )


def _label(label: str) -> str:
    """A label that may be stored and shown, with the spaces around it, which pi keeps."""
    safe = redact(label[:PREVIEWED]).text
    plain = safe if safe.isprintable() else safe_line(safe)
    if plain != safe and plain:
        plain = safe[: len(safe) - len(safe.lstrip(" "))] + plain + safe[len(safe.rstrip(" ")) :]
    return plain[:FIRST_MESSAGE_MAX]


def preview(text: str) -> str:
    """A message as one line of at most 200 characters, without skill and file wrappers."""
    head = text[:PREVIEWED]
    return safe_line(_WRAPPED.sub(" ", head)) or safe_line(head)
