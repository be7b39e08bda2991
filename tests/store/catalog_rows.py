"""Catalogs to try: rows, messages, and short forms of what lists and searches say."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from indexerd.store.catalog import Catalog, SearchText
from indexerd.times import iso_of_ms

BASE_MS = 1_750_000_000_000
SHOP = "/home/user/src/shop"


def row(session_id: str, minute: int = 0, **more: Any) -> dict[str, Any]:
    """A row of interfaces.md, section 5, last changed at some minute."""
    found = {
        "sessionId": session_id,
        "agent": "pi",
        "sessionFile": f"/sessions/{session_id}.jsonl",
        "cwd": SHOP,
        "name": f"Name of {session_id}",
        "nameSource": "meta",
        "description": "",
        "tags": [],
        "createdAt": iso_of_ms(BASE_MS + minute * 60_000 - 1000),
        "modifiedAt": iso_of_ms(BASE_MS + minute * 60_000),
        "messageCount": 2,
        "archived": False,
        "gone": False,
    }
    return found | more


def fill(catalog: Catalog, *rows: dict[str, Any], summary: str = "") -> None:
    """Put rows with nothing to find them by but themselves."""
    catalog.put([(one, SearchText(summary)) for one in rows])


def say(catalog: Catalog, session_id: str, *texts: str) -> None:
    """Add messages; their entry ids follow from session and place."""
    items = [(f"{session_id}-{n}", "user", "", text) for n, text in enumerate(texts)]
    catalog.add_messages(session_id, items)


def ids(catalog: Catalog, **filters: Any) -> list[str]:
    """Ids of a list's first page."""
    return [one["sessionId"] for one in catalog.list(**filters).rows]


def hits(catalog: Catalog, query: str, **filters: Any) -> list[tuple[str, str]]:
    """Which sessions a search finds, and where."""
    found = catalog.search(query, **filters)
    return [(hit["sessionId"], hit["field"]) for hit in found.hits]


@contextmanager
def scratch() -> Iterator[Catalog]:
    """A catalog for one example of a property test."""
    with tempfile.TemporaryDirectory() as directory:
        found = Catalog.open(Path(directory) / "catalog.sqlite")
        try:
            yield found
        finally:
            found.close()
