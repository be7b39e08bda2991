"""Make a new session file of one path of a pi session: pi's createBranchedSession.

The header names the source as its parent; label entries are left out, every other entry hangs on
the one before it, and the labels of kept entries follow at the end. A line that need not change
keeps its bytes. The new file of an old session is as old: pi migrates it when it opens it.

What surprised us: a compaction may keep history from a label on; then it keeps it from the entry
that follows the label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from indexerd.agents.json_lines import Fields, parse_object
from indexerd.events import Kind

VERSION = 3


class Line(NamedTuple):
    """One entry of the source."""

    id: str  # as we show it
    kind: Kind
    data: bytes


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of the new session, and the fields of its header."""

    session_id: str
    timestamp: str  # ISO-8601, now
    cwd: str
    source: str  # path of the session that it is a branch of
    version: int = VERSION  # of the source


def file_name(origin: Origin) -> str:
    stamp = origin.timestamp.replace(":", "-").replace(".", "-")
    return f"{stamp}_{origin.session_id}.jsonl"


def branch_lines(
    origin: Origin, path: Iterable[Line], labels: Iterable[Line], fresh: Callable[[], str]
) -> Iterator[bytes]:
    """Yield the lines of the new file, header first, each with its newline.

    `labels` are the label entries of the whole source, in the file's order; `fresh` makes random
    words of eight hexadecimal digits. ValueError for a line of the path that is no JSON object.
    """
    version = min(origin.version, VERSION)
    header = {"type": "session", "version": version, "id": origin.session_id}
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
        held = parse_object(line.data)
        fields = held if version <= 1 else held | {"parentId": last}  # version 1 has no ids
        kept = held.get("firstKeptEntryId")
        if line.kind is Kind.COMPACTION and kept not in (None, line.id):
            fields["firstKeptEntryId"] = moved.get(str(kept), kept)
        yield line.data.strip() + b"\n" if fields == held else _joined(fields)
        last = line.id
        ids.add(last)
    for target, stored in _resolved(labels).items():
        if target in ids:
            above, last = last, fresh()
            while last in ids:
                last = fresh()
            ids.add(last)
            yield _joined(
                {"type": "label", "id": last, "parentId": above, **stored, "targetId": target}
            )


def _resolved(labels: Iterable[Line]) -> dict[str, Fields]:
    """Find each target's label and its time: the last change counts, an empty one clears."""
    found: dict[str, Fields] = {}
    for line in labels:
        held = parse_object(line.data)
        target, label = held.get("targetId"), held.get("label")
        if isinstance(target, str) and isinstance(label, str) and label:
            # A label that is changed stays where it was among the others, as pi has it.
            found[target] = {key: held[key] for key in ("label", "timestamp") if key in held}
        elif isinstance(target, str):
            found.pop(target, None)
    return found


def _joined(fields: Fields) -> bytes:
    return msgspec.json.encode(fields) + b"\n"
