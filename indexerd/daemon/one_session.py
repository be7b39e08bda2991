"""One session, read without the daemon's store: for commands, exports and pages.

The session is read anew by the same code, into caches that are thrown away again, so that what is
shown is what the daemon would show. A file whose name is no UTF-8 is not found: a row is JSON.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from indexerd.daemon.library import Library
from indexerd.errors import SessionUnreadableError
from indexerd.search.index import TextIndex
from indexerd.settings import Settings
from indexerd.sources.stores import stores
from indexerd.store.store import StateStore

PREFIX = "indexerd-"  # of directories of caches; the process that they are of comes next


@contextmanager
def open_session(
    row: Mapping[str, Any],
    settings: Settings,
    env: Mapping[str, str],
    home: Path,
    within: Path | None = None,
) -> Iterator[Library]:
    """A library that knows the session of a row, read now, and no other; nothing of it is kept.

    Its caches are in a directory of their own `within` one, or where temporary files go.
    """
    with TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", dir=within) as folder:
        store = StateStore(Path(folder) / "store.sqlite")
        index = TextIndex(Path(folder) / "search", store)
        index.open()
        library = Library(
            store,
            index,
            stores=lambda: stores(settings, env, home),
            exclude=lambda: settings.privacy.exclude,
            report=lambda _session, _why: None,
            defect=_unreadable,
            patterns=lambda: settings.redact.extra_patterns,
        )
        try:
            library.only(row["agent"], row["sessionFile"], row["sessionId"])
            yield library
        finally:
            library.close()


def sweep(folder: Path) -> None:
    """Remove what processes that were killed left of their caches; others' stay."""
    for left in folder.glob(f"{PREFIX}*"):
        pid = left.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isascii() and pid.isdigit() and not left.is_symlink() and _is_gone(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it is somebody's
        return False
    return False


def _unreadable(_path: str, bug: Exception) -> None:
    raise SessionUnreadableError(f"the session file cannot be read: {type(bug).__name__}")
