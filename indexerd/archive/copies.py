"""Copies of session files below `archive/` in the data directory, which only we write.

    live/<root>/<path>.zst    a copy of a file that is still there; <root> is its root, quoted
    gone/<root>/<path>.zst    a copy whose file is gone: a root of sessions, read like any other

Of a session in a database its rows are copied, and made again at each change.

A copy is zstd frames with checksums, so `zstdcat` prints the file, also one that its agent has
compressed. Growth appends a frame; after it a skippable frame, the mark, says how much of which
file is covered. What follows the last mark, as after a crash, is dropped; where the mark does not
match the file, which was rewritten, the copy is made again. The longer copy stays of a file that
was only cut short, and the old copy of one that was gone and came back with other content.
"""

from __future__ import annotations

import os
import shlex
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from hashlib import blake2b
from itertools import count, islice
from mmap import mmap
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import unquote

import zstandard

from indexerd.disk import create_file, make_directory, sync_names
from indexerd.errors import SessionUnreadableError, WriteError
from indexerd.paths import within
from indexerd.sources.compressed import WINDOW_MAX, decompressed
from indexerd.sources.opencode import look_in_database
from indexerd.sources.roots import SUFFIXES
from indexerd.sources.tail import opened

SUFFIX = ".zst"
LIVE, GONE = "live", "gone"
LEVEL, FINAL_LEVEL = 3, 9  # while the file grows, and once it is gone
BLOCK = 1 << 20  # bytes read at a time
PRINTED = 4096  # bytes at both ends of what is covered that must not have changed
SIDE_FILES_MAX = 2000  # of one session
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# A skippable frame: magic, length, bytes covered, inode, print, CRC.
_MARK = struct.Struct("<IIQQ16sI")
NAME_MAX = 255 - len("..new")  # bytes of a copy's name, or of a directory's
_MAGIC = 0x184D2A5A


class Source(NamedTuple):
    """A session or a file beside it, and the root of sessions that it is below."""

    root: str  # a directory or a database
    path: str

    @property
    def is_session(self) -> bool:
        return self.path.endswith(".jsonl") or self.in_database

    @property
    def in_database(self) -> bool:
        return self.path.rpartition("/")[0] == self.root and not self.path.endswith(SUFFIXES)

    def is_there(self) -> bool:
        """Whether its file exists, perhaps compressed by its agent, or its rows do."""
        if os.path.isfile(self.root):  # noqa: PTH113 - never raises
            with suppress(SessionUnreadableError):
                return look_in_database(self.path) is not None
            return True  # the database cannot be read now
        plain = self.path.removesuffix(SUFFIX)
        return os.path.lexists(plain) or os.path.lexists(plain + SUFFIX)


class Archive:
    """All copies. Calls block; one at a time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def _root(self, kind: str, root: str) -> Path:
        return self.directory / kind / root.replace("%", "%25").replace("/", "%2F")

    def _place(self, kind: str, source: Source) -> Path:
        below = os.path.relpath(source.path.removesuffix(SUFFIX), source.root)
        return self._root(kind, source.root) / f"{below}{SUFFIX}"

    def entries(self, kind: str) -> Iterator[tuple[Source, os.stat_result]]:
        """Yield all copies of a kind with their file's stat, whose time is the original's."""
        top = self.directory / kind
        for folder, _, names in os.walk(top):
            for name in names:
                path = Path(folder, name)
                if name.endswith(SUFFIX):
                    with suppress(OSError):
                        yield _original(str(path.relative_to(top))), path.stat()

    def source_of(self, path: str) -> Source | None:
        """Return the file whose copy, without its file, has this path."""
        top = f"{self.directory / GONE}/"
        if not path.startswith(top):
            return None
        return _original(path.removeprefix(top))

    def find(self, path: str) -> Source | None:
        """Return the file whose copy may have this path, or which had it."""
        names = [each.name for kind in (GONE, LIVE) for each in self.directory.glob(f"{kind}/*")]
        roots = [unquote(name, errors="surrogateescape") for name in names]
        plain = path.removesuffix(SUFFIX)
        known = (Source(root, plain) for root in roots if within(plain, root))
        return self.source_of(path) or next(known, None)

    def sides(self, source: Source) -> list[Source]:
        """List a session's other files that are not too large to copy."""
        found = (Source(source.root, path) for path in side_files(source.path))
        return [*filter(self.has_room, islice(found, SIDE_FILES_MAX))]

    # -- copying

    def is_damaged(self, source: Source) -> bool:
        """Whether the copy of a file that is there does not fit its checksums."""
        place = self._place(LIVE, source)
        try:
            for _ in _blocks(place, marked=False):
                pass
        except FileNotFoundError:
            return False
        except zstandard.ZstdError:
            return True
        return False

    def copy(self, source: Source, *, anew: bool = False) -> int:
        """Bring the copy of a file up to date; return the bytes by which the copy has grown.

        `anew`: replace the old copy, of which a part may be damaged.

        FileNotFoundError: it is gone. SessionUnreadableError: it cannot be read. OSError: the copy
        cannot be written. In all these cases the old copy stays.
        """
        with opened(source.path) as fd:
            if source.path.endswith(SUFFIX):  # by its agent, which had it as a plain file before
                return self._copy_compressed(source, os.fstat(fd))
            return self._copy_plain(source, fd, os.fstat(fd), anew=anew)

    def _copy_plain(self, source: Source, fd: int, status: os.stat_result, *, anew: bool) -> int:
        self._set_aside(source, fd, status.st_size)
        self._withdraw(source)
        place = self._place(LIVE, source)
        before = place.stat().st_size if place.exists() else 0
        covered, end = None if anew else _cut(place), status.st_size
        if covered and end < covered.size and _agrees(place, fd, end):
            return 0
        if covered is None or not _grew(fd, status, covered):
            covered = None
        start = covered.size if covered else 0
        if end == start and (covered or before):  # or it was emptied for a rewrite
            return 0
        if before and not covered and source.is_session and _ends(fd, end).endswith(b"\0"):
            raise SessionUnreadableError("it ends in null bytes, as after a power failure")
        make_directory(place.parent)
        new = place if covered else _temporary(place)
        try:
            blocks = (_exactly(fd, min(BLOCK, end - at), at) for at in range(start, end, BLOCK))
            _append(new, blocks, end - start, _mark(status, fd), fresh=not covered)
        except BaseException:
            if covered:
                os.truncate(new, before)
            else:
                new.unlink(missing_ok=True)
            raise
        os.utime(new, ns=(status.st_mtime_ns, status.st_mtime_ns))
        new.replace(place)
        if not covered:
            sync_names(place.parent)
        return place.stat().st_size - before

    def _copy_compressed(self, source: Source, status: os.stat_result) -> int:
        self._withdraw(source)
        covered = _covered(self._place(LIVE, source))
        if covered and self.copied_ns(source) == status.st_mtime_ns:
            return 0
        content = bytes(decompressed(source.path))
        if len(content) < (covered.size if covered else 1):
            raise SessionUnreadableError("it is shorter than before it was compressed")
        return self.copy_whole(source, content, status.st_mtime_ns)

    def copy_whole(self, source: Source, content: bytes, mtime_ns: int) -> int:
        """Replace a copy, as of a session in a database; return as `copy` does."""
        place = self._place(LIVE, source)
        self._withdraw(source)
        before = place.stat().st_size if place.exists() else 0
        make_directory(place.parent)
        new = _temporary(place)
        try:
            _append(new, [content], len(content), _mark_of(len(content)), fresh=True)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        os.utime(new, ns=(mtime_ns, mtime_ns))
        new.replace(place)
        sync_names(place.parent)
        return place.stat().st_size - before

    def rows(self, source: Source) -> bytes:
        """Return the rows of a session that is gone from its database."""
        place = self._place(GONE, source)
        return bytes(decompressed(str(place if place.is_file() else self._place(LIVE, source))))

    def copied_ns(self, source: Source) -> int:
        """Return when what was copied had last changed, in ns since the epoch; 0: there is none."""
        place = self._place(LIVE, source)
        return place.stat().st_mtime_ns if place.exists() else 0

    def size_of(self, source: Source) -> int:
        """Return the bytes that the copy of a file covers; 0: there is none."""
        covered = _covered(self._place(LIVE, source))
        return covered.size if covered else 0

    def growth(self, source: Source, rows: bytes | None = None) -> int:
        """Return by about how many bytes the next copy of a session or file makes it larger."""
        place, compressor = self._place(LIVE, source), zstandard.ZstdCompressor(level=LEVEL)
        if rows is not None:
            had = place.stat().st_size if place.exists() else 0
            return len(compressor.compress(rows)) - had
        stream, size = compressor.compressobj(), _MARK.size
        with open(os.open(source.path, _READ), "rb") as file:  # noqa: PTH123 - a descriptor
            file.seek(self.size_of(source))
            while block := file.read(BLOCK):
                size += len(stream.compress(block))
        return size + len(stream.flush())

    def has_room(self, source: Source) -> bool:
        """Whether the names of a copy are not too long for a file system."""
        parts = self._place(GONE, source).relative_to(self.directory).parts
        return all(len(os.fsencode(part)) <= NAME_MAX for part in parts)

    # -- files that are gone

    def publish(self, source: Source) -> bool:
        """Let the copies of files that are gone be read instead; return whether there are any."""
        found = False
        for each in self.kept(LIVE, source):
            if not each.is_there():
                self._publish(each)
                found = True
        return found

    def _publish(self, source: Source) -> None:
        live, gone = self._place(LIVE, source), self._place(GONE, source)
        make_directory(gone.parent)
        new = _temporary(gone)
        _cut(live)
        if _repack(live, new):
            os.utime(new, ns=(live.stat().st_mtime_ns,) * 2)
            new.replace(gone)
        else:  # damaged: kept as it is
            new.unlink()
            live.replace(gone)
        sync_names(gone.parent)
        live.unlink(missing_ok=True)

    def gone(self, source: Source) -> list[Source]:
        """List those of a session's files that are gone and of which there are copies."""
        every = [*self.kept(GONE, source), *self.kept(LIVE, source)]
        return [each for each in dict.fromkeys(every) if not each.is_there()]

    def restore(self, source: Source, target: str) -> None:
        """Write the copy of a file that is gone to a new file, byte for byte.

        UsageError: there is a file already. SessionUnreadableError: the copy is damaged.
        """
        place, path = self._place(GONE, source), Path(target)
        place = place if place.is_file() else self._place(LIVE, source)
        try:
            make_directory(path.parent)
            create_file(path, _blocks(place, marked=True))
        except zstandard.ZstdError:
            hint = f"`zstdcat {shlex.quote(str(place))}` prints what can be read"
            raise SessionUnreadableError("the copy is damaged", hint=hint) from None
        except OSError as bad:
            raise WriteError(f"cannot write {target}: {bad.strerror}") from None

    def _set_aside(self, source: Source, fd: int, size: int) -> None:
        """Rename the copy of a deleted session whose file is there again with other content.

        An agent that still runs writes only what is new, to a new file of the same name.
        """
        gone = self._place(GONE, source)
        if source.is_session and gone.is_file() and not _agrees(gone, fd, size):
            stem = gone.name.removesuffix(f".jsonl{SUFFIX}")
            names = (gone.with_name(f"{stem}-{number}.jsonl{SUFFIX}") for number in count(1))
            gone.replace(next(name for name in names if not name.exists()))

    def _withdraw(self, source: Source) -> None:
        """Stop reading a file's copy instead of the file, which is there again."""
        gone = self._place(GONE, source)
        if gone.is_file():
            live = self._place(LIVE, source)
            make_directory(live.parent)
            gone.replace(live)

    def covers(self, path: str, source: Source) -> bool:
        """Whether a file, perhaps a compressed one, begins with all that a copy has."""
        try:
            with _reading(path) as file:
                blocks = _blocks(self._place(LIVE, source), marked=False)
                return all(file.read(len(block)) == block for block in blocks)
        except (OSError, zstandard.ZstdError):
            return False

    def kept(self, kind: str, source: Source) -> list[Source]:
        """List the files of which there are copies: a session's, and those below its name."""
        top = self._root(kind, source.root)
        place = self._place(kind, source)
        stem = place.with_name(place.name.removesuffix(f".jsonl{SUFFIX}"))
        names = sorted(str(path.relative_to(top)) for path in stem.rglob(f"*{SUFFIX}"))
        paths = [f"{source.root}/{name.removesuffix(SUFFIX)}" for name in names]
        own = [source] if place.is_file() else []
        return [*own, *(Source(source.root, path) for path in paths)]

    def copies(self, source: Source) -> list[Path]:
        """List the copies of a session and its side files, but not of its sub-agents' sessions."""
        kept = [(kind, each) for kind in (LIVE, GONE) for each in self.kept(kind, source)]
        return [
            self._place(kind, each) for kind, each in kept if each == source or not each.is_session
        ]

    def remove(self, source: Source) -> None:
        for path in self.copies(source):
            path.unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove what a crash left half-written."""
        for path in self.directory.rglob(".*"):
            if path.name.endswith((".new", ".tmp")):
                path.unlink(missing_ok=True)


def side_files(path: str) -> Iterator[str]:
    """Yield a session's other files, in the directory with its file's name: tools' results."""
    own = path.removesuffix(".jsonl")
    for folder, _, names in () if Path(own).is_symlink() else os.walk(own):
        paths = (f"{folder}/{name}" for name in names if not name.endswith(".jsonl"))
        yield from filter(os.path.isfile, paths)  # never raises


def _original(below: str) -> Source:
    """Return the file whose copy has this path below the directory of all roots."""
    root, _, name = below.partition("/")
    root = unquote(root, errors="surrogateescape")
    return Source(root, f"{root}/{name.removesuffix(SUFFIX)}")


def _temporary(place: Path) -> Path:
    return place.with_name(f".{place.name}.new")


class _Covered(NamedTuple):
    """What a mark says: how many bytes of a file are covered, and how they end."""

    size: int
    inode: int  # 0: of no file that is there
    printed: bytes


def _cut(place: Path) -> _Covered | None:
    """Cut a copy after its last mark, and return that; None: there is no mark or no copy."""
    if (covered := _covered(place)) or not place.is_file() or not place.stat().st_size:
        return covered
    magic = struct.pack("<I", _MAGIC)
    with place.open("r+b") as file, mmap(file.fileno(), 0) as data:
        at = data.rfind(magic)
        while at >= 0 and not (covered := _parse(data[at : at + _MARK.size])):
            at = data.rfind(magic, 0, at)
    if covered:
        os.truncate(place, at + _MARK.size)
    return covered


def _covered(place: Path) -> _Covered | None:
    """Read a copy's last mark; None: there is no copy, or it is torn."""
    try:
        with place.open("rb") as file:
            file.seek(-_MARK.size, os.SEEK_END)
            return _parse(file.read())
    except OSError:
        return None


def _parse(data: bytes) -> _Covered | None:
    if len(data) != _MARK.size:
        return None
    magic, length, size, inode, printed, crc = _MARK.unpack(data)
    if magic != _MAGIC or length != _MARK.size - 8 or crc != zlib.crc32(data[:-4]):
        return None
    return _Covered(size, inode, printed)


def _grew(fd: int, status: os.stat_result, covered: _Covered) -> bool:
    """Whether a file is the one of a copy, and still begins with what that covers."""
    same = covered.inode == status.st_ino and covered.size <= status.st_size
    return same and _print(_ends(fd, covered.size)) == covered.printed


def _agrees(place: Path, fd: int, size: int) -> bool:
    """Whether a copy and a file of this size are the same, up to the end of the shorter one."""
    at = 0
    with suppress(zstandard.ZstdError):
        for block in _blocks(place, marked=False):
            if os.pread(fd, len(block), at) != block[: max(0, size - at)]:
                return False
            at += len(block)
            if at >= size:
                return True
        return True
    return False


def _ends(fd: int, size: int) -> bytes:
    """Return the first and the last PRINTED bytes."""
    last = max(0, size - PRINTED)
    return os.pread(fd, min(PRINTED, size), 0) + os.pread(fd, size - last, last)


def _print(ends: bytes) -> bytes:
    return blake2b(ends, digest_size=16).digest()


def _mark(status: os.stat_result, fd: int) -> bytes:
    return _mark_of(status.st_size, status.st_ino, _ends(fd, status.st_size))


def _mark_of(size: int, inode: int = 0, ends: bytes = b"") -> bytes:
    head = _MARK.pack(_MAGIC, _MARK.size - 8, size, inode, _print(ends), 0)[:-4]
    return head + struct.pack("<I", zlib.crc32(head))


def _append(place: Path, blocks: Iterable[bytes], size: int, mark: bytes, *, fresh: bool) -> None:
    """Append a frame with a file's next blocks, and a mark."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if fresh else os.O_APPEND)
    frame = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compressobj(size=size)
    with os.fdopen(os.open(place, flags, 0o600), "wb") as file:
        for block in blocks:
            file.write(frame.compress(block))
        file.write(frame.flush() + mark)
        file.flush()
        os.fsync(file.fileno())


def _reading(path: str) -> AbstractContextManager[BinaryIO]:
    """Open a file; one that is compressed is read decompressed."""
    file = open(path, "rb")  # noqa: PTH123, SIM115 - closed by the caller
    if not path.endswith(SUFFIX):
        return file
    return zstandard.ZstdDecompressor(max_window_size=WINDOW_MAX).stream_reader(
        file, read_across_frames=True
    )


def _exactly(fd: int, length: int, at: int) -> bytes:
    try:
        data = os.pread(fd, length, at)
    except OSError as bad:
        raise SessionUnreadableError(f"cannot read the file: {bad.strerror}") from None
    if len(data) != length:
        raise SessionUnreadableError("the file shrank while it was copied")
    return data


def _blocks(place: Path, *, marked: bool) -> Iterator[bytes]:
    """Decompress a copy, block by block; ZstdError if it is damaged or not what its mark says."""
    decoder, size, covered = zstandard.ZstdDecompressor(), 0, _covered(place)
    with place.open("rb") as file:
        reader = decoder.stream_reader(file, read_across_frames=True)
        while block := reader.read(BLOCK):
            size += len(block)
            yield block
    if (marked and covered is None) or (covered and covered.size != size):
        raise zstandard.ZstdError("a part is missing")


def _repack(live: Path, new: Path) -> bool:
    """Compress a copy as one frame, with a mark; return whether the copy was whole."""
    frame = zstandard.ZstdCompressor(level=FINAL_LEVEL, write_checksum=True).compressobj()
    size = 0
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        try:
            for block in _blocks(live, marked=False):
                file.write(frame.compress(block))
                size += len(block)
        except zstandard.ZstdError:
            return False
        file.write(frame.flush() + _mark_of(size))
        file.flush()
        os.fsync(file.fileno())
    return True
