"""Cursors: where a page of a list ended, sealed with the filters that the list was asked with.

In: a place (time of the last change, session id) and the filters' text. Out: one word that only
the same list takes back. The seal tells a forged, cut or foreign cursor; it is no secret.
"""

from __future__ import annotations

import base64
import json
from hashlib import blake2b

from indexerd.errors import UsageError

_SEAL_SIZE = 8


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
