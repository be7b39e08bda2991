"""Changes to files in agents' directories: all of them, or none.

Each `Edit` is a path and a function from the text that is there (None: no file) to the text that
shall be there. Every edit is computed before the first byte is written, and every new text is on
disk beside its file before the first file is replaced. A file is replaced as a whole, by rename:
mode and owner stay, and where the path is a symbolic link its target is replaced. A file that its
agent writes in the meantime is read again, and so its change is never lost.

A file that is ours as a whole says so in a comment in its first line (below the `---` of a skill),
with a hash of the rest and how many directories were made for it. Without that comment a file is
never overwritten or removed; one that was edited since only with `force`. Git and editors may
change line ends or put a byte order mark: neither counts as an edit.

Before a settings file of the agent is changed for the first time, a copy is put beside it. Removing
restores that copy if nothing else was changed since, and takes out only our entries otherwise.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from indexerd.errors import AccessError, ConfigError, IndexerdError, UsageError, WriteError

FILE_MAX = 64 * 1024 * 1024  # bytes of a settings file; Claude Code keeps much in one
TRIES = 20  # the agent may write at the same time
BACKUP = ".before-indexerd"
NOT_OURS = "kept: not ours"

Text = str | None
_MARKER = "indexerd integration, sha256 "
_RULE = "---\n"
_MADE = re.compile(r", directories made: (\d+)")


@dataclass(frozen=True, slots=True)
class Edit:
    """What shall be at a path. `change` raises ValueError for a text that it cannot parse."""

    path: str
    change: Callable[[Text], Text]
    removing: bool = False
    mode: int = 0o600  # of a new file
    skip_foreign: bool = False  # a file that is not ours is left alone, and is no error
    reported: bool = True


@dataclass(slots=True)
class _Step:
    """One file to be written or removed; `staged` holds its new text."""

    edit: Edit
    target: Path
    before: Text
    after: Text
    staged: Path | None = None


@dataclass(slots=True)
class _Run:
    """What was done so far, by path."""

    did: dict[str, str] = field(default_factory=dict)
    emptied: list[Path] = field(default_factory=list)


class _ChangedMeanwhileError(Exception):
    """A file is not what it was when its change was computed."""


def apply(edits: Sequence[Edit]) -> list[dict[str, str]]:
    """Do all edits, or none; `{"path", "did"}` of each.

    ConfigError: a file is not what it must be. UsageError: a file that is not ours is in the way.
    AccessError, WriteError: the system refuses. Each names the file.
    """
    run = _Run()
    for _ in range(TRIES):
        try:
            _commit([_plan(edit) for edit in edits], run)
        except _ChangedMeanwhileError:
            continue
        for directory in sorted(run.emptied, key=lambda one: -len(one.parts)):
            with suppress(OSError):  # not empty, or gone
                directory.rmdir()
        return [{"path": one.path, "did": run.did[one.path]} for one in edits if one.reported]
    raise WriteError("a file keeps changing", hint="close the agent, and try again")


def _plan(edit: Edit) -> _Step:
    target = Path(os.path.realpath(edit.path))
    if edit.skip_foreign and _is_foreign(edit.path):
        return _Step(edit, target, NOT_OURS, NOT_OURS)
    before = read(target)
    try:
        after = edit.change(before)
    except UsageError as bad:
        raise UsageError(f"{edit.path}: {bad}", hint=bad.hint) from None
    except ValueError as bad:
        raise _broken(edit.path, str(bad)) from None
    if after != before:
        for one in (Path(edit.path), *Path(edit.path).parents):
            if os.path.islink(one) and not one.exists():  # noqa: PTH114 - takes names of any length
                raise UsageError(
                    f"{one} is a symbolic link to {one.readlink()}, which is not there",
                    hint="nothing was changed; mend or remove the link",
                )
    return _Step(edit, target, before, after)


def _commit(steps: Sequence[_Step], run: _Run) -> None:
    """Put every new text beside its file, then replace the files."""
    made: list[Path] = []
    try:
        for step in steps:
            if step.after not in (step.before, None):
                _stage(step, made)
        for step in steps:
            if step.after != step.before:
                _finish(step, run)
            else:
                word = "absent" if step.edit.removing else "unchanged"
                run.did.setdefault(step.edit.path, NOT_OURS if step.after is NOT_OURS else word)
    finally:
        for step in steps:
            if step.staged is not None:
                step.staged.unlink(missing_ok=True)
        for directory in reversed(made):
            with suppress(OSError):  # in use now
                directory.rmdir()


def _stage(step: _Step, made: list[Path]) -> None:
    target = step.target
    try:
        missing = [one for one in target.parents if not one.exists()]
        target.parent.mkdir(parents=True, exist_ok=True)
        made += reversed(missing)
        fd, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        step.staged = Path(name)
        with os.fdopen(fd, "wb") as file:
            file.write((step.after or "").encode())
            os.fchmod(fd, step.edit.mode)
            with suppress(FileNotFoundError):
                old = target.stat()
                with suppress(PermissionError):  # an owner that only root could give
                    os.fchown(fd, old.st_uid, old.st_gid)
                os.fchmod(fd, stat.S_IMODE(old.st_mode))
            file.flush()
            os.fsync(fd)
    except OSError as bad:
        raise _refused(target, bad) from None


def _finish(step: _Step, run: _Run) -> None:
    edit, target = step.edit, step.target
    if read(target) != step.before:
        raise _ChangedMeanwhileError
    try:
        if step.staged is None:
            run.emptied += _made_for(edit.path, step.before or "")
            target.unlink(missing_ok=True)
        else:
            step.staged.replace(target)
    except OSError as bad:
        raise _refused(target, bad) from None
    word = "created" if step.before is None else "updated"
    run.did[edit.path] = "removed" if edit.removing else word


def read(path: Path) -> Text:
    """The text of a file, None where there is none; a FIFO would have us wait for a writer."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{path} is no file", hint="move it out of the way")
            data = file.read(FILE_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as bad:
        if bad.errno == errno.ENAMETOOLONG:  # and so nothing can be there
            return None
        raise AccessError(f"{path}: {bad.strerror}") from None
    try:
        if len(data) <= FILE_MAX:
            return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    raise _broken(str(path), "it is not a text in UTF-8 of usual size")


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _refused(path: Path, bad: OSError) -> IndexerdError:
    kind = AccessError if isinstance(bad, PermissionError) else WriteError
    return kind(f"{path}: {bad.strerror}", hint="nothing was changed")


def _broken(path: str, why: str) -> ConfigError:
    message, _, more = why.partition("; ")
    hint = more or "mend the file; nothing was changed"
    bad = ConfigError([{"file": path, "key": "", "message": message, "hint": hint}])
    bad.args, bad.hint = (f"{path}: {message}",), hint  # it is not our configuration
    return bad


# -- settings files of agents --------------------------------------------------------------------


def settings_edits(
    path: str, put: Callable[[Text], str], take: Callable[[str], str], *, remove: bool
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
        nothing_of_ours = text is not None and take(text) == text
        return text if remove or nothing_of_ours else before

    return [
        Edit(path, taken if remove else put, removing=remove),
        Edit(str(backup), copied, removing=remove, reported=False),
    ]


# -- files of ours -------------------------------------------------------------------------------


def own_file(path: str, body: str, *, force: bool = False, skip_foreign: bool = False) -> Edit:
    """A file that is ours as a whole."""
    change = partial(_own, path, body, force)
    return Edit(path, change, mode=0o644, skip_foreign=skip_foreign)


def no_own_file(path: str, *, force: bool = False) -> Edit:
    """The same file removed, with the directories that were made for it."""
    change = partial(_own, path, None, force)
    return Edit(path, change, removing=True, skip_foreign=True)


def own_files_in(directory: str) -> list[str]:
    """The files of ours directly in a directory."""
    with suppress(OSError):
        names = (one for one in Path(directory).iterdir() if one.is_file())
        return sorted(str(one) for one in names if not _is_foreign(str(one)))
    return []


def _own(path: str, body: Text, force: bool, before: Text) -> Text:
    made = sum(not one.exists() for one in Path(path).parents)
    if before is not None:
        _, line, rest = _parts(before)
        if _MARKER not in line:
            raise UsageError("it is not ours", hint="move it out of the way")
        if f" {_digest(rest)} " not in line and not force:
            raise UsageError("it was edited", hint="keep what you need of it, then use --force")
        made = _made_count(line)
    return None if body is None else _marked(path, body, made)


def _marked(path: str, body: str, made: int) -> str:
    rule = _RULE if body.startswith(_RULE) else ""
    rest = body.removeprefix(rule)
    opened, closed = ("<!-- ", " -->") if path.endswith(".md") else ("// ", "")
    if rule:
        opened, closed = "# ", ""
    count = f", directories made: {made}" if made else ""
    line = f"{_MARKER}{_digest(rest)} of what follows{count}; `indexerd integrate` keeps it"
    return f"{rule}{opened}{line}{closed}\n{rest}"


def _parts(text: str) -> tuple[str, str, str]:
    """The rule that a skill begins with, the line after it, and the rest."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    rule = _RULE if text.startswith(_RULE) else ""
    line, _, rest = text.removeprefix(rule).partition("\n")
    return rule, line, rest


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _made_count(line: str) -> int:
    found = _MADE.search(line)
    return int(found[1]) if found and _MARKER in line else 0


def _made_for(path: str, text: str) -> list[Path]:
    """The directories that were made for a file of ours; a link is the user's by now."""
    found: list[Path] = []
    for one in [*Path(path).parents][: _made_count(_parts(text)[1])]:
        if one.is_symlink():
            break
        found.append(one)
    return found


def _is_foreign(path: str) -> bool:
    """Whether something that is not ours is at a path; AccessError where that cannot be known."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return True
            head = (file.readline(1000) + file.readline(1000)).decode("utf-8", "replace")
    except FileNotFoundError:
        return False
    except OSError as bad:
        if bad.errno in (errno.EISDIR, errno.ENOTDIR, errno.ENXIO, errno.ELOOP):
            return True
        raise AccessError(f"{path}: {bad.strerror}") from None
    return _MARKER not in _parts(head)[1]
