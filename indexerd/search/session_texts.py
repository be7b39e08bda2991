"""The words and deeds of sessions, taken into the index as they are appended.

Both come from the same lines, so a line is parsed once for the two. Words are those of every
branch, and so is what was paid (tokens, cost); deeds (files, tools) are those of the current path
alone (S1.13): where that is not what was gathered, with more at its end, they are gathered anew.
How far both have come is kept in the store once the index has what was found; a sign of all that
is read is kept with it, so that a start finds what the last process left. Each step is bounded, in
lines and in bytes: redacting is slow, and the thread that does it is everybody's (F9).

Secrets are taken out before anything is kept, the user's own kinds, too. Which these were is kept
as well: under other ones a session is read anew, and where its file is gone, what is stored of it
is changed as the index is rebuilt (X5).
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from time import monotonic

import msgspec

from indexerd.agents.lines import own_words
from indexerd.daemon.files import Files
from indexerd.errors import SessionUnreadableError, StateError
from indexerd.events import Entry
from indexerd.privacy.own_secrets import OwnSecrets
from indexerd.search.index import TEXT_MAX, Message, TextIndex
from indexerd.search.text_steps import BATCH, Part, ascending, entries, part_of, speaks
from indexerd.sessions.facts import ActivityStats, Facts
from indexerd.sessions.info import SessionInfo
from indexerd.sessions.state import SessionState
from indexerd.sources.session_lines import SessionLines
from indexerd.times import iso_ms

COMMIT_SECONDS = 1.0  # that words wait at most until they are found, while there are more
SHARED, SHARED_SECONDS = 64, 0.01  # sessions in one transaction, and when no other is begun

_RULES = 2  # by which deeds are gathered; under other ones a session is read anew
_MARK = "~"  # begins the mark of patterns, behind the sign
_PLAIN = "."  # before what is in base64


class Progress(msgspec.Struct, array_like=True):
    """How far a session's lines were read. A row and its id: the file may have been rewritten."""

    words: int = 0  # rows read for their words
    last_word: str = ""  # id of the last of them
    deeds: int = 0  # rows of the path, from its root, that were gathered
    last_deed: str = ""  # id of the last of them
    seal: bytes = b""  # of these rows' numbers
    own: int | tuple[int, int] = 0  # which entries are its own: of `_own`
    done: ActivityStats = msgspec.field(
        default_factory=ActivityStats
    )  # what was paid: by the rows read for words

    def pack(self, sign: str) -> str:
        """As the store keeps it, behind a sign of what is read."""
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
        index: TextIndex,
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
        self._index = index
        self._store = index.store
        self._publish = publish
        self._reread = reread
        self._secrets = secrets
        self._show = show
        self._unread: dict[str, None] = {}  # sessions whose text is not searchable yet
        self._read: dict[str, None] = {}  # sessions that are read, and not committed
        self._missed: dict[str, None] = {}  # sessions that could not be read, or another file was
        self._pass = 0  # the first so many of them are read; the others came meanwhile
        self._committed = 0.0  # when, on the monotonic clock
        self._old: dict[str, str] | None = None  # stored under other patterns, while that is mended
        self._left: dict[str, None] = {}  # gone, and their rows made under other patterns

    def want(self, session_ids: Iterable[str]) -> None:
        """Something was appended to these sessions."""
        self._unread |= dict.fromkeys(session_ids)

    def again(self) -> None:
        """Every file is looked at now: what was missed may be there."""
        self._unread |= self._missed
        self._missed.clear()

    def resume(self, cards: Iterable[SessionInfo]) -> None:
        """After a start: whatever was not all read when the last process ended.

        Or was read before secrets of other kinds were to be taken out.
        """
        self._secrets.renew()
        self._compare(cards)

    def _compare(self, cards: Iterable[SessionInfo]) -> None:
        """Find what was stored under other patterns, or is not all read."""
        signs, mark = self._store.mark_signs(), self._secrets.mark
        rows = set[str]() if self._stored_under() == mark else set(self._store.ids())
        for card in cards:
            rows.discard(card.session_id)
            if signs.pop(card.session_id, "") != _sign(card) + mark:
                self.want([card.session_id])
        self._left = dict.fromkeys(rows)

    def _stored_under(self) -> str:
        """The mark of the patterns that are taken out of all that is stored."""
        held: str | None = self._store.noted("index", "patterns", bytes.decode)
        return held or ""

    def reconsider(self, cards: Callable[[], Iterable[SessionInfo]]) -> bool:
        """The user's patterns may be others; says whether they are."""
        if not self._secrets.renew():
            return False
        self._compare(cards())
        return True

    @property
    def unread(self) -> int:
        """Sessions whose text is not (fully) searchable yet."""
        return len(self._unread.keys() | self._read.keys())

    @property
    def due(self) -> bool:
        """Whether there is anything to do."""
        waiting = self._unread or self._left or self._index.pending
        return bool(waiting or self._index.owes_rebuild) or self._stored_under() != self._mark

    @property
    def _mark(self) -> str:
        return self._secrets.mark

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
        with self._store.batch():
            for session_id in tuple(islice(self._unread, min(self._pass, SHARED))):
                if not self.index(session_id):
                    break  # its row may be another in this transaction, and nobody sees that yet
                done.append(session_id)
                if monotonic() > end:
                    break
        for session_id in done:
            del self._unread[session_id]
        self._pass -= len(done)
        if not self._pass or monotonic() > self._committed + COMMIT_SECONDS:
            self._commit()
        return self._pass > 0

    def _commit(self) -> None:
        """Have all that was read be found; where that fails, it is read again."""
        read, self._read = self._read, {}
        try:
            self._index.commit()
        except StateError:
            self._unread |= read
            raise
        self._committed = monotonic()

    def _tidied(self) -> bool:
        """One step of what is done when all is read. Says whether there is more to do."""
        if self._index.pending:
            self._commit()
        elif self._left:
            session_id = next(iter(self._left))
            self._show([session_id])
            del self._left[session_id]
        elif self._stored_under() != self._mark:
            self._store.note("index", "patterns", self._mark.encode())
            if self._index.sessions():
                self._index.owe_rebuild()
            self._store.renamed += 1  # rows were stored, and nobody was told
        elif self._index.owes_rebuild:
            self.wipe()
        return self.due

    def wipe(self) -> bool:
        """One step of taking words out of the index's files; says whether there is more to do.

        Secrets go out of sessions that cannot be read again.
        """
        if not self._index.owes_rebuild:
            return False
        if self._old is None:
            signs = self._store.mark_signs().items()
            self._old = {one: sign for one, sign in signs if _mark_of(sign) != self._mark}
        old = self._old

        def redacted(session_id: str, text: str) -> str:
            return self._message(text) if session_id in old else text

        more = self._index.rebuild(redacted)
        if not more:
            now = {}
            for session_id, sign in old.items():
                _, _, progress = (self._store.mark(session_id) or "").rpartition(" ")
                now[session_id] = f"{sign.partition(_MARK)[0]}{self._mark} {progress}"
            self._store.indexed({}, now)
            self._old = None
        return more

    def _is_old(self, mark: str) -> bool:
        """Whether a session's texts were stored under other patterns."""
        return _mark_of(mark.partition(" ")[0]) != self._secrets.mark

    def _message(self, text: str) -> str:
        return self._secrets.message(text, TEXT_MAX)

    def index(self, session_id: str, limit: int = BATCH) -> bool:
        """Read a session from where the last step ended; says whether all is read."""
        card, state = self._files.card(session_id), self._files.state(session_id)
        if card is None or state is None:
            return True
        path = state.path()
        held, drop = self._progress(session_id, state, path, _own(card, state))
        part = part_of(state, path, held, limit)
        try:
            with self._files.lines(session_id) as lines:
                said = self._taken_in(card, state, lines, part, held)
                facts = _facts(card, state, lines, part, held)
        except SessionUnreadableError:  # it may be back, as it was, before anybody misses it
            self._missed[session_id] = None
            if self._is_old(self._index.mark(session_id) or ""):
                self._left[session_id] = None
            return True
        except ValueError:  # a line was not what it looked like: once more, parsing them all
            return self._is_elsewhere(session_id) or not self._reread(session_id)
        if self._is_elsewhere(session_id):
            return True
        since, held.words, held.deeds = held.words, part.word_end, part.deed_end
        held.last_word = state.id(held.words - 1) if held.words else ""
        held.last_deed = state.id(path[held.deeds - 1]) if held.deeds else ""
        held.seal = _seal(path[: held.deeds])
        sign = (_sign(card) if part.last else "") + self._secrets.mark
        with self._store.batch():
            if drop is not None:
                self._index.drop_messages(session_id)
            if drop:
                self._index.owe_rebuild()
            self._index.add_messages(session_id, since, said, mark=held.pack(sign))
            if facts is not None:
                self._publish(session_id, facts)
        self._read[session_id] = None
        return part.last

    def _is_elsewhere(self, session_id: str) -> bool:
        """Another file stands at its path now, whose words these may be: read it another time."""
        owner = self._files.owners.get(session_id)
        if owner is None or owner.stands:
            return False
        self._missed[session_id] = None
        return True

    def _taken_in(
        self,
        card: SessionInfo,
        state: SessionState,
        lines: SessionLines,
        part: Part,
        held: Progress,
    ) -> list[Message]:
        """Read a part's lines, each once and one at a time: they may be of any size.

        The deeds go into `held`, in the order of the path; what was said comes in that of the file.
        """
        said: dict[int, Message] = {}
        words, deeds = set(part.words), set(part.deeds)
        rows = sorted(words | deeds)
        if not ascending(part.deeds):
            rows = [*part.deeds, *sorted(words - deeds)]
        for row, entry in entries(card, state, rows, lines):
            if row in deeds:
                held.done.add(entry, card.cwd, copied=_copied(held.own, row, entry))
            if row in words and not _copied(held.own, row, entry):
                held.done.pay(entry)
            text = entry.text[: 4 * TEXT_MAX] if row in words and speaks(entry.kind) else ""
            if text:
                text = self._message(own_words(text))
                said[row] = Message(row, entry.id, entry.role or "", entry.timestamp, text)
        return [said[row] for row in sorted(said)]

    def _progress(
        self, session_id: str, state: SessionState, path: list[int], own: int | tuple[int, int]
    ) -> tuple[Progress, bool | None]:
        """What was read so far, as far as it still holds.

        And whether what is stored is to be dropped once it was read anew; True: wholly.
        """
        held, mark = Progress(own=own), ""
        with suppress(msgspec.DecodeError, ValueError):
            mark = self._index.mark(session_id) or ""
            held = _unpacked(mark)
        if held.words and self._is_old(mark):
            return Progress(own=own), True
        if held.words and not _stands(state, held.words - 1, held.last_word):
            return Progress(own=own), False
        if held.own != own:  # others of its entries were paid elsewhere
            return Progress(own=own), None
        begun = path[: held.deeds]
        same = len(begun) == held.deeds and _seal(begun) == held.seal
        if not same or (begun and not _stands(state, begun[-1], held.last_deed)):
            done = ActivityStats(spent=held.done.spent)
            return Progress(held.words, held.last_word, own=own, done=done), None
        return held, None


def _facts(
    card: SessionInfo, state: SessionState, lines: SessionLines, part: Part, held: Progress
) -> Facts | None:
    """What a session did, with what it is at; None while half of it is not read.

    What may still change is not kept: a tool that is done counts, whatever becomes of its message.
    """
    if not part.last:
        return None
    if not part.unsettled:
        return held.done.facts()
    done = _decode(_encode(held)).done
    for row, entry in entries(card, state, part.unsettled, lines):
        copied = _copied(held.own, row, entry)
        done.add(entry, card.cwd, copied=copied)
        if not copied:
            done.pay(entry)
    return done.facts()


def _sign(card: SessionInfo) -> str:
    """The same for sessions with the same entries and the same leaf, so that it tells all read."""
    told = f"{card.session_id}\0{card.leaf_id}\0{card.path}\0{_RULES}"
    return f"{card.rows:x}-{blake2b(told.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"


def _mark_of(sign: str) -> str:
    """The mark of the patterns that a session's texts were stored under, out of its sign."""
    _, told, mark = sign.partition(_MARK)
    return told + mark


def _own(card: SessionInfo, state: SessionState) -> int | tuple[int, int]:
    """From which time and which row on a session's entries are its own; 0: all of them are."""
    if state.copied:
        return 0, state.copied
    came_from = card.parent or card.parent_id or card.first
    return (card.born_ms, 0) if came_from else 0


def _copied(own: int | tuple[int, int], row: int, entry: Entry) -> bool:
    """Whether an entry was copied from another session, and so is older than this one."""
    return isinstance(own, tuple) and (row < own[1] or 0 < iso_ms(entry.timestamp) < own[0])


def _seal(rows: list[int]) -> bytes:
    """The same for the same rows."""
    return blake2b(array("I", rows).tobytes(), digest_size=8).digest()


def _stands(state: SessionState, row: int, entry_id: str) -> bool:
    return row < len(state) and state.id(row) == entry_id
