"""meta/writer: what its docstring promises, tried with real processes, signals and limits."""

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

DEAD_PID = 4_194_999  # above Linux's highest pid, so that no process has it


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """A meta directory that holds generation 0."""
    directory = tmp_path / "sessions-meta"
    MetaWriter().write_meta(directory, meta(0))
    return directory


def test_symbolic_link_is_replaced_not_followed(tmp_path: Path) -> None:
    """A link, dangling or not, gives way to a file; what it named is untouched."""
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
    """An id that is not of the allowed form writes nothing anywhere."""
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


def test_expectation(held: Path) -> None:
    """A file that changed, came or went since the snapshot stays as it is."""
    one, path = MetaWriter(), path_in(held)
    stamp = metas.stamp(path)
    assert not one.write_meta(held, meta(1), expect=None)
    assert one.write_meta(held, meta(1), expect=stamp)
    now = metas.stamp(path)
    assert not one.write_meta(held, meta(2), expect=stamp)
    assert one.write_meta(held, meta(1), expect=stamp), "it is there already"
    assert_intact(held, 1)
    path.unlink()
    assert not one.write_meta(held, meta(2), expect=now)
    assert files(held) == []
    assert one.write_meta(held, meta(2), expect=None)


def test_expectation_holds_until_the_rename(held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older extension's rename while our bytes are on their way to the disk wins."""
    path = path_in(held)

    def meanwhile(fd: int) -> None:
        upstream = held / f"{path.name}.1.2.tmp"
        upstream.write_bytes(meta(7).to_json())
        upstream.rename(path)
        fsync(fd)

    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", meanwhile)
    assert not MetaWriter().write_meta(held, meta(1), expect=metas.stamp(path))
    assert_intact(held, 7)


def test_sweep_removes_what_dead_writers_left(held: Path) -> None:
    """S0.37: temps of dead writers go, ours and the older extension's; all else stays."""
    old = SESSION + ".meta.json"
    stale = [
        f".{SESSION}.{DEAD_PID}.1.tmp",
        f".{SESSION}.{os.getpid()}.77.tmp",  # an earlier process had our pid
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
        (held / name).write_bytes(b"{")
    (held / f".dir.{DEAD_PID}.1.tmp").mkdir()
    kept = sorted([*fresh, *strange, old, f".dir.{DEAD_PID}.1.tmp"])
    assert MetaWriter().sweep(held) == len(stale)
    assert files(held) == kept
    assert path_in(held).read_bytes() == meta().to_json()


def test_remove_takes_only_what_is_ours(held: Path) -> None:
    """Purge: the session's files and temps go and are named; other sessions' files stay."""
    one = MetaWriter()
    one.write_user(held, SESSION, UserFile(title="t"))
    one.write_digest(held, SESSION, [b'{"id": "d"}'])
    one.write_user(held, SESSION + "x", UserFile(title="t"))
    (held / f".{SESSION}.{DEAD_PID}.1.tmp").write_bytes(b"{")
    (held / f"{SESSION}.txt").write_bytes(b"the user's own")
    ours = [f"{SESSION}{end}" for end in (".meta.json", ".user.json", ".digest.jsonl")]
    expected = [held / name for name in (*ours, f".{SESSION}.{DEAD_PID}.1.tmp")]
    assert one.remove(held, SESSION) == sorted(expected)
    assert files(held) == sorted([f"{SESSION}.txt", f"{SESSION}x.user.json"])
    assert one.remove(held, SESSION) == []
    assert one.write_meta(held, meta())
