"""What a model replies to a question: judged by the entries it cites, cleaned, cut, or rejected."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.models.attempts import Rejected
from indexerd.references.cited_answer import (
    ANSWER_MAX,
    CITATIONS_MAX,
    EXCERPT_MAX,
    judge_answer,
)
from indexerd.references.question_context import (
    EVER,
    Said,
    gather,
)
from tests.references.question_talk import (
    TALK,
    answer,
    context,
    judged,
    talk,
    toy,
)


def citing(*citations: Any) -> str:
    """A reply with these citations: (entry id, excerpt)."""
    return answer(citations=[{"entryId": a, "role": "user", "excerpt": b} for a, b in citations])


def test_unknown_entries_are_dropped_and_noted() -> None:
    """S0.63: an id that is not in the text that was sent is no citation."""
    held = judged(citing(("nope", "a file"), ("[e3]", "They pass."), ("gone", "x")))
    assert [one["entryId"] for one in held.citations] == ["e3"]
    assert held.notes == (
        "2 citations named an entry that is not in the text that was read: dropped.",
    )


def test_an_excerpt_that_was_not_said_becomes_the_entrys_own_words() -> None:
    """S0.63: what is quoted was said; where nothing of it was, the citation goes."""
    held = judged(citing(("e1", "we write the alerts into one file"), ("e3", "Zebras quarrel")))
    assert len(held.citations) == 1
    assert held.citations[0]["excerpt"].startswith("We decided to write alerts to a file")
    assert [note.partition(" citation")[2][:12] for note in held.notes] == [
        " quoted word",
        " did not quo",
    ]


def test_escape_sequences_hide_no_words() -> None:
    """X9: what cannot be seen goes before redaction and the cut; other text stays as it is."""
    table = "a  b\n\n\n\n  c\td"
    hidden = "\x1b[31malerts\x1b[0m to a fi\u200ble, KE\x1b[1mY-abc!"
    found = context(talk(table, hidden), 10_000, redactor=toy)
    assert [one.text for one in found.sections] == [table, "alerts to a file, [redacted:toy]"]
    told = gather(
        iter(talk("word " * 100)),
        iter([Said("s", "summary", "\x1b[1malerts KE\x1b[0mY-abc!", EVER)]),
        400,
        toy,
    )
    assert [one.text for one in told.summaries] == ["alerts [redacted:toy]"]
    assert context(talk("\x1b[0m\u200b"), 1000).sections == ()


def test_limits_are_kept() -> None:
    """S0.63: no more than 8 citations of 280 characters, and an answer that has an end."""
    found = context(talk(*(f"{n} " + "word " * 100 for n in range(12))), 50_000)
    many = [(f"e{n}", f"{n} " + "word " * 80) for n in range(12)]
    reply = json.loads(citing(*many)) | {"answerMarkdown": "x y " * 5000}
    held = judged(json.dumps(reply), found)
    assert len(held.citations) == CITATIONS_MAX
    assert all(0 < len(one["excerpt"]) <= EXCERPT_MAX for one in held.citations)
    assert len(held.markdown) <= ANSWER_MAX
    assert len(held.notes) == 2


def test_a_reply_is_cleaned_then_redacted() -> None:
    """X7, X9: escape sequences and echoed secrets do not come out."""
    held = judged(
        answer(
            answerMarkdown="\x1b]0;pwn\x07To KE\u200bY-abc! a file.",
            citations=[{"entryId": "e1", "role": "a", "excerpt": "\x1b[31mRedis is too big"}],
        )
    )
    assert held.markdown == "To [redacted:toy] a file."
    assert held.citations[0]["excerpt"] == "Redis is too big"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ("", "Empty"),
        ("no json", "JSON"),
        ("[1]", "object"),
        (answer(confidence="sure"), "confidence"),
        (answer(answerMarkdown="\x1b[0m \u200b"), "answerMarkdown"),
        (answer(answerMarkdown=7), "answerMarkdown"),
        (answer(citations=None), "citations"),
        (answer(citations=[{"role": "user"}]), "entryId"),
        (json.dumps({"answerMarkdown": "x", "confidence": "low"}), "citations"),
        ('{"a":' * 10_000, ""),
    ],
)
def test_a_malformed_reply_is_rejected_in_words(reply: str, error: str) -> None:
    """S0.63, S0.64: the model is told what was wrong."""
    held = judge_answer(reply, cut=False, redact=str, sections=TALK.sections)
    assert isinstance(held, Rejected)
    assert error in held.error


@given(st.text(max_size=80) | st.sampled_from(["They pass", "alerts", "Redis is\ttoo big"]))
def test_any_excerpt_ends_as_words_of_its_entry(excerpt: str) -> None:
    """S0.63: white space aside, it stands in the entry, or there is no citation."""
    held = judged(citing(("e1", excerpt)))
    bare = "".join(TALK.sections[1].text.split())
    assert all("".join(one["excerpt"].split()) in bare for one in held.citations)
