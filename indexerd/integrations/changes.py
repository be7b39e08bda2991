"""Changes to files in agents' directories.

All new texts are computed before the first file is written, so if one file cannot be changed, none
is. A file is read again right before it is replaced, because its agent may write it. Our files say
so in their first line (below the `---` of a skill), with a hash of the rest. A file without that
line is never overwritten or removed, and one that was edited only with `force`.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from indexerd.disk import write_atomically
from indexerd.errors import AccessError, StateError, UsageError, WriteError

NAME = "indexerd"
BACKUP = f".before-{NAME}"
NOT_OURS = "kept: not ours"

Text = str | None  # None: no file
_OURS = re.compile(
    r"(?:---\n)?[^\n]*indexerd integration, sha256 ([0-9a-f]{16}) of what follows[^\n]*\n(.*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Edit:
    """A change to one file. `change` raises ValueError for a text that it cannot parse."""

    path: str
    change: Callable[[Text], Text]
    removing: bool = False
    mode: int = 0o600  # of a new file
    skip_foreign: bool = False  # leave a file that is not ours alone, instead of an error


class _ForeignError(UsageError):
    """The path is another program's file, or not a file."""

    hint = "move it out of the way"


class _BrokenError(StateError, kind="config_invalid"):
    """An agent's settings cannot be changed."""


def apply(edits: Sequence[Edit]) -> list[dict[str, str]]:
    """Apply all edits, and return `{"path", "did"}` for each; errors name the file."""
    for edit in edits:
        _apply(edit, write=False)
    done = [(edit, _apply(edit, write=True)) for edit in edits]
    return [{"path": edit.path, "did": did} for edit, did in done if not edit.path.endswith(BACKUP)]


def _apply(edit: Edit, *, write: bool) -> str:
    target = Path(os.path.realpath(edit.path))
    try:
        before = read(target)
        after = edit.change(before)
        if after == before:
            return "absent" if edit.removing else "unchanged"
        if write:
            _put(target, after, edit.mode)
    except UsageError as bad:
        if edit.skip_foreign and isinstance(bad, _ForeignError):
            return NOT_OURS
        raise UsageError(f"{edit.path}: {bad}", hint=bad.hint) from None
    except OSError as bad:
        kind = AccessError if isinstance(bad, PermissionError) else WriteError
        hint = "check its owner and mode, and the space on the disk"
        raise kind(f"{target}: {bad.strerror}", hint=hint) from None
    except ValueError as bad:
        message, _, hint = str(bad).partition("; ")
        raise _BrokenError(f"{edit.path.removesuffix(BACKUP)}: {message}", hint=hint) from None
    if after is None:
        return "removed"
    return "created" if before is None else "updated"


def _put(target: Path, text: Text, mode: int) -> None:
    """Replace a file, or remove it, and its directory if that was ours and is now empty."""
    if text is None:
        target.unlink()
        if target.parent.name == NAME:
            with suppress(OSError):  # not empty
                target.parent.rmdir()
        return
    target.parent.mkdir(parents=True, exist_ok=True)

    def ready(new: Path) -> bool:
        new.chmod(stat.S_IMODE(target.stat().st_mode) if target.exists() else mode)
        return True

    write_atomically(target, text.encode(errors="surrogateescape"), ready=ready)


def read(path: Path) -> Text:
    """Read a text file, or None; bytes that are not UTF-8 survive a rewrite."""
    if path.is_file():
        return path.read_bytes().decode(errors="surrogateescape")
    if path.exists():
        raise _ForeignError("not a file")
    return None


def own_file(path: str, body: Text, *, force: bool = False, skip_foreign: bool = False) -> Edit:
    """Make an edit that writes a file of ours, or removes it if `body` is None."""

    def change(before: Text) -> Text:
        if before is not None:
            if (match := _OURS.match(before)) is None:
                raise _ForeignError("not a file of indexerd")
            if _digest(match[2]) != match[1] and not force:
                raise UsageError("it was edited", hint="save your changes, then use --force")
        if body is None:
            return None
        rule = "---\n" if body.startswith("---\n") else ""
        rest = body.removeprefix(rule)
        line = f"indexerd integration, sha256 {_digest(rest)} of what follows"
        return f"{rule}{'#' if rule else '//'} {line}; `indexerd integrate` keeps it\n{rest}"

    gone = body is None
    return Edit(path, change, removing=gone, mode=0o644, skip_foreign=skip_foreign or gone)


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode(errors="surrogateescape")).hexdigest()[:16]
