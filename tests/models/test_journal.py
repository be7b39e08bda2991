"""Rows that are on disk before `append` returns, whatever ended the writer before."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from indexerd.models.journal import Journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.jsonl"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors have no names here")
def test_a_row_is_on_disk_before_append_returns(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M15: written, then synced; a new file's name is synced too: a power cut could lose it."""
    done: list[tuple[str, str]] = []

    def noted(name: str) -> None:
        real = getattr(os, name)

        def call(fd: int, *rest: Any) -> Any:
            done.append((name, os.readlink(f"/proc/self/fd/{fd}")))
            return real(fd, *rest)

        monkeypatch.setattr(os, name, call)

    noted("write")
    noted("fsync")
    journal = Journal(path)
    journal.append({"n": 1})
    journal.append({"n": 2})
    file, place = str(path.resolve()), str(path.parent.resolve())
    row = [("write", file), ("fsync", file)]
    assert done == [*row, ("fsync", place), *row]
    assert path.stat().st_mode & 0o777 == 0o600
