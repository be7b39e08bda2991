"""One path of a pi session as the lines of a new session file: pi's createBranchedSession.

The header is of version 3 and names the source as its parent; label entries are left out, every
other one hangs on the one before it, and the labels of what was kept follow at the end, with the
times they had. A line that need not change stays as it is, byte by byte;
where a field must, every other field keeps its bytes. Versions 1 and 2 are migrated as pi does it,
but for the ids of version 1, which pi makes at random: here they are those that we show.

What surprised us: a compaction may keep history from a label on; then it keeps it from the entry
that follows the label.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from indexerd.agents.json_lines import as_dict, value
from indexerd.agents.pi.read import made_id
from indexerd.events import Kind

VERSION = 3
_decode = msgspec.json.Decoder(dict[str, Raw]).decode


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
    header = {"type": "session", "version": VERSION, "id": origin.session_id}
    header |= {"timestamp": origin.timestamp, "cwd": origin.cwd, "parentSession": origin.source}
    yield _joined(header)
    last: str | None = None
    ids: set[str] = set()
    moved: dict[str, str] = {}  # labels, and the entry that takes the place of each
    waiting: list[str] = []
    for line in path:
        if line.kind is Kind.LABEL:
            waiting.append(line.id)
            continue
        moved |= dict.fromkeys(waiting, line.id)
        waiting.clear()
        yield _kept(origin.version, line, last, moved)
        last = line.id
        ids.add(last)
    for target, (label, stamp) in _resolved(labels).items():
        if target in ids:
            above, last = last, fresh()
            while last in ids:
                last = fresh()
            ids.add(last)
            entry = {"type": "label", "id": last, "parentId": above}
            stamped = {} if stamp is None else {"timestamp": stamp}
            yield _joined({**entry, **stamped, "targetId": target, "label": label})


def _kept(version: int, line: Line, above: str | None, moved: dict[str, str]) -> bytes:
    """One entry's line, below another one than before, and in version 3."""
    data = line.data.strip()
    held = _fields(data)
    if not held:
        raise ValueError("not an object")
    fields = dict[str, Any](held)
    if version < 2:  # noqa: PLR2004 - the first with ids
        fields |= {"id": line.id, "parentId": above}
    elif "parentId" not in held or _value(held, "parentId") != above:
        fields["parentId"] = above
    kept, index = _value(held, "firstKeptEntryId"), _value(held, "firstKeptEntryIndex")
    if line.kind is Kind.COMPACTION and version < 2:  # noqa: PLR2004 - pi's version
        if isinstance(index, int | float):
            del fields["firstKeptEntryIndex"]
            # The header is 0; an entry that comes later has no id yet.
            if index == int(index) and 0 < index <= int(line.id, 16):
                fields["firstKeptEntryId"] = made_id(int(index) - 1)
    elif line.kind is Kind.COMPACTION and kept != line.id and kept in moved:
        fields["firstKeptEntryId"] = moved[kept]
    message = _fields(held["message"]) if version < VERSION and "message" in held else {}
    if _value(message, "role") == "hookMessage":
        fields["message"] = message | {"role": "custom"}
    return data + b"\n" if fields == held else _joined(fields)


def _resolved(labels: Iterable[Line]) -> dict[str, tuple[str, str | None]]:
    """Each target's label and its time: the last change counts, an empty one clears."""
    found: dict[str, tuple[str, str | None]] = {}
    for line in labels:
        held = _fields(line.data)
        target, label, stamp = (_value(held, key) for key in ("targetId", "label", "timestamp"))
        if isinstance(target, str) and isinstance(label, str) and label:
            found[target] = (label, stamp if isinstance(stamp, str) else None)
        elif isinstance(target, str):
            found.pop(target, None)
    return found


def _fields(data: bytes | Raw) -> dict[str, Any]:
    """The fields of an object, each as its own bytes; nothing for what is no object."""
    try:
        return _decode(data)
    except (ValueError, RecursionError):
        held = as_dict(value(Raw(data)))  # half a surrogate pair, for one
        return {key: Raw(json.dumps(one).encode()) for key, one in held.items()}


def _value(held: dict[str, Any], key: str) -> Any:
    return value(held[key]) if key in held else None


def _joined(fields: dict[str, Any]) -> bytes:
    return msgspec.json.encode(fields) + b"\n"
