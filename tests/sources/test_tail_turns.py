"""Long readings, taken in turns: one that is left or fails has taken nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from indexerd.errors import SessionUnreadableError
from indexerd.sources import tail as tail_module
from indexerd.sources.tail import Tail
from tests.sources.tail_lines import cut, lines


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the session file is, or will be."""
    return tmp_path / "s.jsonl"


LONG = b"".join(b'{"n":%d}\n' % n for n in range(100))


@pytest.fixture
def in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings that are longer than a few lines go on while their lines are taken."""
    monkeypatch.setattr(tail_module, "CHUNK", 32)
    monkeypatch.setattr(tail_module, "AT_ONCE", 64)


@pytest.mark.usefixtures("in_turns")
def test_a_long_reading_left_in_the_middle_has_taken_nothing(file: Path) -> None:
    """F2: only lines that were handed out move the cursor; the next reading has them all."""
    file.write_bytes(LONG + b'{"half')
    tail = Tail()
    begun = tail.read(str(file))
    for _ in zip(range(5), begun.lines, strict=False):
        assert (tail.cursor, begun.more) == (None, False)
    fds = len(os.listdir("/proc/self/fd"))

    read = tail.read(str(file))

    assert len(os.listdir("/proc/self/fd")) == fds  # the first is closed, the second open
    assert next(iter(read.lines)) == next(iter(read.lines))  # to look is not to take
    assert lines(read) == cut(LONG)
    assert (tail.pending, read.bytes, read.more) == (6, len(LONG) + 6, False)
    assert tail.cursor is not None
    assert tail.cursor.offset == len(LONG)
    assert len(os.listdir("/proc/self/fd")) == fds - 1


@pytest.mark.usefixtures("in_turns")
def test_a_disk_that_fails_in_a_long_reading_costs_no_line(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F19: what was handed out counts; the error is told by the next reading, which has nothing."""
    file.write_bytes(LONG)
    tail, healthy, left = Tail(), os.pread, 20

    def pread(fd: int, length: int, offset: int) -> bytes:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(5, "Input/output error")
        return healthy(fd, length, offset)

    monkeypatch.setattr(os, "pread", pread)
    read = tail.read(str(file))
    first = lines(read)
    assert read.more
    assert first == cut(LONG)[: len(first)]
    assert 0 < len(first) < len(cut(LONG))
    with pytest.raises(SessionUnreadableError, match="cannot read"):
        tail.read(str(file))
    monkeypatch.undo()
    assert first + lines(tail.read(str(file))) == cut(LONG)
