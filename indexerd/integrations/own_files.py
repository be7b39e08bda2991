"""Files that are ours as a whole, in the directories of agents: their marker, and what it says.

In: the text at a path, and what ours is to be. Out: the text that is to be there; whether what is
there is ours, whether somebody edited it, and which directories were made for it. Never writes.

The marker is a comment in the first line, with a hash of the rest. Where a file begins with a
rule, as a skill does, agents want that first, and the marker is below it. It says, too, how many
directories had to be made, counted on the real path, as they may be below a link.

Surprise: git and editors write files anew with other line ends, or with a byte order mark. Both
are no edits, and ours is known by its marker all the same.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from indexerd.errors import AccessError, UsageError

MARKER = "indexerd integration"

Text = str | None
_RULE = "---\n"  # what a skill begins with; its head is YAML
_MADE = re.compile(r", directories made: (\d+)")
_OURS = f"{MARKER}, sha256 "  # a file of the user's may well speak of such an integration
_COMMENTS = {".md": ("<!-- ", " -->"), ".py": ("# ", ""), ".toml": ("# ", "")}
_NO_FILE = (errno.EISDIR, errno.ENOTDIR, errno.ENXIO, errno.ELOOP)
_LINE_MAX = 1000  # bytes of a line in which a marker may be


def changed(path: str, body: Text, force: bool, new: int, before: Text) -> Text:
    """What is to be at a path instead of `before`: our marker and `body`; None: no file.

    UsageError: what is there is not ours, or was edited and `force` is not given.
    """
    if before is None:
        return None if body is None else _marked(path, body, new)
    _, line, rest = _split(before)
    if not is_ours(before):
        raise UsageError(f"{path} is not ours", hint="move it out of the way")
    if f" {_digest(rest)} " not in line and not force:
        raise UsageError(f"{path} was edited", hint="keep what you need of it, then use --force")
    return None if body is None else _marked(path, body, _made(line))


def is_ours(text: str) -> bool:
    """Whether a text begins with our marker."""
    return _OURS in _split(text)[1]


def foreign(path: str) -> bool:
    """Whether something that is not ours stands at a path; AccessError where we may not look."""
    try:
        with open(path, "rb", opener=at_once) as file:
            regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            return not regular or not is_ours(_first_lines(file))
    except FileNotFoundError:  # a link that leads nowhere is no file, either
        return False
    except OSError as bad:
        if bad.errno in _NO_FILE:
            return True
        raise AccessError(f"{path}: {bad.strerror}") from None


def owned(directory: str) -> list[str]:
    """The paths of all files of ours directly in a directory."""
    try:
        paths = sorted(one for one in Path(directory).iterdir() if one.is_file())
    except OSError:
        return []
    return [str(one) for one in paths if is_ours(_head(str(one)))]


def missing(path: str) -> int:
    """How many directories have to be made for a file."""
    parents = Path(os.path.realpath(path)).parents
    return next(count for count, one in enumerate(parents) if one.is_dir())


def directories(path: str) -> list[str]:
    """The directories that were made for a file of ours, which is there; the innermost first.

    One that has become a link since is the user's, and so is what is above it.
    """
    found: list[str] = []
    count = made(_head(path))
    named = [*Path(path).parents][:count]
    for one, real in zip(named, Path(os.path.realpath(path)).parents, strict=False):
        if one.is_symlink():
            break
        found.append(str(real))
    return found


def made(text: str) -> int:
    """How many directories were made, as the marker of a text says."""
    return _made(_split(text)[1])


def at_once(path: str, flags: int) -> int:
    """Open a file; a FIFO would have us wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _head(path: str) -> str:
    """The beginning of a file; empty where it cannot be read."""
    with suppress(OSError), open(path, "rb", opener=at_once) as file:
        return _first_lines(file)
    return ""


def _first_lines(file: BinaryIO) -> str:
    """As many lines as a marker may be in."""
    return (file.readline(_LINE_MAX) + file.readline(_LINE_MAX)).decode("utf-8", "replace")


def _split(text: str) -> tuple[str, str, str]:
    """A rule at the head of a text, if there is one; the line after it; and the rest."""
    text = _plain(text)
    rule = _RULE if text.startswith(_RULE) else ""
    line, _, rest = text.removeprefix(rule).partition("\n")
    return rule, line, rest


def _plain(text: str) -> str:
    """The text as we write it: no byte order mark, and the line ends of Unix."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _made(line: str) -> int:
    found = _MADE.search(line) if _OURS in line else None
    return int(found[1]) if found else 0


def _marked(path: str, body: str, new: int) -> str:
    rule = _RULE if body.startswith(_RULE) else ""
    opened, closed = ("# ", "") if rule else _COMMENTS.get(Path(path).suffix, ("// ", ""))
    rest = body.removeprefix(rule)
    told = f", directories made: {new}" if new else ""
    told = f"{_OURS}{_digest(rest)} of what follows{told}; `indexerd integrate` keeps it"
    return f"{rule}{opened}{told}{closed}\n{rest}"


def _digest(body: str) -> str:
    return hashlib.sha256(_plain(body).encode("utf-8", "surrogatepass")).hexdigest()[:16]
