"""Completions of an index that nobody has asked anything yet, as after each start of the daemon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from indexerd.search import names_fuzzy
from indexerd.search.names import Known, Names

MANY = 3 * names_fuzzy._WARMED


def load() -> Names:
    """Sessions of two words, one in a hundred of which speaks of a door."""
    rows = []
    for n in range(MANY):
        name = f"word{n} {'door' if n % 100 == 0 else 'lock'}"
        rows.append(Known(f"{n:08x}", name, (name,), "/w", n, named=True, live=True))
    return Names.load(rows)


def labels(names: Names, prefix: str) -> list[str]:
    """What a beginning is completed to."""
    return [one["label"] for one in names.complete(prefix, limit=MANY, now=0)]


def test_a_completion_makes_no_parts_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """S0.59: what only fuzzy look-ups need is not made while somebody waits for completions."""
    spelled: list[str] = []
    real = names_fuzzy._grams

    def spelling(word: str) -> Iterator[str]:
        spelled.append(word)
        return real(word)

    monkeypatch.setattr(names_fuzzy, "_grams", spelling)
    names = load()
    for _ in range(4):
        assert len(labels(names, "door")) == MANY // 100
    assert spelled == []
    assert names.nearest("word7 lokc", 1)[0][0] == f"{7:08x}"
    assert "word7" in spelled


def test_the_first_completions_look_closely_at_few_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """S0.59: names that lack the letters altogether are passed over, before words are indexed."""
    looked: list[str] = []
    real = names_fuzzy._begins

    def looking(key: str, part: str) -> bool:
        looked.append(key)
        return real(key, part)

    monkeypatch.setattr(names_fuzzy, "_begins", looking)
    assert len(labels(load(), "door")) == MANY // 100
    assert 0 < len(looked) <= MANY // 100


@pytest.mark.parametrize("prefix", ["d", "door", "ock", "word1", "word1 l", "0000"])
def test_the_first_completion_is_as_the_tenth(prefix: str) -> None:
    """S0.59: what is offered does not depend on how much of the index is there."""
    names = load()
    first = labels(names, prefix)
    names.warm()
    assert labels(names, prefix) == first
