"""The structured log: events with fields, and never a session's text.

`LOG.log(INFO, "meta.written", session=…, ms=…)` writes one JSON object per line to the log
file, and JSON, or text on a terminal, to stderr. Until `configure`, nothing is written.

Texts are escaped, redacted and cut. For errors of other libraries only the type is logged, as the
message may quote a request. A full disk, a closed stderr or a stuck reader only costs log lines.
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
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from indexerd.disk import append_rotating
from indexerd.errors import IndexerdError
from indexerd.privacy.redact import redact
from indexerd.privacy.sanitize import escape_path
from indexerd.times import iso

LIMIT_BYTES = 8 * 1024 * 1024
TEXT_MAX = 500  # characters of one value
LINE_MAX = 4000  # bytes; a pipe accepts so short a line whole, or not at all
_READ_MAX = 2000  # characters of one value that are redacted, before it is cut
_TRACE_MAX = 40  # lines
_QUIET = logging.NullHandler()
# Events (docs/OPERATIONS.md lists all) that are not of level INFO:
_DEBUG = """watch.rescan session.appended index.queued index.attempt digest.attempt
budget.reserved"""
_WARNING = """watch.degraded watch.overflow session.bad_line index.failed
context.unknown_set digest.failed digest.hook_failed meta.invalid model.breaker_open
budget.exhausted budget.unsettled cache.damaged config.invalid web.ended fleet.unreachable
fleet.taken fleet.removed archive.dropped archive.failed"""
LEVEL_OF = dict.fromkeys(_DEBUG.split(), logging.DEBUG)
LEVEL_OF |= dict.fromkeys(_WARNING.split(), logging.WARNING)


class Logger:
    """Writes events to the log file and to stderr, which may be closed or stuck."""

    def __init__(self) -> None:
        self._level: float = math.inf
        self._path: Path | None = None
        self._fd: int | None = None  # of stderr
        self._console = False
        self._turn = threading.RLock()  # reentrant, as a signal handler may log meanwhile

    def configure(self, level: str, fmt: str, *, log_file: Path, stderr: TextIO | None) -> None:
        """Set where events of `level` and above go; may be called again.

        `fmt` is `json`, `console`, or `auto`: console on a terminal.
        """
        self._level = logging.getLevelNamesMapping()[level.upper()]
        self._path, self._fd, terminal = log_file, None, False
        with suppress(OSError, ValueError):
            if stderr is not None:
                self._fd, terminal = stderr.fileno(), stderr.isatty()
        self._console = fmt == "console" or (fmt == "auto" and terminal)
        # Records of other libraries would reach stderr as plain text, with whatever they quote.
        logging.getLogger().addHandler(_QUIET)

    def log(
        self, level: int, event: str, *, exc_info: BaseException | None = None, **fields: Any
    ) -> None:
        """Write one event; every value is bounded."""
        if level < self._level:
            return
        name = logging.getLevelName(level).lower()
        with self._turn:  # so that lines of several threads are in the order of their times
            entry: dict[str, Any] = {"ts": iso(time.time()), "level": name, "event": str(event)}
            entry |= {key: _bounded(value) for key, value in fields.items()}
            if exc_info is not None:
                entry |= {"error": _describe(exc_info), "trace": _trace(exc_info)}
            self._write(entry)

    def _write(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry, ensure_ascii=False)
        while len(line.encode()) > LINE_MAX:
            entry.pop("cut", None)
            entry.popitem()  # the last fields matter least: the trace, then facts
            entry["cut"] = True
            line = json.dumps(entry, ensure_ascii=False)
        if self._path is not None:
            append_rotating(self._path, line.encode(), limit=LIMIT_BYTES)
        if self._console:
            ts, level, event, *rest = entry.values()
            more = (f"{key}={value}" for key, value in zip([*entry][3:], rest, strict=True))
            line = " ".join([ts, f"{level:7}", f"{event:22}", *more])
        with suppress(OSError, ValueError):  # a stuck reader is not waited for
            if self._fd is not None and select.select([], [self._fd], [], 0)[1]:
                os.write(self._fd, f"{line}\n".encode())


LOG = Logger()


def _bounded(value: Any) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case str() | Path():
            return _text(str(value))
        case BaseException():
            return _describe(value)
    return f"<{type(value).__name__}>"


def _text(text: str) -> str:
    safe = escape_path(redact(text[:_READ_MAX]).text)
    return safe if len(safe) <= TEXT_MAX else safe[: TEXT_MAX - 1] + "…"


def _describe(error: BaseException) -> str:
    """Describe an error: our own with its message, a system error with its code, others by type."""
    name = type(error).__name__
    if isinstance(error, IndexerdError):
        return _text(f"{name}: {error}")
    code = errno.errorcode.get(error.errno or 0) if isinstance(error, OSError) else None
    return f"{name}: {code}" if code else name


def _trace(error: BaseException) -> list[str]:
    """List an error, its causes, and the lines that raised them; no values."""
    trace: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(trace) < _TRACE_MAX:
        trace.append(_describe(cause))
        for frame, line in traceback.walk_tb(cause.__traceback__):
            place = "/".join(Path(frame.f_code.co_filename).parts[-2:])
            trace.append(f"{place}:{line} {frame.f_code.co_name}")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return trace[-_TRACE_MAX:]
