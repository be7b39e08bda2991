"""Sessions that somebody looks at: each kept open, and read on as it grows.

In: what is stored of a session (the answer of `get`), and the version that the page has. Out: its
document, a patch, or word that nothing is new (web/live_told.py). A session has a library of
its own, in a directory that goes with it; of it only what was appended is read, and nothing as
long as the files stand as they stood and what is stored is the same. For threads: one session is
read by one of them at a time, several sessions by several.

At most `OPEN_MAX` sessions are open, none longer than `IDLE_SECONDS` after it was last asked for.
One that is being read is closed as soon as that has ended. A session whose file is gone has a
document all the same, of what is stored; it says so in `live.gone`.
"""

from __future__ import annotations

import copy
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexerd.daemon.library import Library
from indexerd.daemon.one_session import open_session, sweep
from indexerd.daemon.process import make_private
from indexerd.daemon.views import changed, take
from indexerd.errors import IndexerdError
from indexerd.meta.metas import digest_name
from indexerd.models.threads import Check
from indexerd.paths import user_name
from indexerd.sessions.state import ROOT, SessionState
from indexerd.settings import Settings
from indexerd.sources.cursor import Look
from indexerd.sources.tail import look
from indexerd.times import iso
from indexerd.web.export import Read, Wish, about_of, head_of, read_session
from indexerd.web.live_drafts import Drafts
from indexerd.web.live_told import Told
from indexerd.web.story import Story

OPEN_MAX = 4
IDLE_SECONDS = 600.0
_TURN_SECONDS = 0.1  # between looks whether anybody still waits for a turn
_WISH = Wish("html")

Document = dict[str, Any]
Stored = Mapping[str, Any]
Alone = Callable[[Mapping[str, Any]], Any]  # a row's session in a library; a context manager


class LiveSessions:
    """The open sessions of one process."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        env: Mapping[str, str],
        home: Path,
        clock: Callable[[], float] = time.monotonic,
        within: Path | None = None,
    ) -> None:
        """`settings` are asked for whenever a session is opened; caches are `within` a directory.

        What processes that were killed left there is removed. AccessError: it cannot be used.
        """
        if within is not None:
            make_private(within)
            sweep(within)
        self._alone: Alone = lambda row: open_session(row, settings(), env, home, within)
        self._clock = clock
        self._lock = threading.Lock()
        self._open: OrderedDict[str, LiveSession] = OrderedDict()  # used longest ago first
        self._used: dict[str, float] = {}

    def document(self, stored: Stored, since: str | None, check: Check) -> Document:
        """The session's document as it is now, or what is new in it since a version.

        Blocks; `check` is called now and then. SessionUnreadableError where it cannot be read;
        what is stored under `live` goes into the document as it is.
        """
        self.tend()
        while True:
            live = self._session(stored["session"])
            with live.turn(check):
                if live.retired:  # while we waited
                    continue
                return live.document(stored, since, check)

    def tend(self) -> None:
        """Close what nobody asked for lately."""
        limit = self._clock() - IDLE_SECONDS
        with self._lock:
            idle = [one for one, used in self._used.items() if used < limit]
            gone = [self._drop(one) for one in idle]
        for one in gone:
            one.retire()

    def forget(self, session_id: str) -> None:
        """A session is gone, or its user wants it forgotten: nothing of it is kept here."""
        with self._lock:
            gone = [self._drop(session_id)] if session_id in self._open else []
        for one in gone:
            one.retire()

    def close(self) -> None:
        """Close all of them; those that are being read as soon as that has ended."""
        with self._lock:
            gone = [self._drop(one) for one in list(self._open)]
        for one in gone:
            one.retire()

    def _session(self, row: Mapping[str, Any]) -> LiveSession:
        session_id, gone = row["sessionId"], list[LiveSession]()
        with self._lock:
            live = self._open.get(session_id)
            if live is not None and not live.is_of(row):  # it goes on in another file
                gone.append(self._drop(session_id))
                live = None
            if live is None:
                live = self._open[session_id] = LiveSession(row, self._alone)
            self._open.move_to_end(session_id)
            self._used[session_id] = self._clock()
            while len(self._open) > OPEN_MAX:
                gone.append(self._drop(next(iter(self._open))))
        for one in gone:
            one.retire()
        return live

    def _drop(self, session_id: str) -> LiveSession:
        del self._used[session_id]
        return self._open.pop(session_id)


@dataclass(frozen=True, slots=True)
class _Last:
    """What was told last, and what of: as long as that stays there is nothing to be read."""

    story: Story
    stored: Stored
    beside: tuple[Look | None, ...]
    seen: tuple[SessionState | None, int]


class LiveSession:
    """One session, and what was told of it."""

    def __init__(self, row: Mapping[str, Any], open_alone: Alone) -> None:
        """`open_alone(row)` reads the session of a row into a library of its own."""
        self._row = dict(row)
        self._alone = open_alone
        self._turn = threading.Lock()
        self._stack = ExitStack()
        self._library: Library | None = None
        self._path = ""
        self._changing = row["agent"] == "opencode"  # its records are rewritten in place
        self._state: SessionState | None = None  # that which was told of
        self._drafts = Drafts(changing=self._changing)
        self._told = Told(secrets.token_hex(6))
        self._last: _Last | None = None
        self.retired = False

    def is_of(self, row: Mapping[str, Any]) -> bool:
        """Whether this is the session of a row, in the file that the row names."""
        return all(row[key] == self._row[key] for key in ("agent", "sessionFile"))

    @contextmanager
    def turn(self, check: Check) -> Iterator[None]:
        """Have the session for oneself."""
        while not self._turn.acquire(timeout=_TURN_SECONDS):
            check()
        try:
            yield
        finally:
            self._turn.release()
            if self.retired:
                self._close()

    def retire(self) -> None:
        """No more turns: close it now, or when the one that is under way has ended."""
        self.retired = True
        self._close()

    def _close(self) -> None:
        if self._turn.acquire(blocking=False):
            try:
                self._library = None
                self._stack.close()
            finally:
                self._turn.release()

    def document(self, stored: Stored, since: str | None, check: Check) -> Document:
        """As `LiveSessions.document`; in one's turn."""
        library, grown = self._refreshed()
        beside, (last, self._last) = self._beside(library), (self._last, None)
        if last and not grown and last == self._as_of(library, last.story, stored, beside):
            self._last = last
            return self._told.again(last.story, iso(time.time()), since)
        found, live = self._read(library, check), {}
        if found is None:
            found, live = _nothing(), {"gone": True}
        about, story = _about(stored, found, live), found.story
        told = self._told.answer(story, about, iso(time.time()), since)
        self._last = self._as_of(library, story, copy.deepcopy(dict(stored)), beside)
        return told

    def _as_of(
        self, library: Library, story: Story, stored: Stored, beside: tuple[Look | None, ...]
    ) -> _Last:
        state = library.files.state(self._row["sessionId"])
        return _Last(story, stored, beside, (state, state.seen if state else 0))

    def _beside(self, library: Library) -> tuple[Look | None, ...]:
        """How the files stand that are read besides the session's own, at each answer."""
        session_id = self._row["sessionId"]
        try:
            home = library.home(session_id)
            names = (user_name(session_id), digest_name(session_id)) if home else ()
        except IndexerdError:  # none are read then
            return ()
        return tuple(look(f"{home}/{name}") for name in names)

    def _refreshed(self) -> tuple[Library, bool]:
        """The library, with what was appended; and whether anything was."""
        row, library, grown = self._row, self._library, True
        if library is None:
            library = self._library = self._stack.enter_context(self._alone(row))
            file = row["sessionFile"]
            boxed = any(
                one.sessions == file for one in library.stores() if one.agent == row["agent"]
            )
            shown = f"{file}/{row['sessionId']}" if boxed else file
            card = library.files.card(row["sessionId"])
            self._path = card.path if card else shown  # a name that is no UTF-8 is shown otherwise
        else:
            batches = list(library.files.refresh([self._path]))
            grown = any(batches)
        return library, grown

    def _read(self, library: Library, check: Check) -> Read | None:
        """Read what is new; None where the file is gone."""
        session_id = self._row["sessionId"]
        if library.files.card(session_id) is None:
            self._follow(None)
            return None
        taken = take(library, session_id)
        self._follow(library.files.state(session_id))
        try:
            return read_session(taken, check, _WISH, self._drafts)
        except ValueError:  # a line was not what it looked like: once more, parsing them all
            if not library.reread(session_id):
                raise changed() from None
        return self._read(library, check)

    def _follow(self, state: SessionState | None) -> None:
        """Begin anew where the file did: no row is known to be what it was any more.

        A database gives all of a session at each change: there rows are told by their ids.
        """
        known, self._state = self._state, state
        goes_on = self._changing and known and state and _goes_on(known, state)
        if known is not state and not goes_on:
            self._drafts = Drafts(changing=self._changing)
            self._told = Told(secrets.token_hex(6))


def _goes_on(old: SessionState, new: SessionState) -> bool:
    """Whether the rows that both have are of the same entries; either may have more."""
    both = min(len(old), len(new))
    return old.ids[:both] == new.ids[:both]


def without_entries(stored: Stored) -> Document:
    """The document of a session whose entries cannot be had: what is stored of it, no version."""
    return _about(stored, _nothing(), {}) | {
        "exportedAt": iso(time.time()),
        "beats": [],
        "nodes": [],
    }


def _about(stored: Stored, read: Read, live: Mapping[str, Any]) -> Document:
    read.warnings += stored.get("warnings", ())
    more = {"live": {**(stored.get("live") or {}), **live}}
    return about_of(head_of(stored, {}, ""), read, _WISH) | more


def _nothing() -> Read:
    return Read(Story([], [], ROOT, {}), [], [], 0)
