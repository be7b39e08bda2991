"""Sessions that their user had forgotten, for good or until that is taken back.

In: session ids. Out: `<state dir>/forgotten.jsonl`, one line for each time, 0600, only ever added
to, and on disk before `add` returns: what was forgotten stays so over a crash. Of several lines
about one session the newest counts. Where the file cannot be read nothing else is, either: a
session must not come back because of that.

Nothing is written about a forgotten session any more, by a `GuardedWriter`, whoever was about to.
A session's own file is removed here, too, when its user asked for that by name, and never
otherwise. What surprised us: a write that was called off still happens when its thread has begun;
hence the question within the writer's lock, which the removal takes, too.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from indexerd.disk import sync_directory
from indexerd.errors import AccessError, IndexerdError, NotFoundError, WriteError
from indexerd.meta.writer import Conflict, Expected, MetaWriter, Written
from indexerd.models.journal import Journal
from indexerd.times import iso

NAME = "forgotten.jsonl"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class Forgotten:
    """The ids of one state directory. `in` is for any thread."""

    def __init__(self, state_dir: Path) -> None:
        """Read what was kept. AccessError where it cannot be read."""
        self._path = state_dir / NAME
        self._journal = Journal(self._path)
        self._agents: dict[str, str] = {}
        try:
            for row in self._journal.rows():
                self._take(row)
        except OSError as bad:
            raise AccessError(f"cannot read {self._path}: {bad.strerror}") from None

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._agents

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._agents))

    def __len__(self) -> int:
        return len(self._agents)

    def agent(self, session_id: str) -> str:
        """Whose session it was."""
        return self._agents.get(session_id, "")

    def add(self, session_id: str, agent: str, *, at: float, by: str) -> None:
        """Forget a session from now on; `at` is in seconds since the epoch."""
        self._write({"sessionId": session_id, "agent": agent, "at": iso(at), "by": by})

    def undo(self, session_id: str, *, at: float, by: str) -> None:
        """Let a session be read again."""
        row = {"sessionId": session_id, "agent": self.agent(session_id), "at": iso(at), "by": by}
        self._write(row | {"undone": True})

    def _write(self, row: dict[str, Any]) -> None:
        try:
            self._journal.append(row)
        except OSError as bad:
            raise _failed(self._path, "written", bad) from None
        self._take(row)

    def _take(self, row: dict[str, Any]) -> None:
        session_id, agent = row.get("sessionId"), row.get("agent")
        if not isinstance(session_id, str):
            return
        if row.get("undone") is True:
            self._agents.pop(session_id, None)
        else:
            self._agents[session_id] = agent if isinstance(agent, str) else ""


class GuardedWriter(MetaWriter):
    """The writer, but nothing of a forgotten session is written: NotFoundError says so."""

    def __init__(self, forgotten: Container[str]) -> None:
        super().__init__()
        self._forgotten = forgotten

    def _replace(self, fd: int, path: Path, data: bytes, expect: Expected) -> Written | Conflict:
        if path.name.rsplit(".", 2)[0] in self._forgotten:
            raise NotFoundError("the session was purged")
        return super()._replace(fd, path, data, expect)


def remove_transcript(path: Path) -> bool:
    """Remove a session's own file; says whether it was there.

    A link, or what is no plain file, is left alone: AccessError. WriteError where removing fails.
    """
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise AccessError(f"{path} is not a plain file", hint="remove it by hand")
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as bad:
        raise _failed(path, "removed", bad) from None
    with suppress(OSError):  # it is gone; that this survives a power cut is all that is at stake
        fd = os.open(path.parent, _DIRECTORY)
        try:
            sync_directory(fd)
        finally:
            os.close(fd)
    return True


def _failed(path: Path, done: str, bad: OSError) -> IndexerdError:
    told, upstream = f"{path} could not be {done}: {bad.strerror}", os.strerror(bad.errno or 0)
    if bad.errno in _DENIED:
        return AccessError(told, upstream=upstream)
    return WriteError(told, hint="check that there is space left", upstream=upstream)
