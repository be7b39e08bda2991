"""Parts that are loaded when somebody asks: what they answer is known before."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

from indexerd.service.parts import LATE


def test_the_table_of_late_methods_is_true() -> None:
    """Every method that a late part answers is in the table, and nothing else."""
    for name, methods in LATE.items():
        part = getattr(import_module(f"indexerd.service.{name}"), name.capitalize())
        assert set(object.__new__(part).methods()) == set(methods)


def test_a_daemon_starts_without_them() -> None:
    """The modules of late parts are not loaded with the daemon's."""
    script = "import sys, indexerd.service.daemon; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "indexerd.service.parts" in loaded
    assert not loaded & {f"indexerd.service.{name}" for name in LATE}
