"""The writer when it is killed, on full and failing disks, and with concurrent writers."""

import json
import os
import re
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

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
