"""Changes in the configuration of agents: files of ours beside theirs, a few lines in theirs.

In: `Edit`s, each a path and a pure function from the text that is there to the text that is to
be there (None: no file). Out: one `Change` a path, the same whether it is done once or twice.

* All of it is done, or nothing: every edit is worked out, and its directory tried, before the
  first one is written; where one fails all the same, those before it are undone.
* A file is replaced as a whole, by rename; mode and owner stay, and where the path is a symbolic
  link its target is replaced and the link stays.
* A file is read right before it is written, and once more right before the rename: what its agent
  wrote meanwhile is taken in, and never lost.
* Nothing is written through a symbolic link that leads nowhere: what it means is its owner's.
* A file without our marker is never overwritten and never removed; where ours is to go, or can be
  done without, it is left alone and the rest is done. One of ours that somebody edited is an
  error, unless `force` says so.
* What was there before comes back: a file that was there, empty, is told from one that was not by
  a line break at the head of what we write; a directory of ours is counted in the marker.

What is to be in a file is worked out by `integrations.own_files`, `integrations.jsonc` and
`integrations.toml_table`.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from indexerd.errors import AccessError, ConfigError, IndexerdError, UsageError, WriteError
from indexerd.integrations import jsonc, own_files, toml_table
from indexerd.store.lock import sync, sync_directory

FILE_MAX = 64 * 1024 * 1024  # bytes of a settings file; Claude Code keeps much in one
TRIES = 20  # its agent may write it at the same time

Did = Literal["created", "updated", "unchanged", "removed", "absent", "kept: not ours"]
Text = str | None
_HEAD = f"{own_files.MARKER}; `indexerd integrate codex --remove` takes it away"


@dataclass(frozen=True, slots=True)
class Edit:
    """What is to be at a path: `change` gets the text that is there, and says what shall be."""

    path: str
    change: Callable[[Text], Text]
    removing: bool = False
    mode: int = 0o600  # of a new file
    yields: bool = False  # to something that is not ours: it is left alone, and is no error


@dataclass(frozen=True, slots=True)
class Change:
    """What was done at a path."""

    path: str
    did: Did


def apply(edits: Sequence[Edit]) -> list[Change]:
    """Do all of it, or nothing.

    ConfigError: a file is not what it must be. UsageError: something that is not ours is in the
    way. AccessError, WriteError: the system says no. Each names the file.
    """
    kept = {edit.path for edit in edits if edit.yields and own_files.foreign(edit.path)}
    rest = [edit for edit in edits if edit.path not in kept]
    for edit in rest:
        target = _target(edit.path)
        before = _read(target)[0]
        if edit.change(before) != before:
            _refuse_dangling(edit.path)
            _try_directory(target)
    done: list[tuple[Edit, Text, Text]] = []
    try:
        for edit in rest:
            done.append((edit, *_apply(edit)))  # noqa: PERF401 - some are done when one fails
    except IndexerdError:
        for edit, before, after in reversed(done):
            _undo(edit, before, after)
        raise
    told = {edit.path: _told(edit, before, after) for edit, before, after in done}
    return [told.get(edit.path) or Change(edit.path, "kept: not ours") for edit in edits]


def _apply(edit: Edit) -> tuple[Text, Text]:
    """Make one change; the text that was there, and the text that is there now."""
    target = _target(edit.path)
    for _ in range(TRIES):
        before, stamp = _read(target)
        after = edit.change(before)
        if after == before or _put(target, after, stamp, edit.mode):
            return before, after
    raise WriteError(f"{edit.path} keeps changing", hint="close its agent, and try again")


def _undo(edit: Edit, before: Text, after: Text) -> None:
    """Take a change back, unless somebody has written the file since."""
    target = _target(edit.path)
    with suppress(IndexerdError):
        held, stamp = _read(target)
        if before != after and held == after:
            _put(target, before, stamp, edit.mode)
            made = own_files.made(after) if before is None and after else 0
            for one in [*target.parents][:made]:
                drop_directory(str(one))


def _told(edit: Edit, before: Text, after: Text) -> Change:
    if after == before:
        return Change(edit.path, "absent" if edit.removing else "unchanged")
    if edit.removing:
        return Change(edit.path, "removed")
    return Change(edit.path, "created" if before is None else "updated")


# -- files ---------------------------------------------------------------------------------------

_Stamp = tuple[int, int, int, int, int, int] | None


def _target(path: str) -> Path:
    return Path(os.path.realpath(path))


def _stamp(found: os.stat_result) -> _Stamp:
    when = (found.st_mtime_ns, found.st_ctime_ns)
    return (found.st_dev, found.st_ino, found.st_size, *when, found.st_mode)


def _read(path: Path) -> tuple[Text, _Stamp]:
    """A file's text and what tells its version; (None, None) where there is none."""
    try:
        with open(path, "rb", opener=own_files.at_once) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise UsageError(f"{path} is no file", hint="move it out of the way")
            held = file.read(FILE_MAX + 1)
    except FileNotFoundError:
        return None, None
    except OSError as bad:
        raise AccessError(f"{path}: {bad.strerror}") from None
    try:
        text = held.decode("utf-8") if len(held) <= FILE_MAX else None
    except UnicodeDecodeError:
        text = None
    if text is None:
        raise _broken(str(path), "it is not a text in UTF-8 of usual size")
    return text, _stamp(found)


def _refuse_dangling(path: str) -> None:
    """UsageError where a symbolic link on the way to a file leads nowhere."""
    for one in (Path(path), *Path(path).parents):
        if one.is_symlink() and not one.exists():
            where = f"{one} is a symbolic link to {one.readlink()}, which is not there"
            raise UsageError(where, hint="nothing was changed; mend or remove the link")


def _try_directory(path: Path) -> None:
    """Make a file beside one that is to be written, and remove it; AccessError, WriteError."""
    there = next(one for one in path.parents if one.is_dir())
    try:
        fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=there)
        os.close(fd)
        Path(name).unlink()
    except OSError as bad:
        raise _refused(path, bad, "nothing was changed") from None


def _refused(path: Path, bad: OSError, hint: str) -> AccessError | WriteError:
    if isinstance(bad, PermissionError):
        return AccessError(f"{path}: {bad.strerror}", hint=f"{hint}; let us write {path.parent}")
    return WriteError(f"{path}: {bad.strerror}", hint=hint)


def _put(path: Path, text: Text, stamp: _Stamp, mode: int) -> bool:
    """Put a text in the place of a version of a file; False where that is no longer there."""
    try:
        if stamp is None:
            path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            if not _same(path, stamp):
                return False
            path.unlink()
            return True
        return _replace(path, text.encode("utf-8"), stamp, mode)
    except FileNotFoundError:  # it has just gone
        return False
    except OSError as bad:
        raise _refused(path, bad, "the file is as it was") from None


def _replace(path: Path, held: bytes, stamp: _Stamp, mode: int) -> bool:
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(held)
            file.flush()
            _take_after(file.fileno(), path, stamp, mode)
            sync(file.fileno())
        if not _same(path, stamp):
            return False
        Path(name).replace(path)
    finally:
        with suppress(FileNotFoundError):
            Path(name).unlink()
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_directory(directory)
    finally:
        os.close(directory)
    return True


def _take_after(fd: int, path: Path, stamp: _Stamp, mode: int) -> None:
    """Give a new file the mode and the owner of the one that it replaces."""
    if stamp is None:
        os.fchmod(fd, mode)
        return
    old = path.stat()
    with suppress(PermissionError):  # an owner that only root could give
        os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.st_mode))


def _same(path: Path, stamp: _Stamp) -> bool:
    try:
        return _stamp(path.stat()) == stamp
    except FileNotFoundError:
        return stamp is None


def _broken(path: str, why: str, hint: str = "mend the file; nothing was changed") -> ConfigError:
    bad = ConfigError([{"file": path, "key": "", "message": why, "hint": hint}])
    bad.args = (f"{path}: {why}",)  # it is not our configuration, and no key of it is meant
    bad.hint = hint
    return bad


# -- files of ours -------------------------------------------------------------------------------


def own_file(path: str, body: str, *, force: bool = False, yields: bool = False) -> Edit:
    """A file that is ours as a whole, under the marker of `integrations.own_files`.

    Something else in its place is an error, or is left alone where we can do without (`yields`).
    """
    change = partial(own_files.changed, path, body, force, own_files.missing(path))
    return Edit(path, change, mode=0o644, yields=yields)


def no_own_file(path: str, *, force: bool = False) -> Edit:
    """The same file taken away; something else in its place is nothing to take away."""
    change = partial(own_files.changed, path, None, force, 0)
    return Edit(path, change, removing=True, yields=True)


def drop_directory(path: str) -> None:
    """Remove a directory of ours, if nothing is left in it."""
    with suppress(OSError):
        Path(path).rmdir()


# -- a few members in a JSON file of the agent's -------------------------------------------------


def json_edit(path: str, change: Callable[[str], Text], *, removing: bool = False) -> Edit:
    """An edit of a JSON file; `change` gets the text of one object."""
    return Edit(path, partial(_json, path, change, removing), removing)


def _json(path: str, change: Callable[[str], Text], removing: bool, before: Text) -> Text:
    bom, text = _without_bom(before or "")
    empty = not text.strip()
    if empty and removing:
        return before
    try:
        after = change("{\n}\n" if empty else text)
        new = None if after is None else jsonc.parse(after).value
    except UsageError as bad:
        raise UsageError(f"{path}: {bad}", hint=bad.hint) from None
    except ValueError as bad:
        raise _broken(path, str(bad)) from None
    if after is None:
        left = _around(text)
        return None if left is None else bom + left
    if not empty:
        return bom + after
    return jsonc.document(new) if before is None else f"{before}\n{jsonc.document(new)}"


def _around(text: str) -> Text:
    """What was there before a document of which nothing is left; None: no file."""
    root = jsonc.parse(text)
    before, after = text[: root.start], text[root.end :]
    if (before + after).strip():  # comments of the user's
        return f"{before}{{}}{after}"
    return before[:-1] if before.endswith("\n") else None


def _without_bom(text: str) -> tuple[str, str]:
    """A mark of the byte order, if there is one, and the rest."""
    return text[: text.startswith("\ufeff")], text.removeprefix("\ufeff")


# -- a table in a TOML file of the agent's -------------------------------------------------------


def toml_edit(path: str, table: str, lines: Sequence[str]) -> Edit:
    """A table of ours (`a.b`) with these lines, at the end of a file."""
    return Edit(path, partial(_toml, path, lambda text: toml_table.put(text, table, _HEAD, lines)))


def no_toml_table(path: str, table: str, lines: Sequence[str]) -> Edit:
    """The same table taken away, with the tables below it."""

    def change(text: Text) -> Text:
        return None if text is None else toml_table.take(text, table, _HEAD, lines)

    return Edit(path, partial(_toml, path, change), removing=True)


def _toml(path: str, change: Callable[[Text], Text], before: Text) -> Text:
    bom, text = _without_bom(before or "")
    try:
        after = change(None if before is None else text)
    except UsageError as bad:
        raise UsageError(f"{path}: {bad}", hint=bad.hint) from None
    except ValueError as bad:
        raise _broken(path, str(bad)) from None
    return bom or None if after is None else bom + after
