"""Sessions of older releases of opencode: a tree of small files, one for each record.

In: `<data>/storage`, or the path of a session's own file in it. Out: what tells a changed session
from an unchanged one, and a session whole, as lines of JSON. A line's offset is the inode of its
message's file, which holds as long as the file does: records are rewritten in place.

    session/<project>/<session>.json    message/<session>/<message>.json
    part/<message>/<part>.json

Ids are those of the names, not those within. What surprised us: a record is rewritten by
truncating it, so half of one is a common sight: it is passed over for now, and the reading does
not count as one. Some trees drifted: a message directory without the session's prefix, parts
named by the id within the message, or all in one directory. Links are not followed.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple

from indexerd.agents.base import Oversize
from indexerd.errors import SessionUnreadableError
from indexerd.paths import is_session_id
from indexerd.sources.cursor import Cursor, Look, Verdict
from indexerd.sources.lines import Block
from indexerd.sources.opencode_lines import (
    Message,
    Session,
    brief,
    decoded,
    full,
    head_of,
    line,
    session_line,
)
from indexerd.sources.scan import Found
from indexerd.sources.tail import Read, opened

RECORD_MAX = 64 * 1024 * 1024  # bytes of one record
NAMES_MAX = 200_000  # of one directory
TORN_SECONDS = 30  # a record that is still half written after that stays so
NEWEST = 3  # messages whose parts are looked at for a change
_SUFFIX = ".json"
_63_BITS = (1 << 63) - 1
_NULL = b"null"


class _File(NamedTuple):
    """A record's file, by the name that is its id."""

    id: str
    path: str
    ino: int


class Tree:
    """All sessions of one tree."""

    def __init__(self, storage: str) -> None:
        self._storage = storage

    def sessions(self) -> list[Found]:
        """Every session there is; SessionUnreadableError where the tree cannot be read."""
        try:
            with os.scandir(f"{self._storage}/session") as entries:
                projects = [one.path for one in entries if one.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        except OSError as bad:
            raise SessionUnreadableError(
                "cannot list", upstream=os.strerror(bad.errno or 0)
            ) from None
        files = [one for project in projects for one in _records(project)]
        looks = ((one.path, look(one.path)) for one in files if is_session_id(one.id))
        return [
            Found(path, now.dev, now.ino, now.size, now.mtime_ns)
            for path, now in looks
            if now is not None
        ]


def look(path: str) -> Look | None:
    """A session's signature: its file, its messages' directory, the newest messages and parts."""
    own = _stat(path)
    if own is None or not stat.S_ISREG(own.st_mode):
        return None
    held = _Held(path)
    seen = [_stamp(own), *held.stamps()]
    digest = blake2b(repr(seen).encode(), digest_size=8).digest()
    newest = max(one[1] for one in seen)
    return Look(own.st_dev, own.st_ino, int.from_bytes(digest, "big") & _63_BITS, newest)


class Tail:
    """One session's reading position: the signature of what was read last."""

    __slots__ = ("cursor",)
    pending = 0

    def __init__(self, cursor: Cursor | None = None) -> None:
        self.cursor = cursor

    def read(self, path: str) -> Read:
        """The whole session if its signature is another. FileNotFoundError when it is gone."""
        now, held = look(path), self.cursor
        if now is None:
            raise FileNotFoundError(path)
        if held and Look(held.dev, held.ino, held.size, held.mtime_ns) == now:
            return Read(Verdict.SAME)
        record = _Held(path)
        found = list[Block | Oversize](record.blocks())
        # Read once more where a record was torn, or where any changed meanwhile.
        again = record.torn or look(path) != now
        mtime = -1 if again else now.mtime_ns
        self.cursor = Cursor(now.dev, now.ino, now.size, mtime, 0, 0, b"", b"")
        size = sum(len(one.data) for one in found if isinstance(one, Block))
        return Read(Verdict.CONTINUE, found, bytes=size, whole=True)


def tail(cursor: Cursor | None = None) -> Tail:
    """A reading position."""
    return Tail(cursor)


class Lines:
    """The messages of one session, in full, by their inodes."""

    def __init__(self, held: _Held) -> None:
        self._held = held
        self._places: dict[int, _File] | None = None

    def at(self, offset: int, length: int) -> bytes:  # noqa: ARG002 - a message is whole
        """A message as it is now; SessionUnreadableError when it is there no more."""
        if not offset:
            return session_line(self._held.session)
        if self._places is None:
            self._places = {one.ino: one for one in self._held.messages}
        file = self._places.get(offset)
        data = self._held.record(file.path) if file else None
        if file is None or data is None:
            raise SessionUnreadableError("the message is gone")
        return self._held.full(file, data)


@contextmanager
def lines(path: str) -> Iterator[Lines]:
    """Open a session to read single messages; SessionUnreadableError when that fails."""
    held = _Held(path)
    if held.record(path) is None:
        raise SessionUnreadableError("the session is gone, or being written")
    yield Lines(held)


# -- the files of one session --------------------------------------------------------------------


class _Held:
    """One session's files, looked up as they are asked for, each directory once."""

    def __init__(self, path: str) -> None:
        self._path = path
        directory, _, name = path.rpartition("/")
        self._storage = directory.rpartition("/")[0].rpartition("/")[0]
        self._id = name.removesuffix(_SUFFIX)
        self.torn = False

    # -- what is there -------------------------------------------------------------------

    @cached_property
    def _messages_in(self) -> str:
        """The directory of the messages."""
        names = [self._id, self._id.removeprefix("ses_")]
        return self._existing("message", names) or self._existing(
            "message", self._named(self._path)
        )

    @cached_property
    def messages(self) -> list[_File]:
        """The messages' files, by name."""
        return _records(self._messages_in)

    def _existing(self, kind: str, names: Iterable[str]) -> str:
        """The first directory of these names that is there, or nothing."""
        for name in names:
            path = f"{self._storage}/{kind}/{name}"
            found = _stat(path) if is_session_id(name) else None
            if found is not None and stat.S_ISDIR(found.st_mode):
                return path
        return ""

    def _named(self, path: str) -> list[str]:
        """The id within a record, which in some trees is what others know it by."""
        found = (decoded(self.record(path) or b"") or {}).get("id")
        return [found] if isinstance(found, str) else []

    def _parts_in(self, message: _File) -> str:
        return self._existing("part", [message.id]) or self._existing(
            "part", self._named(message.path)
        )

    def stamps(self) -> Iterator[tuple[int, int, int, int]]:
        """The stats that change when the session does."""
        place = _stat(self._messages_in) if self._messages_in else None
        if place is None:
            return
        yield _stamp(place)
        files = self.messages
        # Ids wrap around (formats.md 4.2): the newest may be sorted first.
        for file in dict.fromkeys((*files[:1], *files[-NEWEST:])):
            yield from _stamps([file.path])
            parts = self._parts_in(file)
            yield from _stamps([parts or f"{self._storage}/part"])
            if parts:
                yield from _stamps(one.path for one in _records(parts))

    # -- what they hold ------------------------------------------------------------------

    def record(self, path: str) -> bytes | None:
        """A record's bytes, if they are whole JSON."""
        try:
            with opened(path) as fd:
                status = os.fstat(fd)
                data = _all(fd, min(status.st_size, RECORD_MAX) + 1)
        except (FileNotFoundError, SessionUnreadableError, OSError):
            return None
        if decoded(data) is None:
            self.torn = self.torn or time.time() - status.st_mtime < TORN_SECONDS
            return None
        return data

    @cached_property
    def session(self) -> Session:
        """The session's own record."""
        held = decoded(self.record(self._path) or b"") or {}
        texts = {
            key: held[key] if isinstance(held.get(key), str) else ""
            for key in ("parentID", "title", "directory", "version")
        }
        revert, times = (_object(held.get(key)) for key in ("revert", "time"))
        return Session(
            id=self._id,
            parent_id=texts["parentID"],
            title=texts["title"],
            directory=texts["directory"],
            version=texts["version"],
            created=_ms(times.get("created")),
            updated=_ms(times.get("updated")),
            archived=_ms(times.get("archived")),
            revert_message=_string(revert.get("messageID")),
            revert_part=_string(revert.get("partID")),
        )

    def blocks(self) -> Iterator[Block]:
        """The session's lines, briefly; nothing while its own record is torn."""
        if self.record(self._path) is None:
            return
        yield Block(session_line(self.session), 0)
        rows = []
        for file in self.messages:
            data = self.record(file.path)
            if data is not None:
                message = Message(file.id, _created(data), data)
                rows.append((message, file, head_of(message)))
        rows.sort(key=lambda one: (one[0].at, one[0].id))
        newest = max((n for n, one in enumerate(rows) if one[2].role == "user"), default=0)
        for n, (message, file, head) in enumerate(rows):
            asked = head.role == "user" or n >= newest
            parts = self.parts(message, file) if asked else ()
            yield Block(brief(message, head, parts), file.ino)

    def full(self, file: _File, data: bytes) -> bytes:
        """A message with all it says."""
        message = Message(file.id, _created(data), data)
        head = head_of(message)
        odd = bytes(head.summary) == b"true" or not (head.finish or bytes(head.error) != _NULL)
        parent: list[bytes] = []
        if odd and isinstance(head.parent, str) and is_session_id(head.parent):
            parent = list(self._in(f"{self._storage}/part/{head.parent}"))
        return full(
            message,
            self.parts(message, file),
            child=bool(self.session.parent_id),
            parent=parent,
        )

    def parts(self, message: Message, file: _File) -> Iterable[bytes]:
        """A message's parts, without those that were reverted, each read when it is asked for."""
        directory = self._parts_in(file)
        cut = self.session.revert_part if self.session.revert_message == message.id else ""
        if directory:
            return self._in(directory, cut)
        inner = self._named(file.path)
        found = self._loose.get(message.id) or self._loose.get(inner[0] if inner else "")
        return found or _summarised(message)

    def _in(self, directory: str, cut: str = "") -> Iterator[bytes]:
        for file in _records(directory):
            if cut and file.id == cut:
                return
            data = self.record(file.path)
            if data is not None:
                yield data

    @cached_property
    def _loose(self) -> dict[str, list[bytes]]:
        """Parts that stand in no directory of their message, by the message that they name.

        All parts of a session stand so, or none: its first message tells.
        """
        found: dict[str, list[bytes]] = {}
        if not self.messages or self._parts_in(self.messages[0]):
            return found
        for file in _records(f"{self._storage}/part"):
            data = self.record(file.path)
            owner = (decoded(data or b"") or {}).get("messageID")
            if data is not None and isinstance(owner, str):
                found.setdefault(owner, []).append(data)
        return found


def _summarised(message: Message) -> Iterator[bytes]:
    """A prompt without parts, of the oldest releases: its own summary is all there is of it."""
    held = decoded(message.data) or {}
    summary = _object(held.get("summary"))
    text = _string(summary.get("body")) or _string(summary.get("title"))
    if held.get("role") == "user" and text:
        yield line({"type": "text", "text": text})


def _records(directory: str) -> list[_File]:
    """The records of a directory by name; none where it cannot be listed."""
    found = _stat(directory) if directory else None
    if found is None or not stat.S_ISDIR(found.st_mode):
        return []
    try:
        with os.scandir(directory) as entries:
            files = [
                _File(one.name.removesuffix(_SUFFIX), one.path, one.inode())
                for one, _ in zip(entries, range(NAMES_MAX), strict=False)
                if one.name.endswith(_SUFFIX) and one.is_file(follow_symlinks=False)
            ]
    except OSError:
        return []
    return sorted(files)


def _all(fd: int, size: int) -> bytes:
    """Up to `size` bytes."""
    parts = []
    while size > 0 and (data := os.read(fd, size)):
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (OSError, ValueError):
        return None


def _stamps(paths: Iterable[str]) -> Iterator[tuple[int, int, int, int]]:
    return (_stamp(found) for found in map(_stat, paths) if found is not None)


def _stamp(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _created(data: bytes) -> int:
    return _ms(_object((decoded(data) or {}).get("time")).get("created"))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _ms(value: Any) -> int:
    fine = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if fine and 0 < value < (1 << 43) else 0
