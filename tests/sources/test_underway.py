"""A file that is read in several steps stays awake until it is read, however much it holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from indexerd.daemon import files
from indexerd.daemon.files import Files
from indexerd.sources import memory, tail
from indexerd.sources.stores import Store
from indexerd.store.store import StateStore
from tests.e2e.world import Session


def test_a_long_line_in_a_session_of_very_many_entries_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F8, F9: to let the tree go between two steps began the line anew each time, for ever."""
    monkeypatch.setattr(memory, "ROWS_KEPT", 5)
    monkeypatch.setattr(files, "BATCH_BYTES", tail.BUDGET)
    store = Store("pi", str(tmp_path / "sessions"), str(tmp_path / "meta"))
    looked = Files(
        StateStore(tmp_path / "store.sqlite"),
        stores=lambda: [store],
        since=lambda _: None,
        title=lambda _agent, _id: None,
        exclude=list,
        defect=lambda path, bug: pytest.fail(f"{path}: {bug!r}"),
    )
    looked.load()
    session = Session(tmp_path / "sessions/--w--")
    session.talk(5)
    said = {"role": "user", "content": "x" * (2 * tail.BUDGET + 9)}
    line = {"type": "message", "id": "long", "parentId": session.last, "message": said}
    with session.path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    steps = looked.refresh([str(session.path)])
    changes = [one for _, found in zip(range(9), steps, strict=False) for one in found]
    assert [one.card.leaf_id for one in changes if one.card] == ["long"]
    assert next(steps, None) is None
