"""Compressed sessions: the lines of a plain file, whatever is done to the compressed one."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexerd.agents.base import Oversize
from indexerd.errors import SessionUnreadableError
from indexerd.sources import zst
from indexerd.sources.cursor import Cursor, Verdict, glance
from indexerd.sources.lines import Block
from indexerd.sources.tail import Read

zstandard = pytest.importorskip("zstandard")


def pack(path: Path, data: bytes, parts: Iterable[int] = (), **how: int) -> Path:
    """Write a compressed file, of several frames where `parts` says where they begin."""
    borders = [0, *sorted(parts), len(data)]
    frames = [
        zstandard.ZstdCompressor(**how).compress(data[start:stop])
        for start, stop in itertools.pairwise(borders)
    ]
    path.write_bytes(b"".join(frames))
    return path


def numbered(count: int, start: int = 0) -> bytes:
    """Lines that differ."""
    return b"".join(
        b'{"line":%d,"text":"%s"}\n' % (n, b"x" * (n % 90)) for n in range(start, count)
    )


def joined(reads: Iterable[Read]) -> bytes:
    """The bytes of all that was read."""
    pieces: list[Block | Oversize] = [piece for read in reads for piece in read.lines]
    assert all(isinstance(piece, Block) for piece in pieces)
    return b"".join(piece.data for piece in pieces if isinstance(piece, Block))


def drain(tail: zst.ZstTail, path: Path, budget: int = zst.BUDGET) -> list[Read]:
    """Read until there is no more."""
    reads = [tail.read(str(path), budget)]
    while reads[-1].more:
        reads.append(tail.read(str(path), budget))
        assert len(reads) < 1000
    return reads


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 300), st.integers(1, 9000), st.lists(st.integers(0, 9000), max_size=3))
def test_budgets_and_frames_make_no_difference(
    tmp_path: Path, count: int, budget: int, parts: list[int]
) -> None:
    """F1: whatever a reading takes, and however it was compressed, each line comes once."""
    data = numbered(count)
    path = pack(tmp_path / "s.jsonl.zst", data, [min(part, len(data)) for part in parts])
    tail = zst.tail()
    reads = drain(tail, path, budget)
    assert joined(reads) == data
    assert {read.verdict for read in reads} == {Verdict.CONTINUE}
    offsets = [piece.offset for read in reads for piece in read.lines]
    assert offsets == sorted(set(offsets))
    assert tail.cursor is not None
    assert tail.cursor.offset == len(data)
    assert tail.read(str(path)).verdict is Verdict.SAME


def test_a_position_survives_a_restart(tmp_path: Path) -> None:
    """A cursor goes on where it stopped, in the middle as at the end; nothing comes twice."""
    data = numbered(2000)
    path = pack(tmp_path / "s.jsonl.zst", data)
    first = zst.tail()
    begun = first.read(str(path), 1)
    assert begun.more
    second = zst.tail(first.cursor)
    assert joined([begun, *drain(second, path)]) == data
    looked = zst.look(str(path))
    assert second.cursor is not None
    assert looked is not None
    assert glance(second.cursor, looked) is Verdict.SAME
    assert zst.tail(second.cursor).read(str(path)).verdict is Verdict.SAME


@pytest.mark.parametrize(
    ("content", "moved", "verdict", "new"),
    [
        (numbered(50), False, Verdict.CONTINUE, b""),
        (numbered(60), True, Verdict.CONTINUE, numbered(60, 50)),
        (numbered(40), False, Verdict.TRUNCATED, numbered(40)),
        (b"#" + numbered(60), False, Verdict.REWRITTEN, b"#" + numbered(60)),
        (b"#" + numbered(60), True, Verdict.REPLACED, b"#" + numbered(60)),
        (numbered(49) + b"{}\n" * 40, False, Verdict.REWRITTEN, numbered(49) + b"{}\n" * 40),
    ],
)
def test_another_file_is_compared_by_what_it_holds(
    tmp_path: Path, content: bytes, moved: bool, verdict: Verdict, new: bytes
) -> None:
    """S3.27: the same content compressed anew is nothing new; other content is read again."""
    path = pack(tmp_path / "s.jsonl.zst", numbered(50))
    tail = zst.tail()
    drain(tail, path)
    other = pack(tmp_path / "new" if moved else path, content, level=19)
    if moved:
        other.replace(path)
    os.utime(path, ns=(1, 1))
    read = tail.read(str(path))
    assert (read.verdict, joined([read])) == (verdict, new)
    assert tail.read(str(path)).verdict is Verdict.SAME


def test_a_file_replaced_between_two_readings_is_read_anew(tmp_path: Path) -> None:
    """S3.27: a reading that took only a part does not go on in other content."""
    path = pack(tmp_path / "s.jsonl.zst", numbered(60_000))
    tail = zst.tail()
    assert tail.read(str(path), 1).more
    pack(path, b"#" + numbered(10))
    read = tail.read(str(path))
    assert (read.verdict, joined([read])) == (Verdict.TRUNCATED, b"#" + numbered(10))


def test_an_unfinished_line_is_not_handed_out(tmp_path: Path) -> None:
    """F2: what has no newline waits, although the file does not grow."""
    path = pack(tmp_path / "s.jsonl.zst", b"{}\n{")
    tail = zst.tail()
    assert joined(drain(tail, path)) == b"{}\n"
    assert tail.pending == 1
    assert tail.cursor is not None
    assert tail.cursor.offset == 3


def test_single_lines_are_read_at_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random access: backwards and forwards, beyond what is held, and past the end."""
    monkeypatch.setattr(zst, "KEPT_MAX", 4096)
    data = numbered(3000)
    path = pack(tmp_path / "s.jsonl.zst", data, [5000, 40_000])
    places = list(range(0, len(data), 1777))
    with zst.lines(str(path)) as lines:
        for offset in [*reversed(places), *places, 0, 60_000, 10]:
            assert lines.at(offset, 200) == data[offset : offset + 200]
        assert lines.at(100, 50_000) == data[100:50_100]
        assert lines.at(len(data) - 3, 100) == data[-3:]
        assert lines.at(len(data) + 5, 10) == b""


def test_what_is_no_session_is_unreadable(tmp_path: Path) -> None:
    """X2, X3: garbage, links, directories and missing files are said to be that."""
    garbage = tmp_path / "g.jsonl.zst"
    garbage.write_bytes(b"\x28\xb5\x2f\xfd" + b"garbage" * 99)
    link = tmp_path / "l.jsonl.zst"
    link.symlink_to(pack(tmp_path / "s.jsonl.zst", b"{}\n"))
    (tmp_path / "d.jsonl.zst").mkdir()
    for path in (garbage, link, tmp_path / "d.jsonl.zst"):
        with pytest.raises(SessionUnreadableError):
            zst.tail().read(str(path))
        with pytest.raises(SessionUnreadableError), zst.lines(str(path)) as lines:
            lines.at(0, 1)
    assert zst.look(str(link)) is None
    with pytest.raises(FileNotFoundError):
        zst.tail().read(str(tmp_path / "no"))
    with pytest.raises(SessionUnreadableError, match="gone"), zst.lines(str(tmp_path / "no")):
        pass


def test_a_failed_reading_has_taken_nothing(tmp_path: Path) -> None:
    """F21: once the file is whole again, reading goes on where it had stopped."""
    data = numbered(60_000)
    path = pack(tmp_path / "s.jsonl.zst", data)
    whole, tail = path.read_bytes(), zst.tail()
    begun = tail.read(str(path), 1)
    cursor = tail.cursor
    path.write_bytes(b"no longer compressed")
    with pytest.raises(SessionUnreadableError):
        tail.read(str(path))
    assert tail.cursor == cursor
    path.write_bytes(whole)
    assert joined([begun, *drain(tail, path)]) == data


def test_a_bomb_goes_off_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """X: endless bytes, and a decoder that would need endless memory, are refused."""
    monkeypatch.setattr(zst, "TOTAL_MAX", 3 << 20)
    path = pack(tmp_path / "s.jsonl.zst", b"\n" * (8 << 20))
    assert path.stat().st_size < 4096
    with pytest.raises(SessionUnreadableError, match="3 MiB"):
        drain(zst.tail(), path)
    with pytest.raises(SessionUnreadableError, match="3 MiB"), zst.lines(str(path)) as lines:
        lines.at(7 << 20, 10)
    monkeypatch.setattr(zst, "TOTAL_MAX", 1 << 30)
    monkeypatch.setattr(zst, "WINDOW_MAX", 1 << 20)
    wide = zstandard.ZstdCompressionParameters.from_level(3, window_log=24)
    path.write_bytes(
        zstandard.ZstdCompressor(compression_params=wide).compress(b"ab\n" * (8 << 20))
    )
    with pytest.raises(SessionUnreadableError):
        zst.tail().read(str(path))


def test_without_the_decoder_the_cure_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q16: the decoder is an extra; where it is missing, sessions are unreadable, not unseen."""
    path = pack(tmp_path / "s.jsonl.zst", b"{}\n")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(SessionUnreadableError) as caught:
        zst.tail().read(str(path))
    assert "indexerd[zst]" in caught.value.hint
    assert zst.look(str(path)) is not None


def test_a_position_of_another_kind_does_no_harm(tmp_path: Path) -> None:
    """A cursor that never was this file's is found out by its fingerprints."""
    path = pack(tmp_path / "s.jsonl.zst", numbered(20))
    strange = Cursor(1, 2, 3, 4, 200, 200, b"12345678", b"12345678")
    read = zst.tail(strange).read(str(path))
    assert read.verdict is Verdict.REPLACED
    assert joined([read]) == numbered(20)
