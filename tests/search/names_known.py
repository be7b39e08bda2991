"""Sessions with names, for tests of references."""

from __future__ import annotations

import uuid

from indexerd.search.names import Names
from indexerd.store.store import Named

NOW_MS = 1_780_000_000_000
HERE, BESIDE = "/home/user/src/shop", "/home/user/src/shop-2"


def session(
    n: int,
    name: str,
    *others: str,
    cwd: str = HERE,
    ago: float = 0.0,
    live: bool = True,
    named: bool = True,
) -> Named:
    """A session; `ago` in seconds."""
    session_id = str(uuid.uuid5(uuid.NAMESPACE_URL, str(n)))
    modified = NOW_MS - round(ago * 1000)
    return Named(session_id, name, (name, *others), cwd, modified, named, live)


def index(*rows: Named) -> Names:
    """The index of some sessions."""
    return Names(rows)


BUTTON = session(1, "Confirm button refactor")
LOGIN = session(2, "Fix login bug after OAuth upgrade", ago=60)
PHASE_2 = session(3, "Phase 2 parser rewrite", ago=120)
PHASE_3 = session(4, "Phase 3 parser rewrite", ago=180)
FEW = (BUTTON, LOGIN, PHASE_2, PHASE_3)
