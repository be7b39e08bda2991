"""What is remembered of every session's meta file and sidecar.

Of a meta file: its stamp, the leaf it covers, when and by which model it was written; the rest is
read from the file when a row is made. It is kept in the store too, so that a restart reads only
the meta files that changed. An invalid file counts as missing, stays where it is, and is reported
once until it changes. One thread uses this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from indexerd.errors import AccessError, InvalidMetaError
from indexerd.meta.model import MetaFile
from indexerd.meta.reader import read_meta, read_user, scan, session_of, stamp
from indexerd.paths import META_SUFFIX, USER_SUFFIX
from indexerd.store.store import StateStore

TOPIC = "brief"
FileStamp = tuple[int, int]  # mtime_ns, size
_Stamps = tuple[FileStamp | None, FileStamp | None]  # of a meta file and a sidecar


class MetaStat(msgspec.Struct, frozen=True, array_like=True):
    """What is remembered of one session."""

    directory: str
    meta_stamp: FileStamp | None = None
    user_stamp: FileStamp | None = None
    since: str | None = None  # lastIndexedLeafId
    updated_at: str = ""
    model: str = ""
    title: str | None = None
    problem: str = ""


class MetaCache:
    """All meta directories."""

    def __init__(self, store: StateStore, report: Callable[[str, str], None]) -> None:
        """`report(session_id, problem)` is called once for an invalid meta file."""
        self._store = store
        self.unstored: dict[str, bytes | None] = {}  # what the store is to know of sessions
        self._report = report
        self._stats: dict[str, MetaStat] = {}

    def load(self) -> None:
        for session_id, packed in self._store.notes(TOPIC).items():
            with suppress(msgspec.DecodeError):
                self._stats[session_id] = msgspec.msgpack.decode(packed, type=MetaStat)

    def get(self, session_id: str) -> MetaStat | None:
        return self._stats.get(session_id)

    def since(self, session_id: str) -> str | None:
        """The leaf that the session's meta file covers."""
        stat = self._stats.get(session_id)
        return stat.since if stat else None

    def problems(self) -> dict[str, str]:
        """Sessions whose meta file is invalid or unreadable, and why."""
        return {key: one.problem for key, one in list(self._stats.items()) if one.problem}

    def ids(self) -> Iterable[str]:
        return self._stats.keys()

    def sweep(self, directories: Iterable[str], belongs: Callable[[str], str | None]) -> list[str]:
        """Compare every directory with what is remembered; the sessions that differ.

        Where several hold files of one session, that of `belongs(session_id)` counts.
        """
        seen: dict[str, dict[str, dict[str, FileStamp]]] = {}  # by session, directory, kind
        unreadable: set[str] = set()
        for directory in directories:
            try:
                for one in scan(Path(directory)):
                    found = seen.setdefault(one.session_id, {}).setdefault(directory, {})
                    found[one.kind] = one.mtime_ns, one.size
            except AccessError:
                unreadable.add(directory)
        changed: dict[str, str | None] = {}
        for session_id, homes in seen.items():
            home = belongs(session_id) if len(homes) > 1 else None
            directory = home if home in homes else next(iter(homes))
            here = homes[directory]
            if not self._knows(session_id, (here.get("meta"), here.get("user"))):
                changed[session_id] = directory
        for session_id, stat in self._stats.items():
            if session_id not in seen and stat.directory not in unreadable:
                changed[session_id] = None
        for session_id, where in changed.items():
            self.reread(session_id, where)
        return list(changed)

    def touched(self, path: str) -> str | None:
        """The session that a hinted file belongs to, if it is not what is remembered of it."""
        directory, _, name = path.rpartition("/")
        named = session_of(name)
        if named is None or self._knows(named[0], _stamps(directory, named[0])):
            return None
        self.reread(named[0], directory)
        return named[0]

    def _knows(self, session_id: str, stamps: _Stamps) -> bool:
        stat = self._stats.get(session_id)
        return stat is not None and (stat.meta_stamp, stat.user_stamp) == stamps

    def reread(self, session_id: str, directory: str | None) -> None:
        """Read a session's files again, where they were or are now; forget it without any."""
        old = self._stats.get(session_id)
        directory = directory or (old.directory if old else None)
        stamps = _stamps(directory, session_id) if directory else (None, None)
        if directory is None or stamps == (None, None):
            self._stats.pop(session_id, None)
            self.unstored[session_id] = None
            return
        meta, problem = meta_or_problem(session_id, directory)
        user = None  # an invalid sidecar counts as missing, and is never written over
        with suppress(InvalidMetaError, AccessError):
            user = read_user(Path(directory) / f"{session_id}{USER_SUFFIX}")
        stat = self._stats[session_id] = MetaStat(
            directory,
            *stamps,
            since=meta.last_indexed_leaf_id if meta else None,
            updated_at=meta.updated_at if meta else "",
            model=meta.model if meta else "",
            title=user.title if user else None,
            problem=problem,
        )
        if problem and not (old and old.problem == problem):
            self._report(session_id, problem)
        self.unstored[session_id] = msgspec.msgpack.encode(stat)

    def meta(self, session_id: str) -> MetaFile | None:
        """A session's meta file, read now; None when there is no valid one."""
        stat = self._stats.get(session_id)
        if stat is None or stat.since is None:
            return None
        return meta_or_problem(session_id, stat.directory)[0]


def meta_or_problem(session_id: str, directory: str) -> tuple[MetaFile | None, str]:
    """Read a meta file; what is wrong with it, in upstream's words, where it is invalid."""
    path = Path(directory) / f"{session_id}{META_SUFFIX}"
    try:
        meta = read_meta(path)
    except (InvalidMetaError, AccessError) as bad:
        return None, str(bad)
    if meta is not None and meta.session_id != session_id:
        return None, f"Invalid meta shape in {path}"  # it speaks of another session
    return meta, ""


def _stamps(directory: str, session_id: str) -> _Stamps:
    def of(suffix: str) -> FileStamp | None:
        with suppress(AccessError):
            found = stamp(Path(directory, f"{session_id}{suffix}"))
            return (found.mtime_ns, found.size) if found else None
        return None

    return of(META_SUFFIX), of(USER_SUFFIX)
