"""Changes to files in agents' directories: all of them, or none.

Every new text is computed, and is on disk beside its file, before the first file is replaced. Mode
and owner stay, and where the path is a symbolic link its target is replaced. A file that its agent
writes in the meantime is read again, so the agent's change is never lost.

A file that is ours as a whole says so in its first line (below the `---` of a skill), with a hash
of the rest and how many directories were made for it. Without that line a file is never overwritten
or removed; one that was edited since only with `force`.

Before an agent's settings file is changed for the first time, a copy is put beside it. Removing
restores that copy if nothing else was changed since, and takes out only our entries otherwise.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from indexerd.errors import AccessError, ConfigError, UsageError, WriteError

TRIES = 20  # the agent may write at the same time
BACKUP = ".before-indexerd"
NOT_OURS = "kept: not ours"

Text = str | None  # None: no file
_OURS = re.compile(
    r"(?:---\n)?[^\n]*indexerd integration, sha256 ([0-9a-f]{16}) of what follows"
    r"(?:, directories made: (\d+))?[^\n]*\n(.*)",
    re.DOTALL,
)


@dataclass(slots=True)
class Edit:
    """What shall be at a path. `change` raises ValueError for a text that it cannot parse."""

    path: str
    change: Callable[[Text], Text]
    removing: bool = False
    mode: int = 0o600  # of a new file
    skip_foreign: bool = False  # a file that is not ours is left alone, and is no error
    reported: bool = True
    before: Text = None
    after: Text = None
    staged: Path | None = None  # holds the new text
    did: str = ""

    @property
    def target(self) -> Path:
        """The file itself, where the path is a link."""
        return Path(os.path.realpath(self.path))


class _ForeignError(UsageError):
    """What is there is not ours, or is no file."""

    hint = "move it out of the way"


def apply(edits: Sequence[Edit]) -> list[dict[str, str]]:
    """Do all edits, or none; `{"path", "did"}` of each.

    ConfigError: a file is not what it must be. UsageError: a file that is not ours is in the way.
    AccessError, WriteError: the system refuses. Each names the file.
    """
    try:
        for work in (_plan, _stage, _finish):
            for edit in edits:
                try:
                    work(edit)
                except OSError as bad:
                    kind = AccessError if isinstance(bad, PermissionError) else WriteError
                    raise kind(
                        f"{edit.target}: {bad.strerror}",
                        hint="check its owner and mode, and the space on the disk",
                    ) from None
    finally:
        for edit in edits:
            if edit.staged is not None:
                edit.staged.unlink(missing_ok=True)
    gone = (edit for edit in edits if edit.did == "removed")
    emptied = {one for edit in gone for one in _made_for(edit.path, edit.before or "")}
    for directory in sorted(emptied, key=lambda one: -len(one.parts)):
        with suppress(OSError):  # not empty, or a link by now
            directory.rmdir()
    return [{"path": edit.path, "did": edit.did} for edit in edits if edit.reported]


def _plan(edit: Edit) -> None:
    """Read the file, and compute what it shall be."""
    try:
        edit.before = read(edit.target)
        edit.after = edit.change(edit.before)
        edit.did = "absent" if edit.removing else "unchanged"
    except UsageError as bad:
        if not (edit.skip_foreign and isinstance(bad, _ForeignError)):
            raise UsageError(f"{edit.path}: {bad}", hint=bad.hint) from None
        edit.before = edit.after = None
        edit.did = NOT_OURS
    except ValueError as bad:
        message, _, hint = str(bad).partition("; ")
        broken = ConfigError([{"file": edit.path, "key": "", "message": message, "hint": hint}])
        broken.args, broken.hint = (f"{edit.path}: {message}",), hint  # not our configuration
        raise broken from None


def _stage(edit: Edit) -> None:
    """Put the new text beside its file."""
    if edit.after is None or edit.after == edit.before:
        return
    target = edit.target
    target.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    edit.staged = Path(name)
    with os.fdopen(fd, "wb") as file:
        file.write(edit.after.encode(errors="surrogateescape"))
        os.fchmod(fd, edit.mode)
        with suppress(FileNotFoundError):
            old = target.stat()
            with suppress(PermissionError):  # an owner that only root could give
                os.fchown(fd, old.st_uid, old.st_gid)
            os.fchmod(fd, stat.S_IMODE(old.st_mode))
        file.flush()
        os.fsync(fd)


def _finish(edit: Edit) -> None:
    """Replace or remove the file; one that was written since is planned and staged again."""
    for _ in range(TRIES):
        if edit.after == edit.before:
            return
        if read(edit.target) == edit.before:
            break
        if edit.staged is not None:
            edit.staged.unlink()
        _plan(edit)
        _stage(edit)
    else:
        raise WriteError(f"{edit.path} keeps changing", hint="close the agent, and try again")
    if edit.after is None:
        edit.target.unlink(missing_ok=True)
    elif edit.staged is not None:
        edit.staged.replace(edit.target)
    written = "created" if edit.before is None else "updated"
    edit.did = "removed" if edit.removing else written


def read(path: Path) -> Text:
    """The text of a file, None where there is none; bytes that are no UTF-8 survive a rewrite."""
    if path.is_file():
        return path.read_bytes().decode(errors="surrogateescape")
    if path.exists():
        raise _ForeignError("it is no file")
    return None


# -- settings files of agents --------------------------------------------------------------------


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
        text = None if remove else read(target)
        without_us = text is not None and take(text) == text
        return text if remove or without_us else before

    return [
        Edit(path, taken if remove else put, removing=remove),
        Edit(str(backup), copied, removing=remove, reported=False),
    ]


# -- files of ours -------------------------------------------------------------------------------


def own_file(path: str, body: Text, *, force: bool = False, skip_foreign: bool = False) -> Edit:
    """A file that is ours as a whole; None removes it, with the directories made for it."""
    gone = body is None
    change = partial(_own, path, body, force)
    return Edit(path, change, removing=gone, mode=0o644, skip_foreign=skip_foreign or gone)


def own_files_in(directory: str) -> list[str]:
    """The files of ours directly in a directory."""
    found = Path(directory).glob("*")
    return sorted(str(one) for one in found if one.is_file() and _OURS.match(read(one) or ""))


def _own(path: str, body: Text, force: bool, before: Text) -> Text:
    made = sum(not one.exists() for one in Path(path).parents)
    if before is not None:
        if (found := _OURS.match(before)) is None:
            raise _ForeignError("it is not ours")
        if _digest(found[3]) != found[1] and not force:
            raise UsageError("it was edited", hint="keep what you need of it, then use --force")
        made = len(_made_for(path, before))
    if body is None:
        return None
    rule = "---\n" if body.startswith("---\n") else ""
    rest = body.removeprefix(rule)
    count = f", directories made: {made}" if made else ""
    line = f"indexerd integration, sha256 {_digest(rest)} of what follows{count}"
    return f"{rule}{'#' if rule else '//'} {line}; `indexerd integrate` keeps it\n{rest}"


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode(errors="surrogateescape")).hexdigest()[:16]


def _made_for(path: str, text: str) -> list[Path]:
    """The directories that were made for a file of ours."""
    found = _OURS.match(text)
    return [*Path(path).parents][: int(found[2] or 0) if found else 0]
