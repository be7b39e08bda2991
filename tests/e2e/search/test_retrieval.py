"""The retrieval set: the right session comes first, and a name never means a wrong one.

`questions.jsonl` holds what people ask weeks later: `{in, kind, q, right?, agent?, cwd?}`. `in` is
`corpus` (written for this test, with distractors that share words) or `real` (recorded from the
clients). `kind` is `search`; `paraphrase`, a search in words that the session does not have;
`resolve` for a name; `remembered` for a name from half a memory; or `none` for a name that must not
resolve.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import AmbiguousError, NotFoundError
from tests.e2e.search import corpus
from tests.e2e.world import FIXTURES, World, copy_recorded

FIRST, AMONG_THREE, RESOLVED, REMEMBERED = 0.85, 0.95, 0.85, 0.75
PARAPHRASED = 0.4  # among three, of questions without a common word
LINES = (FIXTURES / "retrieval/questions.jsonl").read_text().splitlines()
PLACES = ("corpus", "real")
QUESTIONS = [question for question in map(json.loads, LINES) if question["in"] in PLACES]


@dataclass
class Outcome:
    asked: dict[str, Any]
    place: int = 0
    first: str = ""  # the wrong session that was first or resolved to
    offered: bool = False  # ambiguous, with the right session as the first candidate


def fill(world: World, place: str) -> dict[str, str]:
    if place == "corpus":
        specs = corpus.read(FIXTURES / "retrieval/corpus.txt")
        corpus.write(world, specs)
        return {spec.key: spec.id for spec in specs}
    copy_recorded(world)
    return {}


def ask(world: World, question: dict[str, Any], known: dict[str, str]) -> Outcome:
    right = {known.get(key, key) for key in question.get("right", ())}
    filters = {key: question[key] for key in ("agent", "cwd") if key in question}
    if question["kind"] in ("search", "paraphrase"):
        hits = world.call("search", query=question["q"], **filters)["hits"]
        order = list(dict.fromkeys(hit["sessionId"] for hit in hits))
        assert [hit for hit in hits if hit["field"] == "message" and not hit["entryId"]] == []
        place = next((n for n, key in enumerate(order, 1) if key in right), 0)
        return Outcome(question, place, order[0] if order else "nothing")
    try:
        meant = world.call("resolve", ref=question["q"], **filters)["sessionId"]
    except NotFoundError:
        return Outcome(question)
    except AmbiguousError as error:
        return Outcome(question, offered=error.candidates[0]["sessionId"] in right)
    return Outcome(question, int(meant in right), "" if meant in right else meant)


@pytest.fixture
def outcomes(tmp_path: Path) -> list[Outcome]:
    found = []
    for place in PLACES:
        world = World(tmp_path / place)
        world.install_pi()
        known = fill(world, place)
        world.run("run", "--once", code=None)
        with world.daemon():
            found += [
                ask(world, question, known) for question in QUESTIONS if question["in"] == place
            ]
    return found


def share(outcomes: Iterable[Outcome], good: Callable[[Outcome], bool]) -> float:
    verdicts = [good(outcome) for outcome in outcomes]
    return sum(verdicts) / max(1, len(verdicts))


def test_the_right_session_is_found(outcomes: list[Outcome]) -> None:
    """S0.49: a half-remembered name resolves to the right session or to an error, never wrong."""
    kinds = ("search", "paraphrase", "resolve", "remembered", "none")
    searches, paraphrases, named, half, nobody = (
        [outcome for outcome in outcomes if outcome.asked["kind"] == kind] for kind in kinds
    )
    wrong = [outcome for outcome in searches if outcome.place != 1]
    assert share(searches, lambda outcome: outcome.place == 1) >= FIRST, wrong
    assert share(searches, lambda outcome: outcome.place in {1, 2, 3}) >= AMONG_THREE, wrong
    assert share(paraphrases, lambda outcome: outcome.place in {1, 2, 3}) >= PARAPHRASED
    assert [outcome for outcome in named + half + nobody if outcome.first] == []
    missed = [outcome for outcome in named if not outcome.place]
    assert share(named, lambda outcome: outcome.place == 1) >= RESOLVED, missed
    assert share(half, lambda outcome: outcome.place == 1) >= REMEMBERED, half
