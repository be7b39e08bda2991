"""Sessions of older releases of opencode: a tree of small files, one for each record.

    session/<project>/<session>.json    message/<session>/<message>.json
    part/<message>/<part>.json

A session's path is that of its own file; a line's offset is the inode of its message's file, which
holds as long as the file does. Ids are those of the names, not those within. Links are not
followed.

What surprised us: a record is rewritten by truncating it, so half of one is a common sight: it is
passed over for now, and the session is read once more.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

from indexerd.agents.json_lines import as_dict, time_ms
from indexerd.errors import SessionUnreadableError
from indexerd.paths import is_session_id
from indexerd.sources.cursor import Cursor, Look, is_same
from indexerd.sources.line_buffer import Block
from indexerd.sources.opencode_lines import (
    Lines,
    Message,
    Record,
    brief_lines,
    decoded,
    digest,
    session_of,
)
from indexerd.sources.tail import opened

RECORD_MAX = 64 * 1024 * 1024  # bytes of one record
TORN_SECONDS = 30  # a record that is still half written after that stays so
NEWEST = 3  # messages whose parts are looked at for a change
_SUFFIX = ".json"


class _File(NamedTuple):
    """A record's file, by the name that is its id."""

    id: str
    path: str
    ino: int


class _Files:
    """One session's files, each directory listed once."""

    def __init__(self, path: str) -> None:
        self._path = path
        directory, _, name = path.rpartition("/")
        self._storage = directory.rpartition("/")[0].rpartition("/")[0]
        self._id = name.removesuffix(_SUFFIX)
        self.torn = False

    @cached_property
    def messages(self) -> list[_File]:
        """The messages' files, by name."""
        return _records(f"{self._storage}/message/{self._id}")

    def stamps(self) -> Iterator[tuple[int, int, int]]:
        """The stats that change when the session does."""
        # Ids wrap around: the newest may be sorted first.
        newest = dict.fromkeys((*self.messages[:1], *self.messages[-NEWEST:]))
        places = [self._path, f"{self._storage}/message/{self._id}"]
        for file in newest:
            parts = f"{self._storage}/part/{file.id}"
            places += [file.path, parts, *(one.path for one in _records(parts))]
        for path in places:
            try:
                found = os.lstat(path)
            except OSError:
                continue
            yield found.st_mtime_ns, found.st_size, found.st_ino

    def record(self, path: str) -> Record | None:
        """What a record holds, if it is whole."""
        try:
            with opened(path) as fd, open(fd, "rb", closefd=False) as file:
                held = decoded(file.read(RECORD_MAX))
                modified = os.fstat(fd).st_mtime
        except (OSError, SessionUnreadableError):
            return None
        if held is None and time.time() - modified < TORN_SECONDS:
            self.torn = True
        return held

    @cached_property
    def session(self) -> Record | None:
        """The session's own record; None while it is torn."""
        held = self.record(self._path)
        return None if held is None else session_of(self._id, held)

    def read(self, place: int = 0) -> Iterator[Message]:
        """The messages whose records are whole, or the one at a place."""
        for file in self.messages:
            if place in (0, file.ino) and (held := self.record(file.path)) is not None:
                at = time_ms(as_dict(held.get("time")).get("created"))
                yield Message(file.ino, file.id, at, held)

    def parts(self, message_id: str) -> Iterator[tuple[str, Record]]:
        """The parts of a message; of an id that is none, as a record may hold it, nothing."""
        directory = f"{self._storage}/part/{message_id}"
        for file in _records(directory) if is_session_id(message_id) else ():
            if (held := self.record(file.path)) is not None:
                yield file.id, held


def _records(directory: str) -> list[_File]:
    """The records of a directory by name; none where it cannot be listed, or is a link."""
    if os.path.islink(directory):  # noqa: PTH114 - paths here are text
        return []
    try:
        with os.scandir(directory) as entries:
            files = [
                _File(one.name.removesuffix(_SUFFIX), one.path, one.inode())
                for one in entries
                if one.name.endswith(_SUFFIX) and one.is_file(follow_symlinks=False)
            ]
    except OSError:
        return []
    return sorted(one for one in files if is_session_id(one.id))


# -- the source ----------------------------------------------------------------------------------


def look(path: str) -> Look | None:
    """A session's signature: its file, its messages' directory, the newest messages and parts."""
    try:
        own = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(own.st_mode):
        return None
    seen = list(_Files(path).stamps())
    newest = max((one[0] for one in seen), default=0)
    return Look(own.st_dev, own.st_ino, digest(repr(seen)), newest)


def load(path: str, held: Cursor | None) -> tuple[Look, list[Block] | None]:
    """A session's signature, and its lines if it is another. FileNotFoundError when it is gone."""
    now = look(path)
    if now is None:
        raise FileNotFoundError(path)
    if held is not None and is_same(held, now):
        return now, None
    files = _Files(path)
    found = list(brief_lines(files.session, files.read(), files.parts)) if files.session else []
    # Read once more where a record was torn, or where any changed meanwhile.
    again = files.torn or look(path) != now
    return Look(now.dev, now.ino, now.size, -1) if again else now, found


@contextmanager
def lines(path: str) -> Iterator[Lines]:
    """Open a session to read single messages; SessionUnreadableError when that fails."""
    files = _Files(path)
    if files.session is None:
        raise SessionUnreadableError("the session is gone, or being written")
    yield Lines(files.session, files.read, files.parts)
