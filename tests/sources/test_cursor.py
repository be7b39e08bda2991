"""Cursors: what a stat can tell, what only the bytes can."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.sources.cursor import (
    HEAD_BYTES,
    TAIL_BYTES,
    Cursor,
    Look,
    Verdict,
    fingerprint,
    glance,
    judge,
    tail_start,
)

HEADER = b'{"type":"session","id":"a"}\n'


def cursor_at(data: bytes, offset: int, *, ino: int = 7, mtime_ns: int = 1000) -> Cursor:
    """The cursor of a file that holds `data` and was read to `offset`."""
    return Cursor(
        dev=1,
        ino=ino,
        size=len(data),
        mtime_ns=mtime_ns,
        offset=offset,
        head_len=min(HEAD_BYTES, offset),
        head_hash=fingerprint(data[: min(HEAD_BYTES, offset)]),
        tail_hash=fingerprint(data[tail_start(offset) : offset]),
    )


def verdict_on(cursor: Cursor, data: bytes, *, ino: int = 7) -> Verdict:
    """The verdict on a file that holds `data` now."""
    head = data[: cursor.head_len]
    tail = data[tail_start(cursor.offset) : cursor.offset]
    return judge(cursor, Look(1, ino, len(data), 2000), head, tail)


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, Verdict.SAME),
        ({"size": 101}, Verdict.LOOK),
        ({"size": 99}, Verdict.LOOK),
        ({"mtime_ns": 4_070_908_800_000_000_000}, Verdict.LOOK),  # 2099
        ({"mtime_ns": 0}, Verdict.LOOK),  # 1970
        ({"ino": 8}, Verdict.LOOK),
        ({"dev": 2}, Verdict.LOOK),
        ({"ino": 8, "size": 101}, Verdict.LOOK),
    ],
)
def test_a_glance_says_same_only_if_nothing_moved(change: dict[str, int], verdict: Verdict) -> None:
    """F20: size, mtime and identity together; any of them alone lies, so a doubt says look."""
    held = cursor_at(b"x" * 100, 100, mtime_ns=1000)
    seen = {"dev": 1, "ino": 7, "size": 100, "mtime_ns": 1000} | change

    assert glance(held, Look(**seen)) is verdict


@pytest.mark.parametrize(
    ("now", "ino", "verdict"),
    [
        pytest.param(HEADER + b"one\n", 7, Verdict.CONTINUE, id="nothing new"),
        pytest.param(HEADER + b"one\ntwo\n", 7, Verdict.CONTINUE, id="appended"),
        pytest.param(HEADER + b"one\ntw", 7, Verdict.CONTINUE, id="partly appended"),
        pytest.param(HEADER, 7, Verdict.TRUNCATED, id="F10 shorter"),
        pytest.param(b"", 7, Verdict.TRUNCATED, id="F10 empty"),
        pytest.param(b"#" + HEADER + b"one\ntwo\n", 7, Verdict.REWRITTEN, id="F11 grown"),
        pytest.param(HEADER + b"One\n", 7, Verdict.REWRITTEN, id="F11 as long as before"),
        pytest.param(HEADER + b"One\ntwo\n", 8, Verdict.REPLACED, id="F13 another file"),
        pytest.param(HEADER + b"one\ntwo\n", 8, Verdict.CONTINUE, id="F14 moved or restored"),
        pytest.param(HEADER, 8, Verdict.TRUNCATED, id="another, shorter"),
    ],
)
def test_the_bytes_decide(now: bytes, ino: int, verdict: Verdict) -> None:
    """F10, F11, F13, F14: the bytes before the offset decide; the inode only names it."""
    was = HEADER + b"one\n"

    assert verdict_on(cursor_at(was, len(was)), now, ino=ino) is verdict


def test_every_verdict_that_restarts_says_so() -> None:
    """Whoever keeps state drops it on exactly these three."""
    assert {one for one in Verdict if one.restart} == {
        Verdict.TRUNCATED,
        Verdict.REPLACED,
        Verdict.REWRITTEN,
    }


@given(st.integers(1, 20_000), st.data())
def test_a_change_within_the_fingerprints_is_seen(size: int, data: st.DataObject) -> None:
    """F11: one byte changed in the first 4 KiB, or in the last 1 KiB before the offset."""
    was = bytes(n * 31 % 251 for n in range(size))
    held = cursor_at(was, size)
    at = data.draw(
        st.integers(0, min(HEAD_BYTES, size) - 1) | st.integers(tail_start(size), size - 1)
    )
    now = was[:at] + bytes([was[at] ^ 1]) + was[at + 1 :] + b"grown\n"

    assert verdict_on(held, now) is Verdict.REWRITTEN
    assert verdict_on(held, was + b"grown\n") is Verdict.CONTINUE


def test_two_files_with_one_beginning_have_cursors_of_their_own() -> None:
    """F15: the first 1,024 bytes are the same (a fork), the rest is not."""
    shared = b"h" * 1023 + b"\n"
    parent, fork = shared + b"p" * 99 + b"\n", shared + b"f" * 99 + b"\n"

    assert verdict_on(cursor_at(parent, len(parent)), fork, ino=8) is Verdict.REPLACED
    assert verdict_on(cursor_at(fork, len(fork)), fork) is Verdict.CONTINUE


@pytest.mark.parametrize("offset", [0, 1, TAIL_BYTES - 1, TAIL_BYTES, TAIL_BYTES + 1, 10**12])
def test_the_tail_ends_at_the_offset(offset: int) -> None:
    """At most 1 KiB, and never before the file's beginning."""
    assert 0 <= tail_start(offset) <= offset
    assert offset - tail_start(offset) == min(offset, TAIL_BYTES)


def test_a_cursor_survives_the_ledgers_bytes() -> None:
    """A restart goes on from exactly the same position."""
    held = cursor_at(b"x" * 5000, 5000, mtime_ns=-1)

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(held), type=Cursor) == held
