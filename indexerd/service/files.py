"""Every session file: where reading stopped, what it means, and which of two twins counts.

In: paths to look at, or a whole scan. Out: `Change` values, one for each session whose card is
another than before. One thread uses this; nobody else touches a state. States are kept in
memory for the sessions written to lately, all others sleep in the ledger: what lives in memory
follows what is active, not what exists.

Nothing a file is called or holds may end the daemon: a defect that a file provokes sets that
file aside until it changes. A file that the user excluded is not followed, and nothing of it
is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch

from msgspec.structs import replace

from indexerd.agents import ADAPTERS
from indexerd.core.card import Card, card_of, unpack
from indexerd.core.cursor import Look, Verdict, glance
from indexerd.core.lines import Oversize
from indexerd.core.session import SessionState
from indexerd.errors import IndexerdError, SessionUnreadableError
from indexerd.io.ledger import Ledger
from indexerd.io.scan import Found
from indexerd.io.stores import Store
from indexerd.io.tail import Tail, look
from indexerd.paths import is_session_id
from indexerd.service.memory import Memory, Tracked
from indexerd.service.owners import Owners

BATCH_BYTES = 16 * 1024 * 1024  # read before the caller gets its turn


@dataclass(frozen=True, slots=True)
class Change:
    """A session is not what it was. `card` is None when its last file is gone."""

    session_id: str
    card: Card | None
    verdict: Verdict
    was: Card | None = None
    branched: bool = False  # the old leaf is not on the new path


class Files:
    """All session files of all stores."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        stores: Callable[[], list[Store]],
        since: Callable[[str], str | None],
        exclude: Callable[[], list[str]],
        defect: Callable[[str, Exception], None],
    ) -> None:
        """`defect(path, bug)` hears of files that are set aside."""
        self._ledger = ledger
        self._stores = stores
        self._since = since
        self._exclude = exclude
        self._defect = defect
        self._files: dict[str, Tracked] = {}
        self.owners: Owners[Tracked] = Owners()
        self.hidden: set[str] = set()  # sessions that the user excluded
        self._globs: list[str] = []
        self._inodes: dict[tuple[int, int], str] = {}
        self._memory = Memory(ledger)

    # -- questions -----------------------------------------------------------------------

    def card(self, session_id: str) -> Card | None:
        """The card of a session's owner."""
        owner = self.owners.get(session_id)
        return owner.card if owner else None

    def problems(self) -> dict[str, str]:
        """Files that could not be read, and why."""
        files = list(self._files.values())  # another thread may ask while this one reads
        problems = ((file.path, file.unreadable or file.problem) for file in files)
        return {path: problem for path, problem in problems if problem}

    def state(self, session_id: str) -> SessionState | None:
        """The tree of a session, awake or out of the ledger; read anew where that fails."""
        owner = self.owners.get(session_id)
        if owner is None:
            return None
        if owner.state is None and not self._memory.wake(owner) and not self._read_all(owner):
            return None
        return owner.state

    def reread(self, session_id: str) -> list[Change]:
        """A line that was taken on its looks is no JSON: read its file anew, parsing each one."""
        owner = self.owners.get(session_id)
        if owner is None or (owner.state is not None and owner.state.strict):
            return []
        owner.tail, owner.state = Tail(), SessionState()
        owner.state.strict = True
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
        """Take over what the ledger knows; nothing is read."""
        self._globs = self._exclude()
        dropped = []
        for path, cursor, packed in self._ledger.cards():
            store = self._store(path)
            if store is None:
                continue
            with suppress(ValueError):
                card = unpack(packed, path) if packed else None
                if self.excludes(path, card.cwd if card else ""):
                    self.hidden |= {card.session_id} if card else set()
                    dropped.append(path)
                    continue
                file = self._files[path] = Tracked(path, store.agent, Tail(cursor), card)
                self._inodes[cursor.dev, cursor.ino] = path
                self.owners.claim(file)
        self._ledger.forget(dropped)

    def reconsider(self) -> list[Change]:
        """The globs may have changed: drop what is excluded now, follow what is not any more."""
        globs, self._globs = self._globs, self._exclude()
        changes: list[Change] = []
        for file in list(self._files.values()) if globs != self._globs else ():
            excluded = self.excludes(file.path, file.card.cwd if file.card else file.cwd)
            if file.excluded and not excluded:
                del self._files[file.path]  # met anew by the scan that follows
            elif excluded and not file.excluded:
                changes += self._hide(file)
        return changes

    def differing(self, found: Iterable[Found]) -> list[str]:
        """Of a scan, the paths whose stat is not the cursor's."""
        paths = []
        for one in found:
            file = self._files.get(one.path)
            seen = Look(one.dev, one.ino, one.size, one.mtime_ns)
            if file is None:
                paths.append(one.path)
            elif file.excluded or file.aside == seen:
                continue
            elif file.unreadable or not _same(file, seen):
                paths.append(one.path)
        return paths

    def missing(self, found: Iterable[Found], unseen: Callable[[str], bool]) -> list[str]:
        """Known paths that a scan did not find, although it could have."""
        seen = {one.path for one in found}
        return [path for path in self._files if path not in seen and not unseen(path)]

    def refresh(self, paths: Iterable[str]) -> Iterator[list[Change]]:
        """Look at paths, those that exist first; yields in batches of a bounded read."""
        present: list[str] = []
        gone: list[str] = []
        for path in paths:
            there = look(path) is not None and self._store(path) is not None
            (present if there else gone).append(path)
        batch: list[Change] = []
        amount = 0
        while present:
            again = []
            for path in present:
                changes, size, more = self._refresh(path)
                batch += changes
                amount += size
                if more:
                    again.append(path)
                if amount >= BATCH_BYTES:
                    self._memory.rest()
                    yield batch
                    batch, amount = [], 0
            present = again
        for path in gone:
            batch += self._vanish(path)
        self._memory.rest()
        yield batch

    def recount(self, session_id: str) -> Change | None:
        """Count again after the meta file changed."""
        owner = self.owners.get(session_id)
        if owner is None or owner.card is None or owner.card.since == self._since(session_id):
            return None
        if self.state(session_id) is None:
            return None
        return next(iter(self._deal(owner, Verdict.SAME)), None)

    def checkpoint(self) -> None:
        """Bring the ledger up to date."""
        self._memory.checkpoint()

    # -- one file ------------------------------------------------------------------------

    def _refresh(self, path: str) -> tuple[list[Change], int, bool]:
        file, moved = self._files.get(path), False
        if file is None:
            file, moved = self._meet(path)
        if file is None or file.excluded or (file.aside and file.aside == look(path)):
            return [], 0, False
        try:
            verdict, size, more = self._read(file)
            if more or (verdict is Verdict.SAME and not (moved or file.unreadable)):
                return [], size, more
            file.unreadable, file.aside = "", None
            return self._deal(file, verdict), size, False
        except FileNotFoundError:
            return self._vanish(path), 0, False
        except SessionUnreadableError as bad:
            file.unreadable = str(bad)
        except IndexerdError:
            raise  # of the ledger, not of this file
        except Exception as bug:  # noqa: BLE001 - one odd file must not end the daemon (V7)
            self._set_aside(file, bug)
        return [], 0, False

    def _set_aside(self, file: Tracked, bug: Exception) -> None:
        file.problem = f"set aside until it changes: {type(bug).__name__}"
        file.aside, file.tail, file.state, file.dirty = look(file.path), Tail(), None, False
        self._memory.drop(file.path)
        self._defect(file.path, bug)

    def _read(self, file: Tracked) -> tuple[Verdict, int, bool]:
        """Read what is new and take it into the state."""
        if file.state is None and file.tail.cursor is not None and not self._memory.wake(file):
            file.tail = Tail()
        read = file.tail.read(file.path)
        if read.verdict is Verdict.SAME:
            return read.verdict, 0, False
        if read.verdict.restart or file.state is None:
            file.state = SessionState()
        agent = ADAPTERS[file.agent]
        for piece in read.lines:
            if isinstance(piece, Oversize):
                agent.skim_oversize(file.state, piece)
            else:
                agent.skim(file.state, piece.data, piece.offset)
        file.dirty = True
        self._memory.keep(file)
        cursor = file.tail.cursor
        if cursor is not None:
            self._inodes[cursor.dev, cursor.ino] = file.path
        return read.verdict, read.bytes, read.more

    def _deal(self, file: Tracked, verdict: Verdict) -> list[Change]:
        """Make the file's new card; say what it changes, for its session and a former one."""
        state, cursor, was = file.state, file.tail.cursor, file.card
        if state is None or cursor is None:
            return []
        header = state.header
        if header is not None and self.excludes(file.path, header.cwd):
            return self._hide(file)
        card = card_of(
            state,
            agent=file.agent,
            path=file.path,
            mtime_ms=max(cursor.mtime_ns, 0) // 1_000_000,
            since=self._since(header.session_id) if header else None,
        )
        if card is None and was is not None and _blank(state):  # emptied, to be written anew
            card = replace(was, path=file.path, since=self._since(was.session_id), new_users=0)
        file.problem = ""
        if card is not None and not is_session_id(card.session_id):
            card, file.problem = None, "the session id is not of the allowed form"
        file.card, file.dirty = card, True
        changes = []
        if was is not None and (card is None or card.session_id != was.session_id):
            self.owners.disown(file, was.session_id)
            changes.append(self._lost(was))
            was = None
        if card is not None:
            self.hidden.discard(card.session_id)
            self.owners.claim(file)
            left = verdict is Verdict.CONTINUE and was is not None and state.left(was.leaf_id)
            owner = self.card(card.session_id)
            changes.append(Change(card.session_id, owner, verdict, was, left))
        return changes

    def _hide(self, file: Tracked) -> list[Change]:
        """The user excluded this file: forget all that is known of it."""
        was, header = file.card, file.state.header if file.state else None
        file.excluded, file.cwd = True, was.cwd if was else header.cwd if header else ""
        file.card, file.state, file.dirty, file.tail = None, None, False, Tail()
        self._memory.drop(file.path)
        self._ledger.forget([file.path])
        session_id = was.session_id if was else header.session_id if header else ""
        self.hidden.add(session_id)
        if was is None:
            return []
        self.owners.disown(file, session_id)
        return [self._lost(was)]

    def _meet(self, path: str) -> tuple[Tracked | None, bool]:
        """A path never seen: a new file, or (True) a known one that was moved."""
        store = self._store(path)
        if store is None:
            return None, False
        seen = look(path)
        old = self._inodes.get((seen.dev, seen.ino)) if seen else None
        file = self._files.get(old) if old else None
        moved = file is not None and look(file.path) is None
        if old and file is not None and moved:
            self._memory.wake(file, old)
            if file.card:
                self.owners.disown(file, file.card.session_id)
            del self._files[old]
            self._memory.drop(old)
            self._ledger.forget([old])
            file.path, file.agent = path, store.agent
            self._memory.keep(file)
        else:
            file = Tracked(path, store.agent)
        file.excluded = self.excludes(path, file.card.cwd if file.card else "")
        self._files[path] = file
        return file, moved

    def _vanish(self, path: str) -> list[Change]:
        file = self._files.pop(path, None)
        if file is None:
            return []
        self._memory.drop(path)
        self._ledger.forget([path])
        cursor = file.tail.cursor
        if cursor is not None and self._inodes.get((cursor.dev, cursor.ino)) == path:
            del self._inodes[cursor.dev, cursor.ino]
        if file.card is None:
            return []
        self.owners.disown(file, file.card.session_id)
        return [self._lost(file.card)]

    def _lost(self, was: Card) -> Change:
        return Change(was.session_id, self.card(was.session_id), Verdict.SAME, was)

    def _store(self, path: str) -> Store | None:
        return next((store for store in self._stores() if store.holds(path)), None)

    def excludes(self, path: str, cwd: str) -> bool:
        """Whether the user excluded this file, or the directory its session ran in."""
        return _matches(self._globs, path, cwd)

    def forbidden(self, card: Card) -> bool:
        """Whether the settings exclude a session now, even while a reload is on its way."""
        return _matches(self._exclude(), card.path, card.cwd)


def _matches(globs: list[str], path: str, cwd: str) -> bool:
    names = [name for name in (path, cwd) if name]
    return any(
        fnmatch(name, glob) or fnmatch(name, glob.rstrip("/") + "/*")
        for glob in globs
        for name in names
    )


def _same(file: Tracked, seen: Look) -> bool:
    cursor = file.tail.cursor
    return cursor is not None and glance(cursor, seen) is Verdict.SAME


def _blank(state: SessionState) -> bool:
    """Whether a file has no header yet, as while pi migrates it (S1.11): no reason to forget."""
    return state.header is None and not state.foreign and not state.bad_lines
