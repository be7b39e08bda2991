"""The words and deeds of sessions, taken into the catalog as they are appended.

Both come from the same lines, so a line is parsed once for the two. Words are those of every
branch; deeds (files, tools, tokens) are those of the current path alone (S1.13): where the leaf
moved to another branch they are gathered anew. How far both have come is kept with the session
in the catalog, in one transaction with what was found there.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec

from indexerd.agents import ADAPTERS
from indexerd.core.card import Card
from indexerd.core.clean import clean_text
from indexerd.core.deeds import Deeds
from indexerd.core.redact import redact
from indexerd.core.rows import Facts
from indexerd.core.session import SessionState
from indexerd.errors import SessionUnreadableError
from indexerd.events import TURN_MASK, TURN_SHIFT, Entry, Kind, Turn
from indexerd.io.catalog import Catalog
from indexerd.service.files import Files
from indexerd.service.lines import SessionLines

TEXT_MAX = 65_536  # characters of one message that are searchable
BATCH = 500  # lines read in one step

_DOES = frozenset({Kind.USER, Kind.ASSISTANT, Kind.CALL, Kind.SETTING})


class Progress(msgspec.Struct, array_like=True):
    """How far a session's lines were read. A row and its id: the file may have been rewritten."""

    words: int = 0  # rows read for their words
    last_word: str = ""  # id of the last of them
    deeds: int = 0  # rows before this one were gathered, as far as they are on the path
    last_deed: str = ""  # id of the last such row on the path
    done: Deeds = msgspec.field(default_factory=Deeds)

    def pack(self) -> str:
        """As the catalog keeps it."""
        return base64.b85encode(_encode(self)).decode("ascii")


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Progress).decode


class Texts:
    """What is searchable of every session, and what is still to be read."""

    def __init__(
        self,
        files: Files,
        catalog: Catalog,
        publish: Callable[[str, Facts], None],
        reread: Callable[[str], bool],
    ) -> None:
        """`publish` puts a session's facts into its row; `reread` parses all its lines anew."""
        self._files = files
        self._catalog = catalog
        self._publish = publish
        self._reread = reread
        self._unread: dict[str, None] = {}  # sessions whose text is not searchable yet

    def want(self, session_ids: Iterable[str]) -> None:
        """Something was appended to these sessions."""
        self._unread |= dict.fromkeys(session_ids)

    @property
    def unread(self) -> int:
        """Sessions whose text is not (fully) searchable yet."""
        return len(self._unread)

    def step(self) -> bool:
        """Read one session, or a part of it. Says whether there is more to do."""
        if not self._unread:
            return False
        session_id = next(iter(self._unread))
        if self.index(session_id):
            self._unread.pop(session_id, None)
        return bool(self._unread)

    def index(self, session_id: str, limit: int = BATCH) -> bool:
        """Read a session from where the last step ended; says whether all is read."""
        card, state = self._files.card(session_id), self._files.state(session_id)
        if card is None or state is None:
            return True
        old = self._progress(session_id, state)
        end = max(0, len(state) - state.unsettled)
        path = state.path()
        wanted = _wanted(state, path, old, end)
        part = wanted[:limit]
        stop = end if len(part) == len(wanted) else part[-1] + 1
        try:
            with self._files.lines(session_id) as lines:
                entries = list(_entries(card, state, part, lines))
        except SessionUnreadableError:
            return True
        except ValueError:  # a line was not what it looked like: once more, parsing them all
            return not self._reread(session_id)
        on_path = set(path)
        said = [one for row, one in entries if old.words <= row and _speaks(one.kind)]
        for row, entry in entries:
            if row >= old.deeds and row in on_path:
                old.done.add(entry, card.cwd)
        self._advance(old, state, path, stop)
        self._keep(session_id, said, old)
        return stop >= end

    def _keep(self, session_id: str, said: list[Entry], progress: Progress) -> None:
        words = [
            (one.id, one.role or "", one.timestamp, clean_text(redact(one.text).text, TEXT_MAX))
            for one in said
            if one.text
        ]
        with self._catalog.batch():
            self._catalog.add_messages(session_id, words, mark=progress.pack())
            self._publish(session_id, progress.done.facts())

    def _progress(self, session_id: str, state: SessionState) -> Progress:
        """What was read so far, as far as it still holds."""
        held = Progress()
        with suppress(msgspec.DecodeError, ValueError):
            held = _decode(base64.b85decode(self._catalog.messages_mark(session_id) or ""))
        if held.words and not _stands(state, held.words - 1, held.last_word):
            self._catalog.drop_messages(session_id)
            return Progress()
        row = state.row(held.last_deed) if held.last_deed else None
        lost = held.last_deed and (row is None or row >= held.deeds or not state.on_path(row))
        if lost or not state.orderly:
            held.deeds, held.last_deed, held.done = 0, "", Deeds()
        return held

    @staticmethod
    def _advance(progress: Progress, state: SessionState, path: list[int], stop: int) -> None:
        progress.words = max(progress.words, stop)
        progress.last_word = state.id(progress.words - 1) if progress.words else ""
        progress.deeds = max(progress.deeds, stop)
        last = next((row for row in reversed(path) if row < progress.deeds), None)
        progress.last_deed = "" if last is None else state.id(last)


def _stands(state: SessionState, row: int, entry_id: str) -> bool:
    return row < len(state) and state.id(row) == entry_id


def _wanted(state: SessionState, path: list[int], progress: Progress, end: int) -> list[int]:
    """The rows to read: for their words, and on the path for their deeds."""
    words = (row for row in range(progress.words, end) if _speaks(state.kind(row)))
    deeds = (row for row in path if progress.deeds <= row < end and _does(state, row))
    return sorted({*words, *deeds})


def _speaks(kind: Kind) -> bool:
    return kind in (Kind.USER, Kind.ASSISTANT)


def _does(state: SessionState, row: int) -> bool:
    """Whether a row tells of deeds: a tool's result only where it says that the call failed."""
    kind = state.kind(row)
    if kind is Kind.TOOL:
        return Turn((state.codes[row] & TURN_MASK) >> TURN_SHIFT) is Turn.FAILED
    return kind in _DOES


def _entries(
    card: Card, state: SessionState, rows: Iterable[int], lines: SessionLines
) -> Iterable[tuple[int, Entry]]:
    """Read these rows in full; a line that is no entry any more is passed over."""
    read = ADAPTERS[card.agent].read
    for row in rows:
        line = lines.row(row)
        if not line:
            continue  # oversized: its text is not kept
        try:
            yield row, read(line, state.id(row))
        except ValueError:
            if not state.strict:
                raise
