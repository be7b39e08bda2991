"""Changes to files in agents' directories.

Every new text is computed before the first file is written, so a file that cannot be changed leaves
all as they were. A file is read again right before it is replaced, because its agent may write it
at any time. Mode and owner stay, and where the path is a symbolic link its target is replaced.

A file that is ours as a whole says so in its first line (below the `---` of a skill), with a hash
of the rest. Without that line a file is never overwritten or removed; one that was edited since
only with `force`.

Before an agent's settings file is changed for the first time, a copy is put beside it. Removing
restores that copy if nothing else was changed since, and takes out only our entries otherwise.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from indexerd.errors import AccessError, ConfigError, UsageError, WriteError
from indexerd.integrations.agent_settings import NAME

BACKUP = f".before-{NAME}"
NOT_OURS = "kept: not ours"

Text = str | None  # None: no file
_OURS = re.compile(
    r"(?:---\n)?[^\n]*indexerd integration, sha256 ([0-9a-f]{16}) of what follows[^\n]*\n(.*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Edit:
    """What shall be at a path. `change` raises ValueError for a text that it cannot parse."""

    path: str
    change: Callable[[Text], Text]
    removing: bool = False
    mode: int = 0o600  # of a new file
    skip_foreign: bool = False  # a file that is not ours is left alone, and is no error
    reported: bool = True


class _ForeignError(UsageError):
    """What is there is not ours, or is no file."""

    hint = "move it out of the way"


def apply(edits: Sequence[Edit]) -> list[dict[str, str]]:
    """Do all edits; `{"path", "did"}` of each.

    ConfigError: a file is not what it must be. UsageError: a file that is not ours is in the way.
    AccessError, WriteError: the system refuses. Each names the file.
    """
    for edit in edits:
        _apply(edit, write=False)
    done = [(edit, _apply(edit, write=True)) for edit in edits]
    return [{"path": edit.path, "did": did} for edit, did in done if edit.reported]


def _apply(edit: Edit, *, write: bool) -> str:
    """Find out what an edit does, and do it if asked to."""
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
        broken = ConfigError([{"file": edit.path, "key": "", "message": message, "hint": hint}])
        broken.args, broken.hint = (f"{edit.path}: {message}",), hint  # not our configuration
        raise broken from None
    return "removed" if edit.removing else "created" if before is None else "updated"


def _put(target: Path, text: Text, mode: int) -> None:
    """Replace a file as a whole, or remove it, and a directory of ours that this leaves empty."""
    if text is None:
        target.unlink()
        if target.parent.name == NAME:
            with suppress(OSError):  # not empty
                target.parent.rmdir()
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(text.encode(errors="surrogateescape"))
            with suppress(FileNotFoundError):
                old = target.stat()
                mode = stat.S_IMODE(old.st_mode)
                with suppress(PermissionError):  # an owner that only root could give
                    os.fchown(file.fileno(), old.st_uid, old.st_gid)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)


def read(path: Path) -> Text:
    """The text of a file, None where there is none; bytes that are no UTF-8 survive a rewrite."""
    if path.is_file():
        return path.read_bytes().decode(errors="surrogateescape")
    if path.exists():
        raise _ForeignError("it is no file")
    return None


def settings_edits(
    path: str, put: Callable[[Text], str], take: Callable[[Text], str], *, remove: bool
) -> list[Edit]:
    """Have `put` add our entries to a settings file, or `take` remove them; and its copy."""
    target = Path(os.path.realpath(path))
    backup = target.with_name(target.name + BACKUP)

    def taken(before: Text) -> Text:
        if before is None or (after := take(before)) == before:
            return before
        old = read(backup)
        if old is not None and put(old) == before:
            return old
        return None if old is None and after.strip() in ("", "{}") else after

    def copied(before: Text) -> Text:
        text = read(target)
        return text if text is not None and take(text) == text else before

    if remove:
        dropped = Edit(str(backup), lambda _: None, removing=True, reported=False)
        return [Edit(path, taken, removing=True), dropped]
    return [Edit(str(backup), copied, reported=False), Edit(path, put)]


def own_file(path: str, body: Text, *, force: bool = False, skip_foreign: bool = False) -> Edit:
    """A file that is ours as a whole; None removes it."""
    gone = body is None
    change = partial(_own, body, force)
    return Edit(path, change, removing=gone, mode=0o644, skip_foreign=skip_foreign or gone)


def own_files_in(directory: str) -> list[str]:
    """The files of ours directly in a directory."""
    found = Path(directory).glob("*")
    return sorted(str(one) for one in found if one.is_file() and _OURS.match(read(one) or ""))


def _own(body: Text, force: bool, before: Text) -> Text:
    if before is not None:
        if (found := _OURS.match(before)) is None:
            raise _ForeignError("it is not ours")
        if _digest(found[2]) != found[1] and not force:
            raise UsageError("it was edited", hint="keep what you need of it, then use --force")
    if body is None:
        return None
    rule = "---\n" if body.startswith("---\n") else ""
    rest = body.removeprefix(rule)
    line = f"indexerd integration, sha256 {_digest(rest)} of what follows"
    return f"{rule}{'#' if rule else '//'} {line}; `indexerd integrate` keeps it\n{rest}"


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode(errors="surrogateescape")).hexdigest()[:16]
