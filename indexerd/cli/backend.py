r"""How commands get and print their answers, importing only the standard library.

Answers come from the daemon; where none runs, the same methods are answered in this process, from
what is stored, and a note on stderr says so. What changes something needs the daemon.

Streams are taken as they come: closed, full, read by somebody who has left, not UTF-8. Names,
titles and paths are other people's words. JSON keeps them exactly, with every character that could
act on a terminal written as `\uXXXX`; in lines for people they are removed.
"""

from __future__ import annotations

import os
import sys

from indexerd.client import call_once, socket_path
from indexerd.errors import DaemonDownError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path
    from typing import Any, Literal

    from indexerd.daemon.local import LocalBackend
    from indexerd.errors import IndexerdError
    from indexerd.paths import Places
    from indexerd.settings import Loaded

SECONDS = 30.0  # for an answer
MODEL_SECONDS = 600.0  # for one that may take several calls of a model
QUICK = 10.0  # for one that an agent waits for
INTERRUPTED = 130
_ASK_MODELS = ("index", "digest", "compact", "branch_summary")


class App:
    """The options before a command's name, and what follows from them."""

    def __init__(
        self,
        config: str | None = None,
        json: bool = False,
        color: Literal["auto", "always", "never"] = "auto",
    ) -> None:
        self.config = config
        self.json = json
        self.color = color
        self._local: LocalBackend | None = None

    @property
    def places(self) -> Places:
        """Where our files are."""
        from indexerd.paths import places

        return places(config=self.config)

    @property
    def loaded(self) -> Loaded:
        """The settings, with the problems of their file."""
        from indexerd.settings import read_config

        return read_config(self.places, os.environ)

    @property
    def home(self) -> Path:
        """The user's home directory."""
        from pathlib import Path

        return Path.home()

    def local(self) -> LocalBackend:
        """What answers methods in this process."""
        if self._local is None:
            from indexerd.daemon.local import LocalBackend

            self._local = LocalBackend(
                self.places, os.environ, self.home, lambda text: aside(f"indexerd: {safe(text)}")
            )
        return self._local

    def call(
        self,
        method: str,
        params: Mapping[str, Any],
        seconds: float | None = None,
        *,
        question: bool = False,
    ) -> Any:
        """The daemon's answer, or, with a note on stderr, this process's."""
        given = {key: value for key, value in params.items() if value is not None}
        seconds = seconds or (MODEL_SECONDS if method in _ASK_MODELS else SECONDS)
        try:
            if question or method == "query_session":
                seconds = question_seconds(seconds)
            return call_once(socket_path(os.environ), method, given, seconds)
        except DaemonDownError:
            from indexerd.protocol.methods import METHODS

            if METHODS[method].needs_daemon:
                raise
            if self._local is None:
                aside("indexerd: no daemon runs; answering from what is stored")
            return self.local().call(method, given)


def question_seconds(seconds: float) -> float:
    """How long the daemon may take for a question; it has `seconds` to say so."""
    settings = call_once(socket_path(os.environ), "hello", {}, seconds).get("settings") or {}
    return float(settings.get("queryTimeoutSeconds") or 30.0) + 5.0


def project(named: str | None = None) -> str | None:
    """The directory named, or the current one, absolute; None where it was removed."""
    try:
        return os.path.abspath(named or ".")  # noqa: PTH100 - Path.absolute keeps `..`
    except FileNotFoundError:
        return None


# -- streams -------------------------------------------------------------------------------------


def prepare() -> None:
    """Make sure that both streams exist and take every character."""
    # Where 0, 1 or 2 is closed, the next file opened would get the number: the daemon's lock, say.
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004 - stderr's
        os.set_inheritable(fd, True)  # noqa: FBT003 - the system's own order
    os.close(fd)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - pathlib costs its import; open until the end
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def guarded(work: Callable[[], int]) -> int:
    """Run, and flush what was printed. A reader that went away is not an error; a full disk is."""
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
    """Print lines to stdout, now."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def aside(text: str) -> None:
    """Print a line on stderr; that nobody can read it is no error."""
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)


def utf8() -> bool:
    """Whether stdout takes every character."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def json_text(value: Any) -> str:
    """One line of JSON: the same value, harmless to look at, and within the stream's encoding."""
    from indexerd.client import dumps, spelled

    text = spelled(value, narrow=not utf8())
    odd = {char for char in text if not char.isprintable()} if not text.isprintable() else ()
    return text.translate({ord(char): dumps(char)[1:-1].replace("\x7f", "\\u007f") for char in odd})


def safe(text: object, limit: int = 400) -> str:
    """One line for people, of at most `limit` characters."""
    plain = str(text)
    if not plain.isprintable():
        from indexerd.privacy.sanitize import clean_line

        return clean_line(plain, limit)
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def complain(bad: IndexerdError, *, as_json: bool) -> int:
    """Print an error, on stderr or as JSON on stdout; return its exit code."""
    error: dict[str, Any] = {"code": bad.kind, "message": str(bad), "hint": bad.hint}
    error["retryable"] = bad.retryable
    candidates, problems = getattr(bad, "candidates", None), getattr(bad, "problems", None)
    more = {"candidates": candidates, "problems": problems, "upstream": bad.upstream}
    error |= {key: value for key, value in more.items() if value}
    if as_json:
        put([json_text({"error": error})])
        return bad.exit_code
    aside(f"indexerd: {safe(bad, 2000)}")
    for one in candidates or ():
        aside(f"  {safe(one.get('sessionId'))}  {safe(one.get('name'))}")
    aside(f"hint: {safe(bad.hint)}")
    return bad.exit_code
