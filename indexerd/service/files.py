"""Every session file: where reading stopped, what it means, and which of two twins counts.

In: paths to look at, or a whole scan. Out: `Change` values, one for each session whose card is
another than before. One thread uses this; nobody else touches a state. States are kept in
memory for the sessions written to lately, all others sleep in the ledger: what lives in memory
follows what is active, not what exists.

One session id can be claimed by several files. One of them owns it: the one with the newest
message, and the smaller path where that is a tie. The owner stays until another is ahead by a
minute, so that two writers on two copies do not make it flip to and fro.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch

from msgspec.structs import replace

from indexerd.agents import ADAPTERS
from indexerd.core.card import Card, card_of, pack, unpack
from indexerd.core.cursor import Look, Verdict, glance
from indexerd.core.lines import Oversize
from indexerd.core.session import SessionState
from indexerd.errors import SessionUnreadableError
from indexerd.io.ledger import Ledger
from indexerd.io.scan import Found
from indexerd.io.stores import Store
from indexerd.io.tail import Tail, look
from indexerd.paths import is_session_id

STATES_KEPT = 48  # sessions whose tree stays in memory
ROWS_KEPT = 400_000  # and entries of all these together
BATCH_BYTES = 16 * 1024 * 1024  # read before the caller gets its turn
OWNER_MARGIN_MS = 60_000


@dataclass(frozen=True, slots=True)
class Change:
    """A session is not what it was. `card` is None when its last file is gone."""

    session_id: str
    card: Card | None
    verdict: Verdict
    was: Card | None = None
    branched: bool = False  # the old leaf is not on the new path


@dataclass(slots=True)
class _File:
    path: str
    agent: str
    tail: Tail = field(default_factory=Tail)
    card: Card | None = None
    state: SessionState | None = None
    dirty: bool = False  # the ledger does not know this yet
    excluded: bool = False
    problem: str = ""


class Files:
    """All session files of all stores."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        stores: Callable[[], list[Store]],
        since: Callable[[str], str | None],
        exclude: Callable[[], list[str]],
    ) -> None:
        self._ledger = ledger
        self._stores = stores
        self._since = since
        self._exclude = exclude
        self._files: dict[str, _File] = {}
        self._owners: dict[str, _File] = {}
        self._twins: dict[str, set[str]] = {}  # session id -> paths, where there are several
        self._inodes: dict[tuple[int, int], str] = {}
        self._awake: OrderedDict[str, _File] = OrderedDict()

    # -- questions -----------------------------------------------------------------------

    def card(self, session_id: str) -> Card | None:
        """The card of a session's owner."""
        owner = self._owners.get(session_id)
        return owner.card if owner else None

    def cards(self) -> Iterator[Card]:
        """The card of every session."""
        return (file.card for file in self._owners.values() if file.card)

    def problems(self) -> dict[str, str]:
        """Files that could not be read, and why."""
        files = list(self._files.values())  # another thread may ask while this one reads
        return {file.path: file.problem for file in files if file.problem}

    def twins(self) -> dict[str, list[str]]:
        """Session ids claimed by several files, the owner first."""
        found = {}
        for session_id, paths in list(self._twins.items()):
            owner = self._owners.get(session_id)
            if owner is not None:
                found[session_id] = [owner.path, *sorted(paths - {owner.path})]
        return found

    def state(self, session_id: str) -> SessionState | None:
        """The tree of a session, awake or out of the ledger; read anew where that fails."""
        owner = self._owners.get(session_id)
        if owner is None:
            return None
        if owner.state is None and not self._wake(owner):
            with suppress(SessionUnreadableError, FileNotFoundError):
                self._read(owner)
        return owner.state

    # -- taking changes in ---------------------------------------------------------------

    def load(self) -> None:
        """Take over what the ledger knows; nothing is read."""
        for path, cursor, packed in self._ledger.cards():
            store = self._store(path)
            if store is None:
                continue
            with suppress(ValueError):
                file = _File(path, store.agent, Tail(cursor))
                file.card = unpack(packed) if packed else None
                file.excluded = self._is_excluded(path, file.card)
                self._files[path] = file
                self._inodes[cursor.dev, cursor.ino] = path
                self._claim(file)

    def differing(self, found: Iterable[Found]) -> list[str]:
        """Of a scan, the paths whose stat is not the cursor's."""
        paths = []
        for one in found:
            file = self._files.get(one.path)
            if file is None or file.problem or file.tail.cursor is None:
                paths.append(one.path)
            elif not file.excluded:
                seen = Look(one.dev, one.ino, one.size, one.mtime_ns)
                if glance(file.tail.cursor, seen) is not Verdict.SAME:
                    paths.append(one.path)
        return paths

    def missing(self, found: Iterable[Found], unseen: Callable[[str], bool]) -> list[str]:
        """Known paths that a scan did not find, although it could have."""
        seen = {one.path for one in found}
        return [path for path in self._files if path not in seen and not unseen(path)]

    def refresh(self, paths: Iterable[str]) -> Iterator[list[Change]]:
        """Look at paths, those that exist first; yields in batches of a bounded read."""
        present = [path for path in paths if look(path) is not None]
        gone = [path for path in paths if look(path) is None]
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
                    self._rest()
                    yield batch
                    batch, amount = [], 0
            present = again
        for path in gone:
            batch += self._vanish(path)
        self._rest()
        yield batch

    def recount(self, session_id: str) -> Change | None:
        """Count again after the meta file changed."""
        owner = self._owners.get(session_id)
        if owner is None or owner.card is None or owner.card.since == self._since(session_id):
            return None
        if self.state(session_id) is None:
            return None
        return self._deal(owner, Verdict.SAME)

    def checkpoint(self) -> None:
        """Bring the ledger up to date."""
        self._store_files([file for file in self._awake.values() if file.dirty])

    # -- one file ------------------------------------------------------------------------

    def _refresh(self, path: str) -> tuple[list[Change], int, bool]:
        file, moved = self._files.get(path), False
        if file is None:
            file, moved = self._meet(path)
        if file is None or file.excluded:
            return [], 0, False
        try:
            verdict, size, more = self._read(file)
        except FileNotFoundError:
            return self._vanish(path), 0, False
        except SessionUnreadableError as bad:
            file.problem = str(bad)
            return [], 0, False
        file.problem = ""
        if more or (verdict is Verdict.SAME and not moved):
            return [], size, more
        was, change = file.card, self._deal(file, verdict)
        changes = [change] if change else []
        if was and change and change.session_id != was.session_id:  # another session's file now
            changes.insert(0, self._lost(was))
        return changes, size, False

    def _read(self, file: _File) -> tuple[Verdict, int, bool]:
        """Read what is new and take it into the state."""
        if file.state is None and file.tail.cursor is not None and not self._wake(file):
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
        self._awake[file.path] = file
        self._awake.move_to_end(file.path)
        cursor = file.tail.cursor
        if cursor is not None:
            self._inodes[cursor.dev, cursor.ino] = file.path
        return read.verdict, read.bytes, read.more

    def _deal(self, file: _File, verdict: Verdict) -> Change | None:
        """Make the file's new card; say what it changes for its session."""
        state, cursor, was = file.state, file.tail.cursor, file.card
        if state is None or cursor is None:
            return None
        session_id = state.header.session_id if state.header else ""
        card = card_of(
            state,
            agent=file.agent,
            path=file.path,
            mtime_ms=max(cursor.mtime_ns, 0) // 1_000_000,
            since=self._since(session_id),
        )
        if card is None and was is not None and _blank(state):  # emptied, to be written anew
            card = replace(was, path=file.path, since=self._since(was.session_id), new_users=0)
        if card is not None and not is_session_id(card.session_id):
            card, file.problem = None, "the session id is not of the allowed form"
        if self._is_excluded(file.path, card):
            card, file.excluded, file.state = None, True, SessionState()
        file.card, file.dirty = card, True
        if was is not None and (card is None or card.session_id != was.session_id):
            self._disown(file, was.session_id)
        if card is None:
            return self._lost(was) if was else None
        self._claim(file)
        owner = self._owners[card.session_id]
        branched = verdict is Verdict.CONTINUE and was is not None and state.left(was.leaf_id)
        return Change(card.session_id, owner.card, verdict, was, branched)

    def _meet(self, path: str) -> tuple[_File | None, bool]:
        """A path never seen: a new file, or (True) a known one that was moved."""
        store = self._store(path)
        if store is None:
            return None, False
        seen = look(path)
        old = self._inodes.get((seen.dev, seen.ino)) if seen else None
        file = self._files.get(old) if old else None
        moved = file is not None and look(file.path) is None
        if old and file is not None and moved:
            self._wake(file, old)
            if file.card:
                self._disown(file, file.card.session_id)
            del self._files[old]
            self._awake.pop(old, None)
            self._ledger.forget([old])
            file.path, file.agent = path, store.agent
            self._awake[path] = file
        else:
            file = _File(path, store.agent)
        file.excluded = self._is_excluded(path, file.card)
        self._files[path] = file
        return file, moved

    def _vanish(self, path: str) -> list[Change]:
        file = self._files.pop(path, None)
        if file is None:
            return []
        self._awake.pop(path, None)
        self._ledger.forget([path])
        cursor = file.tail.cursor
        if cursor is not None and self._inodes.get((cursor.dev, cursor.ino)) == path:
            del self._inodes[cursor.dev, cursor.ino]
        if file.card is None:
            return []
        self._disown(file, file.card.session_id)
        return [self._lost(file.card)]

    def _lost(self, was: Card) -> Change:
        owner = self._owners.get(was.session_id)
        return Change(was.session_id, owner.card if owner else None, Verdict.SAME, was)

    # -- owners --------------------------------------------------------------------------

    def _claim(self, file: _File) -> None:
        """Let a file stand for its session, if it is the best one."""
        card = file.card
        if card is None:
            return
        owner = self._owners.get(card.session_id)
        if owner is None or owner is file:
            self._owners[card.session_id] = file
            return
        self._twins.setdefault(card.session_id, {owner.path}).add(file.path)
        ahead = card.activity_ms - (owner.card.activity_ms if owner.card else 0)
        if ahead > OWNER_MARGIN_MS or (ahead == 0 and file.path < owner.path):
            self._owners[card.session_id] = file

    def _disown(self, file: _File, session_id: str) -> None:
        """A file stands for a session no more; another may."""
        twins = self._twins.get(session_id, set())
        twins.discard(file.path)
        if self._owners.get(session_id) is file:
            del self._owners[session_id]
            for path in sorted(twins):
                if path in self._files:
                    self._claim(self._files[path])
        if len(twins) < 2:  # noqa: PLR2004 - one file is no twin
            self._twins.pop(session_id, None)

    # -- memory and ledger ---------------------------------------------------------------

    def _wake(self, file: _File, path: str | None = None) -> bool:
        """Bring a file's state back from the ledger; says whether it is there."""
        if file.state is not None:
            return True
        stored = self._ledger.state(path or file.path)
        if stored is None:
            return False
        try:
            file.state = SessionState.decode(stored)
        except ValueError:
            return False
        self._awake[file.path] = file
        return True

    def _rest(self) -> None:
        """Let the sessions that were silent longest sleep in the ledger."""
        rows = sum(len(file.state) for file in self._awake.values() if file.state)
        leaving: list[_File] = []
        while self._awake and (len(self._awake) > STATES_KEPT or rows > ROWS_KEPT):
            _, file = self._awake.popitem(last=False)
            leaving.append(file)
            rows -= len(file.state) if file.state else 0
        self._store_files([file for file in leaving if file.dirty])
        for file in leaving:
            if not file.tail.pending:
                file.state = None

    def _store_files(self, files: list[_File]) -> None:
        if not files:
            return
        rows = [
            (
                file.path,
                file.tail.cursor,
                pack(file.card) if file.card else b"",
                file.state.encode() if file.state else None,
            )
            for file in files
            if file.tail.cursor is not None
        ]
        self._ledger.put(rows)
        for file in files:
            file.dirty = False

    def _store(self, path: str) -> Store | None:
        return next((store for store in self._stores() if store.holds(path)), None)

    def _is_excluded(self, path: str, card: Card | None) -> bool:
        """Whether the user excluded this file, or the directory its session ran in."""
        names = [path, card.cwd] if card else [path]
        return any(
            fnmatch(name, glob) or fnmatch(name, glob.rstrip("/") + "/*")
            for glob in self._exclude()
            for name in names
        )


def _blank(state: SessionState) -> bool:
    """Whether a file has no header yet, as while pi migrates it (S1.11): no reason to forget."""
    return state.header is None and not state.foreign and not state.bad_lines
