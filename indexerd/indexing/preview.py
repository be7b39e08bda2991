"""`show --as-sent`: the exact prompt that an indexing run would send now; nothing is sent."""

from __future__ import annotations

from typing import Any

from indexerd.indexing.indexing import Prepared
from indexerd.models.registry import Models


def as_sent(run: Prepared, models: Models) -> dict[str, Any]:
    """What would be sent, and to whom."""
    usable = models.available()
    return {
        "sessionId": run.snap.card.session_id,
        "model": usable[0].key if usable else None,
        "leavesTheMachine": bool(usable) and usable[0].remote,
        "system": run.prompt.system,
        "user": run.prompt.user,
        "truncated": run.snap.transcript.truncated,
        "redactions": run.snap.transcript.redactions,
    }
