"""Every session file: what is known of each, and which of several represents a session.

Takes paths to look at; gives a `Change` for each session that differs. One thread uses this, and
keeps the trees of recently used sessions in memory. A file that triggers a bug is set aside until
it changes. A file that the user excluded is not followed, and nothing of it is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager

from indexerd.errors import IndexerdError, SessionUnreadableError
from indexerd.privacy.exclusions import Exclusions
from indexerd.sessions.duplicates import DuplicateResolver
from indexerd.sessions.info import SessionInfo
from indexerd.sessions.state import SessionState
from indexerd.sources.forks import ForkResolver
from indexerd.sources.session_file import Change, SessionFile, is_blank, rank
from indexerd.sources.session_reader import SessionLines
from indexerd.sources.stores import Kind, Store
from indexerd.sources.tail import Cursor, Look, Read, Verdict

TREES_MAX = 400_000  # rows of all trees in memory
TREE_ROWS = 400  # that even an empty tree counts for: a thousand trees at most


class Files:
    """All session files of all stores."""

    def __init__(
        self,
        *,
        since: Callable[[str], str | None],
        title: Callable[[str, str], str | None],
        exclude: Callable[[], list[str]],
        defect: Callable[[str, Exception], None],
    ) -> None:
        """`title(agent, session_id)`: names kept beside; `defect(path, bug)`: what is set aside."""
        self._since = since
        self._title = title
        self._defect = defect
        self._forks = ForkResolver(self._excluded)
        self._files: dict[str, SessionFile] = {}
        self._trees: OrderedDict[str, int] = (
            OrderedDict()
        )  # path -> rows, least recently used first
        self._rows = 0  # of all trees
        self._reads = 0
        self.stores: list[Store] = []
        self.owners: DuplicateResolver[SessionFile] = DuplicateResolver()
        self.exclusions = Exclusions(exclude)
        self.hidden: set[str] = set()  # sessions that the user excluded
        self.queue: dict[str, None] = {}  # paths to look at
        self.unstored: dict[str, None] = {}  # paths whose record in the store is out of date
        self.found: list[Change] = []  # by reading a tree for an answer

    def info(self, session_id: str) -> SessionInfo | None:
        owner = self.owners.get(session_id)
        return owner.info if owner else None

    def problems(self) -> dict[str, str]:
        files = list(self._files.values())  # another thread may ask while this one reads
        problems = ((one.path, one.problem or self._forks.missing(one.info)) for one in files)
        return {path: problem for path, problem in problems if problem}

    def state(self, session_id: str) -> SessionState | None:
        """The tree of a session; its file is read again if it is not in memory."""
        owner = self.owners.get(session_id)
        if owner is None:
            return None
        try:
            while owner.state is None or owner.underway:
                self._read(owner, wake=True)
        except (SessionUnreadableError, FileNotFoundError):
            return None
        if owner.verdict is not Verdict.SAME:
            self.found += self._update(owner)
        else:
            self._keep_tree(owner)
        return owner.state

    def lines(self, session_id: str) -> AbstractContextManager[SessionLines]:
        """Open a session's lines, by row; SessionUnreadableError when it is gone."""
        owner, state = self.owners.get(session_id), self.state(session_id)
        if owner is None or state is None:
            raise SessionUnreadableError("the session file is gone")
        return SessionLines(owner.agent, state, self._forks.where)

    def store_of(self, path: str) -> Store | None:
        return next((one for one in self.stores if one.takes(path)), None)

    # -- what to look at

    def load(self, known: Iterable[tuple[str, Cursor, SessionInfo | None]]) -> None:
        """Take what the store knows; no file is opened."""
        self.exclusions.renew()
        for path, cursor, info in known:
            store = self.store_of(path)
            if store is None:
                continue
            if self._forbids(path, info):
                self.hidden |= {info.session_id} if info else set()
                self.unstored[path] = None
                continue
            file = self._files[path] = SessionFile(path, store.agent, cursor, info)
            self._forks.met(store.agent, path)
            file.rank = rank(path, info, store)
            self.owners.claim(file)
            if info is not None and info.is_heir:
                file.begin_anew()  # its base may have appeared, or been excluded, meanwhile

    def stored(self, path: str) -> tuple[Cursor, SessionInfo | None] | None:
        """What the store must know of a path, if anything."""
        file = self._files.get(path)
        if file is None or file.excluded or file.underway or file.cursor is None:
            return None
        return file.cursor, file.info

    def compare(self, found: Mapping[str, Look], unseen: Callable[[str], bool]) -> None:
        """Queue what a scan found to differ, newest first, and what is gone."""
        differing = []
        for path, look in found.items():
            file = self._files.get(path)
            if file is None:
                self.note_there(path)
            if file is None or file.differs(look):
                differing.append(path)
        differing.sort(key=lambda path: -found[path].mtime_ns)
        gone = [path for path in self._files if path not in found and not unseen(path)]
        self.queue |= dict.fromkeys([*differing, *gone])

    def hint(self, paths: Iterable[str]) -> None:
        """Queue paths; those read longest ago come first, so that busy files delay no other."""
        self.queue |= dict.fromkeys(paths)
        read = {path: file.read_number for path in self.queue if (file := self._files.get(path))}
        self.queue = dict.fromkeys(sorted(self.queue, key=lambda path: read.get(path, 0)))

    def in_archive(self, path: str) -> list[str]:
        """Where a missing file may be if its agent moved it to an archive not watched yet."""
        store, name = self.store_of(path), path.rpartition("/")[2]
        archives = [
            one for one in self.stores if one.archive and store and one.agent == store.agent
        ]
        return [f"{one.sessions}/{name}" for one in archives]

    def note_there(self, path: str) -> None:
        """Queue the forks whose history begins in a file that is there."""
        store = self.store_of(path)
        if store is not None:
            self._read_again(self._forks.met(store.agent, path))

    def _read_again(self, forks: Iterable[str]) -> None:
        for path in forks:
            file = self._files.get(path)
            if file is not None and not file.excluded:
                file.begin_anew()
                self.queue[path] = None

    # -- what the user excluded

    def hides(self, session_id: str, path: str = "", cwd: str = "") -> bool:
        """Whether the user excluded a session, or had it purged."""
        known = session_id in self.hidden or session_id in self.exclusions.forgotten
        return known or self.exclusions.match(path, cwd)

    def _forbids(self, path: str, info: SessionInfo | None) -> bool:
        return self.exclusions.match(path, *((info.cwd, info.session_id) if info else ("", "")))

    def _excluded(self, path: str, cwd: str) -> bool:
        """Whether the user excluded a file that another's history may begin in."""
        file = self._files.get(path)
        hidden = file is not None and file.excluded
        if hidden and any(one in path for one in self.exclusions.forgotten):
            hidden = False  # the forks of a purged session stay
        return hidden or self.exclusions.match(path, cwd)

    def renew_exclusions(self) -> list[Change]:
        """Drop what is excluded now, and follow what is not excluded any more."""
        changes: list[Change] = []
        for file in list(self._files.values()):
            if file.excluded:
                del self._files[file.path]  # the next scan finds it again
            elif self._forbids(file.path, file.info):
                changes += self._hide(file)
            elif file.info is not None and file.info.is_heir:
                self._read_again([file.path])
        return changes

    # -- looking

    def recount(self, session_id: str) -> Change | None:
        """Make a session's info again, if its meta file or its agent's name for it changed."""
        owner = self.owners.get(session_id)
        info = owner.info if owner else None
        if owner is None or info is None:
            return None
        title = self._title(owner.agent, session_id)
        same = title is None or (info.agent_title or "") == title
        if (same and info.since == self._since(session_id)) or self.state(session_id) is None:
            return None
        return next(iter(self._update(owner)), None)

    def refresh(self, path: str) -> tuple[list[Change], int, bool]:
        """Read what is new in a file: changes, bytes read, and whether there is more to read.

        FileNotFoundError for a known file that is gone: `vanish` forgets it.
        """
        store, file = self.store_of(path), self._files.get(path)
        if store is None:
            return self.vanish(path), 0, False
        if file is None:
            file = SessionFile(path, store.agent)
            if store.kind is not Kind.DATABASE and file.look() is None:
                return [], 0, False
            self._files[path] = file
            self.note_there(path)
            file.excluded = self.exclusions.match(path, "")
        if file.excluded or (file.aside and file.aside == file.look()):
            return [], 0, False
        try:
            read = self._read(file)
            if read.more:
                return [], read.bytes, True
            file.aside = None
            if read.verdict is not Verdict.SAME:
                return self._update(file), read.bytes, False
            if file.info is not None:
                file.problem = ""
            self.note_there(path)  # it may have been away when a fork looked for it
        except FileNotFoundError:
            raise
        except IndexerdError as bad:
            file.problem = str(bad)
        except Exception as bug:  # noqa: BLE001 - one odd file must not end the daemon
            file.problem = f"set aside until it changes: {type(bug).__name__}"
            file.aside = file.look()
            file.begin_anew()
            self._defect(path, bug)
        return [], 0, False

    def _read(self, file: SessionFile, *, wake: bool = False) -> Read:
        self._reads += 1
        file.read_number = self._reads
        read = file.read(self._forks, wake=wake)
        if read.verdict is not Verdict.SAME:
            self._keep_tree(file)
            restart = file.verdict is Verdict.RESTART
            self._read_again(self._forks.met(file.agent, file.path, anew=restart))
        return read

    def _update(self, file: SessionFile) -> list[Change]:
        """Make the file's new info; return what it changes, of its session and a former one."""
        state, was, verdict = file.state, file.info, file.verdict
        file.verdict = Verdict.SAME
        if state is None or file.cursor is None:
            return []
        if is_blank(state):  # emptied, to be rewritten: announced once it has something in it
            file.verdict, verdict = verdict, Verdict.SAME
        header = state.header
        if header and self.exclusions.match(file.path, header.cwd, header.session_id):
            return self._hide(file)
        info = file.make_info(self.store_of(file.path), self._since, self._title)
        self.unstored[file.path] = None
        changes = []
        if was is not None and (info is None or info.session_id != was.session_id):
            changes += self._disown(file, was)
            was = None
        if info is not None and info != was:
            changes.append(self._claim(file, info, verdict, was))
        return changes

    def _claim(
        self, file: SessionFile, info: SessionInfo, verdict: Verdict, was: SessionInfo | None
    ) -> Change:
        """Have a file claim its session, perhaps from another file (a revert in Codex)."""
        self.hidden.discard(info.session_id)
        before = self.info(info.session_id)
        self.owners.claim(file)
        owner, state, left = self.info(info.session_id), file.state, False
        if was is not None and state is not None:
            left = verdict is Verdict.CONTINUE and state.left(was.leaf_id)
        elif before is not None and owner is info and before.leaf_id and state is not None:
            was, left = before, state.row(before.leaf_id) is None or state.left(before.leaf_id)
        return Change(info.session_id, owner, verdict, was, left)

    def _hide(self, file: SessionFile) -> list[Change]:
        """Forget all that is known of a file that the user excluded."""
        was, header = file.info, file.state.header if file.state else None
        file.excluded, file.info = True, None
        file.begin_anew()
        self._rows -= self._trees.pop(file.path, 0)
        self.unstored[file.path] = None
        self.hidden |= {one.session_id for one in (header, was) if one}
        return self._disown(file, was) if was else []

    def vanish(self, path: str) -> list[Change]:
        """Forget a file that is gone."""
        file = self._files.pop(path, None)
        if file is None:
            return []
        self._rows -= self._trees.pop(path, 0)
        self.unstored[path] = None
        self._forks.drop(path)
        return self._disown(file, file.info) if file.info else []

    def _disown(self, file: SessionFile, was: SessionInfo) -> list[Change]:
        """Take a session from a file; that is a change if the file represented it."""
        owned = self.owners.get(was.session_id) is file
        self.owners.disown(file, was.session_id)
        change = Change(was.session_id, self.info(was.session_id), Verdict.SAME, was)
        return [change] if owned else []

    def _keep_tree(self, file: SessionFile) -> None:
        """Mark a tree as used now, and drop those used least recently."""
        trees = self._trees
        self._rows -= trees.pop(file.path, 0)
        trees[file.path] = TREE_ROWS + (len(file.state) if file.state is not None else 0)
        self._rows += trees[file.path]
        while self._rows > TREES_MAX and len(trees) > 1:
            path, count = trees.popitem(last=False)
            self._rows -= count
            old = self._files.get(path)
            if old is not None and not old.underway:  # else a long line would be read twice
                old.doze()
