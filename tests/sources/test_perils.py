"""A file at which the process dies is left alone after a while, and only that one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import SessionUnreadableError, WriteError
from indexerd.sources.cursor import Look
from indexerd.sources.perils import STARTS, TOPIC, Perils
from indexerd.store.store import StateStore

BAD, GOOD = "/s/bad.jsonl", "/s/good.jsonl"
ODD = os.fsdecode(b"/s/bad\xff\nname.jsonl")
AS_IT_WAS, GROWN = Look(1, 2, 300, 4), Look(1, 2, 301, 5)


class Starts:
    """One state directory, and a program that starts there again and again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ledger = StateStore(root / "store.sqlite")
        self.version = "1.0"
        self.told: list[str] = []
        self.look: Look | None = AS_IT_WAS
        self.perils = self.again()

    def again(self) -> Perils:
        """Start anew; whatever was under way ended with the process before."""
        if hasattr(self, "perils"):
            self.perils.close()
        path = self.root / "reading"
        self.perils = Perils(path, self.ledger, self.version, self.told.append)
        return self.perils

    def die(self, path: str = BAD) -> None:
        """The process ends while a file is read, as kill -9 ends it; then it starts again."""
        with pytest.raises(ZeroDivisionError):
            self.perils.step(path, lambda: self.look, self._end)
        (self.root / "reading").write_bytes(self.noted)  # nothing runs after kill -9
        self.again()

    def _end(self) -> Any:
        self.noted = (self.root / "reading").read_bytes()
        raise ZeroDivisionError

    def reads(self, path: str = BAD, *, more: bool = False) -> bool:
        """Whether a file is read."""
        try:
            assert self.perils.step(path, lambda: self.look, lambda: ("ok", 9, more))[1] == 9
        except SessionUnreadableError:
            return False
        return True


@pytest.fixture
def starts(tmp_path: Path) -> Iterator[Starts]:
    """A first start."""
    starts = Starts(tmp_path)
    yield starts
    starts.perils.close()
    starts.ledger.close()


@pytest.mark.parametrize("path", [BAD, ODD])
def test_a_file_that_ended_three_starts_is_left_alone(starts: Starts, path: str) -> None:
    """V7: not the first time, and not the second; the others are read all the time."""
    for _ in range(STARTS):
        assert starts.told == []
        starts.die(path)
        assert starts.reads(GOOD)
    for number in range(1, 3):
        assert not starts.reads(path)
        assert not starts.reads(path)
        assert starts.told == [path] * number  # once a start
        assert starts.reads(GOOD)
        starts.again()


@pytest.mark.parametrize("change", ["grown", "version", "gone"])
def test_it_is_tried_again_when_something_is_another(starts: Starts, change: str) -> None:
    """V7: when the file changes, or the program does; read whole, it is a file like any other."""
    for _ in range(STARTS):
        starts.die()
    assert not starts.reads()
    if change == "version":
        starts.version = "1.1"
    starts.look = {"grown": GROWN, "version": AS_IT_WAS, "gone": None}[change]
    starts.again()
    assert starts.reads()
    starts.look = GROWN
    starts.again()
    assert starts.reads()
    assert starts.ledger.notes(TOPIC) == {}


def test_if_it_still_ends_us_once_is_enough(starts: Starts) -> None:
    """V7: it grew, was tried again, and ended us: it is set aside as it is now."""
    for _ in range(STARTS):
        starts.die()
    assert not starts.reads()
    starts.look = GROWN
    starts.die()
    assert not starts.reads()


def test_a_whole_reading_forgives(starts: Starts) -> None:
    """V7: two deaths, a reading to its end, two deaths: chance, and no fault of the file."""
    for _ in range(2):
        for _ in range(STARTS - 1):
            starts.die()
        assert starts.reads()
    assert starts.reads()
    assert starts.told == []


def test_a_part_of_a_reading_forgives_nothing(starts: Starts) -> None:
    """V7: the first steps of a large file may go well each time, and a later one end us."""
    for _ in range(STARTS):
        assert starts.reads(more=True)
        starts.die()
    assert not starts.reads()


def test_a_death_between_files_forgives(starts: Starts) -> None:
    """V7: whoever is killed while nothing is read was not killed by what was read before."""
    for _ in range(STARTS - 1):
        starts.die()
    starts.again()
    starts.die()
    assert starts.reads()


def test_another_files_deaths_are_counted_for_themselves(starts: Starts) -> None:
    """V7: two that end us by turns are both found."""
    for _ in range(STARTS):
        starts.die()
        starts.die(GOOD)
    assert not starts.reads()
    assert not starts.reads(GOOD)


def test_an_error_is_no_death(starts: Starts) -> None:
    """F21, V7: what can be caught is dealt with elsewhere."""
    for _ in range(STARTS):
        with pytest.raises(OSError, match="EIO"):
            starts.perils.step(BAD, lambda: starts.look, _eio)
        starts.again()
    assert starts.reads()


def _eio() -> Any:
    raise OSError("EIO")


@pytest.mark.parametrize(
    "noted",
    [b"", b"\x01", b"\x01\x00", b"\x01/s/bad.jsonl", b"\x00/s/bad.jsonl\x00", b"\xff" * 9000],
)
def test_a_torn_note_blames_nobody(starts: Starts, noted: bytes) -> None:
    """V7: it is a hint; half of one is none."""
    for _ in range(STARTS):
        (starts.root / "reading").write_bytes(noted)
        starts.again()
    assert starts.reads()
    assert starts.ledger.notes(TOPIC) == {}


def test_where_nothing_can_be_noted_reading_goes_on(
    starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A3, V7: a directory in the note's place, a path too long, a ledger that takes nothing."""
    assert starts.reads("/s/" + "x" * 9000)
    starts.die()

    def full(*_: Any) -> None:
        raise WriteError("disk full")

    monkeypatch.setattr(starts.ledger, "note", full)
    monkeypatch.setattr(starts.ledger, "notes", full)
    assert starts.reads()
    (starts.root / "reading").unlink()
    (starts.root / "reading").mkdir()
    starts.again()
    assert starts.reads()


DRIVER = """
import os, sys
from pathlib import Path
from indexerd.store.store import StateStore
from indexerd.sources.perils import Perils
root = Path(sys.argv[1])
perils = Perils(root / "reading", StateStore(root / "store.sqlite"), "1.0", print)
perils.step("/s/good.jsonl", lambda: None, lambda: (0, 0, False))
perils.step("/s/bad.jsonl", lambda: None, lambda: os.kill(os.getpid(), 9))
"""


def test_a_real_death_is_known_to_the_next_start(tmp_path: Path) -> None:
    """V7: SIGKILL in the middle of a step; the note is there, and it is private."""
    done = subprocess.run([sys.executable, "-c", DRIVER, str(tmp_path)], check=False, timeout=20)
    assert done.returncode == -9
    ledger = StateStore(tmp_path / "store.sqlite")
    perils = Perils(tmp_path / "reading", ledger, "1.0", lambda _path: None)
    assert ledger.notes(TOPIC).keys() == {BAD.encode().hex()}
    assert (tmp_path / "reading").stat().st_mode & 0o777 == 0o600
    perils.close()
    ledger.close()
