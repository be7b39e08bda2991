"""What is kept of a session is bounded: where there is too much of it, the oldest goes."""

from __future__ import annotations

import pytest

from indexerd.errors import NotFoundError
from indexerd.events import Entry, Kind, Tokens, ToolCall, Turn
from indexerd.indexing.policy import Limits, View, back_off, settled_at
from indexerd.search.names import CANDIDATES_MAX
from indexerd.search.names_fuzzy import Nearness
from indexerd.sessions.facts import ANSWERS_KEPT, CALLS_KEPT, ActivityStats
from indexerd.sessions.history import FileLists, merged
from indexerd.sessions.info import base_name, state_of
from indexerd.sources.lines import LineBuffer, Oversize
from tests.daemon.row_cards import card
from tests.search.names_known import index
from tests.search.names_known import session as named


def answer(name: str, spent: int) -> Entry:
    """A line of an answer that has cost so many tokens until then."""
    return Entry("e", Kind.ASSISTANT, "x", None, "", tokens=Tokens(output=spent, answer=name))


def called(name: str, path: str) -> Entry:
    """A call that writes a file."""
    call = ToolCall("edit", id=name, writes=(path,))
    return Entry("e", Kind.ASSISTANT, "x", None, "", tools=(call,))


def failed(name: str) -> Entry:
    """What says that a call came to nothing."""
    return Entry("e", Kind.TOOL, "x", None, "", failed=(name,))


def test_lines_of_one_answer_cost_what_the_largest_says() -> None:
    """While other answers come between them, up to a number; then it is a new answer."""
    deeds = ActivityStats()
    for n in range(ANSWERS_KEPT):
        deeds.pay(answer(f"a{n}", 10))
    assert deeds.spent.output == 10 * ANSWERS_KEPT
    deeds.pay(answer("a0", 15))
    assert deeds.spent.output == 10 * ANSWERS_KEPT + 5
    deeds.pay(answer("new", 1))  # a1 is the oldest now, and goes
    assert len(deeds.spent.answers) == ANSWERS_KEPT
    assert "a1" not in deeds.spent.answers
    assert "a0" in deeds.spent.answers
    deeds.pay(answer("a1", 10))
    assert deeds.spent.output == 10 * ANSWERS_KEPT + 5 + 1 + 10


def test_a_call_is_taken_back_while_it_is_known() -> None:
    """A failed edit leaves no file, if its call is one of the newest."""
    deeds = ActivityStats()
    for n in range(CALLS_KEPT + 1):
        deeds.add(called(f"c{n}", f"f{n}"), "/w")
    assert len(deeds.calls) == CALLS_KEPT
    for n in (0, 1, CALLS_KEPT):
        deeds.add(failed(f"c{n}"), "/w")
    assert "/w/f0" in deeds.writes
    assert "/w/f1" not in deeds.writes
    assert f"/w/f{CALLS_KEPT}" not in deeds.writes


def test_an_index_that_has_forgotten_much_is_made_anew() -> None:
    """It finds what is left, and nothing of what is gone, however often names come and go."""
    names = index(*(named(n, f"Session number {n} of many") for n in range(60)))
    for n in range(1, 60):
        names.forget(named(n, "").session_id)
    assert len(names) == 1
    assert len(names._slots) <= 2 + CANDIDATES_MAX + 1
    left = named(0, "").session_id
    assert names.resolve("Session number 0 of many", scope="all").session_id == left
    assert names.resolve(left[:8], scope="all").session_id == left
    with pytest.raises(NotFoundError):
        names.resolve(named(7, "").session_id, scope="all")
    for n in range(100):
        names.put(named(0, f"Another name {n}"))
    assert names.resolve("another name 99", scope="all").session_id == left


def test_a_word_of_very_many_names_tells_only_those_apart_that_others_found() -> None:
    """A rare word finds; a word of nearly all of them is no reason to look at all of them."""
    near = Nearness()
    for n in range(30_000):
        near.add(f"common thing {n}" if n % 1000 else f"common zebra {n}", n)
    found = near.shared("zebra common")
    assert len(found) < 1000
    assert {near._keys[at].split()[1] for at in found} >= {"zebra"}
    best = max(found, key=found.__getitem__)
    assert near._keys[best].startswith("common zebra")


def test_the_end_of_an_unfinished_line_is_there_however_long_it_is() -> None:
    """`last` gives the newest bytes, of a line that was too long to hold too."""
    lines = LineBuffer(0)
    lines.feed(b"abc\ndef")
    assert (lines.last(2), lines.last(9), lines.pending) == (b"ef", b"def", 3)
    lines.feed(b"g" * 5)
    assert (lines.last(7), lines.pending) == (b"efggggg", 8)
    found: list[object] = []
    for _ in range(40):
        found += lines.feed(b"x" * (1 << 20))
    assert found == []
    assert lines.last(3) == b"xxx"
    found = lines.feed(b"yz\n")
    assert isinstance(found[0], Oversize)


def test_lists_of_files_become_one() -> None:
    """Sorted, each once; what was modified anywhere is not told as read."""
    one, other = FileLists(("a", "c"), ("b",)), FileLists(("b", "d"), ("c", "\uffff", "\U00010000"))
    assert merged(one, other) == FileLists(("a", "d"), ("b", "c", "\U00010000", "\uffff"))
    assert merged() == FileLists((), ())


def test_a_turn_has_settled_when_it_was_quiet_for_as_long_as_its_end_asks() -> None:
    """Never in the middle of one; a clock that was put back makes nobody wait."""
    limits = Limits(1, 60.0, 300.0, 3600.0)

    def view(turn: Turn, changed: float = 1000.0) -> View:
        return View(
            has_answer=True,
            new_user_messages=1,
            turn=turn,
            changed_at=changed,
            open_since=1000.0,
        )

    assert settled_at(view(Turn.OPEN), 2000.0, limits) is None
    assert settled_at(view(Turn.ENDED), 2000.0, limits) == 1060.0
    assert settled_at(view(Turn.FAILED), 2000.0, limits) == 1300.0
    assert settled_at(view(Turn.ENDED, 5000.0), 2000.0, limits) == 2000.0
    assert [back_off(n) for n in (0, 1, 2, 3, 9, 10, 99)] == [60, 60, 120, 240, 15360, 21600, 21600]


def test_what_a_card_says_of_its_state_and_its_history() -> None:
    """Archived counts before all else; an open turn is active once there was an answer."""
    assert state_of(card(archived=True)) == "archived"
    assert state_of(card(turn=int(Turn.OPEN), answered=True)) == "active"
    assert state_of(card(turn=int(Turn.OPEN), answered=False)) == "idle"
    assert state_of(card(compacted=True)) == "compacted"
    assert state_of(card()) == "idle"
    assert not card().is_heir
    assert card(bases=("x",)).is_heir
    assert card(wants="x").is_heir
    assert card(barred=True).is_heir
    assert card(boxed=True).file == card().path.rpartition("/")[0]
    assert base_name("/a/b.jsonl.zst") == "b.jsonl"
