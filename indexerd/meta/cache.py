"""Cache the stamps and the most used fields of every meta file and sidecar.

The store keeps a copy, so that a restart reads only the files that changed. An invalid file is
reported once until it changes. For one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from indexerd.errors import AccessError, InvalidMetaError
from indexerd.meta.model import (
    Marks,
    MetaFile,
    Stamps,
    read_meta,
    read_user,
    scan,
    session_of,
    stamp,
)
from indexerd.paths import META_SUFFIX, USER_SUFFIX
from indexerd.store.store import StateStore

TOPIC = "meta"  # of the store's notes


class MetaStat(msgspec.Struct, frozen=True, array_like=True):
    """The cached facts about a session's meta file and sidecar."""

    directory: str
    stamps: Stamps
    since: str | None = None  # lastIndexedLeafId; None: no valid meta file
    marks: Marks = Marks()
    problem: str = ""


class MetaCache:
    """The facts about the meta files of all directories."""

    def __init__(self, store: StateStore, report: Callable[[str, str], None]) -> None:
        """Create it; `report(session_id, problem)` is called once for an invalid meta file."""
        self._store = store
        self.unstored: dict[str, bytes | None] = {}  # notes not yet in the store
        self._report = report
        self._stats: dict[str, MetaStat] = {}

    def load(self) -> None:
        for session_id, packed in self._store.notes(TOPIC, bytes).items():
            with suppress(msgspec.DecodeError):  # from another version: the file is read again
                self._stats[session_id] = msgspec.msgpack.decode(packed, type=MetaStat)

    def get(self, session_id: str) -> MetaStat | None:
        return self._stats.get(session_id)

    def since(self, session_id: str) -> str | None:
        return stat.since if (stat := self._stats.get(session_id)) else None

    def problems(self) -> dict[str, str]:
        """Map sessions whose meta file is invalid or unreadable to the reason."""
        return {key: entry.problem for key, entry in list(self._stats.items()) if entry.problem}

    def sweep(self, directories: Iterable[str], belongs: Callable[[str], str | None]) -> list[str]:
        """Compare every directory with the cache; return the sessions that differ.

        If several hold files of a session, the directory `belongs(session_id)` counts.
        """
        seen: dict[str, dict[str, Stamps]] = {}  # by session and directory
        for directory in directories:
            try:
                files = scan(Path(directory))
            except AccessError:  # assume that its files are still there
                known = self._stats.items()
                files = {key: entry.stamps for key, entry in known if entry.directory == directory}
            for session_id, stamps in files.items():
                seen.setdefault(session_id, {})[directory] = stamps
        changed: dict[str, str | None] = dict.fromkeys(self._stats.keys() - seen.keys())
        for session_id, places in seen.items():
            home = belongs(session_id) if len(places) > 1 else None
            directory = home if home in places else next(iter(places))
            if (old := self._stats.get(session_id)) is None or old.stamps != places[directory]:
                changed[session_id] = directory
        for session_id, where in changed.items():
            self.reread(session_id, where)
        return list(changed)

    def touched(self, path: str) -> str | None:
        """Read the file that a hint names, if it changed; then return its session."""
        directory, _, name = path.rpartition("/")
        if (session_id := session_of(name)) is None:
            return None
        old = self._stats.get(session_id)
        if old is not None and old.stamps == _stamps(directory, session_id):
            return None
        self.reread(session_id, directory)
        return session_id

    def reread(self, session_id: str, directory: str | None) -> None:
        """Read a session's files again, in `directory` or else where they were."""
        old = self._stats.get(session_id)
        directory = directory or (old.directory if old else None)
        if directory is None or (stamps := _stamps(directory, session_id)) == (None, None):
            self._stats.pop(session_id, None)
            self.unstored[session_id] = None
            return
        meta, problem = _meta_or_problem(session_id, directory)
        try:
            marks = read_user(Path(directory, f"{session_id}{USER_SUFFIX}")).marks
        except (InvalidMetaError, AccessError):  # until it is repaired, what it said before
            marks = old.marks if old else Marks()
        stat = self._stats[session_id] = MetaStat(
            directory,
            stamps,
            since=meta.last_indexed_leaf_id if meta else None,
            marks=marks,
            problem=problem,
        )
        if problem and not (old and old.problem == problem):
            self._report(session_id, problem)
        self.unstored[session_id] = msgspec.msgpack.encode(stat)

    def meta(self, session_id: str) -> MetaFile | None:
        """Read a session's meta file now; None if there is no valid one."""
        if (stat := self._stats.get(session_id)) is None or stat.since is None:
            return None
        return _meta_or_problem(session_id, stat.directory)[0]


def _meta_or_problem(session_id: str, directory: str) -> tuple[MetaFile | None, str]:
    """Read a meta file; if it is invalid, return the reason in the words of pi's session-index."""
    path = Path(directory, f"{session_id}{META_SUFFIX}")
    try:
        meta = read_meta(path)
    except (InvalidMetaError, AccessError) as bad:
        return None, str(bad)
    if meta is not None and meta.session_id != session_id:
        return None, f"Invalid meta shape in {path}"  # another session's
    return meta, ""


def _stamps(directory: str, session_id: str) -> Stamps:
    meta, user = (Path(directory, f"{session_id}{end}") for end in (META_SUFFIX, USER_SUFFIX))
    with suppress(AccessError):
        return stamp(meta), stamp(user)
    return None, None
