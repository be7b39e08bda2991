"""How to call this program from anywhere: what is written into agents' files, and started by us.

In: nothing. Out: the words of a command. Loads no library: the daemon's start needs it, too.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import indexerd


def command() -> tuple[str, ...]:
    """How to call this program from anywhere, however this process was started.

    The script of this very installation; without one, this interpreter. A script that is merely
    first on PATH may be of another version.
    """
    for folder in _folders():
        script = folder / "indexerd"
        if script.is_file() and os.access(script, os.X_OK):
            return (str(script.absolute()),)
    # -P: not the directory that an agent happens to work in, which may have such a package itself
    return (sys.executable, "-P", "-m", "indexerd")


def _folders() -> Iterator[Path]:
    """Where scripts of this installation are: by the package's scheme, or by the interpreter."""
    package = Path(indexerd.__file__).resolve().parent.parent
    for scheme in (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")):
        if Path(sysconfig.get_path("purelib", scheme)).resolve() == package:
            yield Path(sysconfig.get_path("scripts", scheme))
    yield Path(sys.executable).parent
