"""A reverted Codex thread whose base file is missing for a while or for good."""

from pathlib import Path

import pytest

from indexerd.daemon.files import Files
from indexerd.sources.roots import SessionRoot
from tests.e2e.clients import CodexThread

STEPS = 20  # more steps than any of these tests needs


def reverted(home: Path, *, times: int = 1) -> list[CodexThread]:
    """A thread, and the files that continue from the end of its first turn."""
    thread = CodexThread(home)
    thread.turn("Kept")
    end, ordinal = thread.path.stat().st_size, thread.ordinal
    thread.turn("Thrown away")
    meta = {"timestamp": "2099-01-01T00:00:00.000Z", "thread": thread.id, "ordinal": ordinal}
    base = {"thread_id": thread.id, "end_ordinal_exclusive": ordinal, "end_byte_offset": end}
    again = [CodexThread(home, f"_{n}", **meta, history_base=base) for n in range(times)]
    for rollout in again:
        rollout.turn("Another")
    return [thread, *again]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """The sessions of Codex, archived and not."""

    def no_defect(path: str, bug: Exception) -> None:
        raise AssertionError(path) from bug

    found = Files(since=lambda _id: None, title=lambda *_: None, exclude=list, defect=no_defect)
    places = {name: f"{tmp_path}/.codex/{name}" for name in ("sessions", "archived_sessions")}
    found.roots = [SessionRoot("codex", path, f"{tmp_path}/meta") for path in places.values()]
    return found


def read_due_files(files: Files, *threads: CodexThread) -> int:
    """Read files until none is due, and return the number of steps."""
    files.queue |= dict.fromkeys(str(thread.path) for thread in threads)
    steps = 0
    while files.queue and steps < STEPS:
        path = next(iter(files.queue))
        del files.queue[path]
        files.refresh(path)
        steps += 1
    return steps


def users(files: Files, thread: CodexThread) -> int:
    """The number of user messages that count."""
    info = files.info(thread.id)
    return info.users if info else 0


def test_a_base_that_comes_back_unchanged_is_found(tmp_path: Path, files: Files) -> None:
    """S1.13: the base is archived and restored before its absence was noticed."""
    thread, again = reverted(tmp_path)
    read_due_files(files, thread, again)
    assert users(files, thread) == 2
    here = [rollout.path for rollout in (again, thread)]
    for rollout in (again, thread):
        rollout.archive()
    files.vanish(str(here[0]))
    again.path = again.path.rename(here[0])
    read_due_files(files, again)
    assert users(files, thread) == 1
    thread.path = thread.path.rename(here[1])
    read_due_files(files, thread)
    assert users(files, thread) == 2


def test_files_with_a_missing_base_cause_no_endless_loop(tmp_path: Path, files: Files) -> None:
    """Two files of a thread lack the same base, and neither is the base of the other."""
    thread, *again = reverted(tmp_path, times=2)
    thread.path.unlink()
    assert read_due_files(files, *again) < STEPS
    assert users(files, thread) == 1
