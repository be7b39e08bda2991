"""A file that is there before its first line, as Codex makes it."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.daemon.files_world import World
from tests.e2e.clients import CodexThread

LEDGER = "store.sqlite"


def test_a_fork_that_was_met_empty_begins_with_its_base(tmp_path: Path) -> None:
    """interfaces.md 1: the file is created some ms before its first line; the base comes first."""
    world = World(tmp_path)
    files = world.reader(tmp_path / LEDGER)
    thread = CodexThread(tmp_path / "home")
    thread.turn("One")
    thread.turn("Two")
    fork = thread.fork()
    fork.turn("Three")
    folder = Path(world.stores[2].sessions)
    shutil.copy(thread.path, folder)
    world.look(files)

    there = folder / fork.path.name
    there.touch()
    world.look(files)
    there.write_bytes(fork.path.read_bytes())
    world.look(files)

    card = files.card(fork.id)
    assert card is not None
    assert (card.users, card.first_user) == (3, "One")


def stored(tmp_path: Path) -> tuple[World, CodexThread, Path]:
    """A thread whose file a ledger knows, and that file; nobody looks any more."""
    world, thread = World(tmp_path), CodexThread(tmp_path / "home")
    thread.turn("One")
    old = Path(shutil.copy(thread.path, world.stores[2].sessions))
    files = world.reader(tmp_path / LEDGER)
    world.look(files)
    files.checkpoint()
    assert files.card(thread.id) is not None
    return world, thread, old


def test_an_empty_file_is_not_one_that_was_deleted_before(tmp_path: Path) -> None:
    """F12: a new file gets the number of one that went while nobody looked: no rename."""
    world, thread, old = stored(tmp_path)

    new = Path(world.stores[1].sessions) / "new.jsonl"
    old.rename(new)  # so that it has the old one's number for certain
    new.write_bytes(b"")
    files = world.reader(tmp_path / LEDGER)
    world.look(files)
    assert files.card(thread.id) is None


def test_a_file_that_was_moved_while_nobody_looked_is_known(tmp_path: Path) -> None:
    """F12: what was read of it stands, and it may have grown since."""
    world, thread, old = stored(tmp_path)

    old.rename(Path(world.stores[3].sessions) / old.name)
    files = world.reader(tmp_path / LEDGER)
    world.look(files)
    card = files.card(thread.id)
    assert card is not None
    assert card.archived
