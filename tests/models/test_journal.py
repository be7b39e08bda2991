"""Rows that are on disk before `append` returns, whatever ended the writer before."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


@settings(max_examples=50, deadline=None)
@given(
    st.binary(max_size=200) | st.sampled_from([b'{"n":', b'{"n":3}', b"\0" * 4096, b'{"n":"\xff'])
)
def test_whatever_a_crash_left_is_passed_over(
    tmp_path_factory: pytest.TempPathFactory, torn: bytes
) -> None:
    """M15, F5: the rows before it are read, and the next one stands on a line of its own."""
    path = tmp_path_factory.mktemp("j") / "j"
    journal = Journal(path)
    journal.append({"n": 1})
    with path.open("ab") as out:
        out.write(torn)
    before = list(journal.rows())
    assert before[0] == {"n": 1} or torn
    journal.append({"n": 2})
    assert list(journal.rows()) == [*before, {"n": 2}]
