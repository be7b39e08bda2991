"""Words are a session's own, whatever stands at its path while they are read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from indexerd.daemon.library import Library
from indexerd.search.ranking import search
from tests.e2e.world import Session
from tests.store.one_store import library_of


def settle(library: Library, *, look: bool) -> None:
    """Look at all files, or not, and read all that is to be read."""
    for _ in library.scan() if look else ():
        pass
    while library.texts.unread:
        library.texts.some()


@pytest.mark.parametrize("turns", [0, 3])
@pytest.mark.parametrize("moved", [False, True])
def test_another_file_at_its_path_neither_lends_nor_hides_words(
    tmp_path: Path, turns: int, moved: bool
) -> None:
    """S1.13, F14: its lines are as long as our own, or it ends before them."""
    library = library_of(tmp_path)
    library.load()
    session, other = Session(tmp_path / "sessions/--w--"), Session(tmp_path / "other")
    session.turn("zebrafish one")
    session.turn("zebrafish two")
    for _ in range(turns):
        other.turn("strangers one")
    for _ in library.scan():
        pass
    away = session.path.with_name("away.jsonl") if moved else tmp_path / "away.jsonl"
    os.rename(session.path, away)
    os.rename(other.path, session.path)
    settle(library, look=False)
    if not moved:
        os.rename(away, session.path)
    settle(library, look=True)
    hits = search(library.index, "two").hits
    assert [one["sessionId"] for one in hits] == [session.id]
    told = {one["sessionId"] for one in search(library.index, "strangers").hits}
    assert told <= {other.id}
    library.close()
