"""Files that sessions worked on, found by a part of their path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from indexerd.store.catalog import Catalog, SearchText

ODD = ["/w/line\nbreak/odd_one.py", '/w/"quoted"\\odd_two.py', "/w/sep\u2028ar\x1eate/odd_three.py"]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """Sessions with one odd path each, and one with very many."""
    held = Catalog.open(tmp_path / "catalog.sqlite")
    many = [f"/w/src/module{n}/file{n}.py" for n in range(500)]
    for n, paths in enumerate([*([one] for one in ODD), many]):
        row = {"sessionId": f"s{n}", "name": f"n{n}", "cwd": "/w", "filesModified": paths}
        held.put([(row, SearchText())])
    yield held
    held.close()


@pytest.mark.parametrize(
    ("part", "session_id"),
    [("odd_one", "s0"), ("odd_two", "s1"), ("odd_three", "s2"), ("file499.py", "s3")],
)
def test_a_path_is_found_whatever_stands_in_it(
    catalog: Catalog, part: str, session_id: str
) -> None:
    """Line breaks of any kind, quotes, and five hundred others beside it."""
    hits = catalog.search(part).hits
    assert [(hit["sessionId"], hit["field"]) for hit in hits] == [(session_id, "files")]


def test_a_path_that_no_session_has_is_not_found(catalog: Catalog) -> None:
    """No row is no error."""
    assert catalog.search("no_such.file").hits == ()
