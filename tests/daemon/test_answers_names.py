"""service/answers: references, while the session that holds them is in the catalog, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from indexerd.daemon.answers import Answers
from indexerd.errors import AmbiguousError
from indexerd.protocol import params
from indexerd.protocol.params import decode
from indexerd.store.catalog import Catalog
from tests.store.catalog_rows import SHOP, fill, row


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """A catalog with a session, and one that was begun with its name."""
    found = Catalog.open(tmp_path / "catalog.sqlite")
    fill(found, row("meant", 1, name="Confirm button"))
    fill(found, row("asking", 2, name="Confirm button", nameSource="first-message"))
    yield found
    found.close()


def test_the_session_that_asks_is_passed_over(catalog: Catalog) -> None:
    """S0.49: `exclude` leaves out the session that asks, but by its own id."""
    answers = Answers(catalog, lambda: 0.0)
    for ref in ("confirm-button", "confirm buton"):
        with pytest.raises(AmbiguousError):
            answers.resolve(decode(params.Resolve, {"ref": ref, "cwd": SHOP}))
        found = answers.resolve(
            decode(params.Resolve, {"ref": ref, "cwd": SHOP, "exclude": "asking"})
        )
        assert found["sessionId"] == "meant"
    assert (
        answers.resolve(decode(params.Resolve, {"ref": "asking", "exclude": "asking"}))["how"]
        == "id"
    )


def test_a_reference_in_a_first_message_changes_nothing(catalog: Catalog) -> None:
    """S0.49: also where the daemon learns of the asking session only now."""
    answers = Answers(catalog, lambda: 0.0)
    catalog.forget("asking")
    answers.row_changed("asking", None)
    assert (
        answers.resolve(decode(params.Resolve, {"ref": "confirm-button"}))["sessionId"] == "meant"
    )
    name = "go on with @@confirm-button"
    later = row("asking", 2, name=name, nameSource="first-message")
    fill(catalog, later)
    answers.row_changed("asking", later)
    assert (
        answers.resolve(decode(params.Resolve, {"ref": "confirm-button"}))["sessionId"] == "meant"
    )
    assert (
        answers.complete(decode(params.Complete, {"prefix": "go on"}))["items"][0]["label"] == name
    )


def test_a_search_brings_the_rows_of_what_it_found(catalog: Catalog) -> None:
    """Where that is asked for: each session's once, and of those alone that may be shown."""
    answers = Answers(catalog, lambda: 0.0, lambda row: row["sessionId"] == "asking")
    found = answers.search(decode(params.Search, {"query": "confirm", "rows": True}))
    assert {one["sessionId"] for one in found["hits"]} == {"meant"}
    assert found["rows"] == {"meant": catalog.get("meant")}
    assert "rows" not in answers.search(decode(params.Search, {"query": "confirm"}))


def test_a_search_tells_of_all_that_limits_it(catalog: Catalog) -> None:
    """A word that nothing has, asked for while texts are still being read: both are said."""
    answers, behind = Answers(catalog, lambda: 0.0), [0]
    answers._behind = lambda: behind[0]
    assert "warnings" not in answers.search(decode(params.Search, {"query": "confirm"}))
    guessed = answers.search(decode(params.Search, {"query": "konfirm"}))
    assert [one["sessionId"] for one in guessed["hits"]]
    behind[0] = 3
    late = "the text of 3 sessions is not searchable yet"
    assert answers.search(decode(params.Search, {"query": "konfirm"}))["warnings"] == [
        *guessed["warnings"],
        late,
    ]
    assert answers.search(decode(params.Search, {"query": "confirm"}))["warnings"] == [late]
