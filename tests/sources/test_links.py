"""A directory on a session's path that becomes a link after the session was found (X4)."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from indexerd.errors import SessionUnreadableError
from indexerd.sources import sources, tail
from indexerd.sources.tail import Tail, lines_of, opened, read_span
from tests.sessions.opencode_rows import Rows

OURS = b'{"whose":"ours"}\n'
THEIRS = b'{"whose":"theirs"}\n'
PATIENCE = 30.0


def plain(folder: Path) -> Path:
    """A file of lines."""
    path = folder / "s.jsonl"
    path.write_bytes(OURS)
    return path


def packed(folder: Path) -> Path:
    """A compressed one."""
    zstandard = pytest.importorskip("zstandard")
    path = folder / "s.jsonl.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(OURS))
    return path


def tree(folder: Path) -> Path:
    """A session of many small files."""
    for kind, owner, name in (
        ("session", "project", "ses_a"),
        ("message", "ses_a", "msg_1"),
        ("part", "msg_1", "prt_1"),
    ):
        path = folder / kind / owner / f"{name}.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"id": name, "role": "user", "type": "text", "text": "hi"}))
    return folder / "session/project/ses_a.json"


def database(folder: Path) -> Path:
    """A session in a database."""
    rows = Rows(folder / "opencode.db")
    rows.session("ses_a")
    rows.said("ses_a", "msg_1", "user", "hello")
    return folder / "opencode.db/ses_a"


KINDS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "plain": ("pi", plain),
    "packed": ("codex", packed),
    "tree": ("opencode", tree),
    "database": ("opencode", database),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_swapped_for_a_link_is_refused(tmp_path: Path, kind: str) -> None:
    """X4: between the scan and the open, at any depth, for whatever a session is kept in."""
    agent, make = KINDS[kind]
    for name in ("a", "other"):
        (tmp_path / name / "b/c").mkdir(parents=True)
    path = make(tmp_path / "a/b/c")
    make(tmp_path / "other/b/c")
    source = sources.source_of(agent, str(path))
    assert source.look(str(path)) is not None
    assert source.tail().read(str(path)).lines

    (tmp_path / "a").rename(tmp_path / "moved")
    (tmp_path / "a").symlink_to(tmp_path / "other")

    assert path.parent.exists()
    if kind == "tree":  # a record that cannot be read is none, here as elsewhere
        assert source.tail().read(str(path)).lines == []
    else:
        with pytest.raises(SessionUnreadableError):
            source.tail().read(str(path))
    with pytest.raises(SessionUnreadableError), source.lines(str(path)):
        pass


@pytest.mark.parametrize("proc", [True, False])
def test_a_path_is_opened_by_its_own_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, proc: bool
) -> None:
    """X4: with and without /proc; odd names and long ways are no links; files of ours may be."""
    if not proc:

        def missing(_path: str) -> str:
            raise FileNotFoundError

        monkeypatch.setattr(os, "readlink", missing)
    folder = tmp_path / os.fsdecode(b"odd \xff") / "a (deleted)" / "/".join("x" * 30)
    folder.mkdir(parents=True)
    path = plain(folder)
    link = tmp_path / "link"
    link.symlink_to(folder)
    through = f"{link}/{path.name}"

    assert read_span(str(path), 0, 100) == OURS
    with pytest.raises(SessionUnreadableError):
        read_span(through, 0, 100)
    with opened(through, own=True) as fd:
        assert os.pread(fd, 100, 0) == OURS
    with pytest.raises(SessionUnreadableError), opened(str(link), own=True):
        pass
    with pytest.raises(FileNotFoundError):
        read_span(f"{folder}/no/{path.name}", 0, 100)
    with pytest.raises(SessionUnreadableError):
        read_span(f"{path}/{path.name}", 0, 100)
    monkeypatch.chdir(folder)
    assert read_span(path.name, 0, 100) == OURS


def test_refused_paths_leave_no_descriptor(tmp_path: Path) -> None:
    """X4: neither a link at the end, nor one on the way, costs a descriptor."""
    path = plain(tmp_path)
    (tmp_path / "way").symlink_to(tmp_path)
    (tmp_path / "end.jsonl").symlink_to(path)
    held = sorted(os.listdir("/proc/self/fd"))

    for _ in range(20):
        for name in ("way/s.jsonl", "end.jsonl", "way/none", "s.jsonl/s.jsonl"):
            with pytest.raises((SessionUnreadableError, FileNotFoundError)):
                read_span(f"{tmp_path}/{name}", 0, 1)
        assert read_span(str(path), 0, 100) == OURS

    assert sorted(os.listdir("/proc/self/fd")) == held


SWAPPER = """
import os, sys
here = sys.argv[1]
while os.getppid() == int(sys.argv[2]):
    os.rename(f"{here}/way", f"{here}/real")
    os.rename(f"{here}/link", f"{here}/way")
    os.rename(f"{here}/way", f"{here}/link")
    os.rename(f"{here}/real", f"{here}/way")
"""


def test_a_race_is_never_won(tmp_path: Path) -> None:
    """X4: a directory and a link take turns at one name; what is behind the link is not read."""
    for name, data in (("way", OURS), ("outside", THEIRS)):
        (tmp_path / name / "inner").mkdir(parents=True)
        (tmp_path / name / "inner/s.jsonl").write_bytes(data)
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    path = f"{tmp_path}/way/inner/s.jsonl"
    swapper = subprocess.Popen([sys.executable, "-c", SWAPPER, str(tmp_path), str(os.getpid())])
    seen, refused, missed = 0, 0, 0
    end = time.monotonic() + PATIENCE
    try:
        while min(seen // 500, refused, missed) < 1:
            assert time.monotonic() < end, (seen, refused, missed)
            try:
                (piece,) = Tail().read(path).lines
                with lines_of(path) as held:
                    assert held.at(0, 100) == OURS
                assert getattr(piece, "data", b"") == OURS
                seen += 1
            except SessionUnreadableError as bad:
                refused += "gone" not in str(bad)
            except FileNotFoundError:
                missed += 1
    finally:
        swapper.kill()
        swapper.wait()


def test_where_one_flag_forbids_all_links_the_other_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X4: macOS refuses both at once, and no session could be opened."""
    forbids, opened_with, really = 0x2000_0000, list[int](), os.open

    def as_there(path: str, flags: int) -> int:
        if flags & forbids and flags & os.O_NOFOLLOW:
            raise OSError(errno.EINVAL, "Invalid argument", path)
        opened_with.append(flags)
        return really(path, flags & ~forbids)

    (tmp_path / "a.jsonl").write_bytes(b"{}\n")
    monkeypatch.setattr(tail, "_NO_LINKS", forbids)
    with monkeypatch.context() as there:
        there.setattr(os, "open", as_there)
        with tail.opened(str(tmp_path / "a.jsonl")) as fd:
            assert os.fstat(fd).st_size == 3  # "{}" and a newline
    assert [bool(one & forbids) for one in opened_with] == [True]
