"""`show --as-sent`: the exact prompt that an indexing run would send now; nothing is sent.

Without a daemon the one session is read anew, by the same code, into caches that are thrown
away again: what is shown is what the daemon would send.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from indexerd.errors import SessionUnreadableError
from indexerd.io.catalog import Catalog
from indexerd.io.ledger import Ledger
from indexerd.io.stores import stores
from indexerd.llm.registry import Models
from indexerd.service.indexing import Prepared, prepare
from indexerd.service.library import Library
from indexerd.settings import Settings


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


def without_daemon(
    row: Mapping[str, Any], settings: Settings, env: Mapping[str, str], home: Path
) -> dict[str, Any]:
    """The same for the session of a row, without a daemon and without its caches."""
    with alone(row, settings, env, home) as library:
        return as_sent(prepare(library, row["sessionId"], settings), Models(settings, env))


@contextmanager
def alone(
    row: Mapping[str, Any], settings: Settings, env: Mapping[str, str], home: Path
) -> Iterator[Library]:
    """A library that knows the session of a row, read now, and no other; nothing of it is kept."""
    with TemporaryDirectory(prefix="indexerd-") as folder:
        library = Library(
            Ledger(Path(folder) / "ledger.sqlite"),
            Catalog.open(Path(folder) / "catalog.sqlite"),
            stores=lambda: stores(settings, env, home),
            exclude=lambda: settings.privacy.exclude,
            report=lambda _session, _why: None,
            defect=_unreadable,
        )
        try:
            library.only(row["agent"], row["sessionFile"], row["sessionId"])
            yield library
        finally:
            library.close()


def _unreadable(_path: str, bug: Exception) -> None:
    raise SessionUnreadableError(f"the session file cannot be read: {type(bug).__name__}")
