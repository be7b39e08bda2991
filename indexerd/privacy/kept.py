"""What the last good configuration said of privacy, kept for the day when there is no good one.

In: exclusions and patterns of secrets. Out: the same, from `<state dir>/privacy.json`. A
configuration with a mistake in it must not make sessions readable that its user excluded: where
it cannot be read, what was kept holds. What is kept is judged piece by piece: a pattern that this
version refuses takes no exclusion with it. A file that is damaged counts as none.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from indexerd.meta.reader import OPEN_FLAGS
from indexerd.settings import Privacy, Redact, sound

NAME = "privacy.json"
_SIZE_MAX = 4 * 1024 * 1024  # bytes; far more than the settings allow


def keep(state_dir: Path, privacy: Privacy, redact: Redact) -> bool:
    """Keep these, if they differ from what is there; says whether they are kept now."""
    if load(state_dir) == (privacy, redact):
        return True
    held = {"privacy": privacy.model_dump(), "redact": redact.model_dump()}
    temp = state_dir / f".{NAME}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(temp, flags, 0o600)
        with open(fd, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor, not a path
            json.dump(held, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temp, state_dir / NAME)  # noqa: PTH105 - beside the other calls of `os`
    except (OSError, ValueError):
        with suppress(OSError):
            temp.unlink()
        return False
    return True


def load(state_dir: Path) -> tuple[Privacy, Redact] | None:
    """What was kept; None where nothing was, or where it cannot be used."""
    try:
        fd = os.open(state_dir / NAME, OPEN_FLAGS)
        with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            held: Any = json.loads(file.read(_SIZE_MAX))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(held, dict) or not isinstance(held.get("privacy"), dict):
        return None
    return sound(held["privacy"], held.get("redact"))
