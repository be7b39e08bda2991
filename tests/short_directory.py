"""A private directory whose name is short enough for a socket in it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def short_directory() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="ix", dir="/tmp"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
