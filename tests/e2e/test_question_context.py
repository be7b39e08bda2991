"""What of a session a model gets to read with a question about it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.answering import Answering, answering
from tests.e2e.world import Session
from tests.fakes.openai_server import reply

MAX_BYTES = 160_000
GOOD = {"answerMarkdown": "It is so.", "confidence": "high", "citations": []}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answering]:
    """One daemon for all."""
    with answering(tmp_path_factory.mktemp("questions")) as place:
        yield place


def ask(
    place: Answering, session: Session, *citations: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    """Ask about a session: the answer, and the prompt that the model got."""
    place.knows(session)
    place.says(session, reply(json.dumps(GOOD | {"citations": list(citations)})))
    question = f"What was decided in {session.id}?"
    found = place.world.call("query_session", session=session.id, question=question)
    (prompt,) = place.prompts(session)
    return found, prompt


def test_the_whole_branch_is_read_with_the_ids_of_its_entries(place: Answering) -> None:
    """Thousands of lines are no reason to cut, and other branches are not there (S0.61)."""
    session = place.world.session()
    asked = session.say("user", "Count, please.")
    lines = "\n".join(str(n) for n in range(2500))
    fork = session.say("assistant", f"Here:\n{lines}", stopReason="stop")
    session.turn("The ABANDONED idea.")
    session.last = fork
    thanks = session.say("user", "Thank you.")
    last = session.say("assistant", "You are welcome.", stopReason="stop")

    found, prompt = ask(place, session)

    assert f"[{asked}] User: Count, please.\n\n[{fork}] Assistant: Here:\n0\n1\n" in prompt
    assert f"\n2499\n\n[{thanks}] User: Thank you.\n\n[{last}] Assistant: You are" in prompt
    assert "ABANDONED" not in prompt
    assert found["notes"] == []


def test_a_long_session_is_cut_at_its_beginning_and_says_so(place: Answering) -> None:
    """The newest 160,000 bytes are read, and a note tells of the cut (S0.61)."""
    session = place.world.session()
    session.turn("The EARLIEST plan.")
    for number in range(180):
        session.turn(f"Question {number}?", "é" * 500)

    found, prompt = ask(place, session)

    assert "EARLIEST" not in prompt
    assert "Question 179?" in prompt
    assert MAX_BYTES - 2000 < found["usage"]["bytes"] <= MAX_BYTES
    assert f"Context truncated to the most recent {MAX_BYTES} bytes." in found["notes"]


def test_summaries_stand_in_for_what_was_cut(place: Answering) -> None:
    """The session's own compaction comes first, can be cited, and is noted (S0.62)."""
    session = place.world.session()
    session.turn("The EARLIEST plan.")
    kept = session.last
    cut = session.entry(
        "compaction", summary="Early on, Redis was dropped.", firstKeptEntryId=kept, tokensBefore=9
    )
    for number in range(180):
        session.turn(f"Question {number}?", "é" * 500)
    cited = {"entryId": cut, "role": "user", "excerpt": "Redis was dropped"}

    found, prompt = ask(place, session, cited)

    assert "EARLIEST" not in prompt
    assert prompt.index(f"[{cut}] Summary: Early on, Redis was dropped.") < prompt.index("é")
    assert found["citations"] == [cited | {"role": "summary"}]
    assert found["usage"]["bytes"] <= MAX_BYTES
    assert any("summary" in note for note in found["notes"])


def test_summaries_are_not_read_where_nothing_is_cut(place: Answering) -> None:
    """All that they are about is there itself (S0.62)."""
    session = place.session()
    session.entry("compaction", summary="Redundant.", firstKeptEntryId="x", tokensBefore=9)
    session.turn("Go on.")

    assert "Redundant." not in ask(place, session)[1]
