"""Reading the configuration file: the one place that opens it.

A file that is too large, or no file (a pipe, a directory), is a problem and is not waited for.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from indexerd.paths import Places
from indexerd.privacy import kept
from indexerd.settings import Loaded, Privacy, Redact, load
from indexerd.settings.parsing import SIZE_MAX


def read_config(places: Places, env: Mapping[str, str]) -> Loaded:
    """Read the configuration; a missing file is a problem only where it was asked for (Q5).

    With problems the settings are the defaults, but for what was excluded and redacted: there
    the last good configuration holds, and whatever of the present one can be read.
    """
    loaded = _read(places, env)
    before = kept.load(places.state_dir) if loaded.problems else None
    return _guarded(loaded, *before) if before else loaded


def _guarded(loaded: Loaded, privacy: Privacy, redact: Redact) -> Loaded:
    """Settings with all exclusions and patterns of two configurations."""
    now = loaded.settings
    globs = [*privacy.exclude, *now.privacy.exclude]
    patterns = [*redact.extra_patterns, *now.redact.extra_patterns]
    both = {
        "privacy": Privacy.model_construct(exclude=list(dict.fromkeys(globs))),
        "redact": Redact.model_construct(
            enabled=redact.enabled or now.redact.enabled,
            extra_patterns=list(dict.fromkeys(patterns)),
        ),
    }
    return Loaded(now.model_copy(update=both), loaded.sources, loaded.problems)


def _read(places: Places, env: Mapping[str, str]) -> Loaded:
    path = places.config_file
    try:
        return load(_bytes(path), str(path), env)
    except FileNotFoundError:
        loaded = load(None, str(path), env)
        why = "no such file"
        if not places.config_explicit:
            return loaded
    except OSError as bad:
        loaded = load(None, str(path), env)
        why = bad.strerror or "unreadable"
    problem = {"file": str(path), "key": "", "message": why, "hint": "check --config"}
    return Loaded(loaded.settings, loaded.sources, (problem,))


def _bytes(path: Path) -> bytes:
    """What a file holds, or a device such as /dev/null; a little more than may be, at the most."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(fd).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
            raise OSError(errno.EINVAL, "not a regular file")
        with open(fd, "rb", closefd=False) as file:
            return file.read(SIZE_MAX + 1)
    finally:
        os.close(fd)
