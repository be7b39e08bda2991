"""One session, read without the daemon's store: for commands, exports and pages.

The session is read anew by the same code, into caches that are thrown away again, so that what is
shown is what the daemon would show.

What surprised us: a row is JSON, and says a file's name that is no UTF-8 with its odd bytes
escaped. `real_files` finds what is meant, among the names that are really there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
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
_MEANT_MAX = 16  # files that one name may mean


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
            for file in real_files(row["sessionFile"]) or [row["sessionFile"]]:
                library.only(row["agent"], file, row["sessionId"])
                if library.files.card(row["sessionId"]) is not None:
                    break
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


def real_files(shown: str) -> list[str]:
    """The files that a row's `sessionFile` may mean, the one of that very name first.

    Where bytes of a name are no UTF-8, Python's way to keep them is in the result. None for none.
    """
    if "\\" not in shown or not shown.startswith("/"):
        return [shown] if os.path.lexists(shown) else []
    found = ["/"]
    for part in shown.split("/")[1:]:
        found = [path for one in found for path in _called(one, part)][:_MEANT_MAX]
    return found


def _called(directory: str, shown: str) -> list[str]:
    """What a directory holds that is shown by that name."""
    exact = os.path.join(directory, shown)  # noqa: PTH118 - text, whose odd bytes are kept
    found = [exact] if os.path.lexists(exact) else []
    if "\\" in shown:
        with suppress(OSError), os.scandir(directory) as entries:
            found += [one.path for one in entries if one.name != shown and _as(one.name) == shown]
    return found


def _as(name: str) -> str:
    """A name as rows say it."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _unreadable(_path: str, bug: Exception) -> None:
    raise SessionUnreadableError(f"the session file cannot be read: {type(bug).__name__}")
