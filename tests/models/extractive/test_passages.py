"""Passages for a question: the right ones come first, verbatim and with honest confidence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.entries import Question
from indexerd.models.extractive import (
    EXCERPT_MAX,
    PASSAGES_MAX,
    answer,
    passages,
)

SESSION = (
    ("u1", "user", "Please refactor the confirm button. Where should its state live?"),
    (
        "a1",
        "assistant",
        "See `ConfirmButton.tsx`.\n\nIts pending state is in a reducer: three hooks raced.",
    ),
    ("u2", "user", "Which cache do we take for the tokens? Redis?"),
    ("a2", "assistant", "Redis needs another host.\n\nLet us go with SQLite: one file, no daemon."),
    ("u4", "user", "キャッシュの有効期限を決めてください。"),
    ("a4", "assistant", "有効期限は十五分にしました。"),
    ("a5", "assistant", "Uploads are retried five times with exponential backoff."),
)


def asked(text: str, said: Any = SESSION) -> dict[str, Any]:
    return answer(Question(text, tuple(said)))


@pytest.mark.parametrize(
    ("question", "entry", "words"),
    [
        ("Why is the pending state kept in a reducer?", "a1", "three hooks raced"),
        ("Which cache for tokens did we choose in the end?", "a2", "SQLite"),
        ("How often is an upload retried?", "a5", "five times"),
        ("有効期限は?", "a4", "十五分"),
    ],
)
def test_the_passage_that_answers_is_among_the_first_three(
    question: str, entry: str, words: str
) -> None:
    """Word endings, capitals and scripts without spaces do not matter."""
    quotes = asked(question)["answerMarkdown"].split("\n\n> [")[1:4]
    assert [quote for quote in quotes if quote.startswith(f"{entry}] ") and words in quote], quotes


messy = st.text(st.sampled_from("ab \n#:.?é語見\ud800ǅİ*`"), max_size=200)


@given(messy, st.lists(st.tuples(st.just("e"), st.sampled_from(["user", "summary"]), messy)))
def test_no_question_and_no_session_makes_it_fail(question: str, said: list[Any]) -> None:
    """The answer is repeatable, bounded, and quotes only passages."""
    found = asked(question, said)
    assert found == asked(question, said)
    assert len(found["citations"]) <= PASSAGES_MAX
    assert all(len(citation["excerpt"]) <= EXCERPT_MAX for citation in found["citations"])
    assert "".join("".join(passages(question)).split()) == "".join(question.split())
