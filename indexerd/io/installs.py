"""Changes in the configuration of agents: files of ours beside theirs, a few lines in theirs.

In: `Edit`s, each a path and a pure function from the text that is there to the text that is to
be there (None: no file). Out: one `Change` a path, the same whether it is done once or twice.

* Every edit is worked out before the first one is written, so that a file nobody can read stops
  all of them.
* A file is replaced as a whole, by rename; mode and owner stay, and where the path is a symbolic
  link its target is replaced and the link stays.
* A file is read right before it is written, and once more right before the rename: what its agent
  wrote meanwhile is taken in, and never lost.
* A file without our marker is never overwritten and never removed; neither is one of ours that
  somebody edited, unless `force` says so.

What is to be changed inside a file is worked out by `core.jsonc` and `core.toml_table`.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from indexerd.core import jsonc, toml_table
from indexerd.errors import AccessError, ConfigError, UsageError, WriteError
from indexerd.io.lock import sync, sync_directory

MARKER = "indexerd integration"
FILE_MAX = 64 * 1024 * 1024  # bytes of a settings file; Claude Code keeps much in one
TRIES = 20  # its agent may write it at the same time

Did = Literal["created", "updated", "unchanged", "removed", "absent"]
Text = str | None
_HEAD = f"{MARKER}; `indexerd integrate codex --remove` takes it away"
_COMMENTS = {".md": ("<!-- ", " -->"), ".py": ("# ", ""), ".toml": ("# ", "")}


@dataclass(frozen=True, slots=True)
class Edit:
    """What is to be at a path: `change` gets the text that is there, and says what shall be."""

    path: str
    change: Callable[[Text], Text]
    removing: bool = False
    mode: int = 0o600  # of a new file


@dataclass(frozen=True, slots=True)
class Change:
    """What was done at a path."""

    path: str
    did: Did


def apply(edits: Sequence[Edit]) -> list[Change]:
    """Do all of it. Raises before anything is written where one of the edits cannot be made.

    ConfigError: a file is not what it must be. UsageError: something that is not ours is in the
    way. AccessError, WriteError: the system says no.
    """
    for edit in edits:
        edit.change(_read(_target(edit.path))[0])
    return [_apply(edit) for edit in edits]


def _apply(edit: Edit) -> Change:
    target = _target(edit.path)
    for _ in range(TRIES):
        before, stamp = _read(target)
        after = edit.change(before)
        if after == before:
            return Change(edit.path, "absent" if edit.removing else "unchanged")
        if _put(target, after, stamp, edit.mode):
            if edit.removing:
                return Change(edit.path, "removed")
            return Change(edit.path, "created" if before is None else "updated")
    raise WriteError(f"{edit.path} keeps changing", hint="close its agent, and try again")


# -- files ---------------------------------------------------------------------------------------

_Stamp = tuple[int, int, int, int, int, int] | None


def _target(path: str) -> Path:
    return Path(os.path.realpath(path))


def _stamp(found: os.stat_result) -> _Stamp:
    when = (found.st_mtime_ns, found.st_ctime_ns)
    return (found.st_dev, found.st_ino, found.st_size, *when, found.st_mode)


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a FIFO would have us wait for a writer


def _read(path: Path) -> tuple[Text, _Stamp]:
    """A file's text and what tells its version; (None, None) where there is none."""
    try:
        with open(path, "rb", opener=_at_once) as file:
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
    except PermissionError as bad:
        raise AccessError(f"{path}: {bad.strerror}") from None
    except OSError as bad:
        raise WriteError(f"{path}: {bad.strerror}", hint="the file is as it was") from None


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
    bad.hint = hint
    return bad


# -- files of ours -------------------------------------------------------------------------------


def own_file(path: str, body: str, *, force: bool = False) -> Edit:
    """A file that is ours as a whole: its first line is a marker with a hash of the rest."""
    return Edit(path, partial(_own, path, body, force), mode=0o644)


def no_own_file(path: str, *, force: bool = False) -> Edit:
    """The same file taken away."""
    return Edit(path, partial(_own, path, None, force), removing=True)


def is_ours(text: str) -> bool:
    """Whether a text begins with our marker."""
    return MARKER in text.partition("\n")[0]


def owned(directory: str) -> list[str]:
    """The paths of all files of ours directly in a directory."""
    try:
        paths = sorted(one for one in Path(directory).iterdir() if one.is_file())
    except OSError:
        return []
    return [str(one) for one in paths if is_ours(_head(one))]


def _head(path: Path) -> str:
    with suppress(OSError), path.open("rb") as file:
        return file.readline(1000).decode("utf-8", "replace")
    return ""


def _own(path: str, body: Text, force: bool, before: Text) -> Text:
    if before is None:
        return None if body is None else _marked(path, body)
    line, _, rest = before.partition("\n")
    if not is_ours(before):
        raise UsageError(f"{path} is not ours", hint="move it out of the way")
    if f" {_digest(rest)} " not in line and not force:
        raise UsageError(f"{path} was edited", hint="keep what you need of it, then use --force")
    return None if body is None else _marked(path, body)


def _marked(path: str, body: str) -> str:
    opened, closed = _COMMENTS.get(Path(path).suffix, ("// ", ""))
    told = f"{MARKER}, sha256 {_digest(body)} of what follows; `indexerd integrate` keeps this file"
    return f"{opened}{told}{closed}\n{body}"


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def drop_directory(path: str) -> None:
    """Remove a directory of ours, if nothing is left in it."""
    with suppress(OSError):
        Path(path).rmdir()


# -- a few members in a JSON file of the agent's -------------------------------------------------


def json_edit(path: str, change: Callable[[str], Text], *, removing: bool = False) -> Edit:
    """An edit of a JSON file; `change` gets the text of one object, and may use `core.jsonc`."""
    return Edit(path, partial(_json, path, change, removing), removing)


def _json(path: str, change: Callable[[str], Text], removing: bool, before: Text) -> Text:
    if before is None and removing:
        return None
    text = "{\n}\n" if before is None else before
    bom = "\ufeff" if text.startswith("\ufeff") else ""
    try:
        after = change(text[len(bom) :])
        new = None if after is None else jsonc.parse(after).value
    except UsageError as bad:
        raise UsageError(f"{path}: {bad}", hint=bad.hint) from None
    except ValueError as bad:
        raise _broken(path, str(bad)) from None
    if before is None or after is None:
        return None if new is None else jsonc.document(new)
    return bom + after


# -- a table in a TOML file of the agent's -------------------------------------------------------


def toml_edit(path: str, table: str, lines: Sequence[str]) -> Edit:
    """A table of ours (`a.b`) with these lines, at the end of a file."""
    return Edit(path, partial(_toml, path, lambda text: toml_table.put(text, table, _HEAD, lines)))


def no_toml_table(path: str, table: str) -> Edit:
    """The same table taken away, with the tables below it."""
    change = partial(_toml, path, lambda text: toml_table.take(text, table, _HEAD))
    return Edit(path, change, removing=True)


def _toml(path: str, change: Callable[[str], Text], before: Text) -> Text:
    try:
        after = change(before or "")
    except UsageError as bad:
        raise UsageError(f"{path}: {bad}", hint=bad.hint) from None
    except ValueError as bad:
        raise _broken(path, str(bad)) from None
    return None if before is None and not after else after
