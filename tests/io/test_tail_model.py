"""A tail against a model: whatever is done to a file, each of its lines is taken exactly once.

The model is the file itself, read at once: after every reading, the lines taken since the last
verdict that restarts must be the file's whole lines, in order, each once, at their offsets.
What a stat and the bytes before the offset cannot tell is left out: a file that is rewritten
to the same size has another mtime, as it has on every file system that we know to be in use.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from indexerd.core.cursor import Cursor, Verdict
from indexerd.core.lines import Block
from indexerd.io import tail as tail_module
from indexerd.io.tail import Tail

# Few distinct lines, so that a rewritten file often looks much like the one before.
line = st.sampled_from([b"a\n", b"b\n", b"\n", b"aa\n", b"\r\n", b"\xc3\xa9\n", b"x" * 60 + b"\n"])
partial = st.sampled_from([b"", b"a", b"b", b"aa", b"ab", b"\r", b"\xc3", b"x" * 60])
lines = st.lists(line, max_size=5).map(b"".join)


class TailMachine(RuleBasedStateMachine):
    """One file, one tail; every rule changes the file or reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.place = TemporaryDirectory()
        self.path = Path(self.place.name) / "s.jsonl"
        self.path.touch()
        self.tail = Tail()
        self.taken: list[tuple[int, bytes]] = []
        self.unread = False
        self.clock = 10**18

    def teardown(self) -> None:
        """Leave nothing behind."""
        self.place.cleanup()

    def _changed(self) -> None:
        """Give the file an mtime that it never had."""
        self.clock += 1
        os.utime(self.path, ns=(self.clock, self.clock))

    # -- what other programs do ------------------------------------------------------------

    @rule(data=lines, rest=partial)
    def append(self, data: bytes, rest: bytes) -> None:
        """Whole lines, and the beginning of another."""
        with self.path.open("ab") as out:
            out.write(data + rest)
        self._changed()

    @rule(data=line)
    def append_in_the_old_tick(self, data: bytes) -> None:
        """F20: the size changes, the mtime does not."""
        stamp = self.path.stat().st_mtime_ns
        with self.path.open("ab") as out:
            out.write(data)
        os.utime(self.path, ns=(stamp, stamp))

    @rule(share=st.integers(0, 100))
    def truncate(self, share: int) -> None:
        """F10: cut anywhere, in the middle of a line too."""
        os.truncate(self.path, self.path.stat().st_size * share // 100)
        self._changed()

    @rule(data=lines, rest=partial)
    def rewrite(self, data: bytes, rest: bytes) -> None:
        """F11: the same inode, other bytes, shorter or longer."""
        self.path.write_bytes(data + rest)
        self._changed()

    @rule(at=st.integers(0, 10**6), byte=st.sampled_from(b"ab\n"))
    def change_one_byte(self, at: int, byte: int) -> None:
        """F11: in place, at the same size."""
        size = self.path.stat().st_size
        if size:
            with self.path.open("r+b") as out:
                out.seek(at % size)
                out.write(bytes([byte]))
            self._changed()

    @rule(data=lines, rest=partial)
    def rename_over(self, data: bytes, rest: bytes) -> None:
        """F13: another file takes the name."""
        other = self.path.with_name("other")
        other.write_bytes(data + rest)
        other.replace(self.path)
        self._changed()

    @rule(data=lines, rest=partial)
    def delete_and_recreate(self, data: bytes, rest: bytes) -> None:
        """F12: as a rule with the inode that was just freed."""
        self.path.unlink()
        self.path.write_bytes(data + rest)
        self._changed()

    @rule()
    def touch(self) -> None:
        """F20: the mtime moves, nothing else."""
        self._changed()

    # -- what we do ------------------------------------------------------------------------

    @rule(budget=st.sampled_from([1, 7, 64, 1 << 20]))
    def read(self, budget: int) -> None:
        """One look, perhaps with a budget that does not suffice."""
        read = self.tail.read(str(self.path), budget)
        if read.verdict.restart:
            self.taken = []
        for one in read.lines:
            assert isinstance(one, Block)
            at = one.offset
            for text in one.data.split(b"\n")[:-1]:
                self.taken.append((at, text + b"\n"))
                at += len(text) + 1
        self.unread = read.more
        if not read.more:
            self._agrees()
            again = self.tail.read(str(self.path), budget)
            assert (again.verdict, again.bytes, again.lines) == (Verdict.SAME, 0, [])

    def _agrees(self) -> None:
        whole = self.path.read_bytes()
        at, found = 0, []
        for text in whole.split(b"\n")[:-1]:
            found.append((at, text + b"\n"))
            at += len(text) + 1
        assert self.taken == found
        assert self.tail.pending == len(whole) - at

    @precondition(lambda self: self.tail.cursor is not None)
    @rule()
    def restart(self) -> None:
        """F2: the process ends; the cursor is all that is left of it."""
        packed = msgspec.msgpack.encode(self.tail.cursor)
        self.tail = Tail(msgspec.msgpack.decode(packed, type=Cursor))

    @precondition(lambda self: self.unread)
    @rule()
    def read_on(self) -> None:
        """Turns follow until the file's end."""
        for _ in range(10_000):
            if not self.unread:
                break
            self.read(64)

    @invariant()
    def the_cursor_is_at_a_lines_end(self) -> None:
        """F2: never inside a line that was not finished when it was read."""
        cursor = self.tail.cursor
        if cursor is not None:
            end = self.taken[-1][0] + len(self.taken[-1][1]) if self.taken else 0
            assert cursor.offset == end


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_module, "CHUNK", 16)


TestTail = TailMachine.TestCase
TestTail.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)
