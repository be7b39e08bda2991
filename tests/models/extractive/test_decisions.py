"""Decisions: four phrases, whole sentences, the first five."""

from __future__ import annotations

import pytest

from indexerd.digests.segments import DECISION_MAX, DECISIONS_MAX
from indexerd.models.extractive.sentences import PHRASES, decisions


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_phrase_brings_its_sentence(phrase: str) -> None:
    """S2.13: in any case, alone of several sentences, wherever it stands in the message."""
    for spelt in (phrase, phrase.upper(), phrase.title()):
        said = f"The tests pass now. We {spelt} Postgres for the queue. Shall I go on?"
        assert decisions([said]) == (f"We {spelt} Postgres for the queue.",)
        assert decisions([f"{spelt} Postgres"]) == (f"{spelt} Postgres",)


def test_the_first_five_stay_and_each_once() -> None:
    """S2.13: what was settled early survives, and what is said again is no second decision."""
    said = [f"We will use part {n}. Then: we WILL use part {n}!" for n in range(9)]
    found = decisions([*said, "we will use part 0"])
    assert len(found) == DECISIONS_MAX
    assert decisions(["We will use tea.", "we will  use tea", "We will use ham."]) == (
        "We will use tea.",
        "We will use ham.",
    )
    assert found[0] == "We will use part 0."


def test_a_long_sentence_is_cut_around_its_phrase() -> None:
    """At most 300 characters, with the phrase, on one line and without escapes."""
    (found,) = decisions(["so " * 500 + "we decided to \x1b[31mstop " + "and rest " * 100])
    assert "decided to stop" in found
    assert len(found) <= DECISION_MAX
    assert found.isprintable()
