"""Sessions that somebody looks at: each kept open, and read on as it grows.

A session has a library of its own, in a directory that goes with it, of which only what was
appended is read. A page that has a version of the document is sent what follows the part that is
the same: it keeps its first `keep.nodes` nodes and `keep.beats` beats, and gets the rest.

    whole    {version, …the document}
    changes  {version, base, keep: {nodes, beats}, …the rest of the document, nodes, beats}
    nothing  {version, base}, both what the page has

At most `OPEN_MAX` sessions are open, none longer than `IDLE_SECONDS` after it was last asked for.
One session is read by one thread at a time, several by several.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from indexerd.daemon.library import Library
from indexerd.daemon.one_session import open_session, sweep
from indexerd.daemon.process import make_private
from indexerd.settings import Settings
from indexerd.web.document import Document, NodeCache, Stored, Wish, read_document

OPEN_MAX = 4
IDLE_SECONDS = 600.0
VERSIONS_MAX = 4  # of one session, for pages that were not told of each

_WISH = Wish()


class LiveSessions:
    """The open sessions of one process."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        env: Mapping[str, str],
        home: Path,
        folder: Path,
    ) -> None:
        """`folder` has their caches; what killed processes left there is removed."""
        make_private(folder)
        sweep(folder)
        self._open_library = lambda row: open_session(row, settings(), env, home, folder)
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _LiveSession] = OrderedDict()  # used longest ago first

    def document(self, stored: Stored, since: str | None) -> Document:
        """The session's document as it is now, or what is new in it since a version.

        Blocks. NotFoundError, SessionUnreadableError where it cannot be read.
        """
        row = stored["session"]
        with self._lock:
            session = self._open.get(row["sessionId"])
            if session is None or session.file != (row["agent"], row["sessionFile"]):
                session = _LiveSession(row, self._open_library)
                self._open[row["sessionId"]] = session
            self._open.move_to_end(row["sessionId"])
            session.used = time.monotonic()
            too_many = [*self._open][:-OPEN_MAX]
        self._close(too_many)
        return session.document(stored, since)

    def close_idle(self) -> None:
        """Close what nobody asked for lately."""
        limit = time.monotonic() - IDLE_SECONDS
        self._close([key for key, one in [*self._open.items()] if one.used < limit])

    def forget(self, session_id: str) -> None:
        """A session is gone, or its user wants it forgotten: nothing of it is kept here."""
        self._close([session_id])

    def close(self) -> None:
        """Close all of them; those that are being read as soon as that has ended."""
        self._close([*self._open])

    def _close(self, keys: Sequence[str]) -> None:
        with self._lock:
            sessions = [self._open.pop(key) for key in keys if key in self._open]
        for session in sessions:
            threading.Thread(target=session.close).start()


class _LiveSession:
    """One session, and the last versions of its document."""

    def __init__(self, row: Mapping[str, Any], open_library: Callable[[Any], Any]) -> None:
        self.file = (row["agent"], row["sessionFile"])
        self.used = 0.0
        self._row = row
        self._open_library = open_library
        self._turn = threading.Lock()
        self._stack = ExitStack()
        self._library: Library | None = None
        self._path = ""
        self._state: Any = None
        self._cache = NodeCache()
        self._run = secrets.token_hex(6)
        self._number = 0
        self._versions: OrderedDict[str, Document] = OrderedDict()

    def close(self) -> None:
        """Close it, once nobody reads it."""
        with self._turn:
            self._library = None
            self._stack.close()

    def document(self, stored: Stored, since: str | None) -> Document:
        """As `LiveSessions.document`."""
        with self._turn:
            library = self._refreshed()
            state = library.files.state(self._row["sessionId"])
            if state is not self._state or self._row["agent"] == "opencode":
                self._cache = NodeCache()  # the file is another; opencode rewrites its records
                self._state = state
            found = read_document(library, stored, _WISH, {}, self._cache)
            found["live"] = stored["live"]
            return self._answer(found, since)

    def _refreshed(self) -> Library:
        """The library, with what was appended."""
        if self._library is not None:
            for _ in self._library.files.refresh([self._path]):
                pass
            return self._library
        row = self._row
        library: Library = self._stack.enter_context(self._open_library(row))
        self._library = library
        card = library.files.card(row["sessionId"])
        self._path = card.path if card else row["sessionFile"]
        return library

    def _answer(self, found: Document, since: str | None) -> Document:
        """What a page needs that has version `since`."""
        last = next(reversed(self._versions), "")
        if not last or _differs(self._versions[last], found):
            self._number += 1
            last = f"{self._run}.{self._number}"
            self._versions[last] = found
            while len(self._versions) > VERSIONS_MAX:
                self._versions.popitem(last=False)
        base = self._versions.get(since or "")
        if since == last:
            return {"version": last, "base": since}
        if base is None:
            return {"version": last} | found
        keep = {key: _same(base[key], found[key]) for key in ("nodes", "beats")}
        rest = {key: found[key][keep[key] :] for key in keep}
        return {"version": last, "base": since, "keep": keep} | found | rest


def _differs(old: Document, new: Document) -> bool:
    return any(old.get(key) != new[key] for key in new if key != "exportedAt")


def _same(old: Sequence[Any], new: Sequence[Any]) -> int:
    """How many stay at the beginning."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(old), len(new)))
