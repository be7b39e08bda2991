"""Session files, meta files and the catalog, kept in step. One thread uses this: the reader.

In: paths that something hinted at, or the time for a scan. Out: `Update` values for the loop,
each after the catalog shows what it says. Text for search is taken in as it is appended, or,
at a first start, session by session in the background.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from indexerd.agents import ADAPTERS
from indexerd.core.card import Card
from indexerd.core.clean import clean_text
from indexerd.core.redact import redact
from indexerd.core.rows import Facts, Written, absolute, gone_row, row_of
from indexerd.core.session import SessionState
from indexerd.errors import NotFoundError, SessionUnreadableError
from indexerd.events import Entry, Kind, ToolCall
from indexerd.io.catalog import Catalog, SearchText
from indexerd.io.ledger import Ledger
from indexerd.io.scan import ScanResult, scan
from indexerd.io.stores import Store
from indexerd.io.tail import Lines, lines_of
from indexerd.meta import MetaFile
from indexerd.paths import within
from indexerd.service.files import Change, Files
from indexerd.service.owners import MARGIN_MS
from indexerd.service.shelf import Brief, Shelf

TEXT_MAX = 65_536  # characters of one message that are searchable
FACTS_MAX = 500  # files listed per session
TEXT_BATCH = 500  # messages taken into the search index in one step


@dataclass(frozen=True, slots=True)
class Update:
    """What the loop learns of one session; the catalog shows it already."""

    session_id: str
    card: Card | None
    brief: Brief | None
    change: Change | None = None
    row: dict[str, Any] | None = None


class Library:
    """Everything that is known of sessions, and how it becomes known."""

    def __init__(
        self,
        ledger: Ledger,
        catalog: Catalog,
        *,
        stores: Callable[[], list[Store]],
        exclude: Callable[[], list[str]],
        report: Callable[[str, str], None],
        defect: Callable[[str, Exception], None],
    ) -> None:
        self.ledger = ledger
        self.catalog = catalog
        self._find_stores = stores
        self._stores: list[Store] = []
        self.shelf = Shelf(ledger, report)
        self.files = Files(
            ledger, stores=self.stores, since=self.shelf.since, exclude=exclude, defect=defect
        )
        self.scanned: ScanResult | None = None
        self._unread: dict[str, None] = {}  # sessions whose text is not searchable yet

    # -- what is known -------------------------------------------------------------------

    def load(self) -> list[Update]:
        """Take over what ledger and catalog know; no session file is opened."""
        self.find_stores()
        self.files.load()
        self.shelf.load()
        cards = list(self.files.owners.cards())
        self._publish(self.files.hidden)
        if self.catalog.rebuilt:
            ids = {card.session_id for card in cards} | set(self.shelf.ids())
            self._publish(ids)
            self._unread = dict.fromkeys(
                card.session_id for card in sorted(cards, key=lambda one: -one.modified_ms)
            )
        return [Update(card.session_id, card, self.shelf.brief(card.session_id)) for card in cards]

    def stores(self) -> list[Store]:
        """Where sessions are, as of the last look."""
        return self._stores

    def find_stores(self) -> list[Store]:
        """Look again where sessions are: roots come, go, and are pointed elsewhere."""
        self._stores = self._find_stores()
        return self._stores

    def meta_dir(self, card: Card) -> str:
        """Where a session's meta file belongs."""
        store = next((one for one in self.stores() if one.holds(card.path)), None)
        if store is None:
            raise NotFoundError("the session's directory is no root any more")
        return store.meta

    def home(self, session_id: str) -> str | None:
        """The directory in which a session's meta file and sidecar are, or belong."""
        brief, card = self.shelf.brief(session_id), self.files.card(session_id)
        if brief is not None:
            return brief.directory
        return self.meta_dir(card) if card else None

    # -- taking changes in ---------------------------------------------------------------

    def scan(self) -> Iterator[list[Update]]:
        """Compare every session and meta file with what is known; newest files first."""
        stores = self._stores
        result = scan([one.sessions for one in stores], skip=[one.meta for one in stores])
        homes = dict.fromkeys(one.meta for one in stores)
        moved = self.shelf.sweep(homes, self._belongs)
        first = self.scanned is None
        if first:  # a crash may have come between a meta file and the ledger
            moved = list(dict.fromkeys([*moved, *self._miscounted()]))
        self.scanned = result
        yield self._metas_changed(moved)
        yield self.reconsider()
        wanted = set(self.files.differing(result.files))
        fresh = [one.path for one in sorted(result.files, key=_newest) if one.path in wanted]
        gone = self.files.missing(result.files, lambda path: _unseen(result, path))
        yield from self._files_changed([*fresh, *gone])
        if first and len(homes) > 1:  # only now is it known which root a session belongs to
            yield self._metas_changed(self.shelf.sweep(homes, self._belongs))
        self.files.owners.margin_ms = MARGIN_MS  # from now on an owner stays for a while

    def reconsider(self) -> list[Update]:
        """The exclusions may have changed: drop what the user does not want read any more."""
        return self._updates({one.session_id: one for one in self.files.reconsider()})

    def hinted(self, paths: Iterable[str]) -> Iterator[list[Update]]:
        """Look at the paths of a watcher's hints."""
        metas, sessions = [], []
        for path in paths:
            directory = path.rpartition("/")[0]
            if any(directory == store.meta for store in self.stores()):
                session_id = self.shelf.touched(path)
                if session_id:
                    metas.append(session_id)
            else:
                sessions.append(path)
        yield self._metas_changed(metas)
        yield from self._files_changed(sessions)

    def written(self, session_id: str, directory: str) -> Update:
        """Our own writer has just written a session's meta file or sidecar."""
        self.shelf.reread(session_id, directory)
        return self._metas_changed([session_id])[0]

    def _belongs(self, session_id: str) -> str | None:
        card = self.files.card(session_id)
        return self.meta_dir(card) if card else None

    def _miscounted(self) -> list[str]:
        """Sessions whose card was counted from another leaf than their meta file names."""
        return [
            card.session_id
            for card in self.files.owners.cards()
            if card.since != self.shelf.since(card.session_id)
        ]

    def _metas_changed(self, ids: list[str]) -> list[Update]:
        changes = {session_id: self.files.recount(session_id) for session_id in ids}
        return self._updates(changes)

    def _files_changed(self, paths: list[str]) -> Iterator[list[Update]]:
        for changes in self.files.refresh(paths):
            yield self._updates({change.session_id: change for change in changes})

    def _updates(self, changes: dict[str, Change | None]) -> list[Update]:
        rows = self._publish(changes)
        for session_id, change in changes.items():
            if change is not None and change.card is not None:
                self._unread[session_id] = None
        return [
            Update(
                session_id,
                self.files.card(session_id),
                self.shelf.brief(session_id),
                change,
                rows.get(session_id),
            )
            for session_id, change in changes.items()
        ]

    # -- the catalog ---------------------------------------------------------------------

    def _publish(self, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Bring the rows of these sessions up to date, in one transaction."""
        rows: list[tuple[dict[str, Any], SearchText]] = []
        for session_id in ids:
            written = self._row(session_id)
            if written is None:
                self.catalog.forget(session_id)
            else:
                rows.append((written.row, SearchText(written.summary, written.aliases)))
        self.catalog.put(rows)
        return {row["sessionId"]: row for row, _ in rows}

    def _row(self, session_id: str) -> Written | None:
        card, brief = self.files.card(session_id), self.shelf.brief(session_id)
        meta = self.shelf.meta(session_id) if brief and brief.since is not None else None
        old = self.catalog.get(session_id)
        title = brief.title if brief else None
        if card is None:
            return None if self._is_hidden(session_id, meta) else gone_row(old, meta, title)
        return row_of(
            card,
            meta,
            title,
            facts_of(old),
            resume=ADAPTERS[card.agent].resume_command,
            parent_id=self._parent_id(card),
        )

    def _is_hidden(self, session_id: str, meta: MetaFile | None) -> bool:
        """Whether the user excluded a session, of which perhaps only the meta file is left."""
        if session_id in self.files.hidden:
            return True
        return meta is not None and self.files.excludes(meta.session_file, meta.cwd)

    def _parent_id(self, card: Card) -> str | None:
        parents = self.catalog.by_file(card.parent) if card.parent else ()
        return str(parents[0]["sessionId"]) if parents else None

    # -- text ----------------------------------------------------------------------------

    @property
    def unread(self) -> int:
        """Sessions whose text is not (fully) searchable yet."""
        return len(self._unread)

    def read_text(self) -> bool:
        """Take the text of one session, or a part of it, into the search index.

        Says whether there is more to do.
        """
        if not self._unread:
            return False
        session_id = next(iter(self._unread))
        if self.index_text(session_id):
            self._unread.pop(session_id, None)
        return bool(self._unread)

    def index_text(self, session_id: str, limit: int = TEXT_BATCH) -> bool:
        """Index a session's messages from where the last step ended; says whether it is done."""
        card, state = self.files.card(session_id), self.files.state(session_id)
        if card is None or state is None:
            return True
        start = self._text_start(session_id, state)
        rows = [row for row in range(start, len(state)) if _speaks(state.kind(row))]
        part = rows[:limit]
        stop = len(state) if len(part) == len(rows) else part[-1] + 1
        mark = f"{stop}:{state.id(stop - 1)}" if stop else "0:"
        try:
            with lines_of(card.path) as lines:
                entries = list(_entries(card, state, part, lines))
        except SessionUnreadableError:
            return True
        except ValueError:  # a line was not what it looked like: once more, parsing them all
            return not self.reread(session_id)
        said = [
            (one.id, one.role or "", one.timestamp, clean_text(redact(one.text).text, TEXT_MAX))
            for one in entries
            if one.text
        ]
        self.catalog.add_messages(session_id, said, mark=mark)
        self._add_facts(session_id, card, entries, anew=start == 0)
        return stop == len(state)

    def _text_start(self, session_id: str, state: SessionState) -> int:
        """The row from which text is missing; all of it where the file was rewritten."""
        count, _, last = (self.catalog.messages_mark(session_id) or "0:").partition(":")
        start = int(count) if count.isdigit() else 0
        if 0 < start <= len(state) and state.id(start - 1) == last:
            return start
        if start:
            self.catalog.drop_messages(session_id)
        return 0

    def _add_facts(self, session_id: str, card: Card, entries: list[Entry], *, anew: bool) -> None:
        old = self.catalog.get(session_id)
        if old is None:
            return
        calls = [call for entry in entries for call in entry.tools]
        facts = gather(Facts() if anew else facts_of(old), card, calls)
        row = old | {
            "filesRead": list(facts.files_read),
            "filesModified": list(facts.files_modified),
            "toolsUsed": dict(facts.tools_used),
        }
        if row != old:
            meta = self.shelf.meta(session_id)
            names = tuple(name for name in (row["name"], row.get("metaName")) if name)
            self.catalog.put([(row, SearchText(meta.summary if meta else "", names))])

    def reread(self, session_id: str) -> bool:
        """Read a session anew, parsing every line; False where that was done before."""
        changes = self.files.reread(session_id)
        self._publish(change.session_id for change in changes)
        return bool(changes)

    # -- the ledger ----------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Make what was read survive a crash."""
        self.files.checkpoint()

    def close(self) -> None:
        """Store everything and let go."""
        self.files.checkpoint()
        self.ledger.close()
        self.catalog.close()


def _newest(found: Any) -> int:
    return -int(found.mtime_ns)


def _unseen(result: ScanResult, path: str) -> bool:
    """Whether a scan could not have seen a path, so that its absence tells nothing."""
    blind = (*result.unreadable, *result.missing)
    return result.partial or any(within(path, one) for one in blind)


def _speaks(kind: Kind) -> bool:
    return kind in (Kind.USER, Kind.ASSISTANT)


def _entries(card: Card, state: SessionState, rows: Iterable[int], lines: Lines) -> Iterator[Entry]:
    """Read these rows in full; a line that is no entry any more is passed over."""
    read = ADAPTERS[card.agent].read
    for row in rows:
        if not state.lengths[row]:
            continue  # oversized: its text is not kept
        try:
            yield read(lines.at(state.offsets[row], state.lengths[row]), state.id(row))
        except ValueError:
            if not state.strict:
                raise


def facts_of(row: dict[str, Any] | None) -> Facts:
    """The facts that a row holds."""
    if row is None:
        return Facts()
    return Facts(
        tuple(row.get("filesRead", ())),
        tuple(row.get("filesModified", ())),
        tuple(row.get("toolsUsed", {}).items()),
    )


def gather(facts: Facts, card: Card, calls: Iterable[ToolCall]) -> Facts:
    """Add what tools did: files read (and not modified), files modified, uses per tool."""
    agent = ADAPTERS[card.agent]
    read, modified = dict.fromkeys(facts.files_read), dict.fromkeys(facts.files_modified)
    used = dict(facts.tools_used)
    for call in (call for call in calls if call.name):
        name = call.name[:80]
        if name in used or len(used) < FACTS_MAX:
            used[name] = used.get(name, 0) + 1
        if call.path and name in agent.READS | agent.WRITES:
            target = modified if name in agent.WRITES else read
            if len(target) < FACTS_MAX:
                target[absolute(call.path[:4096], card.cwd)] = None
    left = [path for path in read if path not in modified]
    return Facts(tuple(sorted(left)), tuple(sorted(modified)), tuple(sorted(used.items())))
