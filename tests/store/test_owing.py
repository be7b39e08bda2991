"""What was read and could not be stored is owed: told at once, stored once that works again."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from indexerd.daemon import background
from indexerd.daemon.library import Library, Update
from indexerd.errors import WriteError
from indexerd.sessions.info import SessionInfo
from indexerd.store.owing import Owing
from tests.daemon.flow_bench import Flow, until
from tests.e2e.world import Session
from tests.store.owing_place import BadLedger, Faults, Place

TOLD = ("sessionFile", "name", "userMessageCount", "gone")  # of a row, not what its text tells


class Heard:
    """What the loop knows after it has heard all this."""

    def __init__(self) -> None:
        self.cards: dict[str, SessionInfo | None] = {}
        self.rows: dict[str, dict[str, Any] | None] = {}

    def learn(self, updates: Iterable[list[Update]]) -> None:
        """Take updates in, as the loop does."""
        for one in (one for some in updates for one in some):
            self.cards[one.session_id] = one.card
            if one.row is not None or one.card is None:
                self.rows[one.session_id] = one.row


def rest(library: Library) -> None:
    """What is done in the background: search text, and the ledger."""
    with suppress(WriteError):
        while library.texts.some():
            pass
    with suppress(WriteError):
        library.checkpoint()


def run(place: Place, number: int, *, hinted: bool) -> bool:
    """Everything that may happen to sessions, while one write fails; says whether one did."""
    sessions = {name: Session(place.folder) for name in ("grown", "gone", "moved", "described")}
    for session in sessions.values():
        session.talk(1)
    library, heard = place.library("state"), Heard()
    heard.learn([library.load()])
    heard.learn(library.scan())
    rest(library)

    sessions["grown"].turn("Is it a xylophone?")
    sessions["gone"].path.unlink()
    sessions["moved"].path.rename(place.folder / f"moved-{sessions['moved'].id}.jsonl")
    place.meta(sessions["described"])
    new = Session(place.folder)
    new.talk(1)
    place.faults.left, place.faults.fired = number, False
    if hinted:
        paths = [*place.folder.glob("*.jsonl"), *place.metas.iterdir(), sessions["gone"].path]
        paths.append(sessions["moved"].path)
        heard.learn(library.hinted(map(str, paths)))
        rest(library)
    heard.learn(library.scan())
    assert heard.cards[new.id] is not None
    assert heard.cards[sessions["grown"].id] == library.files.card(sessions["grown"].id)
    assert heard.cards[sessions["gone"].id] is None
    fired = place.faults.fired
    rest(library)
    fired = fired or place.faults.fired
    place.faults.left = 0
    heard.learn(library.scan())  # nothing has grown since
    rest(library)

    assert library.trouble is None
    live = {key: card for key, card in heard.cards.items() if card is not None}
    assert len(live) == len(sessions)
    again = place.library("state")  # what the next daemon begins with
    assert {update.session_id: update.card for update in again.load()} == live
    rows = library.catalog.get_many(one.session_id for one in library.catalog.known())
    assert {key for key, row in rows.items() if row["gone"]} == {sessions["gone"].id}
    for session_id, row in rows.items():
        written = library._rows.of(session_id, grown=False)
        assert written is not None
        assert row == written.row
        told = heard.rows[session_id] or {}
        assert [told[key] for key in TOLD] == [row[key] for key in TOLD]
    hits = library.catalog.search("xylophone").hits
    assert [hit["sessionId"] for hit in hits] == [sessions["grown"].id]
    library.close()
    again.close()
    return fired


@pytest.mark.parametrize("hinted", [False, True])
def test_a_write_that_fails_loses_nothing(tmp_path: Path, *, hinted: bool) -> None:
    """A3: whichever write into ledger or catalog fails, the loop hears of all, and all is stored.

    No session need grow again for it, and nothing need be started again.
    """
    number = 1
    while run(Place(tmp_path / str(number)), number, hinted=hinted):
        number += 1
        assert number < 200
    assert number > 10, number


def test_trouble_lasts_until_all_is_stored(tmp_path: Path) -> None:
    """A3: what is owed is said, and no write waits for a lock a second time until it is settled."""
    ledger = BadLedger(tmp_path / "ledger.sqlite")
    ledger.faults = Faults()
    ledger.faults.left = 1
    owing = Owing(ledger)
    owing.note("topic", "a", b"1")
    owing.note("topic", "a", b"2")
    owing.forget(["/s/gone.jsonl"])
    assert isinstance(owing.trouble, WriteError)
    assert owing.is_gone("/s/gone.jsonl")
    assert ledger.notes("topic") == {}
    ledger.faults.left = 1
    with pytest.raises(WriteError):
        owing.settle()
    assert owing.trouble is not None
    owing.settle()
    assert [owing.trouble, owing.is_gone("/s/gone.jsonl")] == [None, False]
    assert ledger.notes("topic") == {"a": b"2"}


def test_what_is_owed_is_tried_again_without_being_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A3: the daemon goes on, and says what is wrong until nothing is owed.

    No hint and no scan by the clock comes in this test: there is trouble, so it looks again.
    """
    monkeypatch.setattr(background, "STORED_SECONDS", 0.1)
    flow = Flow(tmp_path)
    session, catalog, pipeline = flow.session(turns=1), flow.library.catalog, flow.pipeline
    put = catalog.put

    def full(*_: Any) -> int:
        raise WriteError("no space is left on the device")

    def shown() -> Any:
        return (catalog.get(session.id) or {}).get("userMessageCount")

    async def work() -> None:
        await until(pipeline.scanned.is_set, "the first scan")
        vars(catalog)["put"] = full
        session.talk(1)
        flow.hint(session)
        await until(lambda: pipeline.troubles, "the trouble")
        assert list(pipeline.troubles) == ["no space is left on the device"]
        assert pipeline.known[session.id].card.users == 2
        assert shown() == 1
        vars(catalog)["put"] = put
        await until(lambda: shown() == 2, "the row")
        await until(lambda: not pipeline.troubles, "the end of it")

    flow.running(work)
