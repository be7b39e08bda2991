"""A file that is there before its first line, as Codex makes it."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.e2e.clients import CodexThread
from tests.service.files_world import World


def test_a_fork_that_was_met_empty_begins_with_its_base(tmp_path: Path) -> None:
    """interfaces.md 1: the file is created some ms before its first line; the base comes first."""
    world = World(tmp_path)
    files = world.reader(tmp_path / "ledger.sqlite")
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
