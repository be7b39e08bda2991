"""The writer and reader of meta files, with real processes, signals, limits and failing disks."""

import contextlib
import json
import os
import re
import signal
import socket
import threading
from collections import Counter
from pathlib import Path

import pytest

from indexerd.errors import AccessError
from indexerd.meta import model as metas
from indexerd.meta.writer import MetaWriter
from tests.meta.writer_driver import (
    SESSION,
    assert_intact,
    files,
    meta,
    path_in,
    start,
    traced,
    wait,
)


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


def test_kill_at_every_system_call(directory_with_meta: Path) -> None:
    """SIGKILL at any system call leaves the old or the new file; temporary files are removed."""
    clean = traced(None, "write", directory_with_meta, generation=1)[2]
    counts = Counter(call.split("(")[0] for call in clean)
    assert counts["fsync"] == 2
    assert counts["renameat"] + counts["renameat2"] + counts["rename"] == 1
    survivors = set()
    for name, count in counts.items():
        for when in range(1, count + 1):
            MetaWriter().write_meta(directory_with_meta, meta(0))
            inject = f"{name}:signal=KILL:when={when}"
            status, _, calls = traced(inject, "write", directory_with_meta, generation=1)
            assert os.WTERMSIG(status) == signal.SIGKILL, (inject, calls)
            data = path_in(directory_with_meta).read_bytes()
            assert data in {meta(0).to_json(), meta(1).to_json()}, inject
            survivors.add(data)
            assert list(metas.scan(directory_with_meta)) == [SESSION]
            left = len(files(directory_with_meta)) - 1
            assert MetaWriter().sweep(directory_with_meta) == left, inject
            assert files(directory_with_meta) == [path_in(directory_with_meta).name], inject
    assert len(survivors) == 2  # kills happened before and after the rename


FAILURES = [
    (name, error)
    for name, errors in {
        "temp": ("ENOSPC", "EDQUOT", "EROFS", "EACCES", "EMFILE", "EIO"),
        "write": ("ENOSPC", "EDQUOT", "EFBIG", "EIO"),
        "fsync": ("EIO", "ENOSPC", "EDQUOT"),
        "close": ("EIO", "EDQUOT"),
        "rename": ("ENOSPC", "EROFS", "EACCES", "EIO"),
    }.items()
    for error in errors
]


@pytest.mark.parametrize(("step", "error"), FAILURES)
def test_failure_at_any_step_keeps_the_old_file(
    directory_with_meta: Path, step: str, error: str
) -> None:
    """A failure before the rename keeps the old file and removes the temporary one."""
    clean = traced(None, "write", directory_with_meta, generation=1)[2]
    MetaWriter().write_meta(directory_with_meta, meta(0))
    opens = [call for call in clean if call.startswith("openat")]
    temp = next(n for n, call in enumerate(opens, 1) if "O_CREAT" in call)
    inject = f"{step}:error={error}:when=1"
    inject = f"openat:error={error}:when={temp}" if step == "temp" else inject
    _, result, calls = traced(inject, "write", directory_with_meta, generation=1)
    assert result["upstream"] == error, (result, calls)
    assert str(path_in(directory_with_meta)) in result["error"]
    assert error in result["error"]
    assert result["hint"]
    assert_intact(directory_with_meta)
    if step != "rename":
        assert not any(call.startswith("rename") for call in calls)


def test_steps_and_flags_of_a_write(directory_with_meta: Path) -> None:
    """The temporary file is next to the target, exclusive, no link, closed on exec."""
    calls = traced(None, "write", directory_with_meta, generation=1)[2]
    at = next(n for n, call in enumerate(calls) if "O_CREAT" in call)
    opened = re.search(r'"([^"]+)", ([A-Z_|]+), 0600\) += (\d+)\n', calls[at])
    assert opened is not None, calls[at]
    name, flags, temp = opened.groups()
    assert {"O_EXCL", "O_NOFOLLOW", "O_CLOEXEC", "O_WRONLY"} <= set(flags.split("|"))
    assert re.fullmatch(rf"{directory_with_meta}/\.{SESSION}\.[0-9]+\.[0-9]+\.tmp", name)
    wanted = [f"write({temp},", f"fsync({temp})", f"close({temp})", f'rename("{name}"', "fsync("]
    for call in calls[at + 1 :]:
        if wanted and call.startswith(wanted[0]):
            wanted.pop(0)
    assert wanted == []


def test_concurrent_writers_lose_nothing(tmp_path: Path) -> None:
    """S0.41, S3.26: two processes of five threads raise one file's generation 100 times."""
    MetaWriter().write_meta(tmp_path, meta(0))
    done = threading.Event()
    seen: list[int] = []
    failed: list[Exception] = []

    def read_on() -> None:
        while not done.is_set():
            try:
                with path_in(tmp_path).open("rb") as file:
                    seen.append(int(json.load(file)["lastIndexedLeafId"]))
            except (OSError, ValueError) as bad:
                failed.append(bad)

    reader = threading.Thread(target=read_on)
    reader.start()
    try:
        children = [start("grow", tmp_path, threads=5, times=10) for _ in range(2)]
        statuses = [wait(child)[0] for child in children]
    finally:
        done.set()
        reader.join()
    assert statuses == [0, 0]
    assert failed == []
    assert seen == sorted(seen)
    assert len(set(seen)) > 2
    assert files(tmp_path) == [path_in(tmp_path).name]
    last = metas.read_meta(path_in(tmp_path))
    assert last is not None
    assert last.last_indexed_leaf_id == "100"
