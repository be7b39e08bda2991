"""The segments in a session's sidecar, as whoever wrote it left them, and one more."""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from indexerd.core.segments import Segment, chain, encode, message_rows, parse
from indexerd.io.metas import digest_name, read_digest
from indexerd.io.writer import MetaWriter
from indexerd.service.views import Taken

_storing = Lock()


def stored_segments(taken: Taken) -> list[Segment]:
    """Those of every path, without summaries of branches. AccessError: they cannot be read."""
    if taken.home is None:
        return []
    lines = read_digest(taken.home / digest_name(taken.card.session_id))
    return [one for line in lines if (one := parse(line)) is not None and one.kind == "segment"]


def chain_of(taken: Taken) -> list[Segment]:
    """Those that hold on the path that the session is seen from, oldest first."""
    return chain(taken.state, message_rows(taken.state), stored_segments(taken))


def store_segment(writer: MetaWriter, home: Path, session_id: str, segment: Segment) -> None:
    """Add a line to a session's sidecar; lines of other hands stay as they are.

    The summary of a branch takes the place of an older one of it. Who stores reads what is there
    and writes all of it anew: only one does so at a time.
    """
    new = encode(segment)
    with _storing:
        held = read_digest(home / digest_name(session_id))
        if segment.kind == "branch":
            mine = segment.kind, segment.leaf_id
            held = [one for one in held if (one.get("kind"), one.get("leafId")) != mine]
        writer.write_digest(home, session_id, [*held, new])
