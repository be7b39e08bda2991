"""The promises of meta/writer, tested with real processes, signals and limits."""

import os
from pathlib import Path

import pytest

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


def test_expectation(directory_with_meta: Path) -> None:
    """A file that was changed, created or deleted since the snapshot is not written."""
    one, path = MetaWriter(), path_in(directory_with_meta)
    stamp = metas.stamp(path)
    assert not one.write_meta(directory_with_meta, meta(1), expect=None)
    assert one.write_meta(directory_with_meta, meta(1), expect=stamp)
    now = metas.stamp(path)
    assert not one.write_meta(directory_with_meta, meta(2), expect=stamp)
    assert one.write_meta(directory_with_meta, meta(1), expect=stamp), "the file already exists"
    assert_intact(directory_with_meta, 1)
    path.unlink()
    assert not one.write_meta(directory_with_meta, meta(2), expect=now)
    assert files(directory_with_meta) == []
    assert one.write_meta(directory_with_meta, meta(2), expect=None)


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
