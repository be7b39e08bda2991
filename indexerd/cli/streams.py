r"""stdout and stderr as they come: closed, full, read by somebody who has left, not UTF-8.

Standard library only: agents' hooks import this at every prompt. Names, titles and paths are other
people's words. JSON keeps them exactly, with every character that could act on a terminal written
as `\uXXXX`; in lines for people they are removed.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from indexerd.errors import IndexerdError

INTERRUPTED = 130


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
    """Run, and flush what was printed. A reader that has gone is no error; a full disk is one."""
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
    if text.isprintable():
        return text
    odd = (char for char in set(text) if not char.isprintable())
    escapes = {c: f"\\u{ord(c):04x}" if c <= "\uffff" else dumps(c)[1:-1] for c in odd}
    return text.translate({ord(char): escape for char, escape in escapes.items()})


def safe(text: object, limit: int = 400) -> str:
    """One line for people, of at most `limit` characters."""
    plain = str(text)
    if not plain.isprintable():
        from indexerd.privacy.sanitize import clean_line

        return clean_line(plain, limit)
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def complain(bad: IndexerdError, *, as_json: bool) -> int:
    """Print an error, on stderr or as JSON on stdout; return its exit code."""
    error: dict[str, Any] = {
        "code": bad.kind,
        "message": str(bad),
        "hint": bad.hint,
        "retryable": bad.retryable,
    }
    candidates = getattr(bad, "candidates", None)
    problems = getattr(bad, "problems", None)
    more = {"candidates": candidates, "problems": problems, "upstream": bad.upstream}
    error |= {key: value for key, value in more.items() if value}
    if as_json:
        put([json_text({"error": error})])
    else:
        aside(f"indexerd: {safe(bad, 2000)}")
        for one in candidates or ():
            aside(f"  {safe(one.get('sessionId'))}  {safe(one.get('name'))}")
        aside(f"hint: {safe(bad.hint)}")
    return bad.exit_code
