"""core/query_words: what a question leaves out, and the forms of a word."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.search.query import MATCH_TOKENIZER, fold, parse
from indexerd.search.query_words import forms_of


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("where did we fix the moving average?", ("fix", "moving", "average?")),
        ("that session where the build was interrupted", ("build", "interrupted")),
        ("wo haben wir die Warnungen übersetzt", ("Warnungen", "übersetzt")),
        ("what is it", ("what", "is", "it")),
        ('"the who" and the band', ("the who", "band")),
        ("don't panic", ("panic",)),
    ],
)
def test_what_only_holds_a_question_together_is_not_required(
    query: str, terms: tuple[str, ...]
) -> None:
    """S1.44: fillers go, unless there is nothing else; what is quoted stays."""
    assert parse(query).terms == terms


def test_a_filler_at_the_end_is_not_being_typed() -> None:
    """The last word may go on only where it is the last that was typed."""
    assert parse("fix config").open_end
    assert not parse("config that we").open_end


@pytest.mark.parametrize(
    ("asked", "stands"),
    [
        ("caching", "cache"),
        ("cache", "cached"),
        ("fix", "fixing"),
        ("stopped", "stopping"),
        ("run", "running"),
        ("running", "runs"),
        ("library", "libraries"),
        ("quantized", "quantised"),
        ("color", "colours"),
        ("umlaute", "umlauten"),
        ("tag", "tagged"),
    ],
)
def test_endings_do_not_count(asked: str, stands: str) -> None:
    """A word stands for its other forms, in both directions, and FTS5 finds them."""
    for one, other in ((asked, stands), (stands, asked)):
        forms = forms_of(one)
        assert forms is not None
        assert forms.take(other)
        assert found(one, other)


@pytest.mark.parametrize(
    ("asked", "other"),
    [("read", "readonly"), ("form", "format"), ("bus", "but"), ("test", "testament")],
)
def test_other_words_that_begin_so_are_not_forms(asked: str, other: str) -> None:
    """FTS5 may list more; what is no form is not counted."""
    assert parse(f"{asked} x").finder(inflect=True).counts(other)[0] == 0


def test_what_is_no_plain_word_has_one_form() -> None:
    """Files, numbers, short words and quoted ones stand for themselves."""
    assert [forms_of(word) for word in ("a_b.py", "e2e", "42", "ab", "")] == [None] * 5
    assert parse('"moving averages"').forms == [None]


@given(st.text(st.characters(categories=["Ll", "Lo"]), min_size=1, max_size=12))
def test_every_word_is_one_of_its_forms(word: str) -> None:
    """Whatever is cut off, the word as it was typed is still found."""
    forms = forms_of(fold(word))
    assert forms is None or forms.take(fold(word))


def found(query: str, text: str) -> bool:
    """Whether FTS5 finds a text by a word's forms."""
    db = sqlite3.connect(":memory:")
    try:
        db.execute(f"CREATE VIRTUAL TABLE t USING fts5 (text, tokenize='{MATCH_TOKENIZER}')")
        db.execute("INSERT INTO t VALUES (?)", (text,))
        match = parse(query).match(inflect=True)
        return db.execute("SELECT 1 FROM t WHERE t MATCH ?", (match,)).fetchone() is not None
    finally:
        db.close()
