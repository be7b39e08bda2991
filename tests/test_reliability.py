"""docs/RELIABILITY.md says of each scenario which tests hold it, and says the truth.

`UPDATE_DOCS=1 python -m pytest tests/test_reliability.py` writes its tables anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.scenarios import GROUPS, NOT_HELD, SCENARIOS, cited, ranges, table

DOC = Path(__file__).parents[1] / "docs/RELIABILITY.md"
TABLE = re.compile(r"<!-- scenarios: ([A-Z]) -->\n(.*?)<!-- end -->", re.DOTALL)
RIG = "e2e/test_rig"  # these need the agents' own programs, and are skipped without


def test_every_scenario_is_held_or_says_why_not() -> None:
    """By a test that names it and runs anywhere, or by a reason; a reason may stand beside one."""
    held = {
        key for key, tests in cited().items() if any(not test.startswith(RIG) for test in tests)
    }
    assert [key for key in SCENARIOS if key not in held | NOT_HELD.keys()] == []
    assert NOT_HELD.keys() <= SCENARIOS.keys()


def test_numbers_are_those_of_the_list() -> None:
    """Nothing cites a scenario that is none, or a range, whose middle nobody would find."""
    assert cited().keys() - SCENARIOS.keys() == set()
    assert ranges() == []


def test_the_list_can_be_read_by_itself() -> None:
    """Every group in its order, without a gap; short, in plain letters that a table can hold."""
    groups = {group: [key for key in SCENARIOS if key[0] == group] for group in GROUPS}
    assert [key for keys in groups.values() for key in keys] == list(SCENARIOS)
    for group, keys in groups.items():
        assert keys == [f"{group}{n}" for n in range(1, len(keys) + 1)]
    for text in SCENARIOS.values():
        assert len(text) <= 95
        assert text.isascii()
    assert not any("|" in text for text in [*SCENARIOS.values(), *NOT_HELD.values()])


def test_the_means_are_where_the_document_says() -> None:
    """Every file of the suite that it names is there."""
    named = re.findall(r"`(tests/[^`]+\.py)`", DOC.read_text())
    assert len(named) > 10
    assert [one for one in named if not (DOC.parents[1] / one).exists()] == []


@pytest.mark.parametrize("group", GROUPS)
def test_the_document_names_the_tests(group: str) -> None:
    """Each group's table, as it is made of the tests' own words (UPDATE_DOCS=1 writes it)."""
    text = DOC.read_text()
    if os.environ.get("UPDATE_DOCS"):

        def renewed(found: re.Match[str]) -> str:
            return f"<!-- scenarios: {found[1]} -->\n{table(found[1])}<!-- end -->"

        DOC.write_text(TABLE.sub(renewed, text))
        text = DOC.read_text()
    assert dict(TABLE.findall(text))[group] == table(group)
    assert f"### {GROUPS[group]}\n" in text
