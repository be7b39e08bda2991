"""The catalog: lists of an agent, directories with several words, and rows fetched together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from indexerd.search import letters as catalog_letters
from indexerd.store import filters as catalog_filters
from indexerd.store.catalog import Catalog
from tests.store.catalog_rows import fill, hits, ids, row, scratch


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    """One with sessions of two agents in many directories."""
    with scratch() as made:
        agents = ("claude" if number % 7 == 3 else "pi" for number in range(60))
        fill(
            made,
            *(
                row(f"s{number}", number % 11, agent=agent, cwd=f"/home/me/src/{number % 5}")
                for number, agent in enumerate(agents)
            ),
        )
        yield made


@pytest.mark.parametrize("few", [1, 5, 500], ids=["walked", "between", "looked up"])
def test_a_list_of_one_agent_is_the_same_either_way(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """S3.12: its sessions, in a directory or anywhere, newest first, page by page."""
    monkeypatch.setattr(catalog_filters, "_FEW", few)
    everything = catalog.list(limit=1000).rows
    for agent in ("claude", "pi", "nobody"):
        for cwd in (None, "/home/me/src/3", "/nowhere"):
            wanted = [
                one["sessionId"]
                for one in everything
                if one["agent"] == agent and cwd in (None, one["cwd"])
            ]
            assert ids(catalog, agent=agent, cwd=cwd, limit=1000) == wanted
            found, cursor = [], None
            for _ in range(20):
                page = catalog.list(agent=agent, cwd=cwd, limit=4, cursor=cursor)
                found += [one["sessionId"] for one in page.rows]
                if (cursor := page.next_cursor) is None:
                    break
            assert found == wanted


@pytest.mark.parametrize("few", [5, 1000], ids=["walked", "looked up"])
def test_a_common_word_hides_no_directory_from_a_rare_one(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """S3.12: both are in the directory; whichever comes first, old sessions are found by the two.

    The newest with the common word alone filled the bounded list before.
    """
    monkeypatch.setattr(catalog_letters, "_FEW", few)
    fill(catalog, row("old", -99, cwd="/home/me/src/xorchidx"))
    fill(catalog, *(row(f"more{n}", 99 + n, cwd=f"/home/me/src/{n % 3}") for n in range(120)))
    for query in ("ome/me/sr orchi", "orchi ome/me/sr"):
        assert ("old", "cwd") in hits(catalog, query)
