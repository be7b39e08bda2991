"""Reads appended lines of sessions into the text index, and sums up what sessions did.

Both come from the same lines, so each is parsed once. Words are those of every branch, and so is
what was paid (tokens, cost); files and tools are those of the current path: if its rows are not
those that were summed up, with more at the end, they are summed up again. How far both got is the
session's mark in the index. Each step is bounded, in lines and in bytes: redacting is slow, and
all reading is done by one thread. Secrets are taken out before anything is kept.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from time import monotonic
from typing import Any

import msgspec

from indexerd.agents import ADAPTERS
from indexerd.agents.json_lines import own_words
from indexerd.errors import SessionUnreadableError
from indexerd.events import PAID, Entry, Kind, Turn
from indexerd.privacy.redact import OwnSecrets
from indexerd.search.index import TEXT_MAX, Message, TextIndex, number
from indexerd.sessions.facts import ActivityStats, Facts
from indexerd.sessions.info import SessionInfo
from indexerd.sessions.state import SessionState
from indexerd.sources.session_reader import SessionLines
from indexerd.times import iso_ms

BATCH, STEP_BYTES = 500, 512 * 1024  # lines read in one step, and about as many bytes
_COMMIT_SECONDS = 1.0  # that words wait at most until they are found, while there are more
_SHARED, SHARED_SECONDS = 64, 0.01  # sessions of a step, and the time after which none is begun
_RULES = "4"  # by which facts are summed up; sessions are read again under other rules

_SAYS = frozenset({Kind.USER, Kind.ASSISTANT})
_DOES = frozenset({Kind.USER, Kind.ASSISTANT, Kind.CALL, Kind.SETTING})


class _Progress(msgspec.Struct, array_like=True):
    """How far a session's lines were read."""

    own: tuple[int, int]  # the time and the row from which on its entries are its own
    words: int = 0  # rows read for their words, and for what was paid
    last: str = ""  # id of the last of them: the file may have been rewritten
    rows: int = 0  # rows read for what was done on the path
    seal: int = 0  # of the path's rows among these
    done: ActivityStats = msgspec.field(default_factory=ActivityStats)


_Row = tuple[int, bool, bool]  # its number, whether its words count, and what it did
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Progress).decode


class Texts:
    """Keeps the searchable text of all sessions up to date."""

    def __init__(
        self,
        files: Any,
        index: TextIndex,
        publish: Callable[[str, Facts], None],
        reread: Callable[[str], bool],
        *,
        secrets: OwnSecrets,
    ) -> None:
        """`reread` parses all lines of a session again, `publish` puts its facts into its row."""
        self._files = files
        self._index = index
        self._publish = publish
        self._reread = reread
        self._secrets = secrets
        self._unread: dict[str, None] = {}  # sessions whose text was not read
        self._pass = 0  # the first so many of them: the others came since it began
        self._ripened = 0.0  # when a commit was last due, on the monotonic clock
        self.ripe = False  # a commit is due now

    def want(self, session_ids: Iterable[str]) -> None:
        """Queue sessions that were appended to."""
        self._unread |= dict.fromkeys(session_ids)

    def resume(self, infos: Iterable[SessionInfo]) -> None:
        """Queue the sessions that the index has not read to their end."""
        signs = self._index.signs("mark")
        self.want(
            one.session_id for one in infos if signs.get(number(one.session_id)) != _sign(one)
        )

    @property
    def unread(self) -> int:
        """Count the sessions whose text is not (fully) searchable yet."""
        return len(self._unread.keys() | self._index.lost | self._index.uncommitted.keys())

    @property
    def due(self) -> bool:
        waiting = self._unread or self._index.lost or self._index.pending
        return bool(waiting) or self._index.owes_rebuild

    def some(self) -> bool:
        """Read several sessions; say whether there are more in this pass.

        A pass is over what was unread as it began: a pause after it lets appends gather.
        """
        while self._index.lost:
            self._unread[self._index.lost.pop()] = None
        self._pass = self._pass or len(self._unread)
        if self._index.rebuild() or not self._pass:
            self.ripe = self._index.pending
            return self.due
        done, now = 0, monotonic()
        with self._index.store.batch():
            for session_id in tuple(islice(self._unread, min(self._pass, _SHARED))):
                if not self.index(session_id):
                    break  # its row may change in this transaction, and nobody sees that yet
                done += 1
                if monotonic() > now + SHARED_SECONDS:
                    break
        for session_id in tuple(islice(self._unread, done)):
            del self._unread[session_id]
        self._pass -= done
        self.ripe = not self._pass or now > self._ripened + _COMMIT_SECONDS
        self._ripened = now if self.ripe else self._ripened
        return self._pass > 0

    def index(self, session_id: str, limit: int = BATCH) -> bool:
        """Read a session from where the last step ended; say whether all is read."""
        if self._index.rebuild():  # into which nothing may be added meanwhile
            return False
        info, state = self._files.info(session_id), self._files.state(session_id)
        if info is None or state is None:
            return True
        path = state.path()
        if not state.orderly:
            path = array("i", sorted(path))
        held = self._progress(info, state, path)
        anew, (rows, end, is_last) = not held.words, _next_rows(state, path, held, limit)
        said, facts = list[Message](), None
        try:
            with self._files.lines(session_id) as lines:
                for row, says, entry in _sum_up(info, state, lines, held, rows):
                    if says and entry.kind in _SAYS and entry.text:
                        text = own_words(entry.text[: 4 * TEXT_MAX])
                        text = self._secrets.message(text, TEXT_MAX)
                        said.append(Message(row, entry.id, entry.role or "", entry.timestamp, text))
                if is_last:  # rows that may still change are not kept, but read at each step
                    now = _decode(_encode(held))
                    rest, done = range(end, len(state)), {*path[bisect_left(path, end) :]}
                    again = [(row, True, row in done and _does(state, row)) for row in rest]
                    deque(_sum_up(info, state, lines, now, again[-limit:]), maxlen=0)
                    facts = now.done.facts()
        except SessionUnreadableError:
            return True
        except ValueError:  # the lines are not what they were: parse them all
            return not self._reread(session_id)
        held.words = max(held.words, end)
        held.rows, held.seal = end, _seal(state, path, end)
        held.last = state.id(held.words - 1) if held.words else ""
        sign = _sign(info) if is_last else 0
        self._index.add_messages(session_id, said, _encode(held), sign, anew=anew)
        if facts is not None:
            self._publish(session_id, facts)
        if is_last and anew:  # most likely nobody is at work in it
            self._files.drop_tree(session_id)
        return is_last

    def _progress(self, info: SessionInfo, state: SessionState, path: array[int]) -> _Progress:
        """Give what was read so far, as far as it still holds."""
        came_from = info.parent or info.parent_id or info.first
        own = (0, state.copied) if state.copied else (info.born_ms if came_from else 0, 0)
        mark = self._index.mark(info.session_id)
        held = _decode(mark) if mark else _Progress(own)
        is_same = held.words <= len(state) and (
            not held.words or state.id(held.words - 1) == held.last
        )
        if not is_same or held.own != own:  # other entries may be paid elsewhere now
            return _Progress(own)
        if held.seal != _seal(state, path, held.rows):
            held.rows, held.done = 0, ActivityStats(spent=held.done.spent)
        return held


def _next_rows(
    state: SessionState, path: array[int], held: _Progress, limit: int
) -> tuple[list[_Row], int, bool]:
    """Find the rows that a step reads, the row where it ends, and whether it is the last step.

    What a sub-agent copied is its parent's, and not searched. A fork's copies are, because what
    they were copied from may be gone.
    """
    is_borrowed = state.header is not None and state.header.subagent
    first = max(held.words, state.copied if is_borrowed else 0)
    at, end = bisect_left(path, held.rows), max(held.rows, len(state) - state.unsettled)
    rows, size = list[_Row](), 0
    for row in range(min(first, held.rows), end):
        says = row >= first and (state.kind(row) in _SAYS or bool(state.codes[row] & PAID))
        on_path = at < len(path) and path[at] == row
        at += on_path
        does = on_path and _does(state, row)
        if says or does:
            size += state.lengths[row]
            if len(rows) == limit or (rows and size > STEP_BYTES):
                return rows, row, False
            rows.append((row, row >= first, does))
    return rows, end, True


def _does(state: SessionState, row: int) -> bool:
    """Whether a row did something: a tool's result only if it says that the call failed."""
    kind = state.kind(row)
    return state.turn_of(row) is Turn.FAILED if kind is Kind.TOOL else kind in _DOES


def _sum_up(
    info: SessionInfo,
    state: SessionState,
    lines: SessionLines,
    held: _Progress,
    rows: Iterable[_Row],
) -> Iterator[tuple[int, bool, Entry]]:
    """Read rows one at a time, since they may be of any size, and add up what they did."""
    read = ADAPTERS[info.agent].read
    for row, says, does in rows:
        if line := lines.brief(row):  # else it is far too long, or no JSON
            entry = read(line, state.id(row))
            copied = row < held.own[1] or 0 < iso_ms(entry.timestamp) < held.own[0]
            if does:
                held.done.add(entry, info.cwd, copied=copied)
            if says and not copied:
                held.done.spent.add(entry.tokens)
            yield row, says, entry


def _sign(info: SessionInfo) -> int:
    """Give the same number for a session with the same entries and leaf: all of it was read."""
    return number(info.session_id, info.leaf_id or "", info.path, str(info.rows), _RULES)


def _seal(state: SessionState, path: array[int], end: int) -> int:
    """Give the same number for the same rows of a path below `end`, with the same last id."""
    rows = path[: bisect_left(path, end)]
    return number(rows.tobytes().hex(), state.id(rows[-1]) if rows else "")
