"""The promises of meta/writer, tested with real processes, signals and limits."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.errors import UsageError
from indexerd.meta import model as metas
from indexerd.meta.model import UserFile
from indexerd.meta.writer import MetaWriter
from tests.meta.writer_driver import SESSION, assert_intact, files, meta, path_in

DEAD_PID = 4_194_999  # above Linux's highest pid


@pytest.fixture
def directory_with_meta(tmp_path: Path) -> Path:
    """A meta directory that contains generation 0."""
    directory = tmp_path / "sessions-meta"
    MetaWriter().write_meta(directory, meta(0))
    return directory


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


@given(st.text(max_size=150).filter(lambda text: not re.fullmatch(r"[A-Za-z0-9][\w.-]*", text)))
@settings(max_examples=100, deadline=None)
def test_no_id_leaves_the_directory(text: str) -> None:
    """An id of another form than allowed writes nothing."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place) / "a" / "b"
        for session_id in (text, "../x", "/abs", "a\0b", "..", "a" * 300, "a\n", "\u0430bc", ""):
            with pytest.raises(UsageError):
                MetaWriter().write_meta(
                    directory, meta().model_copy(update={"session_id": session_id})
                )
            with pytest.raises(UsageError):
                MetaWriter().write_user(directory, session_id, UserFile())
            with pytest.raises(UsageError):
                MetaWriter().write_digest(directory, session_id, [])
            with pytest.raises(UsageError):
                MetaWriter().remove(directory, session_id)
        assert files(Path(place)) == []


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


def test_sweep_removes_what_dead_writers_left(directory_with_meta: Path) -> None:
    """S0.37: temporary files of dead writers go, those of the older extension too."""
    old = SESSION + ".meta.json"
    stale = [
        f".{SESSION}.{DEAD_PID}.1.tmp",
        f".{SESSION}.{os.getpid()}.77.tmp",  # an earlier process had this pid
        f".a.b-c.{10**18}.1.tmp",
        f".{SESSION}.0.1.tmp",
        f"{old}.{DEAD_PID}.1767225600000.tmp",
    ]
    fresh = [f".{SESSION}.{os.getppid()}.1.tmp", f"{old}.{os.getppid()}.1767225600000.tmp"]
    strange = [
        f"{SESSION}.tmp",
        f".{SESSION}.x.1.tmp",
        f".{SESSION}.{DEAD_PID}.tmp",
        f".bad id.{DEAD_PID}.1.tmp",
        f".{SESSION}.{DEAD_PID}.1.tmp~",
        "notes.txt",
    ]
    for name in stale + fresh + strange:
        (directory_with_meta / name).write_bytes(b"{")
    (directory_with_meta / f".dir.{DEAD_PID}.1.tmp").mkdir()
    kept = sorted([*fresh, *strange, old, f".dir.{DEAD_PID}.1.tmp"])
    assert MetaWriter().sweep(directory_with_meta) == len(stale)
    assert files(directory_with_meta) == kept
    assert path_in(directory_with_meta).read_bytes() == meta().to_json()


def test_remove_takes_only_the_sessions_files(directory_with_meta: Path) -> None:
    """A purge removes and names the session's files; those of other sessions stay."""
    one = MetaWriter()
    one.write_user(directory_with_meta, SESSION, UserFile(title="t"))
    one.write_digest(directory_with_meta, SESSION, [b'{"id": "d"}'])
    one.write_user(directory_with_meta, SESSION + "x", UserFile(title="t"))
    (directory_with_meta / f".{SESSION}.{DEAD_PID}.1.tmp").write_bytes(b"{")
    (directory_with_meta / f"{SESSION}.txt").write_bytes(b"the user's own")
    ours = [f"{SESSION}{end}" for end in (".meta.json", ".user.json", ".digest.jsonl")]
    expected = [directory_with_meta / name for name in (*ours, f".{SESSION}.{DEAD_PID}.1.tmp")]
    assert one.remove(directory_with_meta, SESSION) == sorted(expected)
    assert files(directory_with_meta) == sorted([f"{SESSION}.txt", f"{SESSION}x.user.json"])
    assert one.remove(directory_with_meta, SESSION) == []
    assert one.write_meta(directory_with_meta, meta())
