"""The words and deeds of sessions, taken into the catalog as they are appended.

Both come from the same lines, so a line is parsed once for the two. Words are those of every
branch; deeds (files, tools, tokens) are those of the current path alone (S1.13): where that is
not what was gathered, with more at its end, they are gathered anew. How far both have come is
kept with the session in the catalog, in one transaction with what was found there; a sign of all
that is read is kept with it, so that a start finds what the last process left. Each step is
bounded, in lines and in bytes: redacting is slow, and the thread that does it is everybody's (F9).

Secrets are taken out before anything is kept, the user's own kinds, too. Which these were is kept
as well: under other ones a session is read anew, and where its file is gone, what is stored of it
is changed where it stands (X5).
"""

from __future__ import annotations

import base64
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice, pairwise
from time import monotonic

import msgspec

from indexerd.agents import ADAPTERS
from indexerd.core.card import Card
from indexerd.core.deeds import Deeds
from indexerd.core.inject import own_words
from indexerd.core.rows import Facts
from indexerd.core.session import SessionState
from indexerd.errors import SessionUnreadableError, StateError
from indexerd.events import TURN_MASK, TURN_SHIFT, Entry, Kind, Turn
from indexerd.io.catalog import Catalog, Message
from indexerd.service.files import Files
from indexerd.service.lines import SessionLines
from indexerd.service.own_secrets import OwnSecrets

TEXT_MAX = 65_536  # characters of one message that are searchable
BATCH = 500  # lines read in one step, and not many more than these bytes of them: others wait
STEP_BYTES = 512 * 1024
SHARED, SHARED_SECONDS = 64, 0.01  # sessions in one transaction, and when no other is begun

_MARK = "~"  # begins the mark of patterns, behind the sign
_PLAIN = "."  # before what is in base64
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
        return f"{sign} {_PLAIN}{base64.b64encode(_encode(self)).decode('ascii')}"


def _unpacked(mark: str) -> Progress:
    """What was kept; ValueError where that is nothing."""
    packed = mark.rpartition(" ")[2]
    if packed.startswith(_PLAIN):
        return _decode(base64.b64decode(packed[1:]))
    return _decode(base64.b85decode(packed))  # as it was kept before, and ten times as slowly


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
        *,
        secrets: OwnSecrets,
        show: Callable[[Iterable[str]], object] = list,
    ) -> None:
        """`publish` puts a session's facts into its row; `reread` parses all its lines anew.

        `show` makes rows anew: of sessions whose file is gone.
        """
        self._files = files
        self._catalog = catalog
        self._publish = publish
        self._reread = reread
        self._secrets = secrets
        self._show = show
        self._unread: dict[str, None] = {}  # sessions whose text is not searchable yet
        self._pass = 0  # the first so many of them are read; the others came meanwhile
        self._left: dict[str, int] = {}  # gone, and stored under other patterns: how far changed
        self._scouring: Iterator[bool] | None = None
        self._noted: str | None = None  # the patterns' mark, once the catalog has it
        self._settled = False  # the catalog was asked, and owes no scouring

    def want(self, session_ids: Iterable[str]) -> None:
        """Something was appended to these sessions."""
        self._unread |= dict.fromkeys(session_ids)

    def resume(self, cards: Iterable[Card]) -> None:
        """After a start: whatever was not all read when the last process ended.

        Or was read before secrets of other kinds were to be taken out.
        """
        self._secrets.renew()
        signs, mark = self._catalog.mark_signs(), self._secrets.mark
        if self._catalog.rebuilt:  # nothing in it is older than these patterns
            with suppress(StateError):
                self._catalog.stored_under(mark)
        for card in cards:
            if signs.pop(card.session_id, "") != _sign(card) + mark:
                self.want([card.session_id])
        self._left = {key: 0 for key, sign in signs.items() if _mark_of(sign) != mark}

    def reconsider(self, cards: Callable[[], Iterable[Card]]) -> bool:
        """The user's patterns may be others; says whether they are."""
        if not self._secrets.renew():
            return False
        self.resume(cards())
        return True

    @property
    def unread(self) -> int:
        """Sessions whose text is not (fully) searchable yet."""
        return len(self._unread)

    @property
    def due(self) -> bool:
        """Whether there is anything to do."""
        told = self._settled and self._noted == self._secrets.mark
        return bool(self._unread or self._left or self._scouring) or not told

    @property
    def even(self) -> bool:
        """Whether no pass is under way."""
        return not self._pass

    def step(self) -> bool:
        """Read one session, or a part of it. Says whether there is more to do."""
        if not self._unread:
            return self._tidied()
        session_id = next(iter(self._unread))
        if self.index(session_id):
            self._unread.pop(session_id, None)
            self._pass = max(0, self._pass - 1)
        return self.due

    def some(self) -> bool:
        """Read several sessions, in one transaction. Says whether there is more to do in this pass.

        A pass is over what was unread as it began: who rests then lets appends gather.
        """
        self._pass = self._pass or len(self._unread)
        if not self._pass:
            return self._tidied()
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

    def _tidied(self) -> bool:
        """One step of what is done when all is read. Says whether there is more to do."""
        if self._left:
            self._redo(next(iter(self._left)))
        elif self._noted != self._secrets.mark:
            self._catalog.stored_under(self._secrets.mark)
            if self._noted is not None:
                self._catalog.renamed += 1  # rows were stored, and nobody was told
            self._noted, self._settled = self._secrets.mark, False
        elif self._scouring is None and not self._catalog.owes_scour:
            self._settled = True
        else:
            self._scouring = self._scouring or self._catalog.scour()
            if next(self._scouring, None) is None:  # behind its last step it folds the log
                self._scouring = None
        return self.due

    def _redo(self, session_id: str) -> None:
        """Take secrets out of what is stored of a session whose file is gone, or of a part."""
        above, mark = self._left[session_id], self._catalog.messages_mark(session_id)
        if mark is None or self._files.card(session_id) is not None:  # it is read in its turn
            del self._left[session_id]
            return
        with self._catalog.batch():
            last = self._catalog.redo_messages(session_id, above, BATCH, self._message)
            if not last:
                sign, _, progress = mark.rpartition(" ")
                now = f"{sign.partition(_MARK)[0]}{self._secrets.mark} {progress}"
                self._catalog.set_messages_mark(session_id, now)
                self._show([session_id])
        if last:
            self._left[session_id] = last
        else:
            del self._left[session_id]

    def _message(self, text: str) -> str:
        return self._secrets.message(text, TEXT_MAX)

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
                said = self._taken_in(card, state, lines, part, held)
        except SessionUnreadableError:
            return True
        except ValueError:  # a line was not what it looked like: once more, parsing them all
            return not self._reread(session_id)
        held.words, held.deeds = part.word_end, part.deed_end
        held.last_word = state.id(held.words - 1) if held.words else ""
        held.last_deed = state.id(path[held.deeds - 1]) if held.deeds else ""
        held.seal = _seal(path[: held.deeds])
        sign = (_sign(card) if part.last else "") + self._secrets.mark
        with self._catalog.batch():
            self._catalog.add_messages(session_id, said, mark=held.pack(sign))
            self._publish(session_id, held.done.facts())
        return part.last

    def _taken_in(
        self, card: Card, state: SessionState, lines: SessionLines, part: _Part, held: Progress
    ) -> list[Message]:
        """Read a part's lines, each once and one at a time: they may be of any size.

        The deeds go into `held`, in the order of the path; what was said comes in that of the file.
        """
        said: dict[int, Message] = {}
        words, deeds = set(part.words), set(part.deeds)
        rows = sorted(words | deeds)
        if not _ascending(part.deeds):
            rows = [*part.deeds, *sorted(words - deeds)]
        for row, entry in _entries(card, state, rows, lines):
            if row in deeds:
                held.done.add(entry, card.cwd, held.own_ms)
            text = entry.text[: 4 * TEXT_MAX] if row in words and _speaks(entry.kind) else ""
            if text:
                text = self._message(own_words(text))
                said[row] = (entry.id, entry.role or "", entry.timestamp, text)
        return [said[row] for row in sorted(said)]

    def _progress(
        self, session_id: str, state: SessionState, path: list[int], own_ms: int
    ) -> Progress:
        """What was read so far, as far as it still holds."""
        held, mark = Progress(own_ms=own_ms), ""
        with suppress(msgspec.DecodeError, ValueError):
            mark = self._catalog.messages_mark(session_id) or ""
            held = _unpacked(mark)
        if held.words and _mark_of(mark.partition(" ")[0]) != self._secrets.mark:
            self._catalog.drop_messages(session_id, wholly=True)
            self._settled = False
            held.words, held.last_word = 0, ""
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


def _mark_of(sign: str) -> str:
    """The mark of the patterns that a session's texts were stored under, out of its sign."""
    _, told, mark = sign.partition(_MARK)
    return told + mark


def _ascending(rows: Sequence[int]) -> bool:
    return all(one < other for one, other in pairwise(rows))


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


def _entries(
    card: Card, state: SessionState, rows: Iterable[int], lines: SessionLines
) -> Iterator[tuple[int, Entry]]:
    """What these rows tell; a line that is no entry any more is passed over."""
    told = ADAPTERS[card.agent].told
    for row in rows:
        line = lines.brief(row)
        if not line:
            continue  # far too long, or no JSON: its text is not kept
        try:
            yield row, told(line, state.id(row))
        except ValueError:
            if not state.strict:
                raise
