"""The retrieval set, put to the real program: the right session first, and never a wrong one.

What people ask for weeks later, and which session they mean: `questions.jsonl` holds
`{in, kind, q, right?, agent?, cwd?}`. `in` says where the sessions are: `corpus` (written for this,
with distractors that share words) or `real` (written by the clients, with ids). `kind`: `search`;
`resolve`, a name; `none`, which means nobody or several.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import AmbiguousError, NotFoundError
from tests.e2e.search import corpus
from tests.e2e.world import FIXTURES, REAL, World

FIRST, AMONG_THREE, RESOLVED = 0.85, 0.95, 0.85
LINES = (FIXTURES / "retrieval/questions.jsonl").read_text().splitlines()
PLACES = ("corpus", "real")
QUESTIONS = [one for one in map(json.loads, LINES) if one["in"] in PLACES]


@dataclass
class Told:
    asked: dict[str, Any]
    place: int = 0
    first: str = ""  # what stood first, or was resolved to, where that was not right


def fill(world: World, place: str) -> dict[str, str]:
    if place == "corpus":
        told = corpus.read(FIXTURES / "retrieval/corpus.txt")
        corpus.write(world, told)
        return {one.key: one.id for one in told}
    home = world.root / "home"
    for name in ("pi", "pi-0.32.3-v2", "pi-0.30.2-v1"):
        _copy(REAL / name / "sessions", world.pi / "sessions")
    _copy(REAL / "claude/projects", home / ".claude/projects")
    index = []
    for name in ("codex", "codex-0.120.0"):
        for folder in ("sessions", "archived_sessions"):
            _copy(REAL / name / folder, home / ".codex" / folder)
        index.append((REAL / name / "session_index.jsonl").read_text())
    (home / ".codex/session_index.jsonl").write_text("".join(index))
    _copy(REAL / "opencode", world.root / "data/opencode")
    return {}


def _copy(source: Path, target: Path) -> None:
    if source.exists():
        shutil.copytree(source, target, dirs_exist_ok=True)


def ask(world: World, one: dict[str, Any], known: dict[str, str]) -> Told:
    right = {known.get(key, key) for key in one.get("right", ())}
    filters = {key: one[key] for key in ("agent", "cwd") if key in one}
    if one["kind"] == "search":
        hits = world.call("search", query=one["q"], **filters)["hits"]
        order = list(dict.fromkeys(hit["sessionId"] for hit in hits))
        assert [hit for hit in hits if hit["field"] == "message" and not hit["entryId"]] == []
        place = next((n for n, key in enumerate(order, 1) if key in right), 0)
        return Told(one, place, order[0] if order else "nothing")
    try:
        meant = world.call("resolve", ref=one["q"], **filters)["sessionId"]
    except (NotFoundError, AmbiguousError):
        return Told(one)
    return Told(one, int(meant in right), "" if meant in right else meant)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[Told]:
    found = []
    for place in PLACES:
        world = World(tmp_path_factory.mktemp(place))
        world.install_pi()
        known = fill(world, place)
        world.run("run", "--once", code=None)
        with world.daemon():
            rows = world.call("list", limit=500, archived=True)["sessions"]
            known |= {row["sessionFile"]: row["sessionId"] for row in rows}
            found += [ask(world, one, known) for one in QUESTIONS if one["in"] == place]
    return found


def share(told: Iterable[Told], good: Callable[[Told], bool]) -> float:
    verdicts = [good(one) for one in told]
    return sum(verdicts) / max(1, len(verdicts))


def test_the_set_is_large_enough() -> None:
    """It asks nothing twice, and mixes searches, names and negatives."""
    kinds = [one["kind"] for one in QUESTIONS]
    assert len(kinds) >= 40
    assert all(kinds.count(kind) >= 10 for kind in ("search", "resolve", "none"))
    asked = [(*map(one.get, ("in", "kind", "q", "agent", "cwd")),) for one in QUESTIONS]
    assert len(set(asked)) == len(kinds)
    assert all(bool(one.get("right")) != (one["kind"] == "none") for one in QUESTIONS)


def test_search_finds_the_right_session_first(told: list[Told]) -> None:
    """The right session is first for 85 of 100 questions, among the first three for 95."""
    searches = [one for one in told if one.asked["kind"] == "search"]
    wrong = [one for one in searches if one.place != 1]
    assert share(searches, lambda one: one.place == 1) >= FIRST, wrong
    assert share(searches, lambda one: one.place in {1, 2, 3}) >= AMONG_THREE, wrong


def test_a_name_means_the_right_session_or_none(told: list[Told]) -> None:
    """S0.49: a half-remembered name resolves to the right session or to an error, never wrong."""
    named = [one for one in told if one.asked["kind"] == "resolve"]
    nobody = [one for one in told if one.asked["kind"] == "none"]
    assert [one for one in named + nobody if one.first] == []
    assert share(named, lambda one: one.place == 1) >= RESOLVED, [n for n in named if not n.place]
