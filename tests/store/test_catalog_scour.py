"""Purges without end: what is dropped leaves the indexes, and the indexes stay whole."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from indexerd.store import write as catalog_write
from indexerd.store.catalog import Catalog
from indexerd.store.write import SearchText, _levels

MOST = 40


def test_purges_without_end_damage_no_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V12: each scouring adds levels to an index, and SQLite takes 2,000 of them for damage."""
    assert catalog_write._LEVELS_MAX < 2000 / 2  # with room for what one scouring adds
    monkeypatch.setattr(catalog_write, "_LEVELS_MAX", MOST)
    catalog = Catalog.open(tmp_path / "catalog.sqlite")
    dice = random.Random(12)
    words = [f"{dice.randrange(16**6):06x}" for _ in range(2000)]

    def add(number: int) -> None:
        texts = [" ".join(dice.choices(words, k=200)) for _ in range(5)]
        said = [(f"e{number}-{n}", "user", "", text) for n, text in enumerate(texts)]
        catalog.add_messages(f"s{number}", [*said, ("e", "user", "", f"only{number}")])
        row = {"sessionId": f"s{number}", "name": f"name {number}", "agent": "pi", "cwd": "/w"}
        catalog.put([(row, SearchText(summary=texts[0], aliases=(f"name {number}",)))])

    for number in range(10):
        add(number)
    assert catalog._writer is not None
    highest = 0
    for number in range(10, 60):
        add(number)
        catalog.forget(f"s{number - 5}")
        for _ in catalog.scour():
            pass
        highest = max(highest, _levels(catalog._writer, "message_words"))
    assert MOST <= highest < 2 * MOST
    for index in ("about_words", "about_letters", "message_words"):
        check = f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)"  # noqa: S608 - ours
        catalog._writer.execute(check)
    assert "s54" not in {hit["sessionId"] for hit in catalog.search("only54").hits}
    assert "s59" in {hit["sessionId"] for hit in catalog.search("only59").hits}
    catalog.close()
    held = (tmp_path / "catalog.sqlite").read_bytes()
    assert b"only54" not in held
    assert b"only59" in held
