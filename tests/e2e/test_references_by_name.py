"""References by name, in every spelling, and how many of a prompt are resolved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.expanding import add, expand, statuses
from tests.e2e.world import World, until

NAMES = ("Purple valve design", "Lamp oil ledger", "Fix ÉTÉ parser #12", "Zebra")


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, list[str]]]:
    """A daemon, and the ids of four named sessions."""
    world = World(tmp_path_factory.mktemp("names"))
    world.install_pi()
    ids = [add(world, name) for name in NAMES]
    with world.daemon():
        until(lambda: all(world.row(one).get("nameSource") == "meta" for one in ids), "the names")
        yield world, ids


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("@@purple-valve-design", 0),
        ("@@Purple-VALVE-Design", 0),
        ('@@"purple Valve design"', 0),
        ("@@lamp_oil_ledger", 1),
        ('@@"Fix ÉTÉ parser #12"', 2),
        ("@@fix-été-parser-12", 2),
        ("@@ZEBRA", 3),
    ],
)
def test_a_name_means_its_session_in_any_case(
    known: tuple[World, list[str]], written: str, number: int
) -> None:
    """As a slug or between quotes, whatever its case (S0.48)."""
    world, ids = known
    (found,) = expand(world, f"see {written}, please")["references"]
    assert (found["status"], found["sessionId"]) == ("resolved", ids[number])


def test_each_session_is_told_once_and_three_at_most(known: tuple[World, list[str]]) -> None:
    """In the order in which they are first named; the fourth is over the limit (S0.50)."""
    world, ids = known
    zebra, lamp, valve = ids[3], ids[1], ids[0]
    text = f"@@zebra @@{lamp} @@zebra @@lamp-oil-ledger @@purple-valve-design"
    found = expand(world, text)
    more = expand(world, f'{text} @@"Fix ÉTÉ parser #12"')

    assert found["message"]["details"]["sessionIds"] == [zebra, lamp, valve]
    assert set(statuses(found).values()) == {"resolved"}
    assert found["message"]["content"].count("\n## ") == 3
    assert more["message"]["content"] == found["message"]["content"]
    assert statuses(more) == statuses(found) | {'@@"Fix ÉTÉ parser #12"': "over_limit"}
