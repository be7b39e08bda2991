"""Turn the lines of a pi session into a tree.

What surprised us: the leaf is the last entry of the file, whatever its type; only the harness's
`leaf` entry names another one. A later header is a repeat of the first. Version 1 has no ids: an
entry's row makes one, which stays the same when the file is read again.
"""

from __future__ import annotations

import re

from indexerd.agents.base import ANSWERS, PATH_MAX, WORD_MAX, Tree
from indexerd.agents.json_lines import (
    PREVIEWED,
    Fields,
    as_dict,
    decoder,
    kept,
    parse_object,
    safe_line,
    scan_lines,
    string,
    time_ms,
)
from indexerd.agents.pi.parse_entry import ROLES, TYPES, entry_of, made_id
from indexerd.events import MESSAGE, PAID, Header, Turn
from indexerd.privacy.redact import redact
from indexerd.protocol.limits import FIRST_MESSAGE_MAX
from indexerd.times import iso_ms

_VERSION_MAX = 1_000_000
_TURNS = {"toolUse": Turn.OPEN, "error": Turn.FAILED, "aborted": Turn.FAILED}
_decode = decoder(
    "type id parentId timestamp usage stopReason targetId label name version cwd parentSession"
    " branchedFrom",
    message=kept("role stopReason timestamp usage"),
)
_WRAPPED = re.compile(r"<(skill|file)\b[^>]{0,500}>.*?</\1>", re.DOTALL)


def scan(tree: Tree, data: bytes, base: int) -> None:
    for line, offset, length in scan_lines(tree, data, base, _decode):
        if tree.header is not None:
            if line.get("type") != "session":
                whole = data[offset - base : offset - base + length]
                _take(tree, line, whole, offset, ids=tree.header.version > 1)
        elif tree.foreign or line.get("type") != "session" or not isinstance(line.get("id"), str):
            tree.foreign = True
        else:
            version = line.get("version")
            parent = line.get("parentSession") or line.get("branchedFrom")
            tree.header = Header(
                session_id=line["id"][:PATH_MAX],
                cwd=string(line.get("cwd"))[:PATH_MAX],
                created_at=string(line.get("timestamp"))[:WORD_MAX],
                version=version if type(version) is int and 0 <= version <= _VERSION_MAX else 1,
                parent=string(parent)[:PATH_MAX] or None,
            )


def _take(tree: Tree, line: Fields, whole: bytes, offset: int, *, ids: bool) -> None:
    kind, message, row = string(line.get("type")), as_dict(line.get("message")), len(tree.ids)
    role, packed = string(message.get("role")), TYPES.get(kind, 0)
    if role == "assistant" and kind == "message":
        stop = message.get("stopReason") or line.get("stopReason")  # there in a line cut short
        packed = ANSWERS[_TURNS.get(string(stop), Turn.ENDED)]
    else:
        says = message if kind == "message" else line
        packed = ROLES.get(role, 0) | MESSAGE if kind == "message" else packed
        packed |= PAID if isinstance(says.get("usage"), dict) else 0
    length = len(whole)
    if ids:
        own, parent = string(line.get("id")), string(line.get("parentId")) or None
        tree.add(own, parent, packed, offset, length)
    else:
        tree.add(made_id(row), made_id(row - 1) if row else None, packed, offset, length)
    target = line.get("targetId")
    if kind == "message":
        if role in ("user", "assistant"):
            at = time_ms(message.get("timestamp")) or iso_ms(string(line.get("timestamp")))
            tree.activity_ms = max(tree.activity_ms, at)
        if role == "user":
            tree.opened_by(row, lambda: preview(entry_of(parse_object(whole)).text))
    elif kind == "session_info":
        tree.name = safe_line(string(line.get("name"))) or None
    elif kind == "label" and isinstance(target, str):
        tree.labels.pop(target, None)
        if label := _label(string(line.get("label"))):
            tree.labels[target] = label
    elif kind == "leaf":
        tree.move_leaf(target if isinstance(target, str) else None)


def _label(label: str) -> str:
    """Make a label safe to store and show, with the spaces around it, which pi keeps."""
    safe = redact(label[:PREVIEWED]).text
    return (safe if safe.isprintable() else safe_line(safe))[:FIRST_MESSAGE_MAX]


def preview(text: str) -> str:
    """Shorten a message to one line of at most 200 characters, without skill and file wrappers."""
    head = text[:PREVIEWED]
    return safe_line(_WRAPPED.sub(" ", head)) or safe_line(head)
