"""Sessions of older releases of opencode: a tree of small files, one for each record.

    session/<project>/<session>.json    message/<session>/<message>.json
    part/<message>/<part>.json

A session's path is that of its own file; a line's offset is the inode of its message's file, which
holds as long as the file does. Ids are those of the names, not those within.

What surprised us: a record is truncated and written again, so half a record is common: it is
skipped, and its completion is a change.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext, suppress

from indexerd.agents.json_lines import as_dict, time_ms
from indexerd.errors import SessionUnreadableError
from indexerd.paths import is_session_id
from indexerd.sources import tail
from indexerd.sources.opencode_lines import Message, Record, decoded, digest, session_of

RECORD_MAX = 64 * 1024 * 1024  # bytes of one record
NEWEST = 3  # messages whose parts are looked at for a change


def _files(directory: str) -> list[tuple[str, str, int]]:
    """Id, path and inode of a directory's records; none where it cannot be listed."""
    with suppress(OSError), os.scandir(directory) as entries:
        return sorted(
            (own, one.path, one.inode())
            for one in entries
            if one.name.endswith(".json") and is_session_id(own := one.name.removesuffix(".json"))
        )
    return []


def _record(path: str) -> Record | None:
    """The content of a record; None where it is not whole."""
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


class _Session:
    """The records of one session; SessionUnreadableError where the session's own is not whole."""

    def __init__(self, path: str) -> None:
        own, self._messages, self._parts = _places(path)
        held = _record(path)
        if held is None:
            raise SessionUnreadableError("the session is gone, or being written")
        self.session = session_of(own, held)

    def messages(self, place: int = 0) -> Iterator[Message]:
        """The messages whose records are whole, or the one at a place."""
        for own, path, inode in _files(self._messages):
            if place in (0, inode) and (held := _record(path)) is not None:
                yield Message(inode, own, time_ms(as_dict(held.get("time")).get("created")), held)

    def parts(self, message_id: str) -> Iterator[tuple[str, Record]]:
        """The parts of a message; none where a record has an invalid id."""
        directory = f"{self._parts}/{message_id}"
        for own, path, _ in _files(directory) if is_session_id(message_id) else ():
            if (held := _record(path)) is not None:
                yield own, held


def look(path: str) -> tail.Look | None:
    """A session's signature: a digest of the stats that change when it does."""
    own = tail.look(path)
    if own is None:
        return None
    _, directory, parts = _places(path)
    messages, places = _files(directory), [directory]
    for message_id, file, _ in {*messages[:1], *messages[-NEWEST:]}:  # ids wrap around
        of_parts = f"{parts}/{message_id}"
        places += [file, of_parts, *(one for _, one, _ in _files(of_parts))]
    seen = [(own.mtime_ns, own.size, own.ino)]
    for one in sorted(places):
        with suppress(OSError):
            found = os.stat(one)  # noqa: PTH116 - paths here are text
            seen.append((found.st_mtime_ns, found.st_size, found.st_ino))
    return tail.Look(own.dev, own.ino, digest(repr(seen)), max(seen)[0])


def records(path: str) -> nullcontext[_Session]:
    return nullcontext(_Session(path))
