"""The meta files and sidecars of every session, as far as the daemon must remember them.

In memory a meta file is a `Brief`: its stamp, the leaf it covers, when and by which model it
was written. The rest is read from the file when a row is made. Briefs are kept in the ledger
too, so that a restart reads only the meta files that changed. An invalid file counts as
missing, stays where it is, and is reported once until it changes (S0.38, S0.39).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from indexerd.errors import AccessError, InvalidMetaError
from indexerd.meta.metas import read_meta, read_user, scan
from indexerd.meta.model import MetaFile, UserFile
from indexerd.paths import META_SUFFIX, USER_SUFFIX, is_session_id
from indexerd.store.ledger import Ledger
from indexerd.store.owing import Owing

TOPIC = "brief"


class Brief(msgspec.Struct, frozen=True, array_like=True):
    """What is remembered of one session's meta file and sidecar. Stamps are (mtime_ns, size)."""

    directory: str
    meta_stamp: tuple[int, int] | None = None
    user_stamp: tuple[int, int] | None = None
    since: str | None = None  # lastIndexedLeafId
    updated_at: str = ""
    model: str = ""
    title: str | None = None
    problem: str = ""


class Shelf:
    """All meta directories. Used by the thread that reads files."""

    def __init__(self, ledger: Ledger, report: Callable[[str, str], None]) -> None:
        """`report(session_id, problem)` is told of an invalid meta file once (S0.38)."""
        self._ledger = ledger
        self.owing = Owing(ledger)
        self._report = report
        self._briefs: dict[str, Brief] = {}

    def load(self) -> None:
        """Take over what the ledger knows."""
        self._briefs |= self._ledger.notes(TOPIC, _decode)

    def brief(self, session_id: str) -> Brief | None:
        """What is remembered of a session."""
        return self._briefs.get(session_id)

    def since(self, session_id: str) -> str | None:
        """The leaf that the session's meta file covers."""
        brief = self._briefs.get(session_id)
        return brief.since if brief else None

    def problems(self) -> dict[str, str]:
        """Sessions whose meta file is invalid or unreadable, and why."""
        return {key: one.problem for key, one in list(self._briefs.items()) if one.problem}

    def ids(self) -> Iterable[str]:
        """Sessions that have a meta file or a sidecar."""
        return self._briefs.keys()

    def sweep(self, directories: Iterable[str], belongs: Callable[[str], str | None]) -> list[str]:
        """Compare every directory with what is remembered; the sessions that differ.

        Where several hold files of one session, that of `belongs(session_id)` counts.
        """
        seen: dict[str, dict[str, dict[str, tuple[int, int]]]] = {}
        blind: set[str] = set()  # cannot be read now: what is remembered of them stays
        for directory in directories:
            if Path(directory).exists() and not Path(directory).is_dir():
                blind.add(directory)
                continue
            try:
                for one in scan(Path(directory)):
                    homes = seen.setdefault(one.session_id, {})
                    homes.setdefault(directory, {})[one.kind] = (one.mtime_ns, one.size)
            except AccessError:
                blind.add(directory)
        changed = []
        for session_id, homes in seen.items():
            home = belongs(session_id) if len(homes) > 1 else None
            directory = home if home in homes else next(iter(homes))
            stamps = homes[directory]
            if not self._knows(session_id, stamps.get("meta"), stamps.get("user")):
                changed.append(session_id)
                self.reread(session_id, directory)
        for session_id, brief in list(self._briefs.items()):
            if session_id not in seen and brief.directory not in blind:
                changed.append(session_id)
                self.reread(session_id, None)
        return changed

    def _knows(
        self, session_id: str, meta: tuple[int, int] | None, user: tuple[int, int] | None
    ) -> bool:
        brief = self._briefs.get(session_id)
        return brief is not None and (brief.meta_stamp, brief.user_stamp) == (meta, user)

    def touched(self, path: str) -> str | None:
        """The session that a hinted file belongs to, if it is not what is remembered of it."""
        where, _, name = path.rpartition("/")
        for suffix in (META_SUFFIX, USER_SUFFIX):
            session_id = name.removesuffix(suffix)
            if name.endswith(suffix) and is_session_id(session_id):
                meta, user = _stamps(Path(where), session_id)
                if self._knows(session_id, meta, user):
                    return None
                self.reread(session_id, where)
                return session_id
        return None

    def reread(self, session_id: str, directory: str | None) -> Brief | None:
        """Read a session's files anew and remember them; None when there are none any more."""
        old = self._briefs.get(session_id)
        directory = directory or (old.directory if old else None)
        meta_stamp, user_stamp = _stamps(Path(directory), session_id) if directory else (None, None)
        if directory is None or (meta_stamp is None and user_stamp is None):
            self._briefs.pop(session_id, None)
            self.owing.note(TOPIC, session_id, None)
            return None
        meta, problem = self.meta_or_problem(session_id, directory)
        user = self.user(session_id, directory)
        brief = Brief(
            directory=directory,
            meta_stamp=meta_stamp,
            user_stamp=user_stamp,
            since=meta.last_indexed_leaf_id if meta else None,
            updated_at=meta.updated_at if meta else "",
            model=meta.model if meta else "",
            title=user.title if user else None,
            problem=problem,
        )
        if problem and not (old and old.problem == problem):
            self._report(session_id, problem)
        self._briefs[session_id] = brief
        self.owing.note(TOPIC, session_id, _encode(brief))
        return brief

    def checkpoint(self) -> None:
        """Bring the ledger up to date; raises StateError where it cannot be written."""
        self.owing.settle()

    def meta(self, session_id: str) -> MetaFile | None:
        """A session's meta file, read now; None when there is no valid one."""
        brief = self._briefs.get(session_id)
        return self.meta_or_problem(session_id, brief.directory)[0] if brief else None

    @staticmethod
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

    @staticmethod
    def user(session_id: str, directory: str) -> UserFile | None:
        """A session's sidecar; an invalid one counts as missing, and is never written over."""
        with suppress(InvalidMetaError, AccessError):
            return read_user(Path(directory) / f"{session_id}{USER_SUFFIX}")
        return None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Brief).decode


def _stamps(
    directory: Path, session_id: str
) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """The stamps of a session's meta file and sidecar."""

    def one(suffix: str) -> tuple[int, int] | None:
        try:
            found = (directory / f"{session_id}{suffix}").lstat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size

    return one(META_SUFFIX), one(USER_SUFFIX)
