"""Every session file: what is known of each, and which of several represents a session.

In: paths to look at. Out: `Change` values, one for each session that is another than before. One
thread uses this; nobody else touches a tree. Trees are kept in memory for the sessions used
lately: what lives in memory follows what is active, not what exists.

Nothing a file is called or holds may end the daemon: a defect that a file provokes sets that
file aside until it changes. A file that the user excluded is not followed, and nothing of it
is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext

from indexerd.errors import IndexerdError, SessionUnreadableError
from indexerd.privacy.exclusions import Exclusions
from indexerd.sessions.duplicates import DuplicateResolver
from indexerd.sessions.info import SessionInfo, pack, unpack
from indexerd.sessions.state import SessionState
from indexerd.sources.cursor import Cursor, Look, Verdict
from indexerd.sources.forks import ForkResolver
from indexerd.sources.quarantine import WHY, Quarantine
from indexerd.sources.session_file import Change, SessionFile, is_blank, rank
from indexerd.sources.session_reader import SessionLines
from indexerd.sources.source import source_of
from indexerd.sources.stores import SUFFIXES, Kind, Store
from indexerd.sources.tail import Read

TREES_KEPT = 512  # sessions whose tree stays in memory: 4 KB each, but for long ones
ROWS_KEPT = 400_000  # and entries of all these together
FOLDERS_KEPT = 20_000


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
        self._stores: list[Store] = []
        self._folders: dict[str, list[Store]] = {}
        self._files: dict[str, SessionFile] = {}
        self._awake: OrderedDict[str, int] = OrderedDict()  # paths, and entries of their trees
        self.owners: DuplicateResolver[SessionFile] = DuplicateResolver()
        self.exclusions = Exclusions(exclude)
        self.hidden: set[str] = set()  # sessions that the user excluded
        self.quarantine: Quarantine | None = None
        self.unstored: dict[str, None] = {}  # paths of which the store does not know all
        self.due: dict[str, None] = {}  # paths to be read anew: what they begin with is another
        self.woken: list[Change] = []  # what was found when a tree was read for somebody

    # -- questions -----------------------------------------------------------------------

    def info(self, session_id: str) -> SessionInfo | None:
        """What is known of a session."""
        owner = self.owners.get(session_id)
        return owner.info if owner else None

    def problems(self) -> dict[str, str]:
        """Files that could not be read, and why."""
        files = list(self._files.values())  # another thread may ask while this one reads
        missing = self._forks.missing
        problems = ((one.path, one.unreadable or one.problem or missing(one.info)) for one in files)
        return {path: problem for path, problem in problems if problem}

    def state(self, session_id: str) -> SessionState | None:
        """The tree of a session; its file is read anew where it was let go."""
        owner = self.owners.get(session_id)
        if owner is None:
            return None
        try:
            while owner.state is None or owner.underway:
                self._read(owner, wake=True)
        except (SessionUnreadableError, FileNotFoundError):
            return None
        if owner.verdict is not Verdict.SAME:  # it changed, and nobody has looked yet
            self.woken += self._deal(owner)
        self._keep(owner)
        return owner.state

    def lines(self, session_id: str) -> AbstractContextManager[SessionLines]:
        """A session's lines, by row, open for reading; SessionUnreadableError when it is gone."""
        owner, state = self.owners.get(session_id), self.state(session_id)
        if owner is None or state is None:
            raise SessionUnreadableError("the session file is gone")
        return SessionLines(owner.agent, state, self._forks.where)

    def store_of(self, path: str) -> Store | None:
        """The store that takes a path, remembered by directory: it is asked of every file."""
        folder = path[: path.rfind("/") + 1]
        held = self._folders.get(folder)
        if held is None:
            held = [one for one in self._stores if one.holds(f"{folder}x")]
            if len(self._folders) < FOLDERS_KEPT:
                self._folders[folder] = held
        for store in held:
            if path.endswith(SUFFIXES) if store.kind is Kind.FILES else store.takes(path):
                return store
        return None

    def is_there(self, path: str) -> bool:
        """Whether there is something to read. A database is looked at only to be read."""
        store = self.store_of(path)
        if store is None:
            return False
        return store.kind is Kind.DATABASE or source_of(store.agent, path).look(path) is not None

    # -- taking changes in ---------------------------------------------------------------

    def use(self, stores: list[Store]) -> None:
        """The stores are these now."""
        if stores != self._stores:
            self._stores = stores
            self._folders.clear()

    def load(self, known: Iterable[tuple[str, Cursor, SessionInfo | None]]) -> None:
        """Take over what the store knows; nothing is read."""
        self.exclusions.renew()
        for path, cursor, info in known:
            store = self.store_of(path)
            if store is None:
                continue
            if self._barred(path, info):
                self.hidden |= {info.session_id} if info else set()
                self.unstored[path] = None
                continue
            file = self._files[path] = SessionFile(path, store.agent, cursor, info)
            self._forks.met(store.agent, path)
            file.rank = rank(path, info, store)
            self.owners.claim(file)
            if info is not None and info.is_heir:
                file.begin_anew()  # what it begins with may have come, or been excluded, meanwhile

    def stored(self, path: str) -> tuple[Cursor, bytes] | None:
        """What the store is to know of a path; None where it is to know nothing."""
        file = self._files.get(path)
        if file is None or file.excluded or file.underway or (cursor := file.cursor) is None:
            return None
        return cursor, pack(file.info) if file.info else b""

    def reconsider(self) -> list[Change]:
        """The exclusions may have changed: drop what is excluded now, follow what is not."""
        if not self.exclusions.renew():
            return []
        changes: list[Change] = []
        for file in list(self._files.values()):
            if file.excluded:
                del self._files[file.path]  # met anew by the scan that follows
            elif self._barred(file.path, file.info):
                changes += self._hide(file)
            elif file.info is not None and file.info.is_heir:
                self._renew([file.path])
        return changes

    def hides(self, session_id: str, path: str = "", cwd: str = "") -> bool:
        """Whether the user excluded a session, or had it purged."""
        known = session_id in self.hidden or session_id in self.exclusions.forgotten
        return known or self.exclusions.match(path, cwd)

    def _barred(self, path: str, info: SessionInfo | None) -> bool:
        """Whether the user excluded a file of which so much is known."""
        cwd, session_id = (info.cwd, info.session_id) if info else ("", "")
        return self.exclusions.match(path, cwd, session_id)

    def _excluded(self, path: str, cwd: str) -> bool:
        """Whether the user excluded a file that another's history may begin in."""
        file = self._files.get(path)
        hidden = file is not None and file.excluded
        if hidden and any(one in path for one in self.exclusions.forgotten):
            hidden = False  # one that was purged is forgotten for itself; its forks stay
        return hidden or self.exclusions.match(path, cwd)

    def differing(self, found: Mapping[str, Look]) -> list[str]:
        """Of a scan, the paths that are not as they were read; all are noted as being there."""
        paths = []
        for path, look in found.items():
            file = self._files.get(path)
            if file is None:
                self.acquaint(path)
            if file is None or file.differs(look):
                paths.append(path)
        return paths

    def acquaint(self, path: str) -> None:
        """A file is there: it may hold what another's history begins with."""
        store = self.store_of(path)
        if store is not None:
            self._renew(self._forks.met(store.agent, path))

    def missing(self, found: Mapping[str, Look], unseen: Callable[[str], bool]) -> list[str]:
        """Known paths that a scan did not find, although it could have."""
        return [path for path in self._files if path not in found and not unseen(path)]

    def elsewhere(self, path: str) -> Iterator[str]:
        """Where a file that is gone would be, had its agent archived or compressed it, or both.

        The archive may have been made for the first of them, and not be watched yet.
        """
        own = self.store_of(path)
        if own is None or own.kind is not Kind.FILES or path not in self._files:
            return
        folder, _, name = path.rpartition("/")
        other = name.removesuffix(".zst") if name.endswith(".zst") else f"{name}.zst"
        yield f"{folder}/{other}"
        for store in self._stores:
            if store.archive and store.agent == own.agent and store is not own:
                yield from (f"{store.sessions}/{one}" for one in (name, other))

    def _renew(self, forks: Iterable[str]) -> None:
        """Have files read anew, with what they begin with."""
        for path in forks:
            file = self._files.get(path)
            if file is not None and not file.excluded:
                file.begin_anew()
                self.due[path] = None

    def recount(self, session_id: str) -> Change | None:
        """Make a session's info anew, where its meta file or its agent's name for it changed."""
        owner = self.owners.get(session_id)
        info = owner.info if owner else None
        if owner is None or info is None:
            return None
        title = self._title(owner.agent, session_id)
        same = title is None or (info.agent_title or "") == title
        if (same and info.since == self._since(session_id)) or self.state(session_id) is None:
            return None
        owner.verdict = Verdict.SAME
        return next(iter(self._deal(owner)), None)

    # -- one file ------------------------------------------------------------------------

    def refresh(self, path: str) -> tuple[list[Change], int, bool]:
        """Look at a file: what changed, how many bytes were read, and whether there is more."""
        store, file = self.store_of(path), self._files.get(path)
        if file is None:
            if store is None:
                return [], 0, False
            self.acquaint(path)
            file = self._files[path] = SessionFile(path, store.agent)
            file.excluded = self.exclusions.match(path, "")
        if file.excluded or (file.aside and file.aside == file.look()):
            return [], 0, False
        try:
            read = self._read(file)
            if read.more:
                return [], read.bytes, True
            file.unreadable, file.aside = "", None
            if read.verdict is not Verdict.SAME:
                return self._deal(file), read.bytes, False
        except FileNotFoundError:
            return self.vanish(path), 0, False
        except IndexerdError as bad:
            file.unreadable = str(bad)
        except Exception as bug:  # noqa: BLE001 - one odd file must not end the daemon
            file.problem = f"set aside until it changes: {type(bug).__name__}"
            file.aside = file.look()
            file.begin_anew()
            self._defect(path, bug)
        return [], 0, False

    def _read(self, file: SessionFile, *, wake: bool = False) -> Read:
        """Read what is new, noted as long as that lasts."""
        guard, path = self.quarantine, file.path
        if guard is not None and guard.bars(path, file.look):
            if file.unreadable != WHY:
                self._defect(path, SessionUnreadableError(WHY))
            raise SessionUnreadableError(WHY)
        with guard.reading(path) if guard else nullcontext():
            read = file.read(self._forks, wake=wake)
        if guard is not None and not read.more:
            guard.cleared(path)
        if read.verdict is not Verdict.SAME:
            self._keep(file)
            self._renew(self._forks.met(file.agent, path, anew=file.verdict.restart))
        return read

    def _deal(self, file: SessionFile) -> list[Change]:
        """Make the file's new info; say what it changes, for its session and a former one."""
        state, was, verdict = file.state, file.info, file.verdict
        file.verdict = Verdict.SAME
        if state is None or file.cursor is None:
            return []
        if is_blank(state):  # emptied, to be written anew: said once there is something in it
            file.verdict, verdict = verdict, Verdict.SAME
        header = state.header
        if header and self.exclusions.match(file.path, header.cwd, header.session_id):
            return self._hide(file)
        info = file.make_info(self.store_of(file.path), self._since, self._title)
        self.unstored[file.path] = None
        changes = []
        if was is not None and (info is None or info.session_id != was.session_id):
            self.owners.disown(file, was.session_id)
            changes.append(self._lost(was))
            was = None
        if info is not None and info != was:
            changes.append(self._own(file, info, verdict, was))
        return changes

    def _own(
        self, file: SessionFile, info: SessionInfo, verdict: Verdict, was: SessionInfo | None
    ) -> Change:
        """Have a file claim its session; it may take it over from another (a revert in Codex)."""
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
        """The user excluded this file: forget all that is known of it."""
        was, header = file.info, file.state.header if file.state else None
        file.excluded, file.info = True, None
        file.begin_anew()
        self._awake.pop(file.path, None)
        self.unstored[file.path] = None
        if header is not None:
            self.hidden.add(header.session_id)
        if was is None:
            return []
        self.hidden.add(was.session_id)
        self.owners.disown(file, was.session_id)
        return [self._lost(was)]

    def vanish(self, path: str) -> list[Change]:
        """A file is gone."""
        file = self._files.pop(path, None)
        if file is None:
            return []
        self._awake.pop(path, None)
        self.unstored[path] = None
        self._forks.drop(path)
        if file.info is None:
            return []
        self.owners.disown(file, file.info.session_id)
        return [self._lost(file.info)]

    def _lost(self, was: SessionInfo) -> Change:
        return Change(was.session_id, self.info(was.session_id), Verdict.SAME, was)

    def _keep(self, file: SessionFile) -> None:
        """A tree is used now: let go of those that were not for longest."""
        rows, awake = sum(self._awake.values()), self._awake
        rows += len(file.state) if file.state is not None else 0
        rows -= awake.pop(file.path, 0)
        while awake and (len(awake) >= TREES_KEPT or rows > ROWS_KEPT):
            path, count = awake.popitem(last=False)
            rows -= count
            old = self._files.get(path)
            if old is not None and not old.underway:  # else a long line would be read twice
                old.doze()
        awake[file.path] = len(file.state) if file.state is not None else 0


def known_file(packed: bytes, path: str) -> SessionInfo | None:
    """What the store knows of a file."""
    return unpack(packed, path) if packed else None
