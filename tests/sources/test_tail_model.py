"""A file that does more than grow: whatever is done to it, each of its lines is taken once.

First against a model, in any order, then the single cases by their names.

The model is the file itself, read at once: after every reading, the lines taken since the last
verdict that restarts must be the file's whole lines, in order, each once, at their offsets.
What a stat and the bytes before the offset cannot tell is left out: a file that is rewritten
to the same size has another mtime, as it has on every file system that we know to be in use.
"""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from indexerd.sources import tail as tail_module
from indexerd.sources.cursor import Cursor, Verdict
from indexerd.sources.lines import Block
from indexerd.sources.tail import AT_ONCE, Read, Tail

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
        tail_module.AT_ONCE = AT_ONCE
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

    @rule(budget=st.sampled_from([1, 7, 64, 1 << 20]), turns=st.booleans())
    def read(self, budget: int, *, turns: bool = False) -> None:
        """One look, perhaps with a budget that does not suffice, at once or in turns."""
        tail_module.AT_ONCE = 16 if turns else AT_ONCE
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


# -- the single cases -------------------------------------------------------------------------

ONE, TWO, THREE = b'{"type":"session","id":"a"}\n', b'{"id":"b"}\r\n', b'{"id":"c"}\n'
WAS = ONE + TWO + THREE
Change = Callable[[Path], None]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the session file is, or will be."""
    return tmp_path / "s.jsonl"


def whole_lines(data: bytes) -> list[bytes]:
    """Split at byte 0x0A alone."""
    return [text + b"\n" for text in data.split(b"\n")[:-1]]


def taken(read: Read) -> list[bytes]:
    """The lines of one reading."""
    return whole_lines(b"".join(one.data for one in read.lines if isinstance(one, Block)))


def append(path: Path, data: bytes) -> None:
    """Write at the end, as an agent does."""
    with path.open("ab") as out:
        out.write(data)


def reborn(tail: Tail) -> Tail:
    """The same position in a new process."""
    return Tail(msgspec.msgpack.decode(msgspec.msgpack.encode(tail.cursor), type=Cursor))


def truncate_smaller(path: Path) -> None:
    """Cut to the first line, in place."""
    os.truncate(path, len(ONE))


def truncate_and_grow(path: Path) -> None:
    """Cut to nothing and write more than there was, before anyone looks."""
    os.truncate(path, 0)
    append(path, b'{"type":"session","id":"b"}\n' * 9)


def rewrite_in_place(path: Path) -> None:
    """As pi's migration does: the same inode, other bytes, longer."""
    path.write_bytes(WAS.replace(b'"id":"a"', b'"id":"a","version":3'))


def rewrite_same_size(path: Path) -> None:
    """As long as before, one byte another, another mtime (omp's title line)."""
    stamp = path.stat().st_mtime_ns
    path.write_bytes(WAS.replace(b'"id":"a"', b'"id":"z"'))
    os.utime(path, ns=(stamp, stamp + 1))


def rename_over(path: Path) -> None:
    """Another file takes the name."""
    other = path.with_name("other")
    other.write_bytes(b'{"type":"session","id":"b"}\n' * 9)
    other.replace(path)


def delete_and_recreate(path: Path) -> None:
    """The name comes back, as a rule with the same inode on ext4."""
    path.unlink()
    path.write_bytes(b'{"type":"session","id":"b"}\n' * 9)


@pytest.mark.parametrize(
    ("change", "verdicts"),
    [
        (truncate_smaller, {Verdict.TRUNCATED}),
        (truncate_and_grow, {Verdict.REWRITTEN}),
        (rewrite_in_place, {Verdict.REWRITTEN}),
        (rewrite_same_size, {Verdict.REWRITTEN}),
        (rename_over, {Verdict.REPLACED}),
        (delete_and_recreate, {Verdict.REWRITTEN, Verdict.REPLACED}),
    ],
)
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("half", [b"", b'{"half'])
def test_a_file_that_does_not_continue_is_read_from_its_start(
    file: Path, change: Change, verdicts: set[Verdict], half: bytes, *, restarted: bool
) -> None:
    """F10, F11, F12, F13: whatever was done to it, all its lines now come, and none from before."""
    file.write_bytes(WAS + half)
    tail = Tail()
    tail.read(str(file))
    if restarted:
        tail = reborn(tail)

    change(file)
    read = tail.read(str(file))

    assert read.verdict in verdicts
    assert taken(read) == whole_lines(file.read_bytes())
    assert next(iter(read.lines)).offset == 0
    append(file, THREE)
    more = tail.read(str(file))
    assert (more.verdict, taken(more)) == (Verdict.CONTINUE, [THREE])


@pytest.mark.parametrize("restarted", [False, True])
def test_an_unfinished_last_line_that_was_rewritten(file: Path, *, restarted: bool) -> None:
    """F11: only the partial line changed, in place; nothing of its old beginning is used."""
    file.write_bytes(ONE + b'{"old')
    tail = Tail()
    tail.read(str(file))
    if restarted:
        tail = reborn(tail)

    with file.open("r+b") as out:
        out.seek(len(ONE))
        out.write(b'{"new":1}\n')
    read = tail.read(str(file))

    assert taken(read)[-1] == b'{"new":1}\n'
    assert read.verdict.restart == (not restarted)  # a new process never saw the old beginning


def test_a_partial_line_is_recognised_by_more_than_its_last_byte(file: Path) -> None:
    """F11: it came byte by byte, and was then rewritten so that its last byte is the same."""
    file.write_bytes(ONE)
    tail = Tail()
    tail.read(str(file))
    for byte in b'{"old"':
        append(file, bytes([byte]))
        tail.read(str(file))

    os.truncate(file, len(ONE))
    append(file, b'{"new":1}\n')
    read = tail.read(str(file))

    assert (read.verdict, taken(read)) == (Verdict.REWRITTEN, [ONE, b'{"new":1}\n'])


def test_a_partial_line_that_was_cut_off(file: Path) -> None:
    """A torn line was taken away in place: what is there now is all there is."""
    file.write_bytes(ONE + b'{"torn')
    tail = Tail()
    tail.read(str(file))

    os.truncate(file, len(ONE) + 2)
    append(file, b"}\n")
    read = tail.read(str(file))

    assert taken(read) == [ONE, b'{"}\n']
    assert read.verdict.restart


def test_replaced_by_rename_200_times(file: Path) -> None:
    """F13: each time the new content, wholly; no descriptor is left open."""
    tail = Tail()
    gc.collect()  # what other tests left open is closed before the count, not during it
    open_before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for n in range(200):
        other = file.with_name("new")
        content = [b'{"id":"%d"}\n' % n, b'{"n":%d}\n' % n]
        other.write_bytes(b"".join(content))
        other.replace(file)
        read = tail.read(str(file))
        assert taken(read) == content
        assert read.verdict is (Verdict.REPLACED if n else Verdict.CONTINUE)
    if open_before:
        assert len(os.listdir("/proc/self/fd")) == open_before


def test_a_copy_put_in_the_files_place_goes_on(file: Path) -> None:
    """F14: other inode, same bytes, more of them: restored from a backup, read on."""
    file.write_bytes(WAS)
    tail = Tail()
    tail.read(str(file))

    copy = file.with_name("copy")
    shutil.copyfile(file, copy)
    append(copy, b'{"id":"d"}\n')
    copy.replace(file)
    read = tail.read(str(file))

    assert (read.verdict, taken(read)) == (Verdict.CONTINUE, [b'{"id":"d"}\n'])
