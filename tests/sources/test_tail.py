"""Reading what was appended: real files that grow, vanish, fail, or are no files at all.

Files that change in other ways than by growing are in test_tail_model.py.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from indexerd.agents.base import Oversize
from indexerd.errors import SessionUnreadableError
from indexerd.sources import lines as lines_module
from indexerd.sources import tail as tail_module
from indexerd.sources.cursor import Cursor, Verdict, glance
from indexerd.sources.lines import Block, LineBuffer
from indexerd.sources.tail import Tail, lines_of, look, read_span
from tests.sources.tail_lines import cut, lines

ONE = b'{"type":"session","id":"a"}\n'
TWO = '{"text":"\u00e9\u4e2d\U0001f600 \u2028 \\r"}\r\n'.encode()
THREE = b'{"id":"c"}\n'
NOBODY = 65534


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the session file is, or will be."""
    return tmp_path / "s.jsonl"


def append(path: Path, data: bytes) -> None:
    """Write at the end, as an agent does."""
    with path.open("ab") as out:
        out.write(data)


def reborn(tail: Tail) -> Tail:
    """The same position after a restart: out of the ledger's bytes, nothing in memory."""
    assert tail.cursor is not None
    return Tail(msgspec.msgpack.decode(msgspec.msgpack.encode(tail.cursor), type=Cursor))


def test_byte_by_byte_each_line_comes_once_and_only_when_whole(file: Path) -> None:
    """F1: a 3-line file, written one byte at a time, looked at after every byte."""
    tail, found = Tail(), list[bytes]()
    whole = ONE + TWO + THREE
    for at in range(len(whole)):
        append(file, whole[at : at + 1])
        read = tail.read(str(file))
        new = [one.data for one in read.lines if isinstance(one, Block)]
        assert bool(new) == (whole[at : at + 1] == b"\n")
        found += new
        assert tail.cursor is not None
        assert tail.cursor.offset == whole[: at + 1].rfind(b"\n") + 1
        assert tail.pending == at + 1 - tail.cursor.offset
    assert found == [ONE, TWO, THREE]


def test_an_unchanged_file_is_not_read_again(file: Path) -> None:
    """F17, F20: the second look costs a stat, with and without an unfinished line."""
    for data in (ONE, ONE + b'{"half'):
        file.write_bytes(data)
        tail = Tail()
        assert tail.read(str(file)).bytes == len(data)
        before = tail.cursor

        again = tail.read(str(file))

        assert (again.verdict, again.bytes, again.lines) == (Verdict.SAME, 0, [])
        assert tail.cursor == before


@pytest.mark.parametrize("cut", range(len(TWO)))
def test_a_half_line_over_a_restart_counts_once(file: Path, cut: int) -> None:
    """F2: the cursor stays after the last newline; the new process reads the line whole."""
    file.write_bytes(ONE + TWO[:cut])
    tail = Tail()
    assert lines(tail.read(str(file))) == [ONE]

    after = reborn(tail)
    assert after.cursor is not None
    assert after.cursor.offset == len(ONE)
    append(file, TWO[cut:] + THREE)
    read = after.read(str(file))

    assert read.verdict is Verdict.CONTINUE
    assert b"".join(one.data for one in read.lines if isinstance(one, Block)) == TWO + THREE


def test_a_half_line_is_known_again_after_a_restart_without_change(file: Path) -> None:
    """F2: a restarted tail takes the unfinished line into memory once, and then rests."""
    file.write_bytes(ONE + b"{half")
    tail = Tail()
    tail.read(str(file))

    after = reborn(tail)
    first, second = after.read(str(file)), after.read(str(file))

    assert (first.verdict, first.lines, first.bytes) == (Verdict.CONTINUE, [], 5)
    assert (second.verdict, second.bytes, after.pending) == (Verdict.SAME, 0, 5)


WAS = ONE + TWO + THREE


@pytest.mark.parametrize("year", [1970, 2099])
def test_an_absurd_mtime_changes_nothing(file: Path, year: int) -> None:
    """F20: the mtime only says that a look is worth it."""
    stamp = {1970: 0, 2099: 4_070_908_800_000_000_000}[year]
    file.write_bytes(ONE)
    tail = Tail()
    tail.read(str(file))

    os.utime(file, ns=(stamp, stamp))
    touched = tail.read(str(file))
    assert (touched.verdict, touched.bytes) == (Verdict.CONTINUE, 0)
    assert tail.read(str(file)).verdict is Verdict.SAME

    append(file, THREE)
    os.utime(file, ns=(stamp, stamp))  # as it was, but longer
    assert lines(tail.read(str(file))) == [THREE]


@pytest.fixture
def refused(tmp_path: Path) -> dict[str, Path]:
    """Everything that can stand where a session file is expected."""
    made = {name: tmp_path / f"{name}.jsonl" for name in ("fifo", "link", "dir", "loop", "socket")}
    os.mkfifo(made["fifo"])
    (tmp_path / "real").write_bytes(ONE)
    made["link"].symlink_to(tmp_path / "real")
    made["dir"].mkdir()
    made["loop"].symlink_to(made["loop"])
    ear = socket.socket(socket.AF_UNIX)
    ear.bind(str(made["socket"]))
    ear.close()
    return made | {"device": Path("/dev/zero"), "terminal": Path("/dev/null")}


@pytest.mark.parametrize("what", ["fifo", "link", "dir", "loop", "socket", "device", "terminal"])
def test_what_is_no_regular_file_isrefused_at_once(refused: dict[str, Path], what: str) -> None:
    """X2, X3: neither followed nor waited for; a FIFO without a writer would block for ever."""
    path = str(refused[what])

    assert look(path) is None
    with pytest.raises(SessionUnreadableError):
        Tail().read(path)
    with pytest.raises(SessionUnreadableError):
        read_span(path, 0, 10)
    with pytest.raises(SessionUnreadableError), lines_of(path):
        pass


def test_a_file_swapped_for_a_link_isrefused(file: Path, tmp_path: Path) -> None:
    """X4: between the scan and the open; what was known of the file stays as it was."""
    file.write_bytes(ONE)
    tail = Tail()
    tail.read(str(file))
    was = tail.cursor
    assert look(str(file)) is not None

    file.rename(tmp_path / "secret")
    file.symlink_to(tmp_path / "secret")

    with pytest.raises(SessionUnreadableError):
        tail.read(str(file))
    assert tail.cursor == was


def test_a_vanished_file_says_so(file: Path) -> None:
    """F18: before the open it is FileNotFoundError; for a transcript's reader, an error of ours."""
    file.write_bytes(ONE)
    tail = Tail()
    tail.read(str(file))
    file.unlink()

    assert look(str(file)) is None
    with pytest.raises(FileNotFoundError):
        tail.read(str(file))
    with pytest.raises(SessionUnreadableError, match="gone"), lines_of(str(file)):
        pass


def test_a_file_that_vanishes_while_it_is_open_is_read_to_its_end(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F18: between open and read the name goes; the descriptor still holds the bytes."""
    file.write_bytes(WAS)
    tail = Tail()

    def gone(path: str) -> int:
        fd = os.open(path, os.O_RDONLY)
        file.unlink()
        return fd

    monkeypatch.setattr(tail_module, "_open", gone)
    assert lines(tail.read(str(file))) == cut(WAS)
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError):
        tail.read(str(file))


def test_a_budget_ends_a_reading_and_the_next_one_goes_on(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F9: a huge file takes turns; in pieces it gives the same lines as at once."""
    monkeypatch.setattr(tail_module, "CHUNK", 50)
    whole = b"".join(b'{"n":%d}\n' % n for n in range(200))
    file.write_bytes(whole)
    tail, found, turns = Tail(), b"", 0
    more = True
    while more:
        read = tail.read(str(file), budget=100)
        assert read.bytes <= 100
        found += b"".join(one.data for one in read.lines if isinstance(one, Block))
        more = read.more
        turns += 1
        assert tail.cursor is not None
        here = look(str(file))
        assert here is not None
        assert (glance(tail.cursor, here) is Verdict.SAME) == (not more)
        if turns % 3 == 0:
            tail = reborn(tail)
    assert found == whole
    assert turns >= len(whole) // 100
    assert tail.read(str(file)).verdict is Verdict.SAME


def test_a_budget_holds_after_a_restart_verdict_too(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F9, F11: a rewritten file is read anew in turns, and the state is dropped only once."""
    monkeypatch.setattr(tail_module, "CHUNK", 50)
    file.write_bytes(b"{}\n" * 100)
    tail = Tail()
    tail.read(str(file))
    file.write_bytes(b"[1]\n" * 100)

    reads = [tail.read(str(file), budget=100)]
    while reads[-1].more:
        reads.append(tail.read(str(file), budget=100))

    assert [one.verdict.restart for one in reads] == [True] + [False] * (len(reads) - 1)
    assert [line for read in reads for line in lines(read)] == [b"[1]\n"] * 100


def test_an_oversized_line_is_passed_and_the_next_one_read(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F8: also over a restart; the fingerprints hold behind a line of which only ends are kept."""
    monkeypatch.setattr(lines_module, "LINE_MAX", 20_000)
    monkeypatch.setattr(tail_module, "CHUNK", 3000)
    long = b'{"id":"long","x":"' + b"y" * 50_000 + b'"}\n'
    file.write_bytes(ONE + long)
    tail = Tail()

    [first, big] = tail.read(str(file)).lines
    assert first == Block(ONE, 0)
    assert isinstance(big, Oversize)
    assert (big.offset, big.length) == (len(ONE), len(long))

    append(file, THREE)
    for one in (reborn(tail), tail):
        read = one.read(str(file))
        assert (read.verdict, lines(read)) == (Verdict.CONTINUE, [THREE])


def test_a_file_rewritten_while_it_is_read_is_found_out(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F11: the rewriting falls between reading the lines and remembering what they were.

    The old lines were handed out, so the cursor must vouch for them and not for what is in the
    file by then; else the new lines would never be read.
    """
    new = ONE.replace(b'"a"', b'"z"') + TWO + THREE

    class Slow(LineBuffer):
        def feed(self, data: bytes) -> list[Block | Oversize]:
            file.write_bytes(new)
            return super().feed(data)

    file.write_bytes(ONE + TWO)
    tail = Tail()
    monkeypatch.setattr(tail_module, "LineBuffer", Slow)
    tail._lines = Slow()
    assert b"".join(lines(tail.read(str(file)))) == ONE + TWO
    monkeypatch.undo()

    read = tail.read(str(file))

    assert read.verdict is Verdict.REWRITTEN
    assert b"".join(lines(read)) == new


@pytest.mark.parametrize("known", [False, True])
def test_a_reading_that_fails_has_taken_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    """F21: EIO in the middle; the lines before it were not handed out, so they come again."""
    monkeypatch.setattr(tail_module, "CHUNK", len(ONE))
    tail = Tail()
    if known:
        file.write_bytes(THREE)
        tail.read(str(file))
    append(file, ONE * 3)
    pread, data_reads = os.pread, 0

    def failing(fd: int, length: int, offset: int) -> bytes:
        nonlocal data_reads
        data_reads += length == len(ONE)
        if data_reads == 3:
            raise OSError(5, "Input/output error")
        return pread(fd, length, offset)

    with monkeypatch.context() as bad:
        bad.setattr(os, "pread", failing)  # a disk that fails here and then cannot be had
        with pytest.raises(SessionUnreadableError, match="cannot read") as caught:
            tail.read(str(file))
    assert caught.value.retryable

    assert lines(tail.read(str(file))) == [ONE] * 3


@pytest.fixture
def common(tmp_path: Path) -> Iterator[Path]:
    """A file, and for root the rights of somebody whom modes bind."""
    if os.geteuid() != 0:
        yield tmp_path / "s.jsonl"
        return
    with TemporaryDirectory() as place:
        os.chown(place, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield Path(place) / "s.jsonl"
        finally:
            os.seteuid(0)


def test_an_unreadable_file_is_an_error_of_ours(common: Path) -> None:
    """F19: chmod 000 and back; the position is kept."""
    common.write_bytes(ONE)
    tail = Tail()
    tail.read(str(common))
    append(common, THREE)
    common.chmod(0)

    with pytest.raises(SessionUnreadableError, match="cannot open"):
        tail.read(str(common))
    common.chmod(stat.S_IRUSR)

    assert lines(tail.read(str(common))) == [THREE]


def test_single_lines_are_read_by_their_place(file: Path) -> None:
    """A transcript reads only the lines it needs; a file that shrank gives less, and no error."""
    file.write_bytes(WAS)

    assert read_span(str(file), len(ONE), len(TWO)) == TWO
    with lines_of(str(file)) as found:
        assert found.at(0, len(ONE)) == ONE
        os.truncate(file, 5)
        assert found.at(0, len(ONE)) == ONE[:5]
        assert found.at(len(ONE), len(TWO)) == b""


def test_reading_leaves_the_file_alone(file: Path) -> None:
    """S1.10: content and mtime are what they were."""
    file.write_bytes(WAS)
    os.utime(file, ns=(10**18, 10**18))
    before = (file.stat().st_mtime_ns, file.stat().st_mode, file.read_bytes())

    Tail().read(str(file))

    assert (file.stat().st_mtime_ns, file.stat().st_mode, file.read_bytes()) == before
