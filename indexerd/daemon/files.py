"""The state of every session file, and the choice of the file that represents a session.

Reads the paths in `queue`, and notes an `Update` for each session that changed. Only one thread
uses this. A session's tree is kept in memory while it is used and never stored: later the file is
read from its start (a second for 200 MB). The cursor is stored, and tells a file that only grew
from one that was rewritten. A file that triggers a bug is set aside until it changes. A file that
the user excluded is not followed, and none of its contents are kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import msgspec

from indexerd.errors import IndexerdError, SessionUnreadableError
from indexerd.paths import is_session_id
from indexerd.privacy.exclusions import Exclusions
from indexerd.sessions.info import SessionInfo, info_of
from indexerd.sessions.state import SessionState
from indexerd.sources.foreign_db import held_open
from indexerd.sources.forks import ForkResolver, take_in
from indexerd.sources.roots import Layout, SessionRoot
from indexerd.sources.scan import described
from indexerd.sources.session_reader import SessionLines
from indexerd.sources.source import source_of
from indexerd.sources.tail import Block, Cursor, Look, Read, Tail, Verdict
from indexerd.times import iso_ms

TREES_MAX = 400_000  # rows of all trees in memory
TREE_ROWS = 400  # added to each tree's rows, so that there are at most a thousand trees
LARGE, LARGE_SECONDS = 50_000, 30.0  # a tree of more rows is dropped when unused for so long
FILE_BYTES = 64 * 1024  # the cost of opening a file, in bytes read
SETTLE_SECONDS = 0.02  # between the two checks after which a missing file counts as gone


@dataclass(frozen=True, slots=True)
class Update:
    """A change of one session. `info` is None if its last file is gone."""

    session_id: str
    info: SessionInfo | None = None
    verdict: Verdict = Verdict.SAME  # of what was read in its file
    old: SessionInfo | None = None
    branched: bool = False  # the old leaf is not on the new path
    row: dict[str, Any] | None = None


@dataclass(slots=True, eq=False)
class SessionFile:
    """One session file. There are tens of thousands, and few are being read."""

    path: str
    agent: str
    cursor: Cursor | None = None  # where reading stopped
    info: SessionInfo | None = None
    state: SessionState | None = None
    rank: tuple[Any, ...] = ()  # see `_rank`; of files with equal ranks the newest wins
    unnoted: Verdict = Verdict.CONTINUE  # of all readings since `info` was made, not only the last
    underway: bool = False  # the last reading did not reach the end
    excluded: bool = False
    problem: str = ""  # why it cannot be read, or is not a session
    aside: Look | None = None  # its stat when it triggered a bug
    _tail: Tail | None = None

    def differs(self, stat: Look) -> bool:
        """Whether to read the file, given its stat in a scan."""
        if self.excluded or self.aside == stat:
            return False
        return bool(self.problem) or self.cursor is None or not self.cursor.matches(stat)

    def rewind(self) -> None:
        """Make the next read begin at the start."""
        self.cursor = None
        self.drop_tree()

    def drop_tree(self) -> None:
        self._tail, self.state, self.underway = None, None, False

    def read(self, forks: ForkResolver, *, wake: bool = False) -> Read:
        """Read some new lines; with `wake`, from the start if the tree was dropped.

        FileNotFoundError: the file is gone. SessionUnreadableError: it cannot be read.
        """
        source, old = source_of(self.agent, self.path), self.cursor
        whole = wake and source.load is not None  # a reading itself says whether it changed
        if asleep := self.state is None:
            found = source.compare(self.path, old) if old and not whole else Verdict.CONTINUE
            if old is not None and found is Verdict.SAME and not wake:
                return Read(Verdict.SAME)
            if self.unnoted is not Verdict.RESTART:
                self.unnoted = found
            self._tail = None
        tail = self._tail = self._tail or source.tail()
        read = tail.read(self.path)
        if read.verdict is Verdict.SAME:
            return read
        if asleep and whole and tail.cursor == old:
            self.unnoted = Verdict.SAME
        restart = read.verdict is Verdict.RESTART
        if not asleep and (restart or self.unnoted is Verdict.SAME):
            self.unnoted = read.verdict
        pieces, state = iter(read.lines), self.state
        if restart or read.whole or state is None or _is_blank(state):
            first = next(pieces, None)
            line = first.data.partition(b"\n")[0] if isinstance(first, Block) else b""
            state = forks.begin(self.agent, self.path, line)
            pieces = chain([first] if first else [], pieces)
        self.state, self.underway = None, False  # if this raises, the next read is from the start
        take_in(self.agent, state, pieces)
        self.state, self.cursor, self.underway = state, tail.cursor, read.more
        return read


def _is_blank(state: SessionState) -> bool:
    """Whether a file has no header yet, as while pi migrates it; then its session is kept."""
    return state.header is None and not (state.foreign or state.bad_lines or state.seen)


def _rank(path: str, info: SessionInfo, root: SessionRoot) -> tuple[object, ...]:
    """Rank a file among those of one session; the highest represents it.

    Codex: the newest session_meta wins (a revert makes a second file), then a plain file over its
    compressed copy. Others: a database wins over files. The archive's copy comes last, but before
    a mere list of prompts.
    """
    if root.agent == "codex":
        return (not root.kept, iso_ms(info.created_at), not path.endswith(".zst"))
    return (root.layout is not Layout.HISTORY, not root.kept, root.layout is Layout.DATABASE)


class DuplicateResolver:
    """The files that claim each session id; the first of them represents the session.

    They are sorted by rank, then by newest message, then by path. Other threads may read while the
    owner changes this: lists are replaced, never changed.
    """

    def __init__(self) -> None:
        self._claims: dict[str, list[SessionFile]] = {}

    def files(self, session_id: str) -> list[SessionFile]:
        return self._claims.get(session_id, [])

    def get(self, session_id: str) -> SessionFile | None:
        return next(iter(self.files(session_id)), None)

    def infos(self) -> Iterator[SessionInfo]:
        owners = map(self.get, list(self._claims))
        return (file.info for file in owners if file is not None and file.info)

    def claim(self, file: SessionFile) -> None:
        """Add a file to those of its session, or sort them again after the file changed."""
        if file.info is not None:
            files = [other for other in self.files(file.info.session_id) if other is not file]
            files = sorted([*files, file], key=lambda other: other.path)
            files.sort(key=lambda f: (f.rank, f.info.activity_ms if f.info else 0), reverse=True)
            self._claims[file.info.session_id] = files

    def disown(self, file: SessionFile, session_id: str) -> None:
        files = [other for other in self._claims.pop(session_id, ()) if other is not file]
        if files:
            self._claims[session_id] = files


@dataclass(eq=False)
class Files:
    """All session files below all roots."""

    since: Callable[[str], str | None]  # the last entry that a session's meta file describes
    title: Callable[[str, str], str | None]  # by agent and id: a name that it keeps elsewhere
    defect: Callable[[str, Exception], None]  # reports a file that was set aside
    exclusions: Exclusions
    roots: list[SessionRoot] = field(default_factory=list)
    owners: DuplicateResolver = field(default_factory=DuplicateResolver)
    hidden: set[str] = field(default_factory=set)  # sessions that the user excluded
    queue: dict[str, None] = field(default_factory=dict)  # paths to look at
    # Paths whose record in the store is out of date; sessions whose row is.
    unstored: dict[str, None] = field(default_factory=dict)
    changed: dict[str, Update] = field(default_factory=dict)
    rest_at: float = math.inf  # when to drop large trees, on the monotonic clock
    _files: dict[str, SessionFile] = field(default_factory=dict)
    _trees: dict[SessionFile, int] = field(default_factory=dict)  # rows, least recently used first
    _rows: int = 0  # of all trees
    _missing: set[str] = field(default_factory=set)  # files that were gone when looked at once

    def __post_init__(self) -> None:
        self._forks = ForkResolver(self._excluded)

    def info(self, session_id: str) -> SessionInfo | None:
        owner = self.owners.get(session_id)
        return owner.info if owner else None

    def problems(self) -> dict[str, str]:
        files = list(self._files.values())  # another thread may ask while this one reads
        return {file.path: file.problem for file in files if file.problem}

    def state(self, session_id: str) -> SessionState | None:
        """Return a session's tree; if it is not in memory, the file is read again."""
        owner = self.owners.get(session_id)
        if owner is None:
            return None
        try:
            while owner.state is None or owner.underway:
                self._read(owner, wake=True)
        except (SessionUnreadableError, FileNotFoundError):
            return None
        self._keep_tree(owner)
        if owner.unnoted is not Verdict.SAME:
            self._update(owner)
        return owner.state

    def lines(self, session_id: str) -> AbstractContextManager[SessionLines]:
        """Open a session's lines, by row; SessionUnreadableError if its file is gone."""
        owner, state = self.owners.get(session_id), self.state(session_id)
        if owner is None or state is None:
            raise SessionUnreadableError("the session file is gone")
        return SessionLines(owner.agent, state, self._forks.where)

    def root_of(self, path: str) -> SessionRoot | None:
        return next((root for root in self.roots if root.accepts(path)), None)

    # -- what to look at

    def load(self, known: Iterable[tuple[str, Cursor, SessionInfo | None]]) -> None:
        """Load the stored state of files; no file is opened."""
        for path, cursor, info in known:
            root = self.root_of(path)
            if root is None:
                continue
            file = self._files[path] = SessionFile(path, root.agent, cursor, info)
            self._forks.found(root.agent, path)
            if info is not None:
                file.rank = _rank(path, info, root)
                self.owners.claim(file)
                if info.has_base:
                    file.rewind()  # its base may have appeared, or been excluded, meanwhile

    def stored(self, path: str) -> tuple[Cursor, SessionInfo | None] | None:
        """Return the state of a path to store; None: nothing is stored."""
        file = self._files.get(path)
        if file is None or file.excluded or file.underway or file.cursor is None:
            return None
        return file.cursor, file.info

    def compare(self, stats: Mapping[str, Look], unseen: Callable[[str], bool]) -> None:
        """Queue the files that a scan shows to be changed, newest first, or gone."""
        differing = []
        for path, look in stats.items():
            file = self._files.get(path)
            if file is None:
                self.note_there(path)
            if file is None or file.differs(look):
                differing.append(path)
        differing.sort(key=lambda path: -stats[path].mtime_ns)
        gone = [path for path in self._files if path not in stats and not unseen(path)]
        self.queue |= dict.fromkeys([*differing, *gone])

    def note_there(self, path: str) -> None:
        """Queue the forks whose history begins in a file that exists."""
        root = self.root_of(path)
        if root is not None:
            self._read_again(self._forks.found(root.agent, path))

    def _read_again(self, forks: Iterable[str]) -> None:
        for path in forks:
            file = self._files.get(path)
            if file is not None and not file.excluded:
                file.rewind()
                self.queue[path] = None

    # -- what the user excluded

    def hides(self, session_id: str, path: str = "", cwd: str = "") -> bool:
        """Whether the user excluded a session, or had it purged."""
        known = session_id in self.hidden or session_id in self.exclusions.forgotten
        return known or self._matches(path, cwd)

    def _forbids(self, path: str, info: SessionInfo | None) -> bool:
        return self._matches(path, *((info.cwd, info.session_id) if info else ("", "")))

    def _matches(self, path: str, cwd: str, session_id: str = "") -> bool:
        return self.exclusions.match(self.original(path), cwd, session_id)

    def original(self, path: str) -> str:
        """Return where a file was, if the path is that of our archive's copy."""
        root = self.root_of(path)
        return root.original(path) if root else path

    def excluded(self) -> set[str]:
        """Return the files that the user excluded, or whose sessions were purged."""
        return {self.original(file.path) for file in self._files.values() if file.excluded}

    def _excluded(self, path: str, cwd: str) -> bool:
        """Whether the user excluded a file in which a fork's history may begin."""
        file = self._files.get(path)
        hidden = file is not None and file.excluded
        if hidden and any(session_id in path for session_id in self.exclusions.forgotten):
            hidden = False  # the forks of a purged session stay
        return hidden or self._matches(path, cwd)

    def renew_exclusions(self) -> None:
        """Drop files that are now excluded, and follow those that no longer are."""
        for file in list(self._files.values()):
            if file.excluded:
                del self._files[file.path]  # the next scan finds it again
            elif self._forbids(file.path, file.info):
                self._hide(file)
            elif file.info is not None and file.info.has_base:
                self._read_again([file.path])

    # -- looking

    @property
    def busy(self) -> bool:
        return bool(self.queue or self._missing or self.changed)

    def hint(self, paths: Iterable[str]) -> None:
        """Queue paths, those read most recently last, so that busy files do not delay others.

        With 500 busy files, another one is read after 30 ms; without this, after 300.
        """
        self.queue |= dict.fromkeys(paths)
        for file in self._trees:
            if file.path in self.queue:
                self.queue[file.path] = self.queue.pop(file.path)

    @held_open()
    def read_some(self, most: int, sessions: int) -> None:
        """Read about `most` bytes of queued files, or until `sessions` more sessions changed."""
        if self._missing and not self.queue:
            time.sleep(SETTLE_SECONDS)
            self.queue |= dict.fromkeys(self._missing)
        size, enough = 0, len(self.changed) + sessions
        while self.queue and size < most and len(self.changed) < enough:
            path = next(iter(self.queue))
            del self.queue[path]
            read = self.refresh(path)
            size += FILE_BYTES + read.bytes
            if read.more:
                self.queue[path] = None

    def refresh(self, path: str) -> Read:
        """Read some new lines of a file.

        A missing file is forgotten only at the second check: it may be being moved or rewritten.
        """
        root, file, was_missing = self.root_of(path), self._files.get(path), path in self._missing
        self._missing.discard(path)
        if root is None:
            self.vanish(path)
            return Read(Verdict.SAME)
        if file is None:
            file = self._files[path] = SessionFile(path, root.agent)
            self.note_there(path)
            file.excluded = self._matches(path, "")
        look = source_of(file.agent, path).look
        try:
            if not (file.excluded or (file.aside and file.aside == look(path))):
                return self._refresh(file)
        except FileNotFoundError:
            if was_missing or file.info is None:
                self.vanish(path)
            else:
                self._missing.add(path)
                agent, name = file.agent, path.rpartition("/")[2]
                archives = [s.sessions for s in self.roots if s.archive and s.agent == agent]
                self.queue |= {f"{directory}/{name}": None for directory in archives}
        except IndexerdError as bad:
            file.problem = str(bad)
        except Exception as bug:  # noqa: BLE001 - one file must not end the daemon
            file.problem = f"set aside until it changes: {type(bug).__name__}"
            file.rewind()
            self.defect(path, bug)
            with suppress(SessionUnreadableError):
                file.aside = look(path)
        return Read(Verdict.SAME)

    def _refresh(self, file: SessionFile) -> Read:
        read = self._read(file)
        if read.more:
            return read
        file.aside = None
        if read.verdict is not Verdict.SAME:
            self._update(file)
            return read
        if file.info is not None:
            file.problem = ""
        self.note_there(file.path)  # it may have been missing when a fork looked for it
        return read

    def _read(self, file: SessionFile, *, wake: bool = False) -> Read:
        read = file.read(self._forks, wake=wake)
        if read.verdict is not Verdict.SAME:
            self._keep_tree(file)
            restart = file.unnoted is Verdict.RESTART
            self._read_again(self._forks.found(file.agent, file.path, rewritten=restart))
        return read

    def _keep_tree(self, file: SessionFile) -> None:
        """Mark a tree as just used, and drop those used least recently."""
        rows = TREE_ROWS + (len(file.state) if file.state is not None else 0)
        self._rows += rows - self._trees.pop(file, 0)
        self._trees[file] = rows
        if rows > LARGE:
            self.rest_at = time.monotonic() + LARGE_SECONDS
        while self._rows > TREES_MAX and len(self._trees) > 1:
            self._drop_tree(next(iter(self._trees)))

    def rest(self) -> None:
        """Drop the large trees, which have not been used for a while."""
        self.rest_at = math.inf
        for file in [file for file, rows in self._trees.items() if rows > LARGE]:
            self._drop_tree(file)

    def drop_tree(self, session_id: str) -> None:
        """Drop the tree of a session that is not used soon."""
        if owner := self.owners.get(session_id):
            self._drop_tree(owner)

    def _drop_tree(self, file: SessionFile) -> None:
        self._rows -= self._trees.pop(file, 0)
        if not file.underway:  # else the file would be read from its start
            file.drop_tree()

    # -- what changed

    def mark(self, session_ids: Iterable[str]) -> None:
        """Mark the rows of sessions as out of date."""
        for session_id in session_ids:
            self.changed.setdefault(session_id, Update(session_id))

    def _note(self, update: Update) -> None:
        before = self.changed.get(update.session_id)
        if before and before.old:  # two updates since the last flush
            update = replace(update, old=before.old)
        if before and before.verdict is Verdict.RESTART:
            update = replace(update, verdict=before.verdict)
        self.changed[update.session_id] = update

    def recount(self, session_ids: Iterable[str]) -> None:
        """Update sessions whose meta file, sidecar or title in the agent changed."""
        for session_id in session_ids:
            owner, info = self.owners.get(session_id), self.info(session_id)
            if owner and info:
                title = self.title(owner.agent, session_id)
                renamed = title is not None and (info.agent_title or "") != title
                read = renamed or info.since != self.since(session_id)
                if read and self.state(session_id) is not None:
                    self._update(owner)
        self.mark(session_ids)

    def _update(self, file: SessionFile) -> None:
        """Compute the file's new info, and note how its session, and a former one, changed."""
        state, old, verdict = file.state, file.info, file.unnoted
        file.unnoted = Verdict.SAME
        if state is None:
            return
        if _is_blank(state):  # emptied for a rewrite: announced once it has contents again
            file.unnoted, verdict = verdict, Verdict.SAME
        header = state.header
        if header and self._matches(file.path, header.cwd, header.session_id):
            self._hide(file)
            return
        info = file.info = self._make_info(file, state, old)
        self.unstored[file.path] = None
        if old is not None and (info is None or info.session_id != old.session_id):
            self._disown(file, old)
            old = None
        if info is not None and info != old:
            self._claim(file, info, verdict, old)

    def _make_info(
        self, file: SessionFile, state: SessionState, old: SessionInfo | None
    ) -> SessionInfo | None:
        """Compute a session's info; None if the file is no session (`problem` may say why)."""
        root, header, cursor = self.root_of(file.path), state.header, file.cursor
        file.problem = ""
        if header is None:
            if old is None or not _is_blank(state):
                return None
            since = self.since(old.session_id)
            return msgspec.structs.replace(old, path=file.path, since=since, new_users=0)
        if not is_session_id(header.session_id):
            file.problem = "its session id is invalid"
            return None
        if file.agent == "claude" and header.subagent and not state.name:
            state.name = described(file.path)
        info = info_of(
            state,
            agent=file.agent,
            path=file.path,
            mtime_ms=max(cursor.mtime_ns, 0) // 1_000_000 if cursor else 0,
            since=self.since(header.session_id),
            title=self.title(file.agent, header.session_id),
            archived=bool(root and (root.archive or root.kept or root.layout is Layout.HISTORY)),
            in_database=bool(root and root.layout in (Layout.DATABASE, Layout.HISTORY)),
        )
        if info is not None and root is not None:
            file.rank = _rank(file.path, info, root)
        return info

    def _claim(
        self, file: SessionFile, info: SessionInfo, verdict: Verdict, old: SessionInfo | None
    ) -> None:
        """Let a file claim its session, perhaps from another file (a revert in Codex)."""
        self.hidden.discard(info.session_id)
        replaced, state = self.info(info.session_id), file.state
        self.owners.claim(file)
        owner, before, branched = self.info(info.session_id), old, False
        if old is not None and state is not None:
            branched = verdict is Verdict.CONTINUE and state.abandoned(old.leaf_id)
        elif replaced is not None and owner is info and replaced.leaf_id and state is not None:
            before, leaf = replaced, replaced.leaf_id
            branched = state.row(leaf) is None or state.abandoned(leaf)
        self._note(Update(info.session_id, owner, verdict, before, branched))

    def _hide(self, file: SessionFile) -> None:
        """Forget everything about a file that the user excluded."""
        header = file.state.header if file.state else None
        self.hidden |= {named.session_id for named in (header, file.info) if named}
        file.excluded = True
        self._forget(file)

    def vanish(self, path: str) -> None:
        """Forget a file that is gone."""
        if file := self._files.pop(path, None):
            self._forks.drop(path)
            self._forget(file)

    def _forget(self, file: SessionFile) -> None:
        old, file.info = file.info, None
        self._drop_tree(file)
        file.rewind()
        self.unstored[file.path] = None
        if old:
            self._disown(file, old)

    def _disown(self, file: SessionFile, old: SessionInfo) -> None:
        """Detach a file from a session, and note the change if the file represented it."""
        owned = self.owners.get(old.session_id) is file
        self.owners.disown(file, old.session_id)
        if owned:
            self._note(Update(old.session_id, self.info(old.session_id), old=old))
