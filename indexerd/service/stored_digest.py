"""The segments in a session's sidecar, as whoever wrote it left them."""

from __future__ import annotations

from indexerd.core.segments import Segment, chain, message_rows, parse
from indexerd.io.metas import digest_name, read_digest
from indexerd.service.views import Taken


def stored_segments(taken: Taken) -> list[Segment]:
    """Those of every path, without summaries of branches. AccessError: they cannot be read."""
    if taken.home is None:
        return []
    lines = read_digest(taken.home / digest_name(taken.card.session_id))
    return [one for line in lines if (one := parse(line)) is not None and one.kind == "segment"]


def chain_of(taken: Taken) -> list[Segment]:
    """Those that hold on the path that the session is seen from, oldest first."""
    return chain(taken.state, message_rows(taken.state), stored_segments(taken))
