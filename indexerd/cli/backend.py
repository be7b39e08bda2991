"""Get and print answers for commands, importing only the standard library.

The daemon answers. If none runs, this process answers from stored data, and says so on stderr.
Methods that change something need the daemon.

Names and paths are untrusted: control characters are escaped in JSON, and removed from other lines.
"""

from __future__ import annotations

import os
import sys

from indexerd.client import call_once, dumps, is_windows_path, socket_path
from indexerd.errors import DaemonDownError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Self

    from indexerd.daemon.methods import LocalBackend
    from indexerd.errors import IndexerdError
    from indexerd.paths import Places
    from indexerd.settings import Loaded

SECONDS = 600.0  # for an answer that may take several model calls, or a server's
_READ_SECONDS = 60.0  # for any other
_LONG = {
    *("branch", "branch_summary", "compact", "digest", "expand", "fleet", "index", "move"),
    *("purge", "query_session"),
}
QUICK = 10.0  # for an answer that an agent waits for
INTERRUPTED = 130
_TICK = 0.4  # seconds
_GOES_ON = "interrupted; the daemon goes on with it"
_SLOWER = "reading without the daemon; `indexerd service install` starts it"


class App:
    """The global options, and the objects that they select."""

    def __init__(self, config: str | None = None, json: bool = False, color: str = "auto") -> None:
        self.config, self.json, self.color = config, json, color
        self._local: LocalBackend | None = None

    @property
    def places(self) -> Places:
        from indexerd.paths import Places

        return Places(config=self.config)

    @property
    def loaded(self) -> Loaded:
        from indexerd.settings import read_config

        return read_config(self.places, os.environ)

    def local(self, method: str, params: dict[str, Any]) -> Any:
        """Call a method in this process."""
        if self._local is None:
            from pathlib import Path

            from indexerd.daemon.methods import LocalBackend

            warn = lambda text: aside(f"indexerd: {text}")  # noqa: E731 - one line
            self._local = LocalBackend(self.places, os.environ, Path.home(), warn)
        return self._local.call(method, params)

    def call(
        self, method: str, params: Mapping[str, Any], seconds: float = 0.0, what: str = ""
    ) -> Any:
        """Return the daemon's answer, or this process's, with a note on stderr.

        `what` says what a person at a terminal waits for. 0 seconds: as many as the method needs.
        """
        seconds = seconds or (SECONDS if method in _LONG else _READ_SECONDS)
        params = {key: value for key, value in params.items() if value is not None}
        try:
            if method == "expand":
                seconds = question_seconds(params["text"], seconds)
            with Clock(what, silent=self.json):
                return call_once(socket_path(os.environ), method, params, seconds)
        except KeyboardInterrupt:
            from indexerd.protocol.methods import METHODS

            aside(_GOES_ON if METHODS[method].needs_daemon else "interrupted")
            raise
        except DaemonDownError:
            from indexerd.protocol.methods import METHODS

            if METHODS[method].needs_daemon:
                raise
            if self._local is None:
                aside("indexerd: the daemon is not running; answering from stored data")
            with Clock(_SLOWER, silent=self.json, left="interrupted"):
                return self.local(method, params)


class Clock:
    """On a terminal, shows what is being done, and after the first second for how long.

    `left` is said if the work is interrupted.
    """

    def __init__(self, what: str = "", *, silent: bool, left: str = "") -> None:
        self._silent = silent or not sys.stderr.isatty()
        self._left = left
        self.what = what

    def __enter__(self) -> Self:
        if not self._silent:
            import threading

            self._done = threading.Event()
            self._thread = threading.Thread(target=self._count, daemon=True)
            self._thread.start()
        return self

    def show(self, what: str, done: int, total: int) -> None:
        """Name the work, and how much of how much (or 0) is done."""
        self.what = f"{what}: {done:,} of {total:,}" if total else what

    def _count(self) -> None:
        ticks = 0
        while not self._done.wait(_TICK):
            ticks += 1
            time = f"{seconds} s" if (seconds := int(ticks * _TICK)) else ""
            if shown := f"{self.what} ({time})" if self.what and time else self.what or time:
                room = os.get_terminal_size(sys.stderr.fileno()).columns - 3
                aside(f"\r\x1b[K{shown[:room]} …", end="")
        aside("\r\x1b[K" if ticks else "", end="")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._silent:
            self._done.set()
            self._thread.join()
            if kind is KeyboardInterrupt and self._left:
                aside(self._left)


def question_seconds(text: str, seconds: float) -> float:
    """Return how long to wait for `expand`; the daemon says how long questions may take."""
    after = text.partition("@@")[2]
    if "?" not in after and after.isascii():
        return seconds
    settings = call_once(socket_path(os.environ), "hello", {}, seconds).get("settings") or {}
    return float(settings.get("queryTimeoutSeconds") or 30.0) + 5.0


def project(named: str = ".") -> str | None:
    """Make a directory's path absolute; None if the current directory was removed."""
    if is_windows_path(named):
        return named
    try:
        return os.path.abspath(named)  # noqa: PTH100 - Path.absolute keeps `..`
    except FileNotFoundError:
        return None


def place(named: str) -> str | None:
    """Do as `project`; UsageError for an empty path."""
    if not named:
        raise UsageError("a path is empty", hint="`.` is the current directory")
    return project(named)


def guarded(work: Callable[[], int]) -> int:
    """Run `work` although streams may be closed, full, no longer read, or not UTF-8.

    It is no error if the reader has gone; a full disk is.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the process that started us
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - pathlib costs its import; open until the end
        getattr(sys, name).reconfigure(errors="backslashreplace")
    try:
        code = work()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as bad:
        code = 0 if isinstance(bad, BrokenPipeError) else 1
        if code:
            aside(f"indexerd: {bad.filename or 'the output'}: {bad.strerror}")
        discard(sys.stdout)
    return code


def discard(stream: Any) -> None:
    """Redirect a stream to /dev/null: flushing Python's buffer at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def put(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def aside(text: str, end: str = "\n") -> None:
    """Print a line on stderr, on a terminal broken between words; a failure is ignored."""
    try:
        if end and sys.stderr.isatty():
            from textwrap import fill

            room = os.get_terminal_size(sys.stderr.fileno()).columns
            text = fill(text, room or 80, break_long_words=False, break_on_hyphens=False)
        sys.stderr.write(text + end)
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)


def json_text(value: Any) -> str:
    """Encode as one line of ASCII JSON, without control characters."""
    return dumps(value).replace("\x7f", "\\u007f")


def safe(text: object, limit: int = 400) -> str:
    """Return a text as one line for people, of at most `limit` characters."""
    plain = str(text)
    if not plain.isprintable():
        from indexerd.privacy.sanitize import clean_line

        return clean_line(plain, limit)
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def complain(bad: IndexerdError, *, as_json: bool) -> int:
    """Print an error, on stderr or as JSON on stdout; return its exit code."""
    message = str(bad)
    if "/" in message + bad.hint:  # a path, in which a secret may be
        from indexerd.privacy.redact import shown_path

        message, bad.hint = shown_path(message), shown_path(bad.hint)
    if as_json:
        data = {key: value for key, value in bad.data().items() if key != "kind"}
        put([json_text({"error": {"code": bad.kind, "message": message} | data})])
        return bad.exit_code
    problems = getattr(bad, "problems", ())
    aside("indexerd: invalid configuration" if problems else f"indexerd: {safe(message, 8000)}")
    for problem in problems:
        from indexerd.privacy.redact import shown_path

        where = ": ".join(filter(None, (problem["file"], problem["key"])))
        aside(f"  {safe(shown_path(where), 8000)}: {safe(problem['message'], 8000)}")
    for session in getattr(bad, "candidates", ()):
        known = [session.get(key) for key in ("sessionId", "name", "cwd", "modifiedAt")]
        session_id, name, cwd, at = (safe(text or "") for text in known)
        place = cwd.rstrip("/").rpartition("/")[2]  # whole paths may have secrets
        aside("  ".join(filter(None, ("  " + session_id, name, place, at[:16].replace("T", " ")))))
    hints = [problem["hint"] for problem in problems] or [bad.hint]
    for hint in dict.fromkeys(hints):
        aside(f"hint: {safe(hint)}")
    return bad.exit_code
