r"""stdout and stderr as they come: closed, full, read by somebody who has left, not UTF-8.

In: what a command prints. Out: the same, in a form that every terminal and every encoding takes,
and a program that ends quietly with a true exit code. Standard library only, and little of it:
agents' hooks import this at every prompt.

Names, titles and paths are other people's words. JSON keeps them exactly, with every character
that could act on a terminal written as `\uXXXX`; lines for people have them taken out.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

INTERRUPTED = 130
_UTF8 = ("utf-8", "utf8")


def prepare() -> None:
    """See to it that the streams are there, and that no character is one too many for them."""
    _keep_numbers()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - pathlib costs its import; open until the end
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _keep_numbers(*, inheritable: bool = True) -> None:
    """Give the numbers 0, 1 and 2 to nobody's file, where whoever started us closed them.

    Our lock would get one of them else, and what a child or a library says would go into it.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004 - stderr's
        os.set_inheritable(fd, inheritable)
    os.close(fd)


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
    drop_output()
    return code


def drop_output() -> None:
    """What Python still holds would fail once more at its end, with a message of Python's own."""
    _drop(sys.stdout)


def _drop(stream: Any) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def put(lines: Iterable[str]) -> None:
    """Print lines to stdout, now."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def aside(text: str) -> None:
    """Say a line on stderr: what is not the answer. Where nobody can hear it, that is no error."""
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except OSError:
        _drop(sys.stderr)


def json_text(value: Any) -> str:
    """One line of JSON: the same value, harmless to look at, and within the stream's encoding."""
    from indexerd.client import spelled

    narrow = (sys.stdout.encoding or "").lower() not in _UTF8
    text = spelled(value, narrow=narrow)
    if text.isprintable():
        return text
    odd = (char for char in set(text) if not char.isprintable())
    return text.translate({ord(char): _escaped(char) for char in odd})


def _escaped(char: str) -> str:
    """A character in a string of JSON, as the escape that it need not be (DEL), or must be."""
    from indexerd.client import dumps

    return f"\\u{ord(char):04x}" if char <= "\uffff" else dumps(char)[1:-1]


def safe(text: object, limit: int = 400) -> str:
    """One line for people, of at most `limit` characters."""
    plain = str(text)
    if not plain.isprintable():
        from indexerd.privacy.sanitize import clean_line

        return clean_line(plain, limit)
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"
