"""Pages of a list: which sessions a page holds, and the cursor for where it ended.

A cursor holds a place (time of the last change, session id) with a checksum over that and the
list's filters: only the same list takes it back. The checksum is no secret.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from indexerd.errors import UsageError
from indexerd.privacy.sanitize import replace_surrogates
from indexerd.times import iso_ms

_SEAL_SIZE = 8


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows, and what to ask for the next ones with; None where there are none.

    `texts` are the rows in JSON: who passes them on need not read them.
    """

    texts: tuple[str, ...]
    next_cursor: str | None = None

    @property
    def rows(self) -> tuple[dict[str, Any], ...]:
        """The rows themselves."""
        return tuple(json.loads(text) for text in self.texts)


def sealed(modified: int, session_id: str, filters: str) -> str:
    """The cursor of a place."""
    place = json.dumps([modified, session_id]).encode()
    return base64.urlsafe_b64encode(_seal(place, filters) + place).decode()


def opened(cursor: str, filters: str) -> tuple[int, str]:
    """The place of a cursor; UsageError for one that these filters did not give out."""
    try:
        held = base64.b64decode(cursor.encode("ascii"), b"-_", validate=True)
    except ValueError:
        held = b""
    place = held[_SEAL_SIZE:]
    if not place or held[:_SEAL_SIZE] != _seal(place, filters):
        raise UsageError(
            "not a cursor of this list", hint="leave the cursor out to begin with the first page"
        )
    modified, session_id = json.loads(place)
    return modified, session_id


def _seal(place: bytes, filters: str) -> bytes:
    text = filters.encode("utf-8", "replace") + b"\0" + place
    return blake2b(text, digest_size=_SEAL_SIZE, person=b"indexerd page").digest()


def conditions(
    agent: str | None, cwd: str | None, since: str | None
) -> tuple[list[str], list[str | int]]:
    """What limits sessions to an agent's, to those below a directory, to those changed since."""
    where: list[str] = []
    values: list[str | int] = []
    if cwd is not None:
        # All that begins with `/a/b/` lies between that and `/a/b0`: 0 comes after the slash.
        base = replace_surrogates(cwd).rstrip("/")
        where.append("(cwd = ? OR cwd >= ? AND cwd < ?)")
        values += [base or "/", base + "/", base + "0"]
    if agent is not None:
        where.append("agent = ?")
        values.append(replace_surrogates(agent))
    if since is not None:
        moment = iso_ms(since)
        if moment == 0:
            raise UsageError("since is not a time", hint="write it like 2026-01-31T12:00:00Z")
        where.append("modified >= ?")
        values.append(moment)
    return where, values
