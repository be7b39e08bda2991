"""Cutting a stream at newlines: the same lines however it is dealt out, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from indexerd.agents.base import Oversize
from indexerd.sources import line_buffer as lines_module
from indexerd.sources.line_buffer import Block, LineBuffer

SMALL_LINE, SMALL_END = 24, 5

# Newlines are common, and what other readers take for a line's end occurs too (F3).
pieces = st.sampled_from(
    [b"\n", b"\n", b"a", b"bcd", b"\r", b"\r\n", b"\x00", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0b\x0c"]
)
streams = st.lists(pieces | st.binary(max_size=40), max_size=40).map(b"".join)


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "LINE_MAX", SMALL_LINE)
    monkeypatch.setattr(lines_module, "END_KEPT", SMALL_END)


def dealt(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    """The data in pieces, some of them empty."""
    borders = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, stop in pairwise(borders):
        yield data[start:stop]


def single(found: Block | Oversize) -> Iterator[tuple[int, bytes] | Oversize]:
    """A block's lines, each with its offset; a block may hold one or many."""
    if isinstance(found, Oversize):
        yield found
        return
    assert found.data.endswith(b"\n")
    at = found.offset
    for line in found.data.removesuffix(b"\n").split(b"\n"):
        yield at, line + b"\n"
        at += len(line) + 1


def by_hand(data: bytes, base: int, line_max: int, end: int) -> list[tuple[int, bytes] | Oversize]:
    """What must come out, found by splitting the whole at once."""
    found: list[tuple[int, bytes] | Oversize] = []
    at = base
    for text in data.split(b"\n")[:-1]:
        line = text + b"\n"
        if len(text) > line_max:
            found.append(Oversize(at, len(line), line[:end], line[-end:]))
        else:
            found.append((at, line))
        at += len(line)
    return found


@pytest.mark.usefixtures("_small")
@given(data=streams, cuts=st.lists(st.integers(0, 2000), max_size=12))
@example(data=b"x" * SMALL_LINE + b"\n" + b"x" * (SMALL_LINE + 1) + b"\n", cuts=[])
@example(data=b"x" * (SMALL_LINE + 1) + b"\n", cuts=[SMALL_LINE])
@example(data=b"x" * (SMALL_LINE + 1) + b"\n", cuts=[SMALL_LINE + 1])
@example(data=b"ab\n" + b"x" * 100 + b"\ncd\n", cuts=[1, 40, 103])
def test_which_lines_are_oversized_depends_on_their_length_alone(
    data: bytes, cuts: list[int]
) -> None:
    """F8: a line longer than LINE_MAX keeps its two ends, whatever pieces it came in."""
    buffer = LineBuffer()
    found = [
        one for part in dealt(data, cuts) for block in buffer.feed(part) for one in single(block)
    ]

    assert found == by_hand(data, 0, SMALL_LINE, SMALL_END)


def test_memory_stays_bounded_whatever_a_lines_length() -> None:
    """F8: 64 MiB of one line leave less than a mebibyte behind, then the next line is read."""
    buffer = LineBuffer()
    part = b"x" * (1 << 20)
    for _ in range(64):
        assert buffer.feed(part) == []
        if buffer.pending > lines_module.LINE_MAX:
            assert held(buffer) <= 4 * lines_module.END_KEPT
    assert buffer.pending == 64 << 20

    oversize, block = buffer.feed(b'"}\n{"id":1}\n')

    assert isinstance(oversize, Oversize)
    assert oversize.length == (64 << 20) + 3
    assert oversize.head == b"x" * lines_module.END_KEPT
    assert oversize.tail.endswith(b'x"}\n')
    assert len(oversize.tail) == lines_module.END_KEPT
    assert block == Block(b'{"id":1}\n', oversize.length)


def held(buffer: LineBuffer) -> int:
    """Bytes that a buffer keeps alive."""
    return sum(map(len, buffer._parts)) + len(buffer._head or b"") + len(buffer._tail)
