"""Sessions of older releases of opencode: a tree of small files, one for each record.

    session/<project>/<session>.json    message/<session>/<message>.json
    part/<message>/<part>.json

A session's path is that of its own file; a line's offset is the inode of its message's file, which
holds as long as the file does. Ids are those of the names, not those within.

What surprised us: a record is rewritten by truncating it, so half of one is a common sight: it is
passed over, and what completes it is a change.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

from indexerd.agents.json_lines import as_dict, time_ms
from indexerd.errors import SessionUnreadableError
from indexerd.paths import is_session_id
from indexerd.sources import tail
from indexerd.sources.cursor import Cursor, Look, is_same
from indexerd.sources.line_buffer import Block
from indexerd.sources.opencode_lines import (
    Message,
    Parts,
    Record,
    brief_lines,
    decoded,
    digest,
    lines_of,
    session_of,
)

RECORD_MAX = 64 * 1024 * 1024  # bytes of one record
NEWEST = 3  # messages whose parts are looked at for a change


class _File(NamedTuple):
    """A record's file, by the name that is its id."""

    id: str
    path: str
    ino: int


def _files(directory: str) -> list[_File]:
    """The records of a directory by name; none where it cannot be listed."""
    try:
        with os.scandir(directory) as entries:
            files = [
                _File(one.name.removesuffix(".json"), one.path, one.inode())
                for one in entries
                if one.name.endswith(".json") and one.is_file(follow_symlinks=False)
            ]
    except OSError:
        return []
    return sorted(one for one in files if is_session_id(one.id))


def _record(path: str) -> Record | None:
    """What a record holds, if it is whole."""
    try:
        with tail.opened(path) as fd, open(fd, "rb", closefd=False) as file:
            return decoded(file.read(RECORD_MAX))
    except (OSError, SessionUnreadableError):
        return None


def _places(path: str) -> tuple[str, str, str]:
    """A session's id, the directory of its messages, and that of all parts."""
    project, _, name = path.rpartition("/")
    storage, own = project.rpartition("/")[0].rpartition("/")[0], name.removesuffix(".json")
    return own, f"{storage}/message/{own}", f"{storage}/part"


def _messages(directory: str, place: int = 0) -> Iterator[Message]:
    """The messages whose records are whole, or the one at a place."""
    for file in _files(directory):
        if place in (0, file.ino) and (held := _record(file.path)) is not None:
            at = time_ms(as_dict(held.get("time")).get("created"))
            yield Message(file.ino, file.id, at, held)


def _parts_in(directory: str) -> Parts:
    def parts(message_id: str) -> Iterator[tuple[str, Record]]:
        # A record may hold an id that is none.
        for file in _files(f"{directory}/{message_id}") if is_session_id(message_id) else ():
            if (held := _record(file.path)) is not None:
                yield file.id, held

    return parts


def look(path: str) -> Look | None:
    """A session's signature: its file, its messages' directory, the newest messages and parts."""
    own = tail.look(path)
    if own is None:
        return None
    _, directory, parts = _places(path)
    messages = _files(directory)
    watched = [path, directory]
    for file in dict.fromkeys((*messages[:1], *messages[-NEWEST:])):  # ids wrap around
        of_parts = f"{parts}/{file.id}"
        watched += [file.path, of_parts, *(one.path for one in _files(of_parts))]
    seen = []
    for one in watched:
        with suppress(OSError):
            found = os.stat(one)  # noqa: PTH116 - paths here are text
            seen.append((found.st_mtime_ns, found.st_size, found.st_ino))
    return Look(own.dev, own.ino, digest(repr(seen)), max(seen, default=(0,))[0])


def load(path: str, held: Cursor | None) -> tuple[Look, list[Block] | None]:
    """A session's signature, and its lines if it is another. FileNotFoundError when it is gone."""
    now = look(path)
    if now is None:
        raise FileNotFoundError(path)
    if held is not None and is_same(held, now):
        return now, None
    own, messages, parts = _places(path)
    record = _record(path)
    if record is None:  # torn
        return now, []
    return now, brief_lines(session_of(own, record), _messages(messages), _parts_in(parts))


@contextmanager
def lines(path: str) -> Iterator[Callable[[int, int], bytes]]:
    """Open a session to read single messages; SessionUnreadableError when that fails."""
    own, messages, parts = _places(path)
    record = _record(path)
    if record is None:
        raise SessionUnreadableError("the session is gone, or being written")
    yield lines_of(session_of(own, record), partial(_messages, messages), _parts_in(parts))
