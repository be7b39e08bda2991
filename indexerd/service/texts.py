"""The words and deeds of sessions, taken into the catalog as they are appended.

Both come from the same lines, so a line is parsed once for the two. Words are those of every
branch; deeds (files, tools, tokens) are those of the current path alone (S1.13): where that is
not what was gathered, with more at its end, they are gathered anew. How far both have come is
kept with the session in the catalog, in one transaction with what was found there; a sign of all
that is read is kept with it, so that a start finds what the last process left. Each step is
bounded, in lines and in bytes: redacting is slow, and the thread that does it is everybody's (F9).
"""

from __future__ import annotations

import base64
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice
from time import monotonic

import msgspec

from indexerd.agents import ADAPTERS
from indexerd.core.card import Card
from indexerd.core.clean import clean_text
from indexerd.core.deeds import Deeds
from indexerd.core.inject import own_words
from indexerd.core.redact import redact
from indexerd.core.rows import Facts
from indexerd.core.session import SessionState
from indexerd.errors import SessionUnreadableError
from indexerd.events import TURN_MASK, TURN_SHIFT, Entry, Kind, Turn
from indexerd.io.catalog import Catalog
from indexerd.service.files import Files
from indexerd.service.lines import SessionLines

TEXT_MAX = 65_536  # characters of one message that are searchable
BATCH = 500  # lines read in one step, and not many more than these bytes of them: others wait
STEP_BYTES = 512 * 1024
SHARED, SHARED_SECONDS = 64, 0.01  # sessions in one transaction, and when no other is begun

_DOES = frozenset({Kind.USER, Kind.ASSISTANT, Kind.CALL, Kind.SETTING})


class Progress(msgspec.Struct, array_like=True):
    """How far a session's lines were read. A row and its id: the file may have been rewritten."""

    words: int = 0  # rows read for their words
    last_word: str = ""  # id of the last of them
    deeds: int = 0  # rows of the path, from its root, that were gathered
    last_deed: str = ""  # id of the last of them
    seal: bytes = b""  # of these rows' numbers
    own_ms: int = 0  # entries older than this were copied from another session
    done: Deeds = msgspec.field(default_factory=Deeds)

    def pack(self, sign: str) -> str:
        """As the catalog keeps it, behind a sign of what is read."""
        return f"{sign} {base64.b85encode(_encode(self)).decode('ascii')}"


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
        self._pass = 0  # the first so many of them are read; the others came meanwhile

    def want(self, session_ids: Iterable[str]) -> None:
        """Something was appended to these sessions."""
        self._unread |= dict.fromkeys(session_ids)

    def resume(self, cards: Iterable[Card]) -> None:
        """After a start: whatever was not all read when the last process ended."""
        signs = self._catalog.mark_signs()
        self.want(one.session_id for one in cards if signs.get(one.session_id) != _sign(one))

    @property
    def unread(self) -> int:
        """Sessions whose text is not (fully) searchable yet."""
        return len(self._unread)

    @property
    def even(self) -> bool:
        """Whether no pass is under way."""
        return not self._pass

    def step(self) -> bool:
        """Read one session, or a part of it. Says whether there is more to do."""
        if not self._unread:
            return False
        session_id = next(iter(self._unread))
        if self.index(session_id):
            self._unread.pop(session_id, None)
            self._pass = max(0, self._pass - 1)
        return bool(self._unread)

    def some(self) -> bool:
        """Read several sessions, in one transaction. Says whether there is more to do in this pass.

        A pass is over what was unread as it began: who rests then lets appends gather.
        """
        self._pass = self._pass or len(self._unread)
        if not self._pass:
            return False
        done, end = [], monotonic() + SHARED_SECONDS
        with self._catalog.batch():
            for session_id in tuple(islice(self._unread, min(self._pass, SHARED))):
                if not self.index(session_id):
                    break  # its row may be another in this transaction, and nobody sees that yet
                done.append(session_id)
                if monotonic() > end:
                    break
        for session_id in done:
            del self._unread[session_id]
        self._pass -= len(done)
        return self._pass > 0

    def index(self, session_id: str, limit: int = BATCH) -> bool:
        """Read a session from where the last step ended; says whether all is read."""
        card, state = self._files.card(session_id), self._files.state(session_id)
        if card is None or state is None:
            return True
        path = state.path()
        held = self._progress(session_id, state, path, _own_ms(card))
        part = _part(state, path, held, limit)
        try:
            with self._files.lines(session_id) as lines:
                found = dict(_entries(card, state, sorted({*part.words, *part.deeds}), lines))
        except SessionUnreadableError:
            return True
        except ValueError:  # a line was not what it looked like: once more, parsing them all
            return not self._reread(session_id)
        for row in part.deeds:
            if row in found:
                held.done.add(found[row], card.cwd, held.own_ms)
        said = [found[row] for row in part.words if row in found and _speaks(found[row].kind)]
        held.words, held.deeds = part.word_end, part.deed_end
        held.last_word = state.id(held.words - 1) if held.words else ""
        held.last_deed = state.id(path[held.deeds - 1]) if held.deeds else ""
        held.seal = _seal(path[: held.deeds])
        self._keep(session_id, said, held, _sign(card) if part.last else "")
        return part.last

    def _keep(self, session_id: str, said: list[Entry], progress: Progress, sign: str) -> None:
        words = [
            (
                one.id,
                one.role or "",
                one.timestamp,
                clean_text(redact(own_words(one.text)).text, TEXT_MAX),
            )
            for one in said
            if one.text
        ]
        with self._catalog.batch():
            self._catalog.add_messages(session_id, words, mark=progress.pack(sign))
            self._publish(session_id, progress.done.facts())

    def _progress(
        self, session_id: str, state: SessionState, path: list[int], own_ms: int
    ) -> Progress:
        """What was read so far, as far as it still holds."""
        held = Progress(own_ms=own_ms)
        with suppress(msgspec.DecodeError, ValueError):
            mark = self._catalog.messages_mark(session_id) or ""
            held = _decode(base64.b85decode(mark.rpartition(" ")[2]))
        if held.words and not _stands(state, held.words - 1, held.last_word):
            self._catalog.drop_messages(session_id)
            return Progress(own_ms=own_ms)
        begun = path[: held.deeds]
        same = len(begun) == held.deeds and _seal(begun) == held.seal and held.own_ms == own_ms
        if not same or (begun and not _stands(state, begun[-1], held.last_deed)):
            return Progress(held.words, held.last_word, own_ms=own_ms)
        return held


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows to be read now for their words and for their deeds, and how far this comes."""

    words: list[int]
    deeds: list[int]
    word_end: int
    deed_end: int
    last: bool  # nothing is left after it


def _part(state: SessionState, path: list[int], held: Progress, limit: int) -> _Part:
    """The next rows; lines that tell of both are read once, where the path is in file order."""
    end = max(0, len(state) - state.unsettled)
    settled = next((at for at in range(held.deeds, len(path)) if path[at] >= end), len(path))
    next_words = (row for row in range(held.words, end) if _speaks(state.kind(row)))
    next_deeds = (row for row in path[held.deeds : settled] if _does(state, row))
    words, deeds = list(islice(next_words, limit + 1)), list(islice(next_deeds, limit + 1))
    if state.orderly:
        both = sorted({*words, *deeds})
        few = _few(state, both, limit)
        stop = both[few] if few < len(both) else end
        some_words = words[: bisect_left(words, stop)]
        some_deeds = deeds[: bisect_left(deeds, stop)]
    else:
        some_words = words[: _few(state, words, limit)]
        some_deeds = deeds[: _few(state, deeds, limit)]
    word_end, deed_end = max(end, held.words), settled
    if len(some_words) < len(words):
        word_end = words[len(some_words)]
    if len(some_deeds) < len(deeds):
        deed_end = path.index(deeds[len(some_deeds)], held.deeds)
    last = some_words == words and some_deeds == deeds
    return _Part(some_words, some_deeds, word_end, deed_end, last)


def _few(state: SessionState, rows: list[int], limit: int) -> int:
    """How many of these rows make one step: one at least."""
    size = 0
    for count, row in enumerate(rows[:limit]):
        size += state.lengths[row]
        if count and size > STEP_BYTES:
            return count
    return min(limit, len(rows))


def _sign(card: Card) -> str:
    """The same for sessions with the same entries and the same leaf, so that it tells all read."""
    told = f"{card.session_id}\0{card.leaf_id}\0{card.path}"
    return f"{card.rows:x}-{blake2b(told.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"


def _own_ms(card: Card) -> int:
    """When a session began that may hold copies of another's entries, which are older."""
    came_from = card.parent or card.parent_id or card.first
    return card.born_ms if came_from else 0


def _seal(rows: list[int]) -> bytes:
    """The same for the same rows."""
    return blake2b(array("I", rows).tobytes(), digest_size=8).digest()


def _stands(state: SessionState, row: int, entry_id: str) -> bool:
    return row < len(state) and state.id(row) == entry_id


def _speaks(kind: Kind) -> bool:
    return kind in (Kind.USER, Kind.ASSISTANT)


def _does(state: SessionState, row: int) -> bool:
    """Whether a row tells of deeds: a tool's result only where it says that the call failed."""
    kind = state.kind(row)
    if kind is Kind.TOOL:
        return Turn((state.codes[row] & TURN_MASK) >> TURN_SHIFT) is Turn.FAILED
    return kind in _DOES


def _light(entry: Entry) -> Entry:
    """Without what is not looked at here: a step holds many entries, each of any size."""
    return replace(
        entry,
        texts=(entry.text[: 4 * TEXT_MAX],) if _speaks(entry.kind) else (),
        tools=tuple([replace(call, arguments=None) for call in entry.tools]),
        thinking=(),
        results=(),
        details={},
    )


def _entries(
    card: Card, state: SessionState, rows: Iterable[int], lines: SessionLines
) -> Iterable[tuple[int, Entry]]:
    """Read these rows in full; a line that is no entry any more is passed over."""
    read = ADAPTERS[card.agent].read
    for row in rows:
        line = lines.brief(row)
        if not line:
            continue  # far too long, or no JSON: its text is not kept
        try:
            yield row, _light(read(line, state.id(row)))
        except ValueError:
            if not state.strict:
                raise
