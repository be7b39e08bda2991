"""Segments: summaries of ranges of a path's messages, one a line of `<id>.digest.jsonl`.

A segment names the row of its last message. Where that row has the same position on another path,
everything before it is the same, too; so branches share the segments of their common beginning.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from indexerd.errors import NotFoundError
from indexerd.meta.model import digest_bytes, digest_name, parse_digest, read_digest
from indexerd.meta.writer import MetaWriter
from indexerd.privacy.sanitize import clean_text
from indexerd.references.services import Services
from indexerd.sessions.positions import message_rows, names_on
from indexerd.sessions.state import SessionState
from indexerd.times import iso

CONTENT_MAX = 20_000  # characters; a model is asked for a fifth of it at most

_storing = Lock()


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of a range of messages."""

    id: str
    covering: tuple[int, int] = msgspec.field(name="covering_messages")
    content: str
    key_decisions: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()
    tools_used: tuple[dict[str, Any], ...] = ()  # tool, count, at most three notable_uses
    generated_at: str = ""
    token_count: int = 0  # of the content
    model: str = ""
    leaf_id: str = msgspec.field(name="leafId")  # name of the last message (sessions/positions.py)
    kind: Literal["segment", "branch"] = "segment"  # branch: of an abandoned branch; in no chain

    @property
    def messages(self) -> int:
        return self.covering[1] - self.covering[0] + 1


def parse(stored: Mapping[str, Any]) -> Segment | None:
    """Read a line of the sidecar, from any program; None where it cannot be used."""
    try:
        found = msgspec.convert({k: one for k, one in stored.items() if one is not None}, Segment)
    except (msgspec.ValidationError, RecursionError):
        return None
    content = clean_text(found.content[: 2 * CONTENT_MAX], CONTENT_MAX)
    usable = 0 <= found.covering[0] <= found.covering[1] and found.id and found.leaf_id and content
    return replace(found, content=content) if usable else None


def encode(segment: Segment) -> dict[str, Any]:
    line: dict[str, Any] = msgspec.to_builtins(segment)
    if segment.kind == "segment":
        del line["kind"]
    return line


def read_segments(home: Path | None, session_id: str, kind: str = "segment") -> list[Segment]:
    """Read the stored segments of all paths, or the summaries of branches."""
    lines = read_digest(home / digest_name(session_id)) if home else []
    return [one for line in lines if (one := parse(line)) is not None and one.kind == kind]


async def store_segment(
    services: Services, home: Path | None, session_id: str, text: str, **facts: Any
) -> Segment:
    """Add a segment to a session's sidecar; all other lines stay as they are."""
    size, now = -(-len(text) // 4), iso(time.time())
    made = Segment(
        id=f"seg_{secrets.token_hex(6)}", content=text, generated_at=now, token_count=size, **facts
    )
    services.rows.by_id(session_id)  # NotFoundError: it was forgotten meanwhile
    if home is None:
        raise NotFoundError("there is no place for this session's sidecar")
    await asyncio.to_thread(_store, services.writer, home, session_id, made)
    return made


def _store(writer: MetaWriter, home: Path, session_id: str, segment: Segment) -> None:
    """Write a line. The summary of a branch replaces an older one of the same branch."""
    with _storing:
        lines = [line for line in digest_bytes(home / digest_name(session_id)).split(b"\n") if line]
        if segment.kind == "branch":
            same = {"kind": "branch", "leafId": segment.leaf_id}.items()
            lines = [one for one in lines if not any(same <= d.items() for d in parse_digest(one))]
        writer.write_digest(home, session_id, [*lines, msgspec.json.encode(encode(segment))])


def chain(state: SessionState, rows: Sequence[int], segments: Iterable[Segment]) -> list[Segment]:
    """Return the segments valid on a path, oldest first, from message 0 on and without a gap.

    `rows` are the path's message rows. Segments made on different paths may overlap: the chain
    that reaches furthest wins, and of two that reach equally far the one stored later.
    """
    likely = [one for one in segments if one.kind == "segment" and one.covering[1] < len(rows)]
    names = names_on(state, rows[-1], {rows[one.covering[1]] for one in likely}) if likely else {}
    best: dict[int, list[Segment]] = {}  # by its first message
    for one in sorted(likely, key=lambda one: -one.covering[0]):  # stable: later comes later
        first, last = one.covering
        found = [one, *best.get(last + 1, ())]
        if names.get(rows[last]) == one.leaf_id and covered(found) >= covered(best.get(first, ())):
            best[first] = found
    return best.get(0, [])


def chain_at(state: SessionState, home: Path | None, session_id: str) -> list[Segment]:
    return chain(state, message_rows(state), read_segments(home, session_id))


def covered(chain: Sequence[Segment]) -> int:
    return chain[-1].covering[1] + 1 if chain else 0
