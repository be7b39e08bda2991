"""How commands get and print their answers, importing only the standard library.

Answers come from the daemon; where none runs, the same methods are answered in this process, from
what is stored, and a note on stderr says so. What changes something needs the daemon.

Names, titles and paths are other people's words: what could act on a terminal is an escape in JSON,
and is removed from lines for people.
"""

from __future__ import annotations

import os
import sys

from indexerd.client import call_once, dumps, socket_path
from indexerd.errors import DaemonDownError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from indexerd.daemon.local import LocalBackend
    from indexerd.errors import IndexerdError
    from indexerd.paths import Places
    from indexerd.settings import Loaded

SECONDS = 30.0  # for an answer
MODEL_SECONDS = 600.0  # for one that may take several calls of a model
QUICK = 10.0  # for one that an agent waits for
INTERRUPTED = 130
_ASK_MODELS = ("index", "digest", "compact", "branch_summary", "query_session")


class App:
    """The options before a command's name, and what follows from them."""

    def __init__(self, config: str | None = None, json: bool = False, color: str = "auto") -> None:
        self.config, self.json, self.color = config, json, color
        self._local: LocalBackend | None = None

    @property
    def places(self) -> Places:
        from indexerd.paths import places

        return places(config=self.config)

    @property
    def loaded(self) -> Loaded:
        from indexerd.settings import read_config

        return read_config(self.places, os.environ)

    def local(self) -> LocalBackend:
        """What answers methods in this process."""
        if self._local is None:
            from pathlib import Path

            from indexerd.daemon.local import LocalBackend

            self._local = LocalBackend(self.places, os.environ, Path.home(), aside)
        return self._local

    def call(self, method: str, params: Mapping[str, Any], seconds: float = 0.0) -> Any:
        """The daemon's answer, or, with a note on stderr, this process's."""
        given = {key: value for key, value in params.items() if value is not None}
        seconds = seconds or (MODEL_SECONDS if method in _ASK_MODELS else SECONDS)
        try:
            if method == "expand":
                seconds = question_seconds(given["text"], seconds)
            return call_once(socket_path(os.environ), method, given, seconds)
        except DaemonDownError:
            from indexerd.protocol.methods import METHODS

            if METHODS[method].needs_daemon:
                raise
            if self._local is None:
                aside("indexerd: no daemon runs; answering from what is stored")
            return self.local().call(method, given)


def question_seconds(text: str, seconds: float) -> float:
    """How long to wait for references: questions last as long as a daemon that answers says."""
    after = text.partition("@@")[2]
    if "?" not in after and after.isascii():
        return seconds
    settings = call_once(socket_path(os.environ), "hello", {}, seconds).get("settings") or {}
    return float(settings.get("queryTimeoutSeconds") or 30.0) + 5.0


def project(named: str | None = None) -> str | None:
    """The directory named, or the current one, absolute; None where it was removed."""
    try:
        return os.path.abspath(named or ".")  # noqa: PTH100 - Path.absolute keeps `..`
    except FileNotFoundError:
        return None


def guarded(work: Callable[[], int]) -> int:
    """Run with streams that may be closed, full, read by nobody any more, or not UTF-8.

    A reader that went away is no error; a full disk is.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - pathlib costs its import; open until the end
        getattr(sys, name).reconfigure(errors="backslashreplace")
    try:
        code = work()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        code = 0
    except OSError as bad:
        code = 1
        aside(f"indexerd: {bad.filename or 'the output'}: {bad.strerror}")
    else:
        return code
    discard(sys.stdout)
    return code


def discard(stream: Any) -> None:
    """Send a stream nowhere: what Python still holds would fail once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def put(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def aside(text: str) -> None:
    """Print a line on stderr; that nobody can read it is no error."""
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)


def json_text(value: Any) -> str:
    """JSON in one line of ASCII, without control characters."""
    return dumps(value).replace("\x7f", "\\u007f")


def safe(text: object, limit: int = 400) -> str:
    """One line for people, of at most `limit` characters."""
    plain = str(text)
    if not plain.isprintable():
        from indexerd.privacy.sanitize import clean_line

        return clean_line(plain, limit)
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def complain(bad: IndexerdError, *, as_json: bool) -> int:
    """Print an error, on stderr or as JSON on stdout; return its exit code."""
    if as_json:
        data = {key: value for key, value in bad.data().items() if key != "kind"}
        put([json_text({"error": {"code": bad.kind, "message": str(bad)} | data})])
        return bad.exit_code
    aside(f"indexerd: {safe(bad, 2000)}")
    for one in getattr(bad, "candidates", ()):
        aside(f"  {safe(one.get('sessionId'))}  {safe(one.get('name'))}")
    aside(f"hint: {safe(bad.hint)}")
    return bad.exit_code
