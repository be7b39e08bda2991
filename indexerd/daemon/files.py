"""Every session file: where reading stopped, what it means, and which of two twins counts.

In: paths to look at, or a whole scan. Out: `Change` values, one for each session whose card is
another than before. One thread uses this; nobody else touches a state. States are kept in
memory for the sessions written to lately, all others sleep in the store: what lives in memory
follows what is active, not what exists.

Nothing a file is called or holds may end the daemon: a defect that a file provokes sets that
file aside until it changes. A file that the user excluded is not followed, and nothing of it
is kept. A store that cannot be written costs no change: `owing` knows what is to be written (A3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import filterfalse

from indexerd.errors import IndexerdError, SessionUnreadableError
from indexerd.privacy.exclusions import Exclusions
from indexerd.sessions.duplicates import DuplicateResolver
from indexerd.sessions.info import SessionInfo, unpack
from indexerd.sessions.state import SessionState
from indexerd.sources import taking
from indexerd.sources.cursor import Verdict
from indexerd.sources.lineage import Lineage, take_in
from indexerd.sources.memory import Inodes, Memory, Tracked
from indexerd.sources.perils import Guard, Unguarded
from indexerd.sources.scan import Found
from indexerd.sources.session_lines import SessionLines, session_lines
from indexerd.sources.stores import Store, Takers
from indexerd.sources.taking import Change
from indexerd.store.store import StateStore

__all__ = ["Change", "Files"]

BATCH_BYTES = 16 * 1024 * 1024  # read before the caller gets its turn
FILE_BYTES = 64 * 1024  # that opening a file counts for
AT_ONCE = 32  # changes the caller gets at most: to tell of one takes the loop a fifth of a ms
GLOBS = "exclude"  # the store's topic for the globs that its states were made under


class Files:
    """All session files of all stores."""

    def __init__(
        self,
        store: StateStore,
        *,
        stores: Callable[[], list[Store]],
        since: Callable[[str], str | None],
        title: Callable[[str, str], str | None],
        exclude: Callable[[], list[str]],
        defect: Callable[[str, Exception], None],
    ) -> None:
        """`title(agent, session_id)`: names kept beside; `defect(path, bug)`: what is set aside."""
        self._store = store
        self._stores = stores
        self._store_of = Takers(stores).of
        self._since = since
        self._title = title
        self._lineage = Lineage(self._excluded)
        self.exclusions = Exclusions(exclude)
        self._defect = defect
        self._files: dict[str, Tracked] = {}
        self.owners: DuplicateResolver[Tracked] = DuplicateResolver()
        self.hidden: set[str] = set()  # sessions that the user excluded
        self.guard: Guard = Unguarded()
        self._inodes = Inodes()
        self._memory = Memory(store)
        self.owing = self._memory.owing
        self._due: list[str] = []  # files to be read anew: what they begin with is another

    # -- questions -----------------------------------------------------------------------

    def card(self, session_id: str) -> SessionInfo | None:
        """The card of a session's owner."""
        owner = self.owners.get(session_id)
        return owner.card if owner else None

    def problems(self) -> dict[str, str]:
        """Files that could not be read, and why."""
        files = list(self._files.values())  # another thread may ask while this one reads
        lost = self._lineage.lost
        problems = ((one.path, one.unreadable or one.problem or lost(one.card)) for one in files)
        return {path: problem for path, problem in problems if problem}

    def state(self, session_id: str) -> SessionState | None:
        """The tree of a session, awake or out of the store; read anew where that fails."""
        owner = self.owners.get(session_id)
        if owner is None:
            return None
        if owner.state is None and not self._memory.wake(owner) and not self._read_all(owner):
            return None
        return owner.state

    def is_moved(self, session_id: str) -> bool:
        """Whether another file stands in the place of a session's."""
        owner = self.owners.get(session_id)
        return owner is not None and not owner.stands

    def lines(self, session_id: str) -> AbstractContextManager[SessionLines]:
        """A session's lines, by row, open for reading; SessionUnreadableError when it is gone."""
        owner, state = self.owners.get(session_id), self.state(session_id)
        if owner is None or state is None:
            raise SessionUnreadableError("the session file is gone")
        return session_lines(owner.agent, state, self._lineage.where)

    def reread(self, session_id: str) -> list[Change]:
        """A line that was taken on its looks is no JSON: read its file anew, parsing each one."""
        owner = self.owners.get(session_id)
        if owner is None or owner.strict:
            return []
        owner.begin_anew()
        owner.strict = True
        return self._deal(owner, Verdict.REWRITTEN) if self._read_all(owner) else []

    def _read_all(self, file: Tracked) -> bool:
        more = True
        while more:
            try:
                _, _, more = self._read(file)
            except (SessionUnreadableError, FileNotFoundError):
                return False
        return True

    # -- taking changes in ---------------------------------------------------------------

    def load(self) -> None:
        """Take over what the store knows; nothing is read."""
        self.exclusions.renew()
        globs = self.exclusions.packed()
        renewed = self._store.notes(GLOBS).get("", b"") != globs
        dropped = []
        for path, cursor, card in self._store.cards(_card):
            store = self._store_of(path)
            if store is None:
                continue
            if self.exclusions.match(path, *((card.cwd, card.session_id) if card else ("",))):
                self.hidden |= {card.session_id} if card else set()
                dropped.append(path)
                continue
            file = self._files[path] = Tracked(path, store.agent, cursor, card)
            if renewed and card and card.is_heir:  # of what may be excluded now
                file.begin_anew()
                dropped.append(path)
            self._inodes.keep(file, cursor)
            self._lineage.note(store.agent, path)
            file.rank = taking.rank(file.path, file.card, store)
            self.owners.claim(file)
        self.owing.forget(dropped)
        self.owing.note(GLOBS, "", globs)
        for file in self._files.values():
            heir = file.card if file.card and file.card.is_heir else None
            if heir is not None and self._lineage.know(file.path, heir):
                file.begin_anew()  # what it lacks may have come just before the last end

    def reconsider(self) -> list[Change]:
        """The globs may have changed: drop what is excluded now, follow what is not any more."""
        changes: list[Change] = []
        renewed = self.exclusions.renew()
        for file in list(self._files.values()) if renewed else ():
            known = file.card or file
            excluded = self.exclusions.match(file.path, known.cwd, known.session_id)
            if file.excluded and not excluded:
                del self._files[file.path]  # met anew by the scan that follows
            elif excluded and not file.excluded:
                changes += self._hide(file)
            elif file.card is not None and file.card.is_heir:
                self._renew([file.path])
        if renewed:
            self.owing.note(GLOBS, "", self.exclusions.packed())
        return changes

    def _excluded(self, path: str, cwd: str) -> bool:
        """Whether the user excluded a file that another's history may begin in."""
        file = self._files.get(path)
        if file is not None and file.session_id in self.exclusions.forgotten:
            file = None  # forgotten for itself; its forks are what they were
        return self.exclusions.match(path, cwd) or (file is not None and file.excluded)

    def differing(self, found: Iterable[Found]) -> list[str]:
        """Of a scan, the paths whose stat is not the cursor's, and those that waited for them."""
        found, files = list(found), self._files
        self.acquaint([one for one in found if one.path not in files])
        return [
            one.path for one in found if (file := files.get(one.path)) is None or file.differs(one)
        ]

    def acquaint(self, found: Iterable[Found]) -> None:
        """These files are there: one of them may hold what another's history begins with."""
        for one in found:
            store = self._store_of(one.path)
            if store is not None and one.path not in self._files:  # else it was noted when met
                self._renew(self._lineage.note(store.agent, one.path))

    def _renew(self, heirs: Iterable[str]) -> None:
        """Have files read anew, with what they begin with."""
        heirs = [path for path in heirs if path in self._files and not self._files[path].excluded]
        for path in heirs:
            self._files[path].begin_anew()
        self._due += heirs
        if heirs:
            self.owing.forget(heirs)

    def missing(self, found: Iterable[Found], unseen: Callable[[str], bool]) -> list[str]:
        """Known paths that a scan did not find, although it could have."""
        seen = {one.path for one in found}
        return [path for path in self._files if path not in seen and not unseen(path)]

    def refresh(self, paths: Iterable[str]) -> Iterator[list[Change]]:
        """Look at paths, those that exist first; yields in batches of a bounded read."""
        present, gone = list[str](), list[str]()
        for path in paths:
            (present if self._is_there(path) else gone).append(path)
        present += filter(self._is_there, taking.elsewhere(gone, self._stores()))
        batch: list[Change] = []
        amount = 0
        renewed: set[str] = set()  # each file once: two may claim to begin in one another
        while present or self._due:
            again = []
            due, self._due = dict.fromkeys(filter(self._is_there, self._due)), []
            present += due.keys() - renewed
            renewed |= due.keys()
            for path in dict.fromkeys(present):
                changes, size, more = self._refresh(path)
                batch += changes
                amount += FILE_BYTES + size
                if more:
                    again.append(path)
                if amount >= BATCH_BYTES or len(batch) >= AT_ONCE:
                    yield batch
                    batch, amount = [], 0
                    self._memory.rest()  # no state is stored before its row
            present = again
        for path in filterfalse(self._is_there, gone):  # one may be back since
            batch += self._vanish(path)
            if len(batch) >= AT_ONCE:
                yield batch
                batch = []
        yield batch
        self._memory.rest()

    def recount(self, session_id: str) -> Change | None:
        """Make a session's card anew, where its meta file or its agent's name for it changed."""
        owner = self.owners.get(session_id)
        if owner is None or owner.card is None or self._agrees(owner.agent, owner.card):
            return None
        if self.state(session_id) is None:
            return None
        return next(iter(self._deal(owner, Verdict.SAME)), None)

    def _agrees(self, agent: str, card: SessionInfo) -> bool:
        title = self._title(agent, card.session_id)
        same = title is None or (card.agent_title or "") == title
        return same and card.since == self._since(card.session_id)

    def checkpoint(self) -> None:
        """Bring the store up to date."""
        self._memory.checkpoint()

    # -- one file ------------------------------------------------------------------------

    def _refresh(self, path: str) -> tuple[list[Change], int, bool]:
        file, moved = self._files.get(path), False
        if file is None:
            file, moved = self._meet(path)
        if file is None or (file.aside and file.aside == file.look()):
            return [], 0, False
        if file.excluded and not taking.let_in(file, self.exclusions):
            return [], 0, False
        try:
            verdict, size, more = self._read(file)
            if more or (verdict is Verdict.SAME and not (moved or file.unreadable)):
                return [], size, more
            file.healed()
            return self._deal(file, verdict), size, False
        except FileNotFoundError:
            return self._vanish(path), 0, False
        except IndexerdError as bad:
            file.failed(bad)
        except Exception as bug:  # noqa: BLE001 - one odd file must not end the daemon (V7)
            self._set_aside(file, bug)
        return [], 0, False

    def _set_aside(self, file: Tracked, bug: Exception) -> None:
        file.problem = f"set aside until it changes: {type(bug).__name__}"
        file.aside, file.dirty = file.look(), False
        file.begin_anew()
        self._memory.drop(file.path)
        self._defect(file.path, bug)

    def _read(self, file: Tracked) -> tuple[Verdict, int, bool]:
        return self.guard.step(file.path, file.look, lambda: self._step(file))

    def _step(self, file: Tracked) -> tuple[Verdict, int, bool]:
        """Read what is new and take it into the state."""
        if file.state is None and file.tail.cursor is not None and not self._memory.wake(file):
            file.begin_anew()
        held = file.tail.cursor
        read = file.tail.read(file.path)
        if read.verdict is Verdict.SAME:
            return read.verdict, 0, False
        state = file.state if held else None
        if read.verdict.restart or read.whole or state is None or taking.is_blank(state):
            file.strict = file.strict and not read.verdict.restart
            state = file.state = taking.begin(file.agent, file.path, read.lines, self._lineage)
        take_in(file.agent, state, read.lines)
        if held is not None:
            self._renew(self._lineage.changed(file, held.offset, anew=read.verdict.restart))
        file.dirty = True
        self._memory.keep(file)
        self._inodes.keep(file)
        return read.verdict, read.bytes, read.more

    def _deal(self, file: Tracked, verdict: Verdict) -> list[Change]:
        """Make the file's new card; say what it changes, for its session and a former one."""
        state, was = file.state, file.card
        if state is None or file.tail.cursor is None:
            return []
        header, store = state.header, self._store_of(file.path)
        if header and self.exclusions.match(file.path, header.cwd, header.session_id):
            return self._hide(file)
        card, file.problem = taking.made(file, state, store, self._since, self._title)
        file.card, file.dirty = card, True
        changes = []
        if was is not None and (card is None or card.session_id != was.session_id):
            self.owners.disown(file, was.session_id)
            changes.append(self._lost(was))
            was = None
        if card is not None:
            file.rank = taking.rank(file.path, card, store) if store else ()
            changes.append(self._own(file, card, verdict, was))
        return changes

    def _own(
        self, file: Tracked, card: SessionInfo, verdict: Verdict, was: SessionInfo | None
    ) -> Change:
        """Have a file claim its session; it may take it over from another (a revert in Codex)."""
        self.hidden.discard(card.session_id)
        before = self.card(card.session_id)
        self.owners.claim(file)
        owner, state, left = self.card(card.session_id), file.state, False
        if was is not None and state is not None:
            left = verdict is Verdict.CONTINUE and state.left(was.leaf_id)
        elif before is not None and owner is card and before.leaf_id and state is not None:
            was, left = before, state.row(before.leaf_id) is None or state.left(before.leaf_id)
        return Change(card.session_id, owner, verdict, was, left)

    def _hide(self, file: Tracked) -> list[Change]:
        """The user excluded this file: forget all that is known of it."""
        was, session_id = file.card, file.hide()
        self._memory.drop(file.path)
        self.owing.forget([file.path])
        self.hidden.add(session_id)
        if was is None:
            return []
        self.owners.disown(file, session_id)
        return [self._lost(was)]

    def _meet(self, path: str) -> tuple[Tracked | None, bool]:
        """A path never seen: a new file, or (True) a known one that was moved."""
        store = self._store_of(path)
        if store is None:
            return None, False
        old = self._inodes.find(store.agent, path)
        file = self._files.get(old) if old else None
        moved = file is not None and file.moved_to(path)
        if old and file is not None and moved:
            self._memory.wake(file, old)
            if file.card:
                self.owners.disown(file, file.card.session_id)
            del self._files[old]
            self._memory.drop(old)
            self.owing.forget([old])
            self._lineage.renamed(file.agent, old, path)
            file.renamed(path, store.agent)
            self._memory.keep(file)
        else:
            file = Tracked(path, store.agent)
        self._renew(self._lineage.note(store.agent, path))
        file.excluded = self.exclusions.match(path, file.card.cwd if file.card else "")
        self._files[path] = file
        return file, moved

    def _vanish(self, path: str) -> list[Change]:
        file = self._files.pop(path, None)
        if file is None:
            return []
        self._memory.drop(path)
        self.owing.forget([path])
        self._lineage.drop(file.agent, path)
        self._inodes.drop(file)
        if file.card is None:
            return []
        self.owners.disown(file, file.card.session_id)
        return [self._lost(file.card)]

    def _lost(self, was: SessionInfo) -> Change:
        return Change(was.session_id, self.card(was.session_id), Verdict.SAME, was)

    def _is_there(self, path: str) -> bool:
        return taking.is_there(path, self._store_of(path))


def _card(packed: bytes, path: str) -> SessionInfo | None:
    return unpack(packed, path) if packed else None
