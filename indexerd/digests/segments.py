"""Segments, one per line of `<id>.digest.jsonl`, and `history`: segments and later messages.

A segment summarizes a range of a path's messages, and names the last of them. It is valid on every
path with that message in the same position, so branches share segments of their common beginning.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from indexerd.entries import Kind
from indexerd.errors import NotFoundError
from indexerd.meta.model import digest_bytes, digest_name, parse_digest, read_digest
from indexerd.meta.writer import MetaWriter
from indexerd.privacy.sanitize import clean_line, clean_text
from indexerd.references.services import Services
from indexerd.sessions.clipped import Keep
from indexerd.sessions.context import ReadRow, context_messages, role_of, serialize
from indexerd.sessions.state import SessionState, message_rows, names_on, rows_between
from indexerd.sessions.tree_answers import TEXT_MAX, text_limit
from indexerd.settings import Digest
from indexerd.sources.session_reader import OpenSession
from indexerd.times import iso

MESSAGES_MAX = 15_000  # newest ones in an answer
LINE_MAX, LINE_READ = 200, 4000  # characters of a message, without `full`
FULL_MAX = 4_000_000  # bytes of all texts, before each is cut shorter
RESULT_MAX = 2000  # characters of a tool's result, and of each end of a call's arguments
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
    leaf_id: str = msgspec.field(name="leafId")  # name of the last message (sessions/state.py)
    kind: Literal["segment", "branch"] = "segment"  # branch: of an abandoned one; in no chain

    @property
    def messages(self) -> int:
        return self.covering[1] - self.covering[0] + 1


def parse(stored: Mapping[str, Any]) -> Segment | None:
    """Read a line of the sidecar, which any program may have written; None if it is unusable."""
    try:
        segment = msgspec.convert({k: v for k, v in stored.items() if v is not None}, Segment)
    except (msgspec.ValidationError, RecursionError):
        return None
    content = clean_text(segment.content[: 2 * CONTENT_MAX], CONTENT_MAX)
    first, last = segment.covering
    usable = 0 <= first <= last and segment.id and segment.leaf_id and content
    return replace(segment, content=content) if usable else None


def encode(segment: Segment) -> dict[str, Any]:
    line: dict[str, Any] = msgspec.to_builtins(segment)
    if segment.kind == "segment":
        del line["kind"]
    return line


def read_segments(home: Path | None, session_id: str, kind: str = "segment") -> list[Segment]:
    """Read the stored segments of all paths, or the summaries of branches."""
    lines = read_digest(home / digest_name(session_id)) if home else []
    return [new for line in lines if (new := parse(line)) is not None and new.kind == kind]


async def store_segment(
    services: Services, home: Path | None, session_id: str, text: str, **facts: Any
) -> Segment:
    """Add a segment to a session's sidecar; all other lines stay as they are."""
    size, now = -(-len(text) // 4), iso(time.time())
    segment = Segment(
        id=f"seg_{secrets.token_hex(6)}", content=text, generated_at=now, token_count=size, **facts
    )
    services.rows.by_id(session_id)  # NotFoundError: the session was purged meanwhile
    if home is None:
        raise NotFoundError("this session has no directory for a sidecar")
    await asyncio.to_thread(_store, services.writer, home, session_id, segment)
    return segment


def _store(writer: MetaWriter, home: Path, session_id: str, segment: Segment) -> None:
    """Add a line. A branch's summary replaces an older one of the same branch."""
    with _storing:
        lines = [line for line in digest_bytes(home / digest_name(session_id)).split(b"\n") if line]
        if segment.kind == "branch":
            same = {"kind": "branch", "leafId": segment.leaf_id}.items()
            lines = [old for old in lines if not any(same <= d.items() for d in parse_digest(old))]
        writer.write_digest(home, session_id, [*lines, msgspec.json.encode(encode(segment))])


def chain(state: SessionState, rows: Sequence[int], segments: Iterable[Segment]) -> list[Segment]:
    """Return the segments valid on a path, oldest first, from message 0 on without a gap.

    `rows` are the path's message rows. Segments made on different paths may overlap: the chain that
    reaches furthest wins, and at equal reach the one stored later.
    """
    likely = [s for s in segments if s.kind == "segment" and s.covering[1] < len(rows)]
    names = names_on(state, rows[-1], {rows[s.covering[1]] for s in likely}) if likely else {}
    best: dict[int, list[Segment]] = {}  # by its first message
    for segment in sorted(likely, key=lambda s: -s.covering[0]):  # stable: later comes later
        first, last = segment.covering
        linked = [segment, *best.get(last + 1, ())]
        same = names.get(rows[last]) == segment.leaf_id
        if same and covered(linked) >= covered(best.get(first, ())):
            best[first] = linked
    return best.get(0, [])


def chain_at(state: SessionState, home: Path | None, session_id: str) -> list[Segment]:
    segments = read_segments(home, session_id)
    return chain(state, message_rows(state), segments) if segments else []


def covered(chain: Sequence[Segment]) -> int:
    return chain[-1].covering[1] + 1 if chain else 0


def history(session: OpenSession, *, wanted: Digest, full: bool) -> dict[str, Any]:
    """Return the segments and later messages, not redacted; with `full` also the whole context."""
    state = session.state
    rows = message_rows(state)
    chain = chain_at(state, session.home, session.info.session_id)
    # The chain may reach too far: the path got shorter, or more messages are to stay verbatim.
    least = len(rows) - wanted.preserve_recent
    folded = [segment for segment in chain if segment.covering[1] < least] if full else chain
    start = max(covered(folded), len(rows) - MESSAGES_MAX)
    path = rows_between(state.path(), rows, start, len(rows) - 1)
    most = text_limit(state, rows[start:], FULL_MAX) if full else LINE_READ
    recent, context = list[dict[str, Any]](), list[dict[str, Any]]()
    with session.reading(Keep(RESULT_MAX, head=most, tail=0, given=RESULT_MAX)) as read:
        if full and wanted.preserve_system:
            context += _system(state, rows, read)
        if folded:
            context.append({"role": "user", "text": earlier(folded), "entryId": None})
        numbers = {row: n for n, row in enumerate(rows[start:], start)}
        starts = [at for at, row in enumerate(path) if row in numbers]
        for at, end in zip(starts, [*starts[1:], len(path)], strict=False):
            own, n = path[at:end], numbers[path[at]]
            entries = [read(row) for row in own if state.kind(row) in (Kind.USER, Kind.ASSISTANT)]
            first, text = entries[0], "\n".join(filter(None, ("".join(e.texts) for e in entries)))
            role = "user" if first.kind is Kind.USER else "assistant"
            if n >= covered(chain):
                line = text[:TEXT_MAX] if full else clean_line(text[:LINE_READ], LINE_MAX)
                message = {"n": n, "role": role, "text": line, "entryId": first.id}
                message["at"] = first.timestamp
                tools = [call.name for entry in entries for call in entry.tools if call.name]
                recent.append(message | ({"tools": tools[:20]} if tools and not text else {}))
            if full:  # a message without text shows its calls and results
                text = text or serialize(context_messages(state, read, own))[:most]
                context += [{"role": role, "text": text, "entryId": first.id}] if text else []
    answer = {
        "sessionId": session.info.session_id,
        "leafId": state.leaf_id,
        "segments": [encode(segment) for segment in chain],
        "recent": recent,
        "fullMessageCount": len(rows),
        "foldedMessages": covered(chain),
    }
    return answer | ({"context": context} if full else {})


def _system(state: SessionState, rows: list[int], read: ReadRow) -> Iterator[dict[str, Any]]:
    path = state.path()
    begin = path.index(rows[0]) if rows else len(path)
    for at, row in enumerate(path):
        kind = state.kind(row)
        if kind is Kind.SYSTEM or (kind is Kind.OTHER and at < begin):
            entry = read(row)
            role, text = role_of(entry), "".join(entry.as_sent)
            if role and text:
                yield {"role": role, "text": text[:TEXT_MAX], "entryId": entry.id}


def earlier(chain: Sequence[Segment]) -> str:
    parts = ["Previous conversation context:"]
    for segment in chain:
        parts.append("--- Earlier in conversation ---")
        parts.append(f"[Previous conversation summarized - {segment.messages} messages]")
        parts.append(segment.content)
        if segment.files_modified:
            parts.append(f"Files modified: {', '.join(segment.files_modified)}")
        if segment.key_decisions:
            parts.append("\n- ".join(["Key decisions:", *segment.key_decisions]))
    return "\n\n".join(parts)
