"""The structured log: events with facts, never sentences, never what a session says.

In: `get_logger().info(Event.META_WRITTEN, session=…, ms=…)`. Out: one JSON object a line
(`ts`, `level`, `event`, then the facts) in the log file, and on stderr JSON, or coloured text
where a person looks at it. In the journal a line is led by its `<level>`.

A fact is a name, a number or a path. Texts are escaped, redacted and cut; of an error that is
not ours only the type is said, as the words of libraries may quote a reply or a request; a
traceback has places, no values. Until `configure`, nothing is written anywhere.

The log never disturbs the program: a full disk, a closed stderr, a reader that has gone or
stopped reading cost lines, nothing else. Surprise: structlog imports rich for its colours'
sake, which costs more than all the rest; we keep it from doing so.
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
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO, cast

from indexerd.disk import RotatingFile
from indexerd.errors import IndexerdError
from indexerd.privacy.redact import redact
from indexerd.privacy.sanitize import escape_path


@contextmanager
def _without(module: str) -> Iterator[None]:
    """Have imports of a module fail, as if it were not installed, unless it is loaded."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment] # Python's own way to bar it
    try:
        yield
    finally:
        del sys.modules[module]


with _without("rich"):
    import structlog
    from structlog.typing import EventDict, FilteringBoundLogger

LIMIT_BYTES = 8 * 1024 * 1024
KEPT_FILES = 2
TEXT_MAX = 500  # characters of one value
LINE_MAX = 4000  # bytes; a pipe takes this much whole, or not at all
_READ_MAX = 2000  # characters of one value that are looked at
_KEY_MAX = 64
_BITS_MAX = 63  # of a number; more is not a number to every reader
_ITEMS_MAX = 20  # of a list or a mapping
_LEAST_KEYS = 4  # ts, level, event, cut
_FRAMES_MAX = 12
_CAUSES_MAX = 4
_STALL_SECONDS = 0.05
_QUIET = logging.NullHandler()
_JOURNAL = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}


class Throttle:
    """Lets a repeated event through once in `seconds` for each key (F4); remembers the latest."""

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
    """Every event of the log, by the names of interfaces.md §6."""

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

    `fmt` is `json`, `console`, or `auto`: console on a terminal. `stderr` may be None, as
    Python has none where it was closed at the start.
    """
    terminal = stderr is not None and not stderr.closed and stderr.isatty()
    console = fmt == "console" or (fmt == "auto" and terminal)
    colours = terminal and not env.get("NO_COLOR") and env.get("TERM") != "dumb"
    file = RotatingFile(log_file, limit=LIMIT_BYTES, keep=KEPT_FILES) if log_file else None
    outputs = _Outputs(file, _Stderr(stderr, env), _console(colours=colours) if console else _json)
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, _entry],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: outputs,
        cache_logger_on_first_use=False,
    )
    # Other libraries' own records would reach stderr as bare text, with whatever they quote.
    if _QUIET not in logging.getLogger().handlers:
        logging.getLogger().addHandler(_QUIET)


# -- from event to entry ----------------------------------------------------------------------


def _entry(
    _logger: Any, method: str, said: EventDict
) -> tuple[tuple[dict[str, Any]], dict[str, Any]]:
    """Make the line's object: known keys first, every value bounded."""
    fault = said.pop("exc_info", None)
    entry: dict[str, Any] = {
        "ts": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": method,
        "event": _text(str(said.pop("event", ""))),
    }
    for key in list(said)[:_ITEMS_MAX]:
        entry.setdefault(_text(key)[:_KEY_MAX], _bounded(said[key]))
    if fault:
        entry |= _fault(fault)
    return (entry,), {}


def _bounded(value: Any, depth: int = 2) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, bytes):
        value = value[:_READ_MAX].decode("utf-8", "surrogateescape")
    if isinstance(value, str | Path):
        return _text(str(value))
    if isinstance(value, BaseException):
        return _words(value)
    return _several(value, depth - 1) if depth else f"<{type(value).__name__}>"


def _several(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping):
        items = list(value.items())[:_ITEMS_MAX]
        return {_text(str(key))[:_KEY_MAX]: _bounded(one, depth) for key, one in items}
    if isinstance(value, list | tuple | set | frozenset):
        return [_bounded(one, depth) for one in list(value)[:_ITEMS_MAX]]
    return f"<{type(value).__name__}>"


def _number(value: float) -> float | str:
    if isinstance(value, int):
        return value if value.bit_length() <= _BITS_MAX else f"<{value.bit_length()} bits>"
    return value if math.isfinite(value) else str(value)


def _text(text: str) -> str:
    return _safe(text[:_READ_MAX])


@lru_cache(256)  # the same sessions, paths and keys are said over and over
def _safe(text: str) -> str:
    safe = escape_path(redact(text).text)
    return safe if len(safe) <= TEXT_MAX else safe[: TEXT_MAX - 1] + "…"


def _words(error: BaseException) -> str:
    """What may be said of an error: all of ours, the system's code, else only the type."""
    name = type(error).__name__
    if isinstance(error, IndexerdError):
        return _text(f"{name}: {error}")
    code = errno.errorcode.get(error.errno or 0) if isinstance(error, OSError) else None
    return f"{name}: {code}" if code else name


def _fault(exc_info: Any) -> dict[str, Any]:
    error = exc_info[1] if isinstance(exc_info, tuple) else exc_info
    if not isinstance(error, BaseException):
        error = sys.exc_info()[1]
    if error is None:
        return {}
    trace: list[str] = []
    seen: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if seen is None:
            break
        trace += [_words(seen), *_places(seen)]
        if isinstance(seen, BaseExceptionGroup):
            seen = seen.exceptions[0]
        else:
            seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return {"error": _words(error), "trace": trace}


def _places(error: BaseException) -> list[str]:
    """Where an error came from, the innermost last; the files' names, and no values."""
    steps = list(traceback.walk_tb(error.__traceback__))[-_FRAMES_MAX:]
    return [
        f"{'/'.join(Path(frame.f_code.co_filename).parts[-2:])}:{line} {frame.f_code.co_name}"
        for frame, line in steps
    ]


# -- from entry to outputs --------------------------------------------------------------------


def _json(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=False, allow_nan=False)


def _console(*, colours: bool) -> Callable[[Mapping[str, Any]], str]:
    render = structlog.dev.ConsoleRenderer(
        colors=colours, timestamp_key="ts", sort_keys=False, pad_event_to=22
    )
    return lambda entry: str(render(None, "", cast("MutableMapping[str, Any]", dict(entry))))


class _Outputs:
    """What structlog hands its entries to."""

    def __init__(
        self, file: RotatingFile | None, stderr: _Stderr, shown: Callable[[Mapping[str, Any]], str]
    ) -> None:
        self._file = file
        self._stderr = stderr
        self._shown = shown

    def put(self, entry: dict[str, Any]) -> None:
        line = _json(entry)
        while len(line.encode()) > LINE_MAX and len(entry) > _LEAST_KEYS:
            entry.pop("cut", None)
            entry.popitem()  # the last are the least: the trace, then facts
            entry["cut"] = True
            line = _json(entry)
        if self._file is not None:
            self._file.append(line.encode())
        self._stderr.write(line if self._shown is _json else self._shown(entry), entry["level"])

    debug = info = warning = error = critical = put


class _Stderr:
    """Writes whole lines to a stream that may be gone, stuck, or somebody else's by now."""

    def __init__(self, stream: TextIO | None, env: Mapping[str, str]) -> None:
        self._stream = stream
        self._stalled = False
        self._torn = False
        self._fd: int | None = None
        self._identity: tuple[int, int] | None = None
        try:
            if stream is not None:
                self._fd = stream.fileno()
                self._identity = _identity(self._fd)
        except (OSError, ValueError):
            self._fd = None  # a stream in memory
        named = ":".join(map(str, self._identity or ()))
        self._journal = bool(named) and env.get("JOURNAL_STREAM") == named

    def write(self, text: str, level: str) -> None:
        if self._stream is None or self._stream.closed:
            return
        lead = f"<{_JOURNAL.get(level, 6)}>" if self._journal else ""
        try:
            if self._fd is None:
                self._stream.write(f"{lead}{text}\n")
            elif self._is_ready(self._fd):
                data = f"{chr(10) if self._torn else ''}{lead}{text}\n".encode()
                self._torn = os.write(self._fd, data) < len(data)
        except (OSError, ValueError):
            self._stalled = True

    def _is_ready(self, fd: int) -> bool:
        """Ask whether a line would be taken now; wait a little, but not for every line."""
        if _identity(fd) != self._identity:
            return False  # closed behind our back, and the number given to another file
        wait = 0.0 if self._stalled else _STALL_SECONDS
        self._stalled = not select.select([], [fd], [], wait)[1]
        return not self._stalled


def _identity(fd: int) -> tuple[int, int]:
    held = os.fstat(fd)
    return held.st_dev, held.st_ino


def _drop(_logger: Any, _method: str, _said: EventDict) -> EventDict:
    raise structlog.DropEvent


if not structlog.is_configured():
    structlog.configure(
        processors=[_drop], wrapper_class=structlog.make_filtering_bound_logger("debug")
    )
