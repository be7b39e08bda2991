"""Rows that are on disk before `append` returns."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from indexerd.models.journal import Journal


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors have no names here")
def test_a_row_is_on_disk_before_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written, then synced; a new file's name is synced too, as a power cut could lose it."""
    done: list[str] = []
    fsync, path = os.fsync, tmp_path / "budget.jsonl"

    def noted(fd: int) -> Any:
        rows = path.read_bytes().count(b"\n")
        done.append(f"{rows} in {os.readlink(f'/proc/self/fd/{fd}')}")
        return fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    for number in (1, 2):
        Journal(path).append({"n": number})
    file, place = path.resolve(), tmp_path.resolve()
    assert done == [f"1 in {file}", f"1 in {place}", f"2 in {file}"]
    assert path.stat().st_mode & 0o777 == 0o600
