"""Parts that are loaded when somebody asks: what they answer is known before."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from indexerd.daemon.parts import LATE, MODULES, Parts, installed

import indexerd
from indexerd.errors import DaemonDownError


def test_the_table_of_late_methods_is_true() -> None:
    """Every method that a late part answers is in the table, and nothing else."""
    for name, methods in LATE.items():
        part = getattr(import_module(MODULES[name]), name.capitalize())
        assert set(object.__new__(part).methods()) == set(methods)


def test_a_daemon_starts_without_them() -> None:
    """The modules of late parts are not loaded with the daemon's."""
    script = "import sys, indexerd.daemon.daemon; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "indexerd.daemon.parts" in loaded
    assert not loaded & set(MODULES.values())


def test_parts_of_another_version_are_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade under a running daemon mixes no versions: who asks is told to restart it."""
    program = tmp_path / "__init__.py"
    program.write_text("")
    monkeypatch.setattr(indexerd, "__file__", str(program))
    made = object.__new__(Parts)
    made._installed = installed()
    vars(made)["stats"] = "there"
    new = tmp_path / "new.py"
    new.write_text("")
    new.replace(program)
    assert asyncio.run(made._part("stats")) == "there"
    with pytest.raises(DaemonDownError) as told:
        asyncio.run(made._part("references"))
    assert "restart" in told.value.hint
    program.unlink()
    with pytest.raises(DaemonDownError):
        asyncio.run(made._part("references"))
