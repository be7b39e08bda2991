"""The promises of meta/writer and meta/reader, with real processes, signals and limits."""

import contextlib
import os
import re
import socket
from pathlib import Path

import pytest

from indexerd.errors import AccessError
from indexerd.meta import model as metas
from indexerd.meta.writer import MetaWriter
from tests.meta.writer_driver import assert_intact, files, meta, path_in


def test_symbolic_link_is_replaced_not_followed(tmp_path: Path) -> None:
    """A link, dangling or not, is replaced by a file; its target is unchanged."""
    victim = tmp_path / "victim"
    victim.write_bytes(meta().to_json())
    directory = tmp_path / "metas"
    directory.mkdir()
    for target in (victim, tmp_path / "nowhere"):
        path_in(directory).unlink(missing_ok=True)
        path_in(directory).symlink_to(target)
        assert MetaWriter().write_meta(directory, meta())
        assert not path_in(directory).is_symlink()
        assert_intact(directory)
    assert victim.read_bytes() == meta().to_json()
    assert files(tmp_path) == ["metas", "victim"]


def test_expectation_holds_until_the_rename(
    directory_with_meta: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename by the older extension during our fsync wins."""
    path = path_in(directory_with_meta)

    def meanwhile(fd: int) -> None:
        upstream = directory_with_meta / f"{path.name}.1.2.tmp"
        upstream.write_bytes(meta(7).to_json())
        upstream.rename(path)
        fsync(fd)

    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", meanwhile)
    assert not MetaWriter().write_meta(directory_with_meta, meta(1), expect=metas.stamp(path))
    assert_intact(directory_with_meta, 7)


def test_equal_content_is_no_conflict(directory_with_meta: Path) -> None:
    """A write that failed half way may have changed the file, and is tried again."""
    before = metas.stamp(path_in(directory_with_meta))
    for _ in range(2):
        assert MetaWriter().write_meta(directory_with_meta, meta(1), expect=before)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a1.meta.json"


@pytest.mark.parametrize("kind", ["link", "loop", "directory", "fifo", "socket"])
def test_what_is_not_a_regular_file_is_an_access_error(path: Path, kind: str) -> None:
    """S0.40: links are not followed, even to a valid file, and a FIFO is not waited for."""
    other = path.with_name("other")
    other.write_bytes(meta().to_json())
    with contextlib.ExitStack() as stack:
        if kind == "link":
            path.symlink_to(other)
        elif kind == "loop":
            path.symlink_to(path)
        elif kind == "directory":
            path.mkdir()
        elif kind == "fifo":
            os.mkfifo(path)
        else:
            bound = stack.enter_context(socket.socket(socket.AF_UNIX))
            stack.enter_context(contextlib.chdir(path.parent))  # the path may be too long to bind
            bound.bind(path.name)
        for read in (metas.read_meta, metas.read_user, metas.read_digest):
            with pytest.raises(AccessError, match=re.escape(str(path))):
                read(path)
        assert list(metas.scan(path.parent)) == []
