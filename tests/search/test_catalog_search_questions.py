"""io/catalog_search: questions as people ask them, names that are messages, files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from indexerd.store.catalog import Catalog
from tests.store.catalog_rows import fill, hits, row, say


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """An empty catalog."""
    found = Catalog.open(tmp_path / "catalog.sqlite")
    yield found
    found.close()


def first(catalog: Catalog, query: str) -> str:
    """The session that stands first."""
    return str(catalog.search(query).hits[0]["sessionId"])


def test_a_question_needs_no_more_than_its_telling_words(catalog: Catalog) -> None:
    """S1.44: "where did we" is in many texts and decides nothing."""
    fill(catalog, row("a", 1, name="x"), row("b", 2, name="where did we leave the keys"))
    say(catalog, "a", "Fixed the moving average.")
    found = catalog.search("where did we fix the moving average")
    assert [hit["sessionId"] for hit in found.hits] == ["a"]
    assert found.warnings == ()
    assert found.hits[0]["entryId"] == "a-0"
    assert found.hits[0]["snippet"] == "«Fixed» the «moving» «average»."


def test_words_as_typed_stand_before_their_forms(catalog: Catalog) -> None:
    """S1.44: other endings are found, after the word itself."""
    fill(catalog, row("form", 9, name="Caching layer"), row("typed", 1, name="Cache layer"))
    assert [one for one, _ in hits(catalog, "cache layer")] == ["typed", "form"]
    assert [one for one, _ in hits(catalog, "caching layer")] == ["form", "typed"]
    assert [one for one, _ in hits(catalog, '"cache layer"')] == ["typed"]


def test_most_words_of_a_question_are_enough_and_it_is_said(catalog: Catalog) -> None:
    """S1.44: a word that nothing has, or that another session has, does not hide the answer."""
    fill(catalog, row("right", 1, name="x"), row("other", 9, name="Parser speed"))
    say(catalog, "right", "Nothing here.", "Editing a document must keep its comments: parser.")
    found = catalog.search("were comments of a document preserved by the parser")
    assert first(catalog, "were comments of a document preserved by the parser") == "right"
    assert found.hits[0]["entryId"] == "right-1"
    assert "«comments»" in found.hits[0]["snippet"]
    assert found.warnings == ("nothing has all of these words; this has most of them",)
    assert catalog.search("walrus zebra quagga of the okapi").hits == ()


def test_two_words_alone_are_no_question(catalog: Catalog) -> None:
    """S1.44: who types two words wants both."""
    fill(catalog, row("a", name="red fig"))
    assert hits(catalog, "red zebra") == []
    assert hits(catalog, '"red fig" of the zebra') == []


def test_words_of_a_question_that_stand_together_count_more(catalog: Catalog) -> None:
    """Of sessions with as many of the words the one that has them in one place is meant."""
    fill(catalog, row("apart", 9, name="x"), row("together", 1, name="y"))
    say(catalog, "apart", "an oak", "an elm", "an ash")
    say(catalog, "together", "an oak, an elm, an ash")
    assert first(catalog, "is there an oak elm ash okapi") == "together"


def test_mistyped_words_of_a_question_are_mended(catalog: Catalog) -> None:
    """S1.44: also where another word of it is nowhere at all."""
    fill(catalog, row("a", name="x"), row("b", name="y"))
    say(catalog, "a", "exponential backoff in the uploader")
    assert first(catalog, "exponental bakcoff of the uploader okapis") == "a"


def test_a_reference_in_a_name_does_not_count(catalog: Catalog) -> None:
    """A session that asked about another is not what is looked for, whatever it is called."""
    asking = row("asking", 9, nameSource="first-message")
    fill(catalog, asking | {"name": "look at @@confirm-button-refactor please"})
    fill(catalog, row("meant", 1, name="Confirm button refactor"))
    say(catalog, "asking", "look at @@confirm-button-refactor please")
    assert first(catalog, "confirm button refactor") == "meant"
    assert hits(catalog, "confirm button refactor")[1:] == [("asking", "message")]
    assert hits(catalog, "look please")[0] == ("asking", "name")


def test_a_given_name_stands_before_a_first_message(catalog: Catalog) -> None:
    """A name that somebody gave tells more than one that is only the first message."""
    unnamed = row("unnamed", 9, nameSource="first-message", name="the confirm button is broken")
    fill(catalog, unnamed, row("named", 1, name="Rework of the confirm button and its tests"))
    assert first(catalog, "confirm button") == "named"


def test_a_file_is_found_by_its_name(catalog: Catalog) -> None:
    """Sessions that changed a file are found, those that only read it after them."""
    path = "/home/user/src/shop/billing/invoice_pdf.py"
    fill(
        catalog,
        row("read", 9, name="x", filesRead=[path]),
        row("changed", 1, name="y", filesModified=[path]),
        row("outside", 5, name="z", filesModified=["/etc/other.py"]),
    )
    assert hits(catalog, "invoice_pdf.py") == [("changed", "files"), ("read", "files")]
    assert catalog.search("invoice_pdf.py").hits[0]["snippet"] == "billing/«invoice_pdf.py»"
    assert hits(catalog, "which session touched invoice_pdf.py")[0] == ("changed", "files")
    assert hits(catalog, "100%_x.py") == []
    assert hits(catalog, "shop/billing") == []
