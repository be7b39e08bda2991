"""The structured log: events with fields, and never text of a session.

`get_logger().info(Event.META_WRITTEN, session=…, ms=…)` writes one JSON object a line to the log
file, and to stderr JSON, or coloured text on a terminal. Until `configure`, nothing is written.

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
import sys
import traceback
from collections import OrderedDict
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO, cast

from indexerd.disk import RotatingFile
from indexerd.errors import IndexerdError
from indexerd.privacy.redact import redact
from indexerd.privacy.sanitize import escape_path

_RICH = "rich" not in sys.modules
if _RICH:  # structlog imports it for its colours, which costs more than all the rest
    sys.modules["rich"] = None  # type: ignore[assignment] # Python's own way to bar a module
import structlog  # noqa: E402 - rich is barred first
from structlog.typing import EventDict, FilteringBoundLogger  # noqa: E402 - likewise

if _RICH:
    del sys.modules["rich"]

LIMIT_BYTES = 8 * 1024 * 1024
KEPT_FILES = 2
TEXT_MAX = 500  # characters of one value
LINE_MAX = 4000  # bytes; a pipe takes this much whole, or not at all
_READ_MAX = 2000  # characters of one value that are looked at
_KEY_MAX = 64
_ITEMS_MAX = 20  # of a list or a mapping
_LEAST_KEYS = 4  # ts, level, event, cut
_FRAMES_MAX = 12
_CAUSES_MAX = 4
_STALL_SECONDS = 0.05
_QUIET = logging.NullHandler()
_JOURNAL = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}


class Throttle:
    """Lets a repeated event through once in `seconds` for each of the `keys` seen last."""

    def __init__(self, seconds: float, *, keys: int = 1024) -> None:
        self._seconds = seconds
        self._keys = keys
        self._last: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def admit(self, key: str, now: float) -> int | None:
        """None to hold the event back; else how many were held back since the last one."""
        last, held = self._last.pop(key, (None, 0))
        if last is not None and 0 <= now - last < self._seconds:
            self._last[key] = (last, held + 1)
            return None
        self._last[key] = (now, 0)
        if len(self._last) > self._keys:
            self._last.popitem(last=False)
        return held


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
    SESSION_MOVED = "session.moved"
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
    META_REMOVED = "meta.removed"
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


def get_logger() -> FilteringBoundLogger:
    """The program's logger; it may be taken before `configure`, and follows it."""
    return cast("FilteringBoundLogger", structlog.get_logger())


def configure(
    level: str,
    fmt: str,
    *,
    log_file: Path | None,
    stderr: TextIO | None,
    env: Mapping[str, str] = os.environ,
) -> None:
    """Say where events of `level` and above go; may be called again.

    `fmt` is `json`, `console`, or `auto`: console on a terminal.
    """
    terminal = stderr is not None and not stderr.closed and stderr.isatty()
    console = None
    if fmt == "console" or (fmt == "auto" and terminal):
        colours = terminal and not env.get("NO_COLOR") and env.get("TERM") != "dumb"
        console = structlog.dev.ConsoleRenderer(
            colors=colours, timestamp_key="ts", sort_keys=False, pad_event_to=22
        )
    outputs = _Outputs(log_file, stderr, console, env.get("JOURNAL_STREAM"))
    structlog.configure(
        processors=[_entry],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: outputs,
        cache_logger_on_first_use=False,
    )
    # Other libraries' own records would reach stderr as bare text, with whatever they quote.
    if _QUIET not in logging.getLogger().handlers:
        logging.getLogger().addHandler(_QUIET)


# -- from event to entry ----------------------------------------------------------------------


def _entry(_: Any, level: str, facts: EventDict) -> tuple[tuple[dict[str, Any]], dict[str, Any]]:
    """Make the line's object: known keys first, every value bounded."""
    error = facts.pop("exc_info", None)
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    entry = {"ts": now, "level": level, "event": _text(str(facts.pop("event", "")))}
    for key in list(facts)[:_ITEMS_MAX]:
        entry.setdefault(_text(key)[:_KEY_MAX], _bounded(facts[key]))
    if error and not isinstance(error, BaseException):
        error = sys.exc_info()[1]
    return ((entry | _traced(error) if error else entry),), {}


def _bounded(value: Any, depth: int = 2) -> Any:
    match value:
        case None | bool():
            return value
        case int():
            return value if abs(value) < 1 << 63 else f"<{value.bit_length()} bits>"
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return _text(value[:_READ_MAX].decode("utf-8", "surrogateescape"))
        case str() | Path():
            return _text(str(value))
        case BaseException():
            return _words(value)
        case Mapping() if depth:
            items = list(value.items())[:_ITEMS_MAX]
            return {_text(str(key))[:_KEY_MAX]: _bounded(one, depth - 1) for key, one in items}
        case list() | tuple() | set() | frozenset() if depth:
            return [_bounded(one, depth - 1) for one in list(value)[:_ITEMS_MAX]]
    return f"<{type(value).__name__}>"


@lru_cache(256)  # the same sessions, paths and keys are said over and over
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


def _traced(error: BaseException) -> dict[str, Any]:
    """An error, and where it and its causes came from: file names and lines, and no values."""
    trace: list[str] = []
    causes: list[BaseException] = [error]
    for cause in causes:  # grows as it is read
        trace.append(_words(cause))
        for frame, line in list(traceback.walk_tb(cause.__traceback__))[-_FRAMES_MAX:]:
            place = "/".join(Path(frame.f_code.co_filename).parts[-2:])
            trace.append(f"{place}:{line} {frame.f_code.co_name}")
        hidden = cause.__suppress_context__
        more = cause.__cause__ or (None if hidden else cause.__context__)
        more = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else more
        causes += [more] if more and len(causes) < _CAUSES_MAX else []
    return {"error": _words(error), "trace": trace}


# -- from entry to outputs --------------------------------------------------------------------


class _Outputs:
    """What structlog hands its entries to: the file, and a stderr that may be gone or stuck."""

    def __init__(
        self,
        log_file: Path | None,
        stderr: TextIO | None,
        console: structlog.dev.ConsoleRenderer | None,
        journal: str | None,
    ) -> None:
        self._file = (
            RotatingFile(log_file, limit=LIMIT_BYTES, keep=KEPT_FILES) if log_file else None
        )
        self._stderr, self._console = stderr, console
        self._fd: int | None = None  # stays None for a stream in memory
        self._in_journal = self._stalled = False
        with suppress(OSError, ValueError):
            if stderr is not None:
                self._fd = stderr.fileno()
                status = os.fstat(self._fd)
                self._in_journal = journal == f"{status.st_dev}:{status.st_ino}"

    def put(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry, ensure_ascii=False, allow_nan=False)
        while len(line.encode()) > LINE_MAX and len(entry) > _LEAST_KEYS:
            entry.pop("cut", None)
            entry.popitem()  # the last are the least: the trace, then facts
            entry["cut"] = True
            line = json.dumps(entry, ensure_ascii=False, allow_nan=False)
        if self._file is not None:
            self._file.append(line.encode())
        if self._console is not None:
            line = str(self._console(None, "", cast("MutableMapping[str, Any]", dict(entry))))
        lead = f"<{_JOURNAL.get(entry['level'], 6)}>" if self._in_journal else ""
        self._write(f"{lead}{line}\n")

    debug = info = warning = error = critical = put

    def _write(self, text: str) -> None:
        if self._stderr is None or self._stderr.closed:
            return
        try:
            if self._fd is None:
                self._stderr.write(text)
                return
            # A reader that has stopped is waited for a little, but not for every line.
            wait = 0.0 if self._stalled else _STALL_SECONDS
            self._stalled = not select.select([], [self._fd], [], wait)[1]
            if not self._stalled:
                os.write(self._fd, text.encode())
        except (OSError, ValueError):
            self._stalled = True


def _drop(_logger: Any, _method: str, _facts: EventDict) -> EventDict:
    raise structlog.DropEvent


if not structlog.is_configured():
    structlog.configure(
        processors=[_drop], wrapper_class=structlog.make_filtering_bound_logger("debug")
    )
