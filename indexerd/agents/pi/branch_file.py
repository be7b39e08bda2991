"""One path of a pi session as the lines of a new session file: pi's createBranchedSession.

In: the path's lines and those of the session's labels, and for the new session an id, a time and
random words for ids. Out: the file's lines. The header is of version 3 and names the source as
its parent; label entries are left out, every other one hangs on the one before it, and the
labels of what was kept follow at the end, with the times they had (S1.16, formats.md §1.6).

A line that need not change stays as it is, byte by byte. Where a field must, every other field
keeps its bytes, as far as they are JSON that can be kept apart. Versions 1 and 2 are migrated as
pi does it, but for the ids of version 1, which pi makes at random: here they are those that we
show, so that what was said of an entry still names it.

What surprised us: a compaction may keep history from a label on; then it keeps it from the entry
that follows the label.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from indexerd.events import Kind

VERSION = 3
_FIRST_WITH_IDS = 2
_TRIES = 100

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Line(NamedTuple):
    """One entry of the source: its id as we show it, what it is, and its line."""

    id: str
    kind: Kind
    data: bytes


@dataclass(frozen=True, slots=True)
class Origin:
    """What a session is made from, and what its header says."""

    session_id: str
    timestamp: str  # ISO-8601, now
    cwd: str
    source: str  # path of the session that it is a branch of
    version: int = VERSION  # of the source


def file_name(origin: Origin) -> str:
    """The name that pi gives the file."""
    stamp = origin.timestamp.replace(":", "-").replace(".", "-")
    return f"{stamp}_{origin.session_id}.jsonl"


def branch_lines(
    origin: Origin, path: Iterable[Line], labels: Iterable[Line], fresh: Callable[[], str]
) -> Iterator[bytes]:
    """The lines of the new file, header first, each with its newline.

    `labels` are the label entries of the whole source, in the file's order; `fresh` makes random
    words of eight hexadecimal digits. ValueError for a line of the path that is no JSON object.
    """
    header = {
        "type": "session",
        "version": VERSION,
        "id": origin.session_id,
        "timestamp": origin.timestamp,
        "cwd": origin.cwd,
        "parentSession": origin.source,
    }
    ids: set[str] = set()
    last: str | None = None
    yield _encode(header) + b"\n"
    for line in _rechained(origin.version, path):
        ids.add(line.id)
        last = line.id
        yield line.data + b"\n"
    for target, (label, stamp) in _resolved(labels).items():
        if target in ids:
            above, last = last, _unused(ids, fresh)
            ids.add(last)
            entry = {"type": "label", "id": last, "parentId": above, "timestamp": stamp}
            yield _encode({**entry, "targetId": target, "label": label}) + b"\n"


def _rechained(version: int, path: Iterable[Line]) -> Iterator[Line]:
    """The entries that are kept, each below the one before it."""
    last: str | None = None
    waiting: list[str] = []  # labels of which the next entry takes the place
    moved: dict[str, str] = {}
    for line in path:
        if line.kind is Kind.LABEL:
            waiting.append(line.id)
            continue
        moved |= dict.fromkeys(waiting, line.id)
        waiting.clear()
        yield Line(line.id, line.kind, _kept(version, line, last, moved))
        last = line.id


def _kept(version: int, line: Line, above: str | None, moved: dict[str, str]) -> bytes:
    """One entry's line, below another one than before, and in version 3."""
    data = line.data.strip()
    held = _fields(data)
    if not held:
        raise ValueError("not an object")
    changes: dict[str, Any] = {}
    if version < _FIRST_WITH_IDS:
        changes = {"id": line.id, "parentId": above}
    elif "parentId" not in held or _value(held["parentId"]) != above:
        changes = {"parentId": above}
    if line.kind is Kind.COMPACTION:
        changes |= _kept_from(version, line.id, held, moved)
    if version < VERSION and "message" in held:
        changes |= _new_role(held["message"])
    if not changes:
        return data
    fields = held | {key: _encode(value) for key, value in changes.items() if value is not ...}
    fields = {key: value for key, value in fields.items() if changes.get(key) is not ...}
    return _joined(fields)


def _kept_from(
    version: int, entry_id: str, held: dict[str, bytes], moved: dict[str, str]
) -> dict[str, Any]:
    """What changes where a compaction says from which entry on history is kept."""
    if version < _FIRST_WITH_IDS:
        index = _value(held.get("firstKeptEntryIndex"))
        if not isinstance(index, int | float):
            return {}
        first = index - 1  # the header is 0; an entry that comes later has no id yet
        known = first == int(first) and 0 <= first < int(entry_id, 16)
        kept = {"firstKeptEntryId": f"{int(first):08x}"} if known else {}
        return {"firstKeptEntryIndex": ..., **kept}
    kept_id = _value(held.get("firstKeptEntryId"))
    new = moved.get(kept_id) if isinstance(kept_id, str) and kept_id != entry_id else None
    return {} if new is None else {"firstKeptEntryId": new}


def _new_role(message: bytes) -> dict[str, Any]:
    """A message of version 2 with the role's new name."""
    if b"hookMessage" not in message:
        return {}
    held = _fields(message)
    if _value(held.get("role")) != "hookMessage":
        return {}
    return {"message": msgspec.Raw(_joined(held | {"role": b'"custom"'}))}


def _resolved(labels: Iterable[Line]) -> dict[str, tuple[str, str | None]]:
    """Each target's label and its time: the last change counts, an empty one clears (S1.30)."""
    found: dict[str, tuple[str, str | None]] = {}
    for line in labels:
        held = _fields(line.data)
        target, label, stamp = (_value(held.get(key)) for key in ("targetId", "label", "timestamp"))
        if not isinstance(target, str):
            continue
        if isinstance(label, str) and label:
            found[target] = (label, stamp if isinstance(stamp, str) else None)
        else:
            found.pop(target, None)
    return found


def _unused(ids: set[str], fresh: Callable[[], str]) -> str:
    """An id that no entry has."""
    word = fresh()
    for _ in range(_TRIES):
        if word not in ids:
            return word
        word = fresh()
    while word in ids:
        word += fresh()
    return word


# -- JSON, field by field ------------------------------------------------------------------------


def _fields(data: bytes) -> dict[str, bytes]:
    """The fields of an object, each as its own bytes; nothing for what is no object."""
    try:
        return {key: bytes(value) for key, value in _decode(data).items()}
    except (msgspec.DecodeError, RecursionError):
        held = _loads(data)
    if not isinstance(held, dict):
        return {}
    return {key: json.dumps(value).encode() for key, value in held.items()}


def _loads(data: bytes) -> Any:
    try:
        text = data.decode("utf-8", "replace")
        return json.loads(text, parse_float=_finite, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None


def _finite(text: str) -> float | None:
    """A number that JSON can hold; JavaScript writes null for the others."""
    number = float(text)
    return number if math.isfinite(number) else None


def _value(data: bytes | None) -> Any:
    return None if data is None else _loads(data)


def _joined(fields: dict[str, bytes]) -> bytes:
    pairs = (json.dumps(key).encode() + b":" + value for key, value in fields.items())
    return b"{" + b",".join(pairs) + b"}"


def _encode(value: Any) -> bytes:
    """Compact JSON without what is absent."""
    if isinstance(value, msgspec.Raw):
        return bytes(value)
    if isinstance(value, dict):
        value = {key: one for key, one in value.items() if one is not None or key == "parentId"}
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a pair: JSON can say it, UTF-8 cannot
        return json.dumps(value, separators=(",", ":")).encode()
