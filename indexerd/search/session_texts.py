"""The words of sessions and what they did, taken into the index as sessions are appended to.

Both come from the same lines, so that each is parsed once. Words are those of every branch, and so
is what was paid (tokens, cost); files and tools are those of the current path alone: where that is
not what was gathered, with more at its end, they are gathered anew. How far both have come is the
session's mark in the index. Each step is bounded, in lines and in bytes: redacting is slow, and
the thread that does it is everybody's.

Secrets are taken out before anything is kept, the user's own kinds, too.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from time import monotonic
from typing import Protocol

import msgspec

from indexerd.agents import ADAPTERS
from indexerd.agents.json_lines import own_words
from indexerd.errors import SessionUnreadableError
from indexerd.events import PAID, Entry, Kind, Turn
from indexerd.privacy.own_secrets import OwnSecrets
from indexerd.search.index import TEXT_MAX, Message, TextIndex, number
from indexerd.sessions.facts import ActivityStats, Facts
from indexerd.sessions.info import SessionInfo
from indexerd.sessions.state import SessionState
from indexerd.sources.session_reader import SessionLines
from indexerd.times import iso_ms

BATCH = 500  # lines read in one step, and not many more than these bytes of them: others wait
STEP_BYTES = 512 * 1024
_COMMIT_SECONDS = 1.0  # that words wait at most until they are found, while there are more
_SHARED, SHARED_SECONDS = 64, 0.01  # sessions of a step, and when no other is begun
_RULES = "4"  # by which facts are gathered; under other ones a session is read anew

_SAYS = frozenset({Kind.USER, Kind.ASSISTANT})
_DOES = frozenset({Kind.USER, Kind.ASSISTANT, Kind.CALL, Kind.SETTING})


class SessionFiles(Protocol):
    """What is read of session files."""

    def info(self, session_id: str) -> SessionInfo | None: ...

    def state(self, session_id: str) -> SessionState | None: ...

    def lines(self, session_id: str) -> AbstractContextManager[SessionLines]:
        """Open its lines; ValueError where they are not what they were."""
        ...


class _Progress(msgspec.Struct, array_like=True):
    """How far a session's lines were read."""

    own: tuple[int, int]  # from which time and which row on its entries are its own
    words: int = 0  # rows read for their words, and for what was paid
    last: str = ""  # id of the last of them: the file may have been rewritten
    rows: int = 0  # rows read for what was done on the path
    seal: int = 0  # of the path's rows among these
    done: ActivityStats = msgspec.field(default_factory=ActivityStats)


_Row = tuple[int, bool, bool]  # its number, whether its words count, and what it did
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Progress).decode


class Texts:
    """What is searchable of every session, and what is still to be read."""

    def __init__(
        self,
        files: SessionFiles,
        index: TextIndex,
        publish: Callable[[str, Facts], None],
        reread: Callable[[str], bool],
        *,
        secrets: OwnSecrets,
    ) -> None:
        """`publish` puts a session's facts into its row; `reread` parses all its lines again."""
        self._files = files
        self._index = index
        self._store = index.store
        self._publish = publish
        self._reread = reread
        self._secrets = secrets
        self._unread: dict[str, None] = {}  # sessions whose text was not read
        self._pass = 0  # the first so many of them: the others came since it began
        self._ripened = 0.0  # when a commit was due last, on the monotonic clock
        self.ripe = False  # a commit is due now

    def want(self, session_ids: Iterable[str]) -> None:
        """Something was appended to these sessions."""
        self._unread |= dict.fromkeys(session_ids)

    def resume(self, infos: Iterable[SessionInfo]) -> None:
        """Find what the index has not all read."""
        signs = self._index.signs("mark")
        self.want(
            one.session_id for one in infos if signs.get(number(one.session_id)) != _sign(one)
        )

    @property
    def unread(self) -> int:
        """Sessions whose text is not (fully) searchable yet."""
        return len(self._unread.keys() | self._index.lost | self._index.uncommitted.keys())

    @property
    def due(self) -> bool:
        """Whether there is anything to do."""
        waiting = self._unread or self._index.lost or self._index.pending
        return bool(waiting) or self._index.owes_rebuild

    def step(self) -> bool:
        """Do a little, and have it be found. Says whether there is more to do."""
        self.some()
        if self.ripe:
            self._index.commit()
        return self.due

    def some(self) -> bool:
        """Read several sessions. Says whether there is more in this pass.

        A pass is over what was unread as it began: whoever rests then lets appends gather.
        """
        while self._index.lost:
            self._unread[self._index.lost.pop()] = None
        self.ripe = False
        self._pass = self._pass or len(self._unread)
        if not self._pass:
            self.ripe = self._index.pending and not self._index.rebuilding
            if not self.ripe:
                self._index.rebuild()
            return self.due
        done, now = [], monotonic()
        with self._store.batch():
            for session_id in tuple(islice(self._unread, min(self._pass, _SHARED))):
                if not self.index(session_id):
                    break  # its row may be another in this transaction, and nobody sees that yet
                done.append(session_id)
                if monotonic() > now + SHARED_SECONDS:
                    break
        for session_id in done:
            del self._unread[session_id]
        self._pass -= len(done)
        self.ripe = not self._pass or now > self._ripened + _COMMIT_SECONDS
        self._ripened = now if self.ripe else self._ripened
        return self._pass > 0

    def index(self, session_id: str, limit: int = BATCH) -> bool:
        """Read a session from where the last step ended; says whether all is read."""
        if self._index.rebuilding:
            self._index.rebuild()
            return False
        info, state = self._files.info(session_id), self._files.state(session_id)
        if info is None or state is None:
            return True
        path = sorted(state.path())
        held = self._progress(info, state, path)
        anew, (rows, end, is_last) = not held.words, _next_rows(state, path, held, limit)
        said, facts = list[Message](), None
        try:
            with self._files.lines(session_id) as lines:
                for row, says, entry in _take_in(info, state, lines, held, rows):
                    if says and entry.kind in _SAYS and entry.text:
                        text = own_words(entry.text[: 4 * TEXT_MAX])
                        text = self._secrets.message(text, TEXT_MAX)
                        said.append(Message(row, entry.id, entry.role or "", entry.timestamp, text))
                if is_last:  # what may still change is not kept, and read again at each step
                    now = _decode(_encode(held))
                    rest = [row for row in path[bisect_left(path, end) :] if _does(state, row)]
                    for _ in _take_in(
                        info, state, lines, now, [(n, True, True) for n in rest[-limit:]]
                    ):
                        pass
                    facts = now.done.facts()
        except SessionUnreadableError:
            return True
        except ValueError:  # a line was not what it looked like: once more, parsing them all
            return not self._reread(session_id)
        held.words = max(held.words, end)
        held.rows, held.seal = end, _seal(state, path, end)
        held.last = state.id(held.words - 1) if held.words else ""
        sign = _sign(info) if is_last else 0
        self._index.add_messages(session_id, said, _encode(held), sign, anew=anew)
        if facts is not None:
            self._publish(session_id, facts)
        return is_last

    def _progress(self, info: SessionInfo, state: SessionState, path: list[int]) -> _Progress:
        """What was read so far, as far as it still holds."""
        came_from = info.parent or info.parent_id or info.first
        own = (0, state.copied) if state.copied else (info.born_ms if came_from else 0, 0)
        mark = self._index.mark(info.session_id)
        held = _decode(mark) if mark else _Progress(own)
        is_same = held.words <= len(state) and (
            not held.words or state.id(held.words - 1) == held.last
        )
        if not is_same or held.own != own:  # others of its entries may be paid elsewhere now
            return _Progress(own)
        if held.seal != _seal(state, path, held.rows):
            held.rows, held.done = 0, ActivityStats(spent=held.done.spent)
        return held


def _next_rows(
    state: SessionState, path: list[int], held: _Progress, limit: int
) -> tuple[list[_Row], int, bool]:
    """Find the rows that one step reads, the row it comes to, and whether it is the last step.

    What a sub-agent copied is its parent's, and not searched. A fork's copies are, for what they
    were copied from may be gone.
    """
    is_borrowed = state.header is not None and state.header.subagent
    first = max(held.words, state.copied if is_borrowed else 0)
    on_path = set(path[bisect_left(path, held.rows) :])
    end = max(held.rows, len(state) - state.unsettled)
    rows, size = list[_Row](), 0
    for row in range(min(first, held.rows), end):
        says = row >= first and (state.kind(row) in _SAYS or bool(state.codes[row] & PAID))
        does = row in on_path and _does(state, row)
        if says or does:
            size += state.lengths[row]
            if len(rows) == limit or (rows and size > STEP_BYTES):
                return rows, row, False
            rows.append((row, row >= first, does))
    return rows, end, True


def _does(state: SessionState, row: int) -> bool:
    """Whether a row did something: a tool's result only where it says that the call failed."""
    kind = state.kind(row)
    return state.turn_of(row) is Turn.FAILED if kind is Kind.TOOL else kind in _DOES


def _take_in(
    info: SessionInfo,
    state: SessionState,
    lines: SessionLines,
    held: _Progress,
    rows: Iterable[_Row],
) -> Iterator[tuple[int, bool, Entry]]:
    """Read rows, each once and one at a time: they may be of any size."""
    read = ADAPTERS[info.agent].read
    for row, says, does in rows:
        line = lines.brief(row)
        if not line:  # it is far too long, or no JSON
            continue
        entry = read(line, state.id(row))
        copied = row < held.own[1] or 0 < iso_ms(entry.timestamp) < held.own[0]
        if does:
            held.done.add(entry, info.cwd, copied=copied)
        if says and not copied:
            held.done.pay(entry)
        yield row, says, entry


def _sign(info: SessionInfo) -> int:
    """The same for sessions with the same entries and the same leaf, so that it tells all read."""
    return number(info.session_id, info.leaf_id or "", info.path, str(info.rows), _RULES)


def _seal(state: SessionState, path: list[int], end: int) -> int:
    """The same for the same rows of a path up to one, and the same id of the last of them."""
    rows = path[: bisect_left(path, end)]
    return number(array("I", rows).tobytes().hex(), state.id(rows[-1]) if rows else "")
