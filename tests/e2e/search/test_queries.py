"""Words, phrases and patterns, as a user types them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from indexerd.errors import AmbiguousError
from tests.e2e.references.expanding import add
from tests.e2e.world import World, until

IDS = ("0198aaaa-1111-7000-8000-000000000001", "0198aaaa-2222-7000-8000-000000000002")
PLACES = {session_id: place for place, session_id in enumerate(IDS)}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("search"))
    world.install_pi()
    pear = world.session(session_id=IDS[0], cwd="/srv/orchid-7")
    pear.turn("The red pear is here.", "Release v2.13 has exponential backoff.")
    apple = world.session(session_id=IDS[1])
    apple.turn("A pear that is not of that colour: red is another.", "Café tokens.")
    named = add(world, "Confirm button refactor #12")
    with world.daemon():
        until(lambda: all(world.row(one) for one in (*IDS, named)), "the sessions")
        for word, place in (("backoff", 0), ("tokens", 1)):
            until(lambda word=word, place=place: (place, "message") in hits(world, word), "texts")
        yield world


def hits(world: World, query: str) -> set[tuple[Any, str]]:
    found = world.call("search", query=query)["hits"]
    return {(PLACES.get(one["sessionId"], one["name"]), one["field"]) for one in found}


def test_words_stand_anywhere_and_phrases_as_they_are(running: World) -> None:
    """All words in any order and any accents; between quotes exactly so (S1.44)."""
    assert {one for one, _ in hits(running, "pear red")} == {0, 1}
    assert {one for one, _ in hits(running, '"red pear"')} == {0}
    assert hits(running, "cafe tok") == {(1, "message")}
    assert hits(running, '"pear red"') == set()


def test_words_nearly_typed_are_found(running: World) -> None:
    """With a warning that says what was looked for instead (S1.44)."""
    for query, found in (("confrim buton", "Confirm button refactor #12"), ("exponental", 0)):
        answer = running.call("search", query=query)
        assert found in {one for one, _ in hits(running, query)}
        assert answer["warnings"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"re:^0198aaaa-2", (1, "id")),
        (r"re:button refactor #\d\d$", ("Confirm button refactor #12", "name")),
        (r"re:V\d\.\d+ has", (0, "message")),
        (r"re:orchid-\d$", (0, "cwd")),
    ],
)
def test_patterns_look_at_all_of_it(running: World, pattern: str, found: tuple[Any, str]) -> None:
    """`re:` is a regular expression over each of them, in any case (S1.44)."""
    assert found in hits(running, pattern)


@pytest.mark.parametrize("query", ["re:[", "re:(pear", "re:\\", "re:(?=a)b", r"re:(a)\1"])
def test_a_bad_pattern_finds_nothing_and_says_why(running: World, query: str) -> None:
    """It is no failure: no hits, and a warning (S1.44)."""
    found = running.call("search", query=query)
    assert found["hits"] == []
    assert found["warnings"][0].startswith("re: ")
    assert running.run("search", query) == ""
    assert "re: " in running.stderr


def test_the_beginning_of_an_id_is_enough_where_only_one_begins_so(running: World) -> None:
    """Otherwise the candidates are told (S1.44)."""
    found = running.call("resolve", ref=IDS[0][:11])
    assert (found["sessionId"], found["how"]) == (IDS[0], "prefix")
    with pytest.raises(AmbiguousError) as caught:
        running.call("resolve", ref=IDS[0][:8])
    assert {one["sessionId"] for one in caught.value.candidates} == set(IDS)


def test_many_places_in_one_session_do_not_end_a_patterns_search(world: World) -> None:
    """Sessions are counted, not messages: an old one is found after a new one full of hits."""
    old = world.session(turns=1)
    old.turn("Is kumquat-1 ripe?")
    for _ in range(50):  # so many are looked at together
        world.session(turns=1)
    new = world.session(turns=1)
    for number in range(2, 5):
        new.turn(f"Is kumquat-{number} ripe?")
    world.run("run", "--once")
    found = world.run("--json", "search", r"re:kumquat-\d", "--limit", "2")["hits"]
    assert {one["sessionId"] for one in found} == {new.id, old.id}
