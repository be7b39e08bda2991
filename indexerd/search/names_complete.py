"""How a session is offered: as a completion of `@@` (S0.59), or as a candidate of an error.

In: what the index of names holds of it, and the time. Out: the item of interfaces.md: a label of
one line, the age in few letters, and the text that is inserted, which is always the whole id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from indexerd.search.names_known import RINGS, Known, ring_of
from indexerd.times import iso_of_ms

LABEL_MAX = 60  # characters of a label
_BLANKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]+")
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def item(row: Known, now: float) -> dict[str, Any]:
    """One completion; `now` in seconds since the epoch."""
    label = _BLANKS.sub(" ", row.name).strip() or row.session_id
    return {
        "sessionId": row.session_id,
        "label": label if len(label) <= LABEL_MAX else label[: LABEL_MAX - 1].rstrip() + "…",
        "age": _age(now - row.modified / 1000, row.modified),
        "named": row.named,
        "insert": f"@@{row.session_id} ",
    }


def nearest_of(rows: Iterable[Known], cwd: str | None, limit: int) -> list[Known]:
    """The first rows of those in the nearest ring; no more are read than that takes."""
    found: dict[int, list[Known]] = {}
    rings: dict[str, int] = {}
    for row in rows:
        if row.cwd not in rings:
            rings[row.cwd] = ring_of(cwd, row.cwd) if cwd else RINGS[0]
        ring = found.setdefault(rings[row.cwd], [])
        ring.append(row)
        if rings[row.cwd] == RINGS[0] and len(ring) == limit:
            break
    return found[min(found)][:limit] if found else []


def candidate(row: Known, score: float | None) -> dict[str, Any]:
    """One session of an ambiguous reference; `score` (0 to 1) says how near its name is."""
    found: dict[str, Any] = {
        "sessionId": row.session_id,
        "name": row.name,
        "cwd": row.cwd,
        "modifiedAt": iso_of_ms(row.modified),
    }
    return found if score is None else found | {"score": score}


def _age(seconds: float, modified: int) -> str:
    """How long ago: now, 5m, 3h, 2d, and after a week the date."""
    if seconds < _MINUTE:
        return "now"
    for unit, letter, upto in ((_MINUTE, "m", _HOUR), (_HOUR, "h", _DAY), (_DAY, "d", 7 * _DAY)):
        if seconds < upto:
            return f"{int(seconds // unit)}{letter}"
    return iso_of_ms(modified)[:10]
