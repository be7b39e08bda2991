"""A reverted thread of Codex, of which the base is elsewhere for a moment, or for good."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexerd.daemon.files import Files
from indexerd.sources.stores import Store
from tests.e2e.clients import CodexThread

STEPS = 20  # looks at files after which nothing is left to look at


def reverted(home: Path, *, times: int = 1) -> list[CodexThread]:
    """A thread, and its files that begin where its first turn ended."""
    thread = CodexThread(home)
    thread.turn("Kept")
    end, ordinal = thread.path.stat().st_size, thread.ordinal
    thread.turn("Thrown away")
    meta = {"timestamp": "2099-01-01T00:00:00.000Z", "thread": thread.id, "ordinal": ordinal}
    base = {"thread_id": thread.id, "end_ordinal_exclusive": ordinal, "end_byte_offset": end}
    again = [CodexThread(home, f"_{n}", **meta, history_base=base) for n in range(times)]
    for one in again:
        one.turn("Another")
    return [thread, *again]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """The files of Codex, archived and not."""

    def no_defect(path: str, bug: Exception) -> None:
        raise AssertionError(path) from bug

    found = Files(since=lambda _id: None, title=lambda *_: None, exclude=list, defect=no_defect)
    places = {name: f"{tmp_path}/.codex/{name}" for name in ("sessions", "archived_sessions")}
    found.stores = [Store("codex", path, f"{tmp_path}/meta") for path in places.values()]
    return found


def look(files: Files, *threads: CodexThread) -> int:
    """Look at files, and at what is to be read for that; how often."""
    files.queue |= dict.fromkeys(str(one.path) for one in threads)
    steps = 0
    while files.queue and steps < STEPS:
        path = next(iter(files.queue))
        del files.queue[path]
        files.refresh(path)
        steps += 1
    return steps


def users(files: Files, thread: CodexThread) -> int:
    """How many messages of the user count."""
    info = files.info(thread.id)
    return info.users if info else 0


def test_a_base_that_comes_back_unchanged_is_found(tmp_path: Path, files: Files) -> None:
    """S1.13: archived and taken back before anybody believed that it was gone."""
    thread, again = reverted(tmp_path)
    look(files, thread, again)
    assert users(files, thread) == 2
    here = [one.path for one in (again, thread)]
    for one in (again, thread):
        one.archive()
    files.vanish(str(here[0]))
    again.path = again.path.rename(here[0])
    look(files, again)
    assert users(files, thread) == 1
    thread.path = thread.path.rename(here[1])
    look(files, thread)
    assert users(files, thread) == 2


def test_files_that_lack_one_base_come_to_rest(tmp_path: Path, files: Files) -> None:
    """Files of one thread, none of which is the base of another."""
    thread, *again = reverted(tmp_path, times=2)
    thread.path.unlink()
    assert look(files, *again) < STEPS
    assert users(files, thread) == 1
