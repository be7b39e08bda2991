"""Read appended lines of sessions into the text index, and add up their facts.

Each line is parsed once for both. A plan that a client hands over is searchable like a prompt.
Words, tokens and cost are those of every branch; files and tools are those of the current path: if
it is not the path counted before, or a longer one, its rows are counted again. The session's
mark in the index stores how far both got. Each step is bounded in lines and bytes: redacting is
slow, and one thread reads. Only redacted texts are stored.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic

import msgspec

from indexerd.agents import ADAPTERS
from indexerd.agents.base import PROMPTED
from indexerd.agents.json_lines import own_words
from indexerd.entries import EXTRA, Entry, Kind, Turn
from indexerd.errors import SessionUnreadableError
from indexerd.privacy.redact import OwnSecrets
from indexerd.search.index import TEXT_MAX, Message, TextIndex, number
from indexerd.sessions.facts import ActivityStats, RowFacts, SessionUsage
from indexerd.sessions.info import SessionInfo
from indexerd.sessions.state import SessionState
from indexerd.sources.foreign_db import held_open
from indexerd.sources.session_reader import SessionFiles, SessionLines
from indexerd.times import iso_ms

BATCH, STEP_BYTES = 500, 512 * 1024  # at most so many lines, and about so many bytes, in a step
_COMMIT_SECONDS = 1.0  # between commits while there is more to read
_SHARED, SHARED_SECONDS = 64, 0.01  # sessions in a step, and when the last of them may begin
_RULES = "13"  # version of the rules for facts; a new one makes all sessions be read again

_DOES = frozenset({Kind.USER, Kind.ASSISTANT, Kind.CALL, Kind.SETTING})


class _Progress(msgspec.Struct, array_like=True):
    """How far a session's lines were read."""

    own: tuple[int, int]  # time and row of its first own entry; earlier ones were copied
    words: int = 0  # rows read for words, tokens and cost
    last: str = ""  # id of the last of them, in case the file is rewritten
    rows: int = 0  # rows read for activity on the path
    seal: int = 0  # hash of the path's rows among these
    done: ActivityStats = msgspec.field(default_factory=ActivityStats)
    rules: str = ""  # by which they were read


_Row = tuple[int, bool, bool]  # its number; whether its words count; whether its activity does
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Progress).decode


@dataclass(eq=False)
class TextIndexer:
    """Keeps the searchable text of all sessions up to date."""

    files: SessionFiles
    index: TextIndex
    publish: Callable[[str, RowFacts, SessionUsage], None]  # stores a session's facts
    reread: Callable[[str], bool]  # parses a session's lines again
    secrets: OwnSecrets
    # Whether a session was forked from one that is here: what it copied counts there.
    is_fork: Callable[[SessionInfo], bool]
    ripe: bool = False  # whether a commit is due
    rewritten: set[str] = field(default_factory=set)  # sessions whose old texts may have changed
    unreadable: set[str] = field(default_factory=set)  # sessions to be tried again after a scan
    _unread: dict[str, None] = field(default_factory=dict)  # sessions with unread text
    _pass: int = 0  # how many of them this pass has left to read; later ones wait for the next
    _ripened: float = 0.0  # when a commit was last due, on the monotonic clock

    def want(self, session_ids: Iterable[str]) -> None:
        """Queue sessions with new lines."""
        self._unread |= dict.fromkeys(session_ids)

    def resume(self, infos: Iterable[SessionInfo]) -> None:
        """Queue the sessions whose text is not completely in the index."""
        signs = self.index.signs("mark")
        changed = (info for info in infos if signs.get(number(info.session_id)) != _sign(info))
        self.want(info.session_id for info in changed)

    @property
    def unread(self) -> int:
        """Count the sessions whose text is not yet fully searchable."""
        return len(self._unread.keys() | self.index.lost | self.index.uncommitted.keys())

    def lacks(self, session_id: str) -> bool:
        """Return whether a session has unread text."""
        return session_id in self._unread or session_id in self.index.lost

    @property
    def due(self) -> bool:
        waiting = self._unread or self.index.lost or self.index.pending
        return bool(waiting) or self.index.owes_rebuild

    @held_open()
    def read_some(self) -> bool:
        """Read several sessions; return whether there are more in this pass.

        A pass covers what was unread when it began; a pause after it lets appends accumulate.
        """
        while self.index.lost:
            self._unread[self.index.lost.pop()] = None
        self._pass = self._pass or len(self._unread)
        if self.index.rebuild() or not self._pass:
            self.ripe = self.index.pending
            return self.due
        done, now = 0, monotonic()
        with self.index.store.batch():
            for session_id in tuple(islice(self._unread, min(self._pass, _SHARED))):
                if not self.index_session(session_id):
                    break  # commit the transaction, so that changes of its row become visible
                done += 1
                if monotonic() > now + SHARED_SECONDS:
                    break
        for session_id in tuple(islice(self._unread, done)):
            del self._unread[session_id]
        self._pass -= done
        self.ripe = not self._pass or now > self._ripened + _COMMIT_SECONDS
        self._ripened = now if self.ripe else self._ripened
        return self._pass > 0

    def index_session(self, session_id: str, limit: int = BATCH) -> bool:
        """Read a session from where the last step ended; return whether all is read."""
        if self.index.rebuild():  # until it ends nothing may be added
            return False
        info, state = self.files.info(session_id), self.files.state(session_id)
        if info is None or state is None:
            self.unreadable.update([session_id] if info else [])
            return True
        path = state.path()
        progress = self._progress(info, state, path)
        replace, (rows, end, is_last) = not progress.words, _next_rows(state, path, progress, limit)
        messages, facts = list[Message](), None
        try:
            with self.files.lines(session_id) as lines:
                for row, says, entry in _sum_up(info, state, lines, progress, rows):
                    role = state.speaker(row)
                    said = entry.said if role else entry.text if entry.plan else ""
                    if says and said:
                        text = own_words(said[: 4 * TEXT_MAX])
                        text = self.secrets.message(text, TEXT_MAX)
                        role = role or entry.role or ""
                        messages.append(Message(row, entry.id, role, entry.timestamp, text))
                if is_last:  # rows that may still change are read at each step and not stored
                    now = _decode(_encode(progress))
                    rest, done = range(end, len(state)), {*path[bisect_left(path, end) :]}
                    again = [(row, True, row in done and _does(state, row)) for row in rest]
                    deque(_sum_up(info, state, lines, now, again[-limit:]), maxlen=0)
                    facts = now.done.facts()
                    usage = now.done.usage(state.tokens_on, state.context, state.provider)
                    facts = msgspec.structs.replace(
                        facts,
                        cost_estimated_usd=usage.estimated_usd,
                        unpriced_tokens=usage.unpriced_tokens,
                    )
        except SessionUnreadableError:
            self.unreadable.add(session_id)
            return True
        except ValueError:  # the lines have changed: parse them all again
            return not self.reread(session_id)
        progress.words = max(progress.words, end)
        progress.rows, progress.seal = end, _seal(state, path, end)
        progress.last = state.ids[progress.words - 1] if progress.words else ""
        sign = _sign(info) if is_last else 0
        self.index.add_messages(session_id, messages, _encode(progress), sign, replace=replace)
        self.rewritten.discard(session_id)
        if facts is not None:
            self.publish(session_id, facts, usage)
        if is_last and replace:  # most likely no agent is working in it
            self.files.drop_tree(session_id)
        return is_last

    def titles(self, session_id: str) -> tuple[tuple[str, str], ...]:
        """Return the titles found on a session's path so far: kind and title, oldest first."""
        mark = self.index.mark(session_id)
        return tuple(title[:2] for title in _decode(mark).done.titles) if mark else ()

    def _progress(self, info: SessionInfo, state: SessionState, path: array[int]) -> _Progress:
        """Return the progress so far, reset as far as it is no longer valid."""
        own = (0 if state.copied or not self.is_fork(info) else info.born_ms, state.copied)
        mark = self.index.mark(info.session_id)
        progress = _decode(mark) if mark else _Progress(own)
        is_same = info.session_id not in self.rewritten and progress.words <= len(state)
        is_same = is_same and (not progress.words or state.ids[progress.words - 1] == progress.last)
        # With another `own`, other entries count as copied.
        if not is_same or (progress.own, progress.rules) != (own, _RULES):
            return _Progress(own, rules=_RULES)
        if progress.seal != _seal(state, path, progress.rows):
            progress.rows, progress.done = 0, ActivityStats(spent=progress.done.spent)
        return progress


def _next_rows(
    state: SessionState, path: array[int], progress: _Progress, limit: int
) -> tuple[list[_Row], int, bool]:
    """Find the rows that a step reads, the row where it ends, and whether it is the last step.

    Messages that a sub-agent copied are its parent's, and not searchable in it. A fork's copies
    are, because their origin may be gone.
    """
    is_subagent = state.header is not None and state.header.subagent
    first = max(progress.words, state.copied if is_subagent else 0)
    at, end = bisect_left(path, progress.rows), max(progress.rows, len(state) - state.unsettled)
    rows, size = list[_Row](), 0
    for row in range(min(first, progress.rows), end):
        says = row >= first and bool(state.speaker(row) or state.codes[row] & EXTRA)
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
    """Return whether a row counts as activity.

    A tool result does if it reports a failed call; a program's prompt, as it may have a plan.
    """
    kind = state.kind(row)
    if kind is Kind.TOOL:
        return state.codes[row] == PROMPTED or state.turn_of(row) is Turn.FAILED
    return kind in _DOES


def _sum_up(
    info: SessionInfo,
    state: SessionState,
    lines: SessionLines,
    progress: _Progress,
    rows: Iterable[_Row],
) -> Iterator[tuple[int, bool, Entry]]:
    """Read rows one by one, since they may be large, and add up their activity."""
    read = ADAPTERS[info.agent].read
    for row, says, does in rows:
        if line := lines.row(row):  # else it is too long
            entry = read(line, state.ids[row])
            if state.codes[row] == PROMPTED:  # an agent's own message type may be the user's
                entry = msgspec.structs.replace(entry, kind=state.kind(row))
            copied = row < progress.own[1] or 0 < iso_ms(entry.timestamp) < progress.own[0]
            if does and not (copied and info.subagent):
                progress.done.add(entry, info.cwd, copied=copied)
            if says and not copied:
                current = next(reversed(progress.done.models), "")
                prompt = state.kind(row) is Kind.USER
                progress.done.spent.add(entry, current, prompt=prompt)
            yield row, says, entry


def _sign(info: SessionInfo) -> int:
    """Hash what a session's text depends on: stored once all of it is read."""
    return number(info.session_id, info.leaf_id or "", info.path, str(info.rows), _RULES)


def _seal(state: SessionState, path: array[int], end: int) -> int:
    """Hash a path's rows before `end`, and the id of the last of them."""
    rows = path[: bisect_left(path, end)]
    return number(rows.tobytes().hex(), state.ids[rows[-1]] if rows else "")
