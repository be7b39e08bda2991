"""The segments in a session's sidecar, as whoever wrote it left them, and one more."""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from indexerd.daemon.views import Taken
from indexerd.digests.segments import Segment, chain, encode, message_rows, parse
from indexerd.errors import InvalidMetaError
from indexerd.meta.model import META_BYTES_MAX, parse_digest
from indexerd.meta.reader import digest_bytes, digest_name, read_digest
from indexerd.meta.writer import MetaWriter

LINE_ROOM = 256 * 1024  # bytes that one more line may take

_storing = Lock()


def stored_segments(taken: Taken) -> list[Segment]:
    """Those of every path, without summaries of branches.

    AccessError or InvalidMetaError where they cannot be read.
    """
    if taken.home is None:
        return []
    lines = read_digest(taken.home / digest_name(taken.card.session_id))
    return [one for line in lines if (one := parse(line)) is not None and one.kind == "segment"]


def chain_of(taken: Taken) -> list[Segment]:
    """Those that hold on the path that the session is seen from, oldest first."""
    return chain(taken.state, message_rows(taken.state), stored_segments(taken))


def require_room(home: Path, session_id: str) -> None:
    """Raise InvalidMetaError where one more line would not fit: before anything is paid for it."""
    path = home / digest_name(session_id)
    if len(digest_bytes(path)) + LINE_ROOM > META_BYTES_MAX:
        raise InvalidMetaError(
            f"{path} has no room for one more line",
            hint="move it away, or take lines out of it that you need no more",
        )


def store_segment(writer: MetaWriter, home: Path, session_id: str, segment: Segment) -> None:
    """Add a line to a session's sidecar; lines of other hands stay as they are.

    The summary of a branch takes the place of an older one of it. Who stores reads what is there
    and writes all of it anew: only one does so at a time.
    """
    with _storing:
        data = digest_bytes(home / digest_name(session_id))
        lines = [line for line in data.split(b"\n") if line.strip()]
        if segment.kind == "branch":
            lines = [line for line in lines if not _is_of(line, segment)]
        writer.write_digest(home, session_id, [*lines, encode(segment)])


def _is_of(line: bytes, segment: Segment) -> bool:
    """Whether a line is a summary of the same branch."""
    mine = segment.kind, segment.leaf_id
    return any((one.get("kind"), one.get("leafId")) == mine for one in parse_digest(line))
