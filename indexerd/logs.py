"""The structured log: events with fields, and never text of a session.

`LOG.log(INFO, Event.META_WRITTEN, session=…, ms=…)` writes one JSON object a line to the log file,
and to stderr JSON, or text on a terminal. Until `configure`, nothing is written.

Texts are escaped, redacted and cut; of an error that is not ours only the type is said, as the
words of libraries may quote a reply or a request. A full disk, a closed stderr or a reader that has
gone or stopped reading cost lines, nothing else.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import select
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, TextIO

from indexerd.disk import RotatingFile
from indexerd.errors import IndexerdError
from indexerd.privacy.redact import redact
from indexerd.privacy.sanitize import escape_path
from indexerd.times import iso

LIMIT_BYTES = 8 * 1024 * 1024
KEPT_FILES = 2
TEXT_MAX = 500  # characters of one value
LINE_MAX = 4000  # bytes; a pipe takes this much whole, or not at all
_READ_MAX = 2000  # characters of one value that are looked at
_ITEMS_MAX = 20  # of a list or a mapping
_LEAST_KEYS = 4  # ts, level, event, cut
_TRACE_MAX = 40  # lines
_STALL_SECONDS = 0.05
_THROTTLED_MAX = 1024  # keys
_LEVELS = logging.getLevelNamesMapping()
_JOURNAL = {"debug": 7, "info": 6, "warning": 4, "error": 3}
_QUIET = logging.NullHandler()


class Throttle:
    """Lets a repeated event through once in `seconds` for each key."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last: dict[str, float] = {}

    def admit(self, key: str, now: float) -> bool:
        if 0 <= now - self._last.get(key, -math.inf) < self._seconds:
            return False
        if len(self._last) >= _THROTTLED_MAX:
            self._last.clear()
        self._last[key] = now
        return True


class Event(StrEnum):
    """Every event of the log, by the names of docs/PROTOCOL.md."""

    DAEMON_STARTED = "daemon.started"
    DAEMON_READY = "daemon.ready"
    DAEMON_CONFIG_RELOADED = "daemon.config_reloaded"
    DAEMON_STOPPING = "daemon.stopping"
    DAEMON_STOPPED = "daemon.stopped"
    WATCH_ARMED = "watch.armed"
    WATCH_DEGRADED = "watch.degraded"
    WATCH_OVERFLOW = "watch.overflow"
    WATCH_RESCAN = "watch.rescan"
    WATCH_LIMIT = "watch.limit"
    SESSION_DISCOVERED = "session.discovered"
    SESSION_APPENDED = "session.appended"
    SESSION_RESET = "session.reset"
    SESSION_REMOVED = "session.removed"
    SESSION_BAD_LINE = "session.bad_line"
    SESSION_QUARANTINED = "session.quarantined"
    INDEX_QUEUED = "index.queued"
    INDEX_STARTED = "index.started"
    INDEX_ATTEMPT = "index.attempt"
    INDEX_RETRY = "index.retry"
    INDEX_SUCCEEDED = "index.succeeded"
    INDEX_FAILED = "index.failed"
    INDEX_SKIPPED = "index.skipped"
    QUERY_ANSWERED = "query.answered"
    QUERY_FAILED = "query.failed"
    CONTEXT_UNKNOWN_SET = "context.unknown_set"
    DIGEST_STARTED = "digest.started"
    DIGEST_ATTEMPT = "digest.attempt"
    DIGEST_WRITTEN = "digest.written"
    DIGEST_FAILED = "digest.failed"
    DIGEST_HOOK_FAILED = "digest.hook_failed"
    SESSION_PURGED = "session.purged"
    META_WRITTEN = "meta.written"
    META_INVALID = "meta.invalid"
    MODEL_BREAKER_OPEN = "model.breaker_open"
    MODEL_BREAKER_CLOSED = "model.breaker_closed"
    BUDGET_RESERVED = "budget.reserved"
    BUDGET_EXHAUSTED = "budget.exhausted"
    BUDGET_UNSETTLED = "budget.unsettled"
    SOCKET_REJECTED = "socket.rejected"
    CACHE_DAMAGED = "cache.damaged"
    CACHE_REPLACED = "cache.replaced"
    CONFIG_INVALID = "config.invalid"
    WEB_STARTED = "web.started"
    WEB_ENDED = "web.ended"


class Logger:
    """Writes events to the log file and to a stderr that may be gone or stuck."""

    def __init__(self) -> None:
        self._level: float = math.inf
        self._file: RotatingFile | None = None
        self._fd: int | None = None  # of stderr
        self._console = self._in_journal = self._stalled = False
        self._turn = threading.RLock()  # reentrant, as a signal handler may log meanwhile

    def configure(self, level: str, fmt: str, *, log_file: Path, stderr: TextIO | None) -> None:
        """Say where events of `level` and above go; may be called again.

        `fmt` is `json`, `console`, or `auto`: console on a terminal.
        """
        self._level, self._fd = _LEVELS[level.upper()], None
        self._file = RotatingFile(log_file, limit=LIMIT_BYTES, keep=KEPT_FILES)
        terminal = False
        with suppress(OSError, ValueError):
            if stderr is not None:
                self._fd, terminal = stderr.fileno(), stderr.isatty()
                status = os.fstat(self._fd)
                journal = f"{status.st_dev}:{status.st_ino}"
                self._in_journal = journal == os.environ.get("JOURNAL_STREAM")
        self._console = fmt == "console" or (fmt == "auto" and terminal)
        # Other libraries' own records would reach stderr as bare text, with whatever they quote.
        if _QUIET not in logging.getLogger().handlers:
            logging.getLogger().addHandler(_QUIET)

    def log(
        self, level: int, event: str, *, exc_info: BaseException | None = None, **facts: Any
    ) -> None:
        """Write one event, known keys first, every value bounded."""
        if level < self._level:
            return
        with self._turn:  # lines of several threads stand in the order of their times
            self._write(logging.getLevelName(level).lower(), str(event), exc_info, facts)

    def _write(
        self, name: str, event: str, exc_info: BaseException | None, facts: dict[str, Any]
    ) -> None:
        entry: dict[str, Any] = {"ts": iso(time.time()), "level": name, "event": event}
        entry |= {key: _bounded(facts[key]) for key in list(facts)[:_ITEMS_MAX]}
        if exc_info is not None:
            entry |= {"error": _words(exc_info), "trace": _trace(exc_info)}
        line = json.dumps(entry, ensure_ascii=False)
        while len(line.encode()) > LINE_MAX and len(entry) > _LEAST_KEYS:
            entry.pop("cut", None)
            entry.popitem()  # the last are the least: the trace, then facts
            entry["cut"] = True
            line = json.dumps(entry, ensure_ascii=False)
        if self._file is not None:
            self._file.append(line.encode())
        if self._console:
            ts, _, event, *rest = entry.values()
            more = (f"{key}={one}" for key, one in zip([*entry][3:], rest, strict=True))
            line = " ".join([ts, f"{name:7}", f"{event:22}", *more])
        self._print((f"<{_JOURNAL[name]}>" if self._in_journal else "") + line + "\n")

    def _print(self, text: str) -> None:
        if self._fd is None:
            return
        try:
            # A reader that has stopped is waited for a little, but not for every line.
            wait = 0.0 if self._stalled else _STALL_SECONDS
            self._stalled = not select.select([], [self._fd], [], wait)[1]
            if not self._stalled:
                os.write(self._fd, text.encode())
        except (OSError, ValueError):
            self._stalled = True


LOG = Logger()


def _bounded(value: Any, depth: int = 2) -> Any:
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case str() | Path():
            return _text(str(value))
        case BaseException():
            return _words(value)
        case Mapping() if depth:
            items = list(value.items())[:_ITEMS_MAX]
            return {_text(str(key)): _bounded(one, depth - 1) for key, one in items}
        case list() | tuple() | set() | frozenset() if depth:
            return [_bounded(one, depth - 1) for one in list(value)[:_ITEMS_MAX]]
    return f"<{type(value).__name__}>"


def _text(text: str) -> str:
    safe = escape_path(redact(text[:_READ_MAX]).text)
    return safe if len(safe) <= TEXT_MAX else safe[: TEXT_MAX - 1] + "…"


def _words(error: BaseException) -> str:
    """What may be said of an error: all of ours, the system's code, else only the type."""
    name = type(error).__name__
    if isinstance(error, IndexerdError):
        return _text(f"{name}: {error}")
    code = errno.errorcode.get(error.errno or 0) if isinstance(error, OSError) else None
    return f"{name}: {code}" if code else name


def _trace(error: BaseException) -> list[str]:
    """An error, and where it and its causes came from: file names and lines, and no values."""
    trace: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(trace) < _TRACE_MAX:
        trace.append(_words(cause))
        for frame, line in traceback.walk_tb(cause.__traceback__):
            place = "/".join(Path(frame.f_code.co_filename).parts[-2:])
            trace.append(f"{place}:{line} {frame.f_code.co_name}")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return trace[-_TRACE_MAX:]
