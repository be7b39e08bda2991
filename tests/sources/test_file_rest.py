"""A file whose disk fails is tried ever more seldom, and at once when it is another."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexerd.daemon.files import Files
from indexerd.errors import SessionUnreadableError
from indexerd.sessions.info import SessionInfo
from indexerd.sources import memory
from indexerd.sources.scan import scan
from indexerd.sources.stores import Store
from indexerd.store.store import StateStore
from tests.e2e.world import Session

EIO = OSError(errno.EIO, os.strerror(errno.EIO))


class Disk:
    """Files over a disk on which one file cannot be read for some time."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = Store("pi", str(home / "sessions"), str(home / "meta"))
        self.files = Files(
            StateStore(home / "store.sqlite"),
            stores=lambda: [self.store],
            since=lambda _: None,
            title=lambda _agent, _id: None,
            exclude=list,
            defect=self.defect,
        )
        self.files.load()
        self.bad = Session(home / "sessions/--w--")
        self.bad.talk(2)
        self.good = Session(home / "sessions/--w--")
        self.good.talk(2)
        self.broken: OSError | None = None
        self.tries = 0
        self._read, self._opened = os.pread, os.open
        monkeypatch.setattr(os, "open", self.open)
        monkeypatch.setattr(os, "pread", self.pread)
        self._bad_fds: set[int] = set()

    @staticmethod
    def defect(path: str, bug: Exception) -> None:
        """No fault of a disk is one."""
        raise AssertionError(path) from bug

    def open(self, path: str | Path, flags: int, mode: int = 0o777) -> int:
        """The system's, which refuses the one file where that is what is broken."""
        bad = str(path) == str(self.bad.path)
        if bad and self.broken is not None:
            self.tries += 1
            if self.broken.errno == errno.EACCES:
                raise self.broken
        fd = self._opened(path, flags, mode)
        (self._bad_fds.add if bad else self._bad_fds.discard)(fd)
        return fd

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """The system's, but for the one file."""
        if fd in self._bad_fds and self.broken is not None:
            raise self.broken
        return self._read(fd, length, offset)

    def scan(self) -> bool:
        """One reconciling scan; says whether the one file was tried."""
        before = self.tries
        found = scan([self.store.sessions]).files
        for _ in self.files.refresh(self.files.differing(found)):
            pass
        return self.tries > before

    def pauses(self, scans: int) -> list[int]:
        """The numbers of the scans, of so many, at which it was tried."""
        return [number for number in range(scans) if self.scan()]

    def card(self, session: Session) -> SessionInfo:
        """What is known of a session."""
        found = self.files.card(session.id)
        assert found is not None
        return found


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """A home on such a disk."""
    disk = Disk(tmp_path, monkeypatch)
    yield disk
    disk.files._store.close()


def test_a_file_whose_disk_fails_is_tried_ever_more_seldom(disk: Disk) -> None:
    """F21: after 1 scan, 2, 4, 8, 16, and then every 16; `problems` names it all the while.

    A try may take a minute on such a disk, and holds up all the others.
    """
    disk.broken = EIO
    assert disk.pauses(64) == [0, 1, 3, 7, 15, 31, 47, 63]
    assert disk.files.problems() == {str(disk.bad.path): "cannot read: Input/output error"}
    assert disk.files.card(disk.bad.id) is None
    disk.good.talk(1)
    disk.scan()
    assert disk.card(disk.good).users == 3
    assert memory.REST_MAX == 16


def test_what_changes_is_tried_at_once(disk: Disk) -> None:
    """F21: the file grew, so something could be written at least; its rest begins anew."""
    disk.broken = EIO
    assert disk.pauses(16) == [0, 1, 3, 7, 15]
    disk.bad.talk(1)
    assert disk.pauses(8) == [0, 1, 3, 7]


def test_what_is_read_again_has_no_rest(disk: Disk) -> None:
    """F21: it heals at its next try, whole, is named no more, and the next fault counts from 1."""
    disk.scan()
    disk.bad.talk(1)
    disk.broken = EIO
    assert disk.pauses(4) == [0, 1, 3]
    disk.broken = None
    assert disk.files.problems() != {}
    disk.pauses(4)
    assert (disk.card(disk.bad).users, disk.files.problems()) == (3, {})
    disk.bad.talk(1)
    disk.broken = EIO
    assert disk.pauses(4) == [0, 1, 3]


def test_a_hint_is_followed_at_once(disk: Disk) -> None:
    """F21, W1: what the system tells of a file is no scan, and does not wait for one."""
    disk.broken = EIO
    disk.pauses(4)
    disk.broken = None
    for _ in disk.files.refresh([str(disk.bad.path)]):
        pass
    assert disk.card(disk.bad).users == 2


def test_a_mode_that_is_wrong_is_tried_at_every_scan(disk: Disk) -> None:
    """F19: it costs nothing to find out, and is mended within one scan; a stat shows no mode."""
    disk.broken = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    assert disk.pauses(6) == [*range(6)]
    assert isinstance(disk.broken, OSError)
    disk.broken = None
    disk.scan()
    assert disk.files.problems() == {}


def test_a_reader_is_told_at_once(disk: Disk) -> None:
    """F21: whoever asks for the session's lines is refused, whether or not it rests."""
    disk.scan()
    disk.bad.talk(1)
    disk.broken = EIO
    disk.pauses(3)
    with disk.files.lines(disk.bad.id) as lines, pytest.raises(SessionUnreadableError):
        lines.row(0)
