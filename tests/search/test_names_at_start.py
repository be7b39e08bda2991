"""Names that were asked for before a start has filled the catalog: none is missing for good."""

from __future__ import annotations

from pathlib import Path

from indexerd.daemon.answers import Answers
from indexerd.protocol import params
from indexerd.protocol.params import decode
from tests.e2e.world import Session
from tests.store.one_store import library_of


def test_names_asked_for_while_the_catalog_is_made_anew_are_not_few_for_ever(
    tmp_path: Path,
) -> None:
    """S0.49: rows that a start puts back are told to nobody; who was early finds them, too."""
    session = Session(tmp_path / "sessions/--w--")
    session.turn("zebrafish one")
    first = library_of(tmp_path)
    first.load()
    for _ in first.scan():
        pass
    first.close()
    for path in tmp_path.glob("catalog.sqlite*"):
        path.unlink()
    library = library_of(tmp_path)
    answers = Answers(library.catalog, lambda: 0.0)
    assert (
        answers.complete(decode(params.Complete, {}))["items"] == []
    )  # asked while the start still reads the ledger
    library.load()
    assert [one["sessionId"] for one in answers.complete(decode(params.Complete, {}))["items"]] == [
        session.id
    ]
    library.close()
